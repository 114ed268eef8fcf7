"""Activations of a few pieces or factors: hard forms of tanh and sigmoid, shrinkages, gates.

Floats below 32 bits are computed in float32 throughout; the result is cast once.
"""

from __future__ import annotations

from taskfuse.ir.tensor import TensorView
from taskfuse.ops.activations import elu, softplus, wide
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, described, dtype_error, normalize_axis, shape_error, typed
from taskfuse.ops.elementwise import abs, add, div, expm1, gt, le, log1p, maximum, minimum, mul, neg, sigmoid, sub, tanh, where
from taskfuse.ops.elementwise import exp as exp_
from taskfuse.ops.keywords import axial
from taskfuse.ops.pointwise import clamp
from taskfuse.ops.rearrange import chunk
from taskfuse.ops.registry import OpKind, floating, floating_only, numeric, op, same

__all__ = [
    "celu",
    "glu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "logsigmoid",
    "mish",
    "prelu",
    "relu6",
    "selu",
    "softshrink",
    "softsign",
    "tanhshrink",
    "threshold",
]


@op(OpKind.COMPOSITE, numeric, numpy="")
def hardtanh(x: TensorView, min_val: float = -1.0, max_val: float = 1.0) -> TensorView:
    """``x`` clamped to [min_val, max_val], in its dtype. Not for bool."""
    check_tensor("hardtanh", x)
    if x.dtype.is_bool:
        raise dtype_error("hardtanh", f"{typed(x)} is not a number", "cast to an integer or float dtype first")
    low, high = (v if x.dtype.is_float else int(v) for v in (min_val, max_val))
    return clamp(x, low, high) if x.dtype.holds(low) else minimum(x, high)


@op(OpKind.COMPOSITE, numeric, numpy="")
def relu6(x: TensorView) -> TensorView:
    """``x`` clamped to [0, 6], in its dtype."""
    return hardtanh(x, 0, 6)


def _hard(value: TensorView) -> TensorView:
    return minimum(maximum(add(value, 3.0), 0.0), 6.0)


@op(OpKind.COMPOSITE, floating, numpy="")
def hardsigmoid(x: TensorView) -> TensorView:
    """``relu6(x + 3) / 6``, a float."""
    check_tensor("hardsigmoid", x)
    with x.fusion.call():
        value, dtype = wide(x)
        return cast_tensor(div(_hard(value), 6.0), dtype)


@op(OpKind.COMPOSITE, floating, numpy="")
def hardswish(x: TensorView) -> TensorView:
    """``x * relu6(x + 3) / 6``, a float (Howard et al., "Searching for MobileNetV3", 2019)."""
    check_tensor("hardswish", x)
    with x.fusion.call():
        value, dtype = wide(x)
        return cast_tensor(div(mul(value, _hard(value)), 6.0), dtype)


@op(OpKind.COMPOSITE, floating, numpy="")
def mish(x: TensorView) -> TensorView:
    """``x * tanh(softplus(x))``, a float (Misra, "Mish", 2019)."""
    check_tensor("mish", x)
    with x.fusion.call():
        value, dtype = wide(x)
        return cast_tensor(mul(value, tanh(softplus(value))), dtype)


@op(OpKind.COMPOSITE, floating, numpy="")
def selu(x: TensorView) -> TensorView:
    """``scale * elu(x, alpha)`` with the constants of Klambauer, Unterthiner, Mayr, Hochreiter, "Self-Normalizing Neural Networks", 2017. A float."""
    check_tensor("selu", x)
    with x.fusion.call():
        value, dtype = wide(x)
        return cast_tensor(mul(elu(value, 1.6732632423543772848170429916717), 1.0507009873554804934193349852946), dtype)


@op(OpKind.COMPOSITE, floating, numpy="")
def celu(x: TensorView, alpha: float = 1.0) -> TensorView:
    """``x`` where it is positive, else ``alpha * (exp(x / alpha) - 1)``, a float (Barron, "Continuously Differentiable Exponential Linear Units").

    Raises :class:`ShapeError` for an ``alpha`` of 0.
    """
    check_tensor("celu", x)
    if not alpha:
        raise shape_error("celu", f"alpha is {alpha}", "use a number other than 0, such as 1")
    with x.fusion.call():
        value, dtype = wide(x)
        return cast_tensor(where(gt(value, 0.0), value, mul(expm1(mul(value, 1 / alpha)), float(alpha))), dtype)


