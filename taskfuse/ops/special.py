"""Special functions composed of others: entropies, the normal distribution, derivatives of the gamma function's logarithm.

Floats below 32 bits are computed in float32 throughout; the result is cast once. Formulas as in torch, so that results differ from its in the last places.
"""

from __future__ import annotations

import math

from taskfuse.dtypes import DType, float64
from taskfuse.errors import shown
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.tensor import TensorView, Value
from taskfuse.ops.activations import wide
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, operand_dtype, plain, shape_error
from taskfuse.ops.elementwise import (
    abs,
    add,
    digamma,
    div,
    eq,
    erfc,
    erfcinv,
    exp2,
    gt,
    isnan,
    lgamma,
    log,
    log1p,
    lt,
    maximum,
    mul,
    neg,
    sin,
    sub,
    where,
    zeta,
)
from taskfuse.ops.pointwise import clamp
from taskfuse.ops.registry import OpKind, floating, op, promoted, promoted_float

__all__ = ["deg2rad", "entr", "heaviside", "logaddexp2", "logit", "mvlgamma", "ndtr", "ndtri", "polygamma", "rad2deg", "sinc", "xlog1py", "xlogy"]


def _pair(op: str, a: Value, b: Value) -> tuple[Value, Value, DType]:
    """Two operands in the compute dtype of their promoted float, and that float."""
    common_fusion(op, (a, b))
    found = operand_dtype(ELEMENTWISE["add"], (a, b))
    dtype = found if found.is_float else float64
    left, right = (cast_tensor(x, dtype.compute) if isinstance(x, TensorView) else x for x in (a, b))
    return left, right, dtype


def _x_times(op: str, x: TensorView, y: TensorView, is_shifted: bool) -> TensorView:
    for tv in (x, y):
        check_tensor(op, tv)
    with common_fusion(op, (x, y)).call():
        left, right, dtype = _pair(op, x, y)
        found = mul(left, log1p(right) if is_shifted else log(right))
        return cast_tensor(where(isnan(right), math.nan, where(eq(left, 0.0), 0.0, found)), dtype)


@op(OpKind.COMPOSITE, promoted_float, torch="xlogy special_xlogy", numpy="")
def xlogy(x: TensorView, y: TensorView) -> TensorView:
    """``x * log(y)``, a float: 0 where ``x`` is 0 and ``y`` is not NaN."""
    return _x_times("xlogy", x, y, is_shifted=False)


@op(OpKind.COMPOSITE, promoted_float, torch="special_xlog1py", numpy="")
def xlog1py(x: TensorView, y: TensorView) -> TensorView:
    """``x * log(1 + y)``, a float: 0 where ``x`` is 0 and ``y`` is not NaN."""
    return _x_times("xlog1py", x, y, is_shifted=True)


@op(OpKind.COMPOSITE, floating, torch="special_entr", numpy="")
def entr(x: TensorView) -> TensorView:
    """``-x * log(x)``, a float: 0 at 0, and -inf for negative numbers."""
    check_tensor("entr", x)
    with x.fusion.call():
        value, dtype = wide(x)
        found = mul(neg(value), log(value))
        return cast_tensor(where(gt(value, 0.0), found, where(eq(value, 0.0), 0.0, where(isnan(value), value, -math.inf))), dtype)


@op(OpKind.COMPOSITE, floating, torch="logit special_logit", numpy="")
def logit(x: TensorView, eps: float | None = None) -> TensorView:
    """``log(x / (1 - x))``, a float; ``x`` is first clamped to [eps, 1 - eps], if that is given."""
    check_tensor("logit", x)
    with x.fusion.call():
        value, dtype = wide(x)
        value = value if eps is None else clamp(value, float(eps), 1.0 - float(eps))
        return cast_tensor(log(div(value, sub(1.0, value))), dtype)


@op(OpKind.COMPOSITE, floating, torch="sinc special_sinc")
def sinc(x: TensorView) -> TensorView:
    """``sin(pi * x) / (pi * x)``, a float: 1 at 0."""
    check_tensor("sinc", x)
    with x.fusion.call():
        value, dtype = wide(x)
        angle = mul(value, math.pi)
        return cast_tensor(where(eq(value, 0.0), 1.0, div(sin(angle), angle)), dtype)


