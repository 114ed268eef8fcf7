"""Views and new arrays of frameworks; those of GPUs are in tests/gpu."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cuda.arrays import Unfit
from taskfuse.dtypes import DTYPES
from taskfuse.runtime.arrays import empty, part, permuted, strides_of


def test_numpy() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert strides_of(x) == (12, 4, 1)
    assert strides_of(permuted(x, (2, 0, 1))) == (1, 12, 4)
    view = part(x, [2, 2], [12, 1], 5)
    assert view.tolist() == [[5, 6], [17, 18]]
    view[...] = 0
    assert x[0, 1, 1] == 0
    wide = empty(x, [2, 3], tf.float16, [8, 2])
    assert wide.dtype == np.float16
    assert strides_of(wide) == (8, 2)
    assert empty(x, [2, 0], tf.int8, None).shape == (2, 0)
    assert empty(x, [2, 0], tf.int8, [4, 1]).shape == (2, 0)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_all_dtypes(dtype: tf.DType) -> None:
    x = np.arange(6).astype(dtype.numpy)
    view = part(x, [2, 2], [1, 3], 1)
    assert view.dtype == x.dtype
    assert (view == x.reshape(2, 3).T[1:]).all()
    assert np.shares_memory(view, x)
    assert empty(x, [2, 3], dtype, [1, 2]).dtype == x.dtype


def test_others_have_no_views() -> None:
    calls: tuple[Callable[[Any], object], ...] = (strides_of, lambda a: permuted(a, (0,)), lambda a: part(a, [1], [1], 0))
    for call in calls:
        with pytest.raises(Unfit, match="no views"):
            call(object())
