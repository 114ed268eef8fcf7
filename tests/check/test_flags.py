"""Flags: as NumPy has it, of any shape and dtype."""

import numpy as np
import pytest

from taskfuse.check.flags import all_of, any_of


@pytest.mark.parametrize("flags", [[], [True], [False], [[True, False], [True, True]], [[0, 3]], [2, 1], np.empty((0, 3)), np.bool_(True), np.asarray(False)])
def test_some_and_all(flags: object) -> None:
    array = np.asarray(flags)
    assert any_of(array) == array.any()
    assert all_of(array) == array.all()
