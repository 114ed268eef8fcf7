"""Functions composed of several expressions. Their intermediate tensors belong to the call.

Floats below 32 bits are computed in float32 throughout; the result is cast once.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.ir.combine import COMBINES
from taskfuse.ir.scalar import ONE, Expr
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.activations import wide as wide_of
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, described, normalize_axes, shape_error
from taskfuse.ops.elementwise import add, exp, isfinite, log, mul, neg, reciprocal, rsqrt, sub, where
from taskfuse.ops.keywords import axial
from taskfuse.ops.reduce import centered, mean_square, reduce_axes
from taskfuse.ops.registry import OpKind, floating, op
from taskfuse.ops.views import squeeze

__all__ = ["layer_norm", "log_softmax", "logsumexp", "rms_norm", "softmax", "softmin"]

_ADD, _MAXIMUM = COMBINES["add"], COMBINES["maximum"]


@op(OpKind.COMPOSITE, floating, torch="softmax _softmax special_softmax", numpy="")
@axial
def softmax(x: TensorView, axis: int | Sequence[int] = -1) -> TensorView:
    """``exp(x - max) * (1 / sum(exp(x - max)))`` along ``axis``, a float. Raises :class:`ShapeError` for an axis out of range."""
    check_tensor("softmax", x)
    axes = normalize_axes("softmax", axis, x)
    with x.fusion.call():
        wide, dtype = wide_of(x)
        e = exp(sub(wide, reduce_axes(wide, axes, _MAXIMUM, wide.dtype, keepdims=True)))
        return cast_tensor(mul(e, reciprocal(reduce_axes(e, axes, _ADD, e.dtype, keepdims=True))), dtype)


@op(OpKind.COMPOSITE, floating, numpy="")
@axial
def softmin(x: TensorView, axis: int | Sequence[int] = -1) -> TensorView:
    """:func:`softmax` of ``-x``, a float."""
    check_tensor("softmin", x)
    with x.fusion.call():
        wide, dtype = wide_of(x)
        return cast_tensor(softmax(neg(wide), axis), dtype)


@op(OpKind.COMPOSITE, floating, torch="log_softmax _log_softmax special_log_softmax", numpy="")
@axial
def log_softmax(x: TensorView, axis: int | Sequence[int] = -1) -> TensorView:
    """The logarithm of :func:`softmax`, which does not underflow."""
    check_tensor("log_softmax", x)
    axes = normalize_axes("log_softmax", axis, x)
    with x.fusion.call():
        wide, dtype = wide_of(x)
        shifted = sub(wide, reduce_axes(wide, axes, _MAXIMUM, wide.dtype, keepdims=True))
        total = reduce_axes(exp(shifted), axes, _ADD, shifted.dtype, keepdims=True)
        return cast_tensor(sub(shifted, log(total)), dtype)


@op(OpKind.COMPOSITE, floating, torch="logsumexp special_logsumexp", numpy="")
@axial
def logsumexp(x: TensorView, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> TensorView:
    """log(sum(exp(x))) over ``axis``, shifted by the maximum where that is finite. A float; over no elements -inf."""
    check_tensor("logsumexp", x)
    axes = normalize_axes("logsumexp", axis, x)
    with x.fusion.call():
        wide, dtype = wide_of(x)
        most = reduce_axes(wide, axes, _MAXIMUM, wide.dtype, keepdims=True)
        shift = where(isfinite(most), most, 0.0)
        total = reduce_axes(exp(sub(wide, shift)), axes, _ADD, wide.dtype, keepdims=True)
        found = add(log(total), shift)
        return cast_tensor(found if keepdims else squeeze(found, axes), dtype)


@op(OpKind.COMPOSITE, floating, numpy="")
@axial
def layer_norm(
    x: TensorView, weight: TensorView | None = None, bias: TensorView | None = None, axis: int | Sequence[int] = -1, eps: float = 1e-5
) -> TensorView:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over ``axis`` (Ba, Kiros, Hinton, "Layer Normalization").

    ``weight`` and ``bias`` broadcast to ``x``. The result has the dtype of ``x``. Raises :class:`ShapeError` if one does not broadcast.
    """
    axes = _check_norm("layer_norm", x, axis, weight, bias)
    with x.fusion.call():
        wide, dtype = wide_of(x)
        distance = centered(wide, axes)
        scaled = mul(distance, rsqrt(add(mean_square(distance, axes, keepdims=True), eps)))
        return cast_tensor(_affine(scaled, weight, bias), dtype)


@op(OpKind.COMPOSITE, floating, numpy="")
@axial
def rms_norm(x: TensorView, weight: TensorView | None = None, axis: int | Sequence[int] = -1, eps: float = 1e-5) -> TensorView:
    """``x / sqrt(mean(x * x) + eps) * weight`` over ``axis`` (Zhang and Sennrich, "Root Mean Square Layer Normalization").

    ``weight`` broadcasts to ``x``. The result has the dtype of ``x``. Raises :class:`ShapeError` if it does not broadcast.
    """
    axes = _check_norm("rms_norm", x, axis, weight, None)
    with x.fusion.call():
        wide, dtype = wide_of(x)
        scaled = mul(wide, rsqrt(add(mean_square(wide, axes, keepdims=True), eps)))
        return cast_tensor(_affine(scaled, weight, None), dtype)


def _check_norm(op: str, x: TensorView, axis: int | Sequence[int], weight: TensorView | None, bias: TensorView | None) -> tuple[int, ...]:
    check_tensor(op, x)
    for parameter in (weight, bias):
        if parameter is not None:
            check_tensor(op, parameter)
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
