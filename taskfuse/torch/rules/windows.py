"""Pooling, resizing, sampling: ops of the last dimensions, whose first two are batch and channels."""

from __future__ import annotations

from typing import Final

from taskfuse import ops
from taskfuse.ir.scalar import const
from taskfuse.torch.metadata import Refused, members
from taskfuse.torch.rules.call import AtenCall, Made, number, rule

POOLED: Final = {"avg_pool1d": 1, "avg_pool2d": 2, "avg_pool3d": 3, "max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3}
"""How many dimensions an op pools."""


def _each(call: AtenCall, name: str, dims: int) -> list[int]:
    """A number for each dimension; one number is for all."""
    given = call[name]
    numbers = [number(n) for n in members(given)]
    return numbers * dims if len(numbers) == 1 else numbers


@rule(*POOLED)
def pooled(call: AtenCall) -> Made:
    """Means or maxima of windows; of maxima, where they are, too."""
    dims = POOLED[call.name]
    x = call.tensor("self")
    if any(e is const(0) for e in x.shape):
        raise Refused("it is empty")
    kernel, padding = _each(call, "kernel_size", dims), _each(call, "padding", dims)
    stride = _each(call, "stride", dims) if call["stride"] else kernel
    whole = bool(call["ceil_mode"])
    if call.name.startswith("max"):
        return ops.max_pool_with_indices(x, kernel, stride, padding, _each(call, "dilation", dims), whole)
    divisor = call.get("divisor_override")
    return ops.avg_pool(x, kernel, stride, padding, whole, bool(call["count_include_pad"]), None if divisor is None else number(divisor))


@rule("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive(call: AtenCall) -> Made:
    """Means of so many windows of each dimension."""
    return ops.adaptive_avg_pool(call.tensor("self"), [number(n) for n in call["output_size"]])


@rule("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_maxima(call: AtenCall) -> Made:
    """Maxima of so many windows of each dimension, and where they are."""
    return ops.adaptive_max_pool_with_indices(call.tensor("self"), [number(n) for n in call["output_size"]])


CONVOLUTIONS: Final = frozenset({"convolution"})
"""Ops that multiply windows with weights."""


@rule(*CONVOLUTIONS)
def convolved(call: AtenCall) -> Made:
    """The sums of products of windows and weights, plus a bias."""
    if call["transposed"]:
        raise Refused("it is transposed")
    call.passed -= {"output_padding"}
    x, weight = call.tensor("input"), call.tensor("weight")
    dims = weight.ndim - 2
    stride, padding, dilation = (_each(call, name, dims) for name in ("stride", "padding", "dilation"))
    function = {1: ops.conv1d, 2: ops.conv2d, 3: ops.conv3d}.get(dims)
    if function is None:
        raise Refused(f"it has {dims} dimensions")
    bias = None if call["bias"] is None else call.tensor("bias")
    return function(x, weight, bias, stride, padding, dilation, number(call["groups"]))


MODES: Final = {
    "upsample_nearest1d": "nearest",
    "upsample_nearest2d": "nearest",
    "upsample_nearest3d": "nearest",
    "_upsample_nearest_exact1d": "nearest-exact",
    "_upsample_nearest_exact2d": "nearest-exact",
    "_upsample_nearest_exact3d": "nearest-exact",
    "upsample_linear1d": "linear",
    "upsample_bilinear2d": "bilinear",
    "upsample_trilinear3d": "trilinear",
    "upsample_bicubic2d": "bicubic",
}
"""Modes of :func:`taskfuse.interpolate`, by op."""


@rule(*MODES)
def resized(call: AtenCall) -> Made:
    """Elements between those that there are, by the ratio of the sizes."""
    x, out = call.tensor("self" if "self" in call.given else "input"), call.out
    call.passed -= {"output_size"}
    scales = [call.get(name) for name in ("scales", "scales_d", "scales_h", "scales_w") if name in call.given]
    factors = call.get("scale_factors") or [s for s in scales if s is not None]
    for factor, n, m in zip(factors, x.shape[2:], out.shape[2:], strict=False):
        if n.free or m.free or int(n) * float(factor) != int(m):
            raise Refused(f"its scale {factor} is not the ratio of its sizes")
    return ops.interpolate(x, list(out.shape[2:]), MODES[call.name], bool(call.get("align_corners", False)))


@rule("grid_sampler_2d", "grid_sampler_3d")
def sampled(call: AtenCall) -> Made:
    """Elements at places that a tensor gives."""
    mode = ("bilinear", "nearest", "bicubic")[number(call["interpolation_mode"])]
    padding = ("zeros", "border", "reflection")[number(call["padding_mode"])]
    return ops.grid_sample(call.tensor("input"), call.tensor("grid"), mode, padding, bool(call["align_corners"]))
