"""Norms of tensors ``[N, C, ...]``: of groups of channels, of each channel of each sample, of each channel by given statistics.

Floats below 32 bits are computed in float32 throughout; the result is cast once.
"""

from __future__ import annotations

from taskfuse.ir.scalar import is_multiple
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.activations import wide as wide_of
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, described, shape_error
from taskfuse.ops.elementwise import add, mul, rsqrt, sub
from taskfuse.ops.rearrange import count
from taskfuse.ops.reduce import centered, mean_square
from taskfuse.ops.registry import OpKind, floating, op
from taskfuse.ops.views import reshape

__all__ = ["batch_norm", "group_norm", "instance_norm"]


def _per_channel(op: str, x: TensorView, parameter: TensorView) -> TensorView:
    """A vector of the channels, at the places of ``x``."""
    check_tensor(op, parameter)
    common_fusion(op, (x, parameter))
    if parameter.ndim != 1 or parameter.shape[0] is not x.shape[1]:
        raise shape_error(op, f"{described(parameter)} does not have one element per channel of {described(x)}", "give a vector of the channels")
    return reshape(parameter, [parameter.shape[0], *[1] * (x.ndim - 2)])


def _check(op: str, x: TensorView) -> None:
    check_tensor(op, x)
    if x.ndim < 2:
        raise shape_error(op, f"{described(x)} has no channel dimension", "give [N, C, ...]")


def _scaled(op: str, x: TensorView, found: TensorView, weight: TensorView | None, bias: TensorView | None) -> TensorView:
    if weight is not None:
        found = mul(found, cast_tensor(_per_channel(op, x, weight), found.dtype))
    return found if bias is None else add(found, cast_tensor(_per_channel(op, x, bias), found.dtype))


@op(OpKind.COMPOSITE, floating, numpy="")
def group_norm(x: TensorView, groups: int, weight: TensorView | None = None, bias: TensorView | None = None, eps: float = 1e-5) -> TensorView:
    """``(x - mean) / sqrt(var + eps)`` over the elements of each of ``groups`` groups of channels of ``x [N, C, ...]``, times ``weight``, plus ``bias``.

    Wu and He, "Group Normalization", 2018. The result has the dtype of ``x``. Raises :class:`ShapeError` unless ``groups`` provably divides the channels.
    """
    _check("group_norm", x)
    number = count("group_norm", "number of groups", groups, 1)
    n, c, *rest = x.shape
    if not is_multiple(c, number, x.fusion.facts()):
        raise shape_error("group_norm", f"{number} groups do not divide the {c} channels of {described(x)}", "use a divisor of the number of channels")
    with x.fusion.call():
        wide, dtype = wide_of(x)
        parts = reshape(wide, [n, number, c // number, *rest])
        axes = tuple(range(2, parts.ndim))
        distance = centered(parts, axes)
        found = mul(distance, rsqrt(add(mean_square(distance, axes, keepdims=True), eps)))
        return cast_tensor(_scaled("group_norm", x, reshape(found, list(x.shape)), weight, bias), dtype)


@op(OpKind.COMPOSITE, floating, numpy="")
def instance_norm(x: TensorView, weight: TensorView | None = None, bias: TensorView | None = None, eps: float = 1e-5) -> TensorView:
    """:func:`group_norm` of each channel separately (Ulyanov, Vedaldi, Lempitsky, "Instance Normalization", 2016)."""
    _check("instance_norm", x)
    if x.ndim < 3:
        raise shape_error("instance_norm", f"{described(x)} has one element per channel", "give [N, C, ...]")
    axes = tuple(range(2, x.ndim))
    with x.fusion.call():
        wide, dtype = wide_of(x)
        distance = centered(wide, axes)
        found = mul(distance, rsqrt(add(mean_square(distance, axes, keepdims=True), eps)))
        return cast_tensor(_scaled("instance_norm", x, found, weight, bias), dtype)


@op(OpKind.COMPOSITE, floating, torch="", numpy="")
def batch_norm(
    x: TensorView, mean: TensorView, var: TensorView, weight: TensorView | None = None, bias: TensorView | None = None, eps: float = 1e-5
) -> TensorView:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` of ``x [N, C, ...]`` by the statistics of each channel, as in inference.

    Ioffe and Szegedy, "Batch Normalization", 2015. In training the statistics are ``tf.var_mean`` over all dimensions but the second.
    """
    _check("batch_norm", x)
    with x.fusion.call():
        wide, dtype = wide_of(x)
        middle, spread = (cast_tensor(_per_channel("batch_norm", x, tv), wide.dtype) for tv in (mean, var))
        found = mul(sub(wide, middle), rsqrt(add(spread, eps)))
        return cast_tensor(_scaled("batch_norm", x, found, weight, bias), dtype)
