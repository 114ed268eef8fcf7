"""Functions composed of several expressions. What they make on the way belongs to the call.

Floats below 32 bits are computed in float32 throughout; the result is cast once.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.dtypes import DType, float64
from taskfuse.ir.elementwise import COMBINES
from taskfuse.ir.scalar import ONE, Expr
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, described, normalize_axes, shape_error
from taskfuse.ops.elementwise import add, exp, log, mul, reciprocal, rsqrt, sub
from taskfuse.ops.reduce import centered, mean_square, reduce_axes
from taskfuse.ops.table import Kind, floating, op

__all__ = ["layer_norm", "log_softmax", "rms_norm", "softmax"]

_ADD, _MAXIMUM = COMBINES["add"], COMBINES["maximum"]


def _wide(x: TensorView) -> tuple[TensorView, DType]:
    """``x`` in its compute dtype (float64 for bool and integers), and the float dtype of a result."""
    dtype = x.dtype if x.dtype.is_float else float64
    return cast_tensor(x, dtype.compute), dtype


@op(Kind.COMPOSITE, floating, torch="softmax _softmax special_softmax", numpy="")
def softmax(x: TensorView, axis: int | Sequence[int] = -1) -> TensorView:
    """exp(x) by the reciprocal of its sum along ``axis``, shifted by the maximum. A float. Raises :class:`ShapeError` for an axis out of range."""
    check_tensor("softmax", x)
    axes = normalize_axes("softmax", axis, x)
    with x.fusion.call():
        wide, dtype = _wide(x)
        e = exp(sub(wide, reduce_axes(wide, axes, _MAXIMUM, wide.dtype, keepdims=True)))
        return cast_tensor(mul(e, reciprocal(reduce_axes(e, axes, _ADD, e.dtype, keepdims=True))), dtype)


@op(Kind.COMPOSITE, floating, torch="log_softmax _log_softmax special_log_softmax", numpy="")
def log_softmax(x: TensorView, axis: int | Sequence[int] = -1) -> TensorView:
    """The logarithm of :func:`softmax`, without its underflow."""
    check_tensor("log_softmax", x)
    axes = normalize_axes("log_softmax", axis, x)
    with x.fusion.call():
        wide, dtype = _wide(x)
        shifted = sub(wide, reduce_axes(wide, axes, _MAXIMUM, wide.dtype, keepdims=True))
        total = reduce_axes(exp(shifted), axes, _ADD, shifted.dtype, keepdims=True)
        return cast_tensor(sub(shifted, log(total)), dtype)


@op(Kind.COMPOSITE, floating, numpy="")
def layer_norm(
    x: TensorView, weight: TensorView | None = None, bias: TensorView | None = None, axis: int | Sequence[int] = -1, eps: float = 1e-5
) -> TensorView:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over ``axis`` (Ba, Kiros, Hinton, "Layer Normalization").

    ``weight`` and ``bias`` broadcast to ``x``. The result has the dtype of ``x``. Raises :class:`ShapeError` if one does not broadcast.
    """
    axes = _check_norm("layer_norm", x, axis, weight, bias)
    with x.fusion.call():
        wide, dtype = _wide(x)
        distance = centered(wide, axes)
        scaled = mul(distance, rsqrt(add(mean_square(distance, axes, keepdims=True), eps)))
        return cast_tensor(_affine(scaled, weight, bias), dtype)


@op(Kind.COMPOSITE, floating, numpy="")
def rms_norm(x: TensorView, weight: TensorView | None = None, axis: int | Sequence[int] = -1, eps: float = 1e-5) -> TensorView:
    """``x / sqrt(mean(x * x) + eps) * weight`` over ``axis`` (Zhang and Sennrich, "Root Mean Square Layer Normalization").

    ``weight`` broadcasts to ``x``. The result has the dtype of ``x``. Raises :class:`ShapeError` if it does not broadcast.
    """
    axes = _check_norm("rms_norm", x, axis, weight, None)
    with x.fusion.call():
        wide, dtype = _wide(x)
        scaled = mul(wide, rsqrt(add(mean_square(wide, axes, keepdims=True), eps)))
        return cast_tensor(_affine(scaled, weight, None), dtype)


def _check_norm(op: str, x: TensorView, axis: int | Sequence[int], weight: TensorView | None, bias: TensorView | None) -> tuple[int, ...]:
    check_tensor(op, x)
    for parameter in (weight, bias):
        if parameter is not None:
            common_fusion(op, (x, parameter))
            if not _fits(parameter.shape, x.shape):
                raise shape_error(op, f"{described(parameter)} does not broadcast to {described(x)}")
    return normalize_axes(op, axis, x)


def _fits(shape: Sequence[Expr], target: Sequence[Expr]) -> bool:
    if len(shape) > len(target):
        return False
    return all(e is t or e is ONE for e, t in zip(shape, target[len(target) - len(shape) :], strict=True))


def _affine(x: TensorView, weight: TensorView | None, bias: TensorView | None) -> TensorView:
    if weight is not None:
        x = mul(x, cast_tensor(weight, x.dtype))
    return x if bias is None else add(x, cast_tensor(bias, x.dtype))
