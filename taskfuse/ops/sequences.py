"""Numbers in equal steps, and functions known at some places: linspace, interp, trapezoid, convolve."""

from __future__ import annotations

from taskfuse.dtypes import DTypeLike, as_dtype, float32, result_type
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import IndexValue, Literal, Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import and_, le, lt, maximum, prove
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.activations import wide as wide_of
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, define_pointwise, described, dtype_error, normalize_axis, shape_error
from taskfuse.ops.create import Extent, extent
from taskfuse.ops.elementwise import add, div, isnan, mul, sub, where
from taskfuse.ops.elementwise import eq as eq_
from taskfuse.ops.elementwise import lt as lt_
from taskfuse.ops.elementwise import maximum as maximum_
from taskfuse.ops.elementwise import minimum as minimum_
from taskfuse.ops.gather import take
from taskfuse.ops.keywords import axial
from taskfuse.ops.rearrange import sliced
from taskfuse.ops.reduce import sum
from taskfuse.ops.registry import OpKind, always, floating, numeric, op
from taskfuse.ops.search import searchsorted
from taskfuse.ops.select import define_select
from taskfuse.ops.views import expand_dims

__all__ = ["convolve", "interp", "linspace", "trapezoid"]


@op(OpKind.CREATION, always(float32))
def linspace(start: float, stop: float, number: Extent, dtype: DTypeLike = float32) -> TensorView:
    """``number`` floats of the current fusion in equal steps from ``start`` to ``stop``, both included.

    The second half is counted from ``stop``, as in torch, so that the last element is ``stop``. Raises :class:`DTypeError` unless ``dtype`` is a float.
    """
    fusion, wanted = Fusion.current(), as_dtype(dtype)
    if not wanted.is_float:
        raise dtype_error("linspace", f"{wanted.name} is not a float", "use tf.arange for integers")
    n, place, wide = extent("linspace", fusion, number), iteration_symbol(0), wanted.compute
    with fusion.call():
        before, behind, steps = (define_pointwise(fusion, ELEMENTWISE["cast"], (n,), (IndexValue(e),), wide) for e in (place, n - 1 - place, maximum(n - 1, 1)))
        width = div(float(stop) - float(start), steps)
        found = where(lt_(before, mul(steps, 0.5)), add(mul(before, width), float(start)), sub(float(stop), mul(behind, width)))
        return cast_tensor(found, wanted)


@op(OpKind.REDUCTION, floating)
@axial
def trapezoid(y: TensorView, x: TensorView | None = None, dx: float = 1.0, axis: int = -1) -> TensorView:
    """The integral along ``axis`` of a function with the values ``y`` at the points ``x``, or ``dx`` apart: the trapezoidal rule. A float.

    ``x`` is a vector of that dimension, or broadcasts to ``y``. Raises :class:`ShapeError` if the dimension may have no elements.
    """
    check_tensor("trapezoid", y)
    place = normalize_axis("trapezoid", axis, y.ndim, described(y))
    size = y.shape[place]
    if not prove(le(1, size), y.fusion.facts()):
        raise shape_error("trapezoid", f"dimension {place} of {described(y)} may have no elements", "declare the extent with tf.dim(..., min=1)")
    if x is not None:
        check_tensor("trapezoid", x)
        common_fusion("trapezoid", (x, y))
    with y.fusion.call():
        value, dtype = wide_of(y)
        middles = mul(add(sliced(value, place, 1, size), sliced(value, place, 0, size - 1)), 0.5)
        if x is None:
            return cast_tensor(sum(mul(middles, float(dx)), place), dtype)
        places = cast_tensor(x, value.dtype)
        if x.ndim == 1 and y.ndim > 1:
            places = expand_dims(places, tuple(d for d in range(y.ndim) if d != place))
        along = place - y.ndim + places.ndim
        widths = sub(sliced(places, along, 1, size), sliced(places, along, 0, size - 1))
        return cast_tensor(sum(mul(middles, widths), place), dtype)


@op(OpKind.REDUCTION, numeric, torch="")
def convolve(a: TensorView, b: TensorView) -> TensorView:
    """The convolution of two vectors, ``sum(a[k] * b[n - k])`` for all n with at least one term, as ``np.convolve``. Not for bool.

    One product for each pair: for long vectors of equal length transforms take less. Raises :class:`ShapeError` unless both are vectors with an element.
    """
    for tv in (a, b):
        check_tensor("convolve", tv)
    common_fusion("convolve", (a, b))
    facts = a.fusion.facts()
    if a.ndim != 1 or b.ndim != 1 or not all(prove(le(1, tv.shape[0]), facts) for tv in (a, b)):
        raise shape_error("convolve", f"{described(a)} and {described(b)} are not provably nonempty vectors", "reshape them, or use tf.dim(..., min=1)")
    dtype = result_type(a.dtype, b.dtype)
    if dtype.is_bool:
        raise dtype_error("convolve", "bool operands do not support arithmetic", "cast to an integer or float dtype first")
    n, k = iteration_symbol(0), iteration_symbol(1)
    with a.fusion.call():
        x, y = (cast_tensor(tv, dtype.compute) for tv in (a, b))
        rows = a.shape[0] + b.shape[0] - 1
        inside = and_(le(0, n - k), lt(n - k, a.shape[0]))
        zero = Literal.zero(x.dtype)
        terms = define_select(a.fusion, "convolve", (rows, b.shape[0]), (Read(x, (n - k,), inside), zero), x.dtype)
        return cast_tensor(sum(mul(terms, y), 1), dtype)


@op(OpKind.GATHER, floating, torch="")
def interp(x: TensorView, xp: TensorView, fp: TensorView) -> TensorView:
    """The values at ``x`` of the function that has the values ``fp`` at the ascending points ``xp``, linear between them and constant outside: ``np.interp``.

    A float, in the dtype of ``x`` (float64 for bool and integers). Raises :class:`ShapeError` unless ``xp`` and ``fp`` are vectors of one extent that is not 0.
    """
    for tv in (x, xp, fp):
        check_tensor("interp", tv)
    fusion = common_fusion("interp", (x, xp, fp))
    if xp.ndim != 1 or fp.ndim != 1 or xp.shape[0] is not fp.shape[0] or not prove(le(1, xp.shape[0]), fusion.facts()):
        raise shape_error("interp", f"{described(xp)} and {described(fp)} are not points and their values", "give two vectors of one extent")
    with fusion.call():
        value, dtype = wide_of(x)
        places, values = (cast_tensor(tv, value.dtype) for tv in (xp, fp))
        found = searchsorted(places, value, right=True)
        low, high = (minimum_(maximum_(e, 0), xp.shape[0] - 1) for e in (sub(found, 1), found))
        left, right = take(places, low, 0), take(places, high, 0)
        first, last = take(values, low, 0), take(values, high, 0)
        width = sub(right, left)
        part = where(eq_(width, 0.0), 0.0, div(sub(value, left), width))
        part = where(lt_(value, left), 0.0, part)
        return cast_tensor(where(isnan(value), value, add(first, mul(part, sub(last, first)))), dtype)