@op(OpKind.COMPOSITE, floating, numpy="")
def softsign(x: TensorView) -> TensorView:
    """``x / (1 + abs(x))``, a float."""
    check_tensor("softsign", x)
    with x.fusion.call():
        value, dtype = wide(x)
        return cast_tensor(div(value, add(abs(value), 1.0)), dtype)


@op(OpKind.COMPOSITE, floating, numpy="")
def tanhshrink(x: TensorView) -> TensorView:
    """``x - tanh(x)``, a float."""
    check_tensor("tanhshrink", x)
    with x.fusion.call():
        value, dtype = wide(x)
        return cast_tensor(sub(value, tanh(value)), dtype)


@op(OpKind.COMPOSITE, floating, torch="log_sigmoid", numpy="")
def logsigmoid(x: TensorView) -> TensorView:
    """``log(sigmoid(x))``, a float, without overflow."""
    check_tensor("logsigmoid", x)
    with x.fusion.call():
        value, dtype = wide(x)
        return cast_tensor(sub(minimum(value, 0.0), log1p(exp_(neg(abs(value))))), dtype)


def _check_float(op: str, x: TensorView) -> TensorView:
    check_tensor(op, x)
    if not x.dtype.is_float:
        raise dtype_error(op, f"{typed(x)} is not a float", "cast to a float first")
    return x


@op(OpKind.COMPOSITE, floating_only, numpy="")
def hardshrink(x: TensorView, lambd: float = 0.5) -> TensorView:
    """``x``, or 0 where its magnitude is at most ``lambd``. Raises :class:`DTypeError` unless ``x`` is a float."""
    _check_float("hardshrink", x)
    with x.fusion.call():
        return where(le(abs(x), float(lambd)), 0.0, x)


@op(OpKind.COMPOSITE, floating_only, numpy="")
def softshrink(x: TensorView, lambd: float = 0.5) -> TensorView:
    """``x`` moved by ``lambd`` towards 0, at most to 0. Raises :class:`DTypeError` unless ``x`` is a float."""
    _check_float("softshrink", x)
    with x.fusion.call():
        value, dtype = wide(x)
        moved = where(gt(value, 0.0), sub(value, float(lambd)), add(value, float(lambd)))
        return cast_tensor(where(le(abs(value), float(lambd)), mul(value, 0.0), moved), dtype)


@op(OpKind.COMPOSITE, same, numpy="")
def threshold(x: TensorView, threshold: float, value: float) -> TensorView:
    """``x`` where it is greater than ``threshold``, else ``value``, in its dtype."""
    check_tensor("threshold", x)
    with x.fusion.call():
        if x.dtype.is_bool:
            return where(gt(x, bool(threshold)), x, bool(value))
        level, other = (v if x.dtype.is_float else int(v) for v in (threshold, value))
        return where(le(x, level), other, x)


@op(OpKind.COMPOSITE, floating_only, torch="prelu _prelu_kernel", numpy="")
def prelu(x: TensorView, weight: TensorView) -> TensorView:
    """``x`` where it is positive, else its product with ``weight``: one number, or one for each index of dimension 1 of ``x``; or what broadcasts to ``x``.

    Raises :class:`DTypeError` unless ``x`` is a float.
    """
    _check_float("prelu", x)
    check_tensor("prelu", weight)
    with common_fusion("prelu", (x, weight)).call():
        if weight.ndim == 1 and x.ndim > 2:
            for _ in range(x.ndim - 2):
                weight = weight[..., None]
        value, dtype = wide(x)
        return cast_tensor(where(gt(value, 0.0), value, mul(value, cast_tensor(weight, value.dtype))), dtype)


@op(OpKind.COMPOSITE, floating_only, numpy="")
@axial
def glu(x: TensorView, axis: int = -1) -> TensorView:
    """The first half of ``x`` along ``axis`` times the sigmoid of the second (Dauphin, Fan, Auli, Grangier, "Language Modeling with Gated Convolutions").

    Raises :class:`DTypeError` unless ``x`` is a float, and :class:`ShapeError` unless 2 provably divides its extent.
    """
    _check_float("glu", x)
    place = normalize_axis("glu", axis, x.ndim, described(x))
    with x.fusion.call():
        value, dtype = wide(x)
        halves = chunk(value, 2, place)
        if len(halves) != 2 or halves[0].shape[place] is not halves[1].shape[place]:
            raise shape_error("glu", f"dimension {place} of {described(x)} does not divide into halves", "give an even extent")
        return cast_tensor(mul(halves[0], sigmoid(halves[1])), dtype)