@op(OpKind.COMPOSITE, promoted_float)
def logaddexp2(a: Value, b: Value) -> TensorView:
    """log2(2^a + 2^b) without intermediate overflow, a float."""
    with common_fusion("logaddexp2", (a, b)).call():
        left, right, dtype = _pair("logaddexp2", a, b)
        infinite = eq(left, right)
        distance = neg(abs(sub(left, right)))
        found = add(maximum(left, right), mul(log1p(exp2(distance)), 1 / math.log(2)))
        return cast_tensor(where(infinite, add(left, 1.0), found), dtype)


@op(OpKind.COMPOSITE, floating, torch="special_ndtr", numpy="")
def ndtr(x: TensorView) -> TensorView:
    """The distribution function of the normal distribution, ``erfc(-x / sqrt(2)) / 2``, a float."""
    check_tensor("ndtr", x)
    with x.fusion.call():
        value, dtype = wide(x)
        return cast_tensor(mul(erfc(mul(value, -math.sqrt(0.5))), 0.5), dtype)


@op(OpKind.COMPOSITE, floating, torch="special_ndtri", numpy="")
def ndtri(x: TensorView) -> TensorView:
    """The inverse of :func:`ndtr`, ``-sqrt(2) * erfcinv(2 * x)``, a float."""
    check_tensor("ndtri", x)
    with x.fusion.call():
        value, dtype = wide(x)
        return cast_tensor(mul(erfcinv(mul(value, 2.0)), -math.sqrt(2)), dtype)


@op(OpKind.COMPOSITE, floating, torch="", numpy="")
def polygamma(n: int, x: TensorView) -> TensorView:
    """The derivative of order ``n`` of :func:`digamma`, a float: ``(-1)^(n + 1) n! zeta(n + 1, x)`` (DLMF 5.15.2), as ``torch.polygamma``.

    Raises :class:`ShapeError` unless ``n`` is an integer that is not negative.
    """
    check_tensor("polygamma", x)
    order = plain(n)
    if isinstance(order, bool) or not isinstance(order, int) or order < 0:
        raise shape_error("polygamma", f"{shown(n)} is not an order of a derivative", "use an integer of at least 0")
    with x.fusion.call():
        value, dtype = wide(x)
        if order == 0:
            return cast_tensor(digamma(value), dtype)
        factor = math.gamma(order + 1) if order < 170 else math.inf
        return cast_tensor(mul(zeta(float(order + 1), value), factor if order % 2 else -factor), dtype)


@op(OpKind.COMPOSITE, floating, torch="mvlgamma special_multigammaln", numpy="")
def mvlgamma(x: TensorView, p: int) -> TensorView:
    """The logarithm of the gamma function of ``p`` dimensions, a float: the sum of ``lgamma(x - j / 2)`` for j < p, and p (p - 1) / 4 log(pi) (DLMF 35.3.5).

    Raises :class:`ShapeError` unless ``p`` is a positive integer.
    """
    check_tensor("mvlgamma", x)
    if isinstance(p, bool) or p < 1:
        raise shape_error("mvlgamma", f"{shown(p)} is not a number of dimensions", "use an integer of at least 1")
    with x.fusion.call():
        value, dtype = wide(x)
        found = lgamma(value)
        for j in range(1, p):
            found = add(found, lgamma(sub(value, j / 2)))
        return cast_tensor(add(found, p * (p - 1) / 4 * math.log(math.pi)), dtype)


@op(OpKind.COMPOSITE, floating)
def deg2rad(x: TensorView) -> TensorView:
    """Degrees in radians, a float."""
    check_tensor("deg2rad", x)
    with x.fusion.call():
        value, dtype = wide(x)
        return cast_tensor(mul(value, math.pi / 180), dtype)


@op(OpKind.COMPOSITE, floating)
def rad2deg(x: TensorView) -> TensorView:
    """Radians in degrees, a float."""
    check_tensor("rad2deg", x)
    with x.fusion.call():
        value, dtype = wide(x)
        return cast_tensor(mul(value, 180 / math.pi), dtype)


@op(OpKind.COMPOSITE, promoted, torch="")
def heaviside(x: TensorView, value: Value) -> TensorView:
    """0 where ``x`` is negative, ``value`` where it is 0, else 1, in the promoted dtype; NaN stays, as in NumPy."""
    check_tensor("heaviside", x)
    with common_fusion("heaviside", (x, value)).call():
        dtype = operand_dtype(ELEMENTWISE["add"], (x, value))
        low = where(lt(x, 0), 0, 1) if not x.dtype.is_bool else x
        step = cast_tensor(low, dtype)
        step = where(isnan(x), math.nan, step) if x.dtype.is_float else step
        return cast_tensor(where(eq(x, 0), value, step), dtype)
