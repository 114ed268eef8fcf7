"""Flags and extremes: as NumPy has it, of any shape and dtype."""

import numpy as np
import pytest

from taskfuse.check.flags import all_of, any_of, greatest, least


@pytest.mark.parametrize("flags", [[], [True], [False], [[True, False], [True, True]], [[0, 3]], [2, 1], np.empty((0, 3)), np.bool_(True), np.asarray(False)])
def test_some_and_all(flags: object) -> None:
    array = np.asarray(flags)
    assert any_of(array) == array.any()
    assert all_of(array) == array.all()


@pytest.mark.parametrize("numbers", [5, [3], [2, -7, 4], [[1, 9], [-2, 0]], np.broadcast_to(np.int64(4), (2, 3))])
def test_extremes(numbers: object) -> None:
    array = np.asarray(numbers, np.int64)
    assert (least(array), greatest(array)) == (array.min(), array.max())
