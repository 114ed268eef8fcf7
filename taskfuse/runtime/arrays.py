"""Arrays of NumPy, torch and CuPy: their strides, views of them, new ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, cast

import numpy as np

from taskfuse.cuda.arrays import ArrayView, Unfit, is_on_host, kinds, stream_handle
from taskfuse.dtypes import DType

NO_VIEWS = "its framework has no views with strides that taskfuse knows"
USE = "pass NumPy, torch or CuPy arrays"


def strides_of(array: Any) -> tuple[int, ...]:
    """Strides in elements. Raises :class:`Unfit` for an array of another framework."""
    if _is_torch(array):
        return tuple(array.stride())
    if isinstance(array, np.ndarray) or _is_cupy(array):
        return tuple(s // array.itemsize for s in cast("Sequence[int]", array.strides))
    raise Unfit(NO_VIEWS, USE)


def has_views(array: object) -> bool:
    """True for an array of a framework whose views have strides that taskfuse knows."""
    return isinstance(array, np.ndarray) or _is_torch(array) or _is_cupy(array)


def is_row_major(array: Any) -> bool:
    """True for an array of NumPy, torch or CuPy that is row-major without gaps."""
    return bool(array.is_contiguous() if _is_torch(array) else array.flags.c_contiguous)


def has_dtype(array: Any, dtype: DType) -> bool:
    """True if the elements of an array of NumPy, torch or CuPy have a dtype."""
    return str(array.dtype) == f"torch.{dtype}" if _is_torch(array) else array.dtype == dtype.numpy


def permuted(array: Any, order: Sequence[int]) -> Any:
    """The array with its axes in an order. Raises :class:`Unfit` for an array of another framework."""
    if _is_torch(array):
        return array.permute(tuple(order))
    if isinstance(array, np.ndarray) or _is_cupy(array):
        return cast(Any, array).transpose(tuple(order))
    raise Unfit(NO_VIEWS, USE)


def part(array: Any, shape: Sequence[int], strides: Sequence[int], start: int) -> Any:
    """A view by strides in elements, beginning at an element. Raises :class:`Unfit` for an array of another framework."""
    if _is_torch(array):
        return array.as_strided(tuple(shape), tuple(strides), array.storage_offset() + start)
    if isinstance(array, np.ndarray) or _is_cupy(array):
        whole = cast(Any, array)
        as_strided: Callable[..., Any] = np.lib.stride_tricks.as_strided if isinstance(array, np.ndarray) else sys.modules["cupy"].lib.stride_tricks.as_strided
        words = whole.view(f"u{whole.itemsize}")  # NumPy's as_strided does not know all dtypes of ml_dtypes
        flat = as_strided(words, (start + _reach(shape, strides),), (whole.itemsize,))
        made = as_strided(flat[start:], tuple(shape), tuple(s * whole.itemsize for s in strides)).view(whole.dtype)
        if isinstance(array, np.ndarray) and any(s == 0 and n > 1 for s, n in zip(strides, shape, strict=True)):
            made.flags.writeable = False  # as that of NumPy's broadcast_to
        return made
    raise Unfit(NO_VIEWS, USE)


def empty(like: Any, shape: Sequence[int], dtype: DType, strides: Sequence[int] | None, stream: Any = None) -> Any:
    """A new array of undefined content, of the framework and on the device of another one, for use in ``stream``; row-major unless strides are given.

    Raises :class:`Unfit` if the framework lacks the dtype, or the strides.
    """
    if is_on_host(like):
        return np.empty(shape, dtype.numpy) if strides is None else part(np.empty(_reach(shape, strides), dtype.numpy), shape, strides, 0)
    known = kinds()
    kind = known.find(like)
    if kind is None:
        if strides is not None:
            raise Unfit(NO_VIEWS, USE)
        return known.loan.maker(tuple(shape), dtype, known.device_of(like))(known.stream_of(like) or 0)
    device = kind.view(like).device
    handle = None if stream is None else stream_handle(stream)
    with nullcontext() if handle is None else kind.using(handle, device):
        own = kind.stream_of(device) if handle is None else handle
        if strides is None:
            return kind.maker(tuple(shape), dtype, device)(own)
        return part(kind.maker((_reach(shape, strides),), dtype, device)(own), shape, strides, 0)


def addresses(array: Any) -> tuple[int, int]:
    """The addresses of the first byte of an array and of the end of its last; an array without elements has none.

    Raises :class:`Unfit` for a framework whose arrays have to be adopted.
    """
    if 0 in array.shape:
        return 0, 0
    if is_on_host(array):
        return np.lib.array_utils.byte_bounds(np.asarray(array))
    view = _view(array)
    low, high = view.layout.byte_range
    return view.pointer + low, view.pointer + high


def holds(array: Any, shape: Sequence[int], dtype: DType) -> bool:
    """Whether an array has a shape and a dtype. Raises :class:`Unfit` as :func:`addresses`."""
    if is_on_host(array):
        own = np.asarray(array)
        return own.shape == tuple(shape) and own.dtype == dtype.numpy
    view = _view(array)
    return view.layout.shape == tuple(shape) and view.dtype is dtype


def _view(array: Any) -> ArrayView:
    kind = kinds().find(array)
    if kind is None:
        raise Unfit(NO_VIEWS, USE)
    return kind.view(array)


def _reach(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the end of the last."""
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def _is_torch(array: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _is_cupy(array: object) -> bool:
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(array, cupy.ndarray)
