"""Tensors of another size with interpolated elements: interpolate.

The element o of the result lies between two elements of the input: their index is an integer quotient, the distance from each a quotient of integers. So
interpolation is a map, without storage or tables: one read of the nearest element, or two in each dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np

from taskfuse.errors import shown
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import IndexValue
from taskfuse.ir.scalar import ONE, Const, Expr, IntLike, le, maximum, minimum, prove, table
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import cast_tensor, check_tensor, define_pointwise, described, dtype_error, listed, shape_error, typed
from taskfuse.ops.create import extent
from taskfuse.ops.elementwise import add, mul, sub
from taskfuse.ops.registry import OpKind, op, same
from taskfuse.ops.views import view

__all__ = ["interpolate"]


class Interpolation(Enum):
    """The interpolation of elements, with torch's names; ``linear`` is bilinear in two dimensions and trilinear in three, ``cubic`` bicubic."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    LINEAR = "linear"
    CUBIC = "cubic"


_NAMES = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


@op(
    OpKind.VIEW,
    same,
    torch="interpolate upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d",
    numpy="",
)
def interpolate(x: TensorView, size: Sequence[IntLike | str], mode: Interpolation | str = Interpolation.NEAREST, align_corners: bool = False) -> TensorView:
    """``x`` with the extents ``size`` in its last dimensions, as ``torch.nn.functional.interpolate``.

    Args:
        x: the tensor; all dimensions before the last ones are batches.
        size: extents of the last dimensions of the result: their number is how many are resized.
        mode: ``nearest``: the element ``floor(o * n / m)`` of n for the element o of m, a view; ``nearest-exact``: ``floor((o + 1/2) * n / m)``, a view; of
            constant extents the quotients are torch's products of float32;
            ``linear`` (``bilinear``, ``trilinear``): weighted by the distances, of floats; ``cubic`` (``bicubic``): weights of four elements in each
            dimension (Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981, with a = -3/4).
        align_corners: for ``linear`` and ``cubic``: align the centers of the first and last elements, otherwise their outer edges.

    Weights are correctly rounded quotients, in float32 for floats below 32 bits. torch multiplies by a rounded ratio, so results differ in the last bits.

    Raises:
        ShapeError: if there are too many sizes, or an extent is not provably positive.
        DTypeError: for another mode, or ``linear`` or ``cubic`` of a tensor of integers.
    """
    check_tensor("interpolate", x)
    try:
        kind = Interpolation(_NAMES.get(mode, mode) if isinstance(mode, str) else mode)
    except ValueError:
        raise dtype_error("interpolate", f"{shown(mode)} is not a mode", f"use one of {', '.join(m.value for m in Interpolation)}") from None
    wanted = [extent("interpolate", x.fusion, e) for e in listed("interpolate", size, "extents")]
    first = x.ndim - len(wanted)
    if not 1 <= len(wanted) <= x.ndim:
        raise shape_error("interpolate", f"{len(wanted)} sizes for {described(x)}", "give one for each of the last dimensions")
    for e in (*wanted, *x.shape[first:]):
        if not prove(le(1, e), x.fusion.facts()):
            raise shape_error("interpolate", f"the extent {e} of {described(x)} may be 0", "declare the extent with tf.dim(..., min=1)")
    if kind in (Interpolation.LINEAR, Interpolation.CUBIC):
        if not x.dtype.is_float:
            raise dtype_error("interpolate", f"{typed(x)} is not a float", "cast to a float first")
        with x.fusion.call():
            found = cast_tensor(x, x.dtype.compute)
            for d, m in reversed(list(enumerate(wanted, start=first))):
                found = (_linear if kind is Interpolation.LINEAR else _cubic)(found, d, m, align_corners)
            return cast_tensor(found, x.dtype)
    index = [iteration_symbol(d) for d in range(x.ndim)]
    for d, m in enumerate(wanted, start=first):
        o, n = index[d], x.shape[d]
        index[d] = _nearest(o, n, m, kind is Interpolation.NEAREST_EXACT)
    return view(x, "interpolate", [*x.shape[:first], *wanted], index)


def _nearest(o: Expr, n: Expr, m: Expr, is_exact: bool) -> Expr:
    """The index of the nearest of n elements, for the element o of m: where torch's product of float32 is another number, a table of those."""
    found = (o * 2 + 1) * n // (m * 2) if is_exact else o * n // m
    if not (isinstance(n, Const) and isinstance(m, Const)):
        return found
    places = np.arange(m.value)
    scaled = (places.astype(np.float32) + np.float32(0.5 if is_exact else 0)) * (np.float32(n.value) / np.float32(m.value))
    theirs = np.minimum(np.floor(scaled).astype(np.int64), n.value - 1)
    ours = (2 * places + 1) * n.value // (2 * m.value) if is_exact else places * n.value // m.value
    return found if (theirs == ours).all() else table(theirs.tolist(), o)


def cubic_weights(part: TensorView) -> list[TensorView]:
    """Weights of the four elements around a position ``part`` after the second of them (Keys, 1981, equation 4, with a = -3/4)."""
    a = -0.75
    rest = sub(1.0, part)

    def inner(t: TensorView) -> TensorView:
        return add(mul(mul(sub(mul(t, a + 2), a + 3), t), t), 1.0)

    def outer(t: TensorView) -> TensorView:
        return sub(mul(add(mul(sub(mul(t, a), 5 * a), t), 8 * a), t), 4 * a)

    return [outer(add(part, 1.0)), inner(part), inner(rest), outer(add(rest, 1.0))]


def _cubic(x: TensorView, d: int, m: Expr, align_corners: bool) -> TensorView:
    """``x`` with ``m`` elements along dimension ``d``: the sum of four of its elements, those at the borders repeated, weighted."""
    n, o = x.shape[d], iteration_symbol(d)
    above, below = (o * (n - 1), maximum(m - 1, 1)) if align_corners else ((o * 2 + 1) * n - m, m * 2)
    shape = [m if k == d else e for k, e in enumerate(x.shape)]
    along = [m if k == d else ONE for k in range(x.ndim)]
    at = above // below
    part = define_pointwise(x.fusion, ELEMENTWISE["div"], tuple(along), (IndexValue(above % below), IndexValue(below)), x.dtype)
    found: TensorView | None = None
    for k, weight in enumerate(cubic_weights(part), start=-1):
        place = maximum(minimum(at + k, n - 1), 0)
        term = mul(view(x, "interpolate", shape, [place if j == d else iteration_symbol(j) for j in range(x.ndim)]), weight)
        found = term if found is None else add(found, term)
    assert found is not None
    return found


def _linear(x: TensorView, d: int, m: Expr, align_corners: bool) -> TensorView:
    """``x`` with ``m`` elements along dimension ``d``: the sum of two of its elements, weighted."""
    n, o = x.shape[d], iteration_symbol(d)
    if align_corners:
        above, below = o * (n - 1), maximum(m - 1, 1)
    else:
        above, below = maximum((o * 2 + 1) * n - m, 0), m * 2
    shape = [m if k == d else e for k, e in enumerate(x.shape)]
    at = above // below
    low, high = (view(x, "interpolate", shape, [e if k == d else iteration_symbol(k) for k in range(x.ndim)]) for e in (at, minimum(at + 1, n - 1)))
    part = define_pointwise(x.fusion, ELEMENTWISE["div"], tuple(shape), (IndexValue(above % below), IndexValue(below)), x.dtype)
    return add(mul(low, sub(1.0, part)), mul(high, part))
