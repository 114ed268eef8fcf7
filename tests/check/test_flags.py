"""Flags and extremes: as NumPy has it, of any shape and dtype."""

import numpy as np
import pytest

from taskfuse.check.flags import all_of, any_of, filled, greatest, least, numbers_of, ones, spread


@pytest.mark.parametrize("flags", [[], [True], [False], [[True, False], [True, True]], [[0, 3]], [2, 1], np.empty((0, 3)), np.bool_(True), np.asarray(False)])
def test_some_and_all(flags: object) -> None:
    array = np.asarray(flags)
    assert any_of(array) == array.any()
    assert all_of(array) == array.all()


@pytest.mark.parametrize("numbers", [5, [3], [2, -7, 4], [[1, 9], [-2, 0]], np.broadcast_to(np.int64(4), (2, 3))])
def test_extremes(numbers: object) -> None:
    array = np.asarray(numbers, np.int64)
    assert (least(array), greatest(array)) == (array.min(), array.max())


@pytest.mark.parametrize("flags", [[], [True], [False, True], [[True, False], [True, True]]])
def test_numbers_of_flags(flags: object) -> None:
    array = np.asarray(flags, np.bool_)
    assert numbers_of(array).tolist() == np.flatnonzero(array).tolist()
    assert ones(array.shape).tolist() == np.ones(array.shape, np.bool_).tolist()
    assert filled(array.shape, -1).tolist() == np.full(array.shape, -1).tolist()


@pytest.mark.parametrize("values", [5, [5], [1, 2, 3]])
def test_spread(values: object) -> None:
    array = np.asarray(values, np.int64)
    assert spread(array, 3).tolist() == np.broadcast_to(array, 3).tolist()
    assert any(spread(array, 3).strides) == (array.size > 1)
