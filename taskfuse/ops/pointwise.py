"""Elementwise functions with further parameters: a dtype, optional bounds. The others are in :mod:`taskfuse.ops.elementwise`."""

from __future__ import annotations

from taskfuse.dtypes import DType, DTypeLike, as_dtype
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.tensor import TensorView, Value
from taskfuse.ops.build import broadcast_read, check_tensor, define_pointwise, pointwise
from taskfuse.ops.registry import elementwise

__all__ = ["cast", "clamp"]


@elementwise
def cast(x: TensorView, dtype: DTypeLike) -> TensorView:
    """``x`` converted to ``dtype``: floats round to nearest even, floats to integers truncate and clamp (NaN is 0), bool is ``x != 0``.

    Makes a tensor even if ``x`` has that dtype already.
    """
    wanted: DType = as_dtype(dtype)
    check_tensor("cast", x)
    return define_pointwise(x.fusion, ELEMENTWISE["cast"], x.shape, (broadcast_read(x, x.shape),), wanted)


@elementwise
def clamp(x: Value, min: Value | None = None, max: Value | None = None) -> TensorView:
    """``minimum(maximum(x, min), max)``, without a bound that is ``None``."""
    if min is None:
        return pointwise(ELEMENTWISE["copy"], (x,)) if max is None else pointwise(ELEMENTWISE["minimum"], (x, max))
    if max is None:
        return pointwise(ELEMENTWISE["maximum"], (x, min))
    return pointwise(ELEMENTWISE["clamp"], (x, min, max))
