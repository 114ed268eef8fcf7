"""Pooling, resizing, sampling: ops of the last dimensions, whose first two are batch and channels."""

from __future__ import annotations

from typing import Final

from taskfuse import ops
from taskfuse.dtypes import float32
from taskfuse.ir.scalar import Expr, const
from taskfuse.ir.tensor import TensorView
from taskfuse.torch.metadata import Refused, members
from taskfuse.torch.rules.call import AtenCall, Made, number, rule, widened

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


@rule("avg_pool2d_backward", "avg_pool3d_backward")
def means_backward(call: AtenCall) -> Made:
    """Each element takes its share of the gradients of the windows that it is in."""
    x, dims = call.tensor("self"), 2 + (call.name == "avg_pool3d_backward")
    call.passed -= {"ceil_mode"}
    kernel, padding = _each(call, "kernel_size", dims), _each(call, "padding", dims)
    stride = _each(call, "stride", dims) if call["stride"] else kernel
    divisor, is_padded = call.get("divisor_override"), bool(call["count_include_pad"])
    made = widened(call.tensor("grad_output"))
    forms = list(zip(range(x.ndim - dims, x.ndim), kernel, stride, padding, strict=True))
    for axis, k, by, around in forms if divisor is None else ():
        made = ops.div(made, _along(_counts(x.shape[axis], made.shape[axis], k, by, around, is_padded), axis, x.ndim))
    if divisor is not None:
        made = ops.div(made, float(number(divisor)))
    for axis, k, by, around in forms:
        made = _spread(made, axis, x.shape[axis], k, by, around)
    return made


@rule("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def adaptive_backward(call: AtenCall) -> Made:
    """The same, of windows of one length."""
    x, made = call.tensor("self"), widened(call.tensor("grad_output"))
    for axis in range(x.ndim - 2 - ("3d" in call.name), x.ndim):
        n, m = x.shape[axis], made.shape[axis]
        if n.free or m.free or int(n) % int(m):
            raise Refused("its windows differ in length")
        made = ops.repeat(ops.div(made, float(int(n) // int(m))), int(n) // int(m), axis)
    return made


@rule("max_pool2d_with_indices_backward")
def maxima_backward(call: AtenCall) -> Made:
    """Gradients go to the places of the maxima."""
    x, grad, places = call.tensor("self"), call.tensor("grad_output"), call.tensor("indices")
    call.passed -= {"kernel_size", "stride", "padding", "dilation", "ceil_mode"}
    lead = list(x.shape[:-2])
    flat = ops.reshape(widened(grad), [*lead, grad.shape[-2] * grad.shape[-1]])
    zeros = ops.full([*lead, x.shape[-2] * x.shape[-1]], 0.0, flat.dtype)
    made = ops.scatter_add(zeros, len(lead), ops.reshape(places, list(flat.shape)), flat)
    return ops.reshape(made, list(x.shape))


def _along(x: TensorView, axis: int, rank: int) -> TensorView:
    """A vector along one of ``rank`` axes."""
    return ops.reshape(x, [x.shape[0] if d == axis else 1 for d in range(rank)])


def _counts(size: Expr, number_of_windows: Expr, kernel: int, stride: int, padding: int, is_padded: bool) -> TensorView:
    """How many elements each window along a dimension has; padding counts if ``is_padded``, but not what ceil_mode adds to it."""
    start = ops.arange(number_of_windows) * stride - padding
    end = ops.minimum(start + kernel, size + padding)
    found = end - start if is_padded else ops.minimum(end, size) - ops.maximum(start, 0)
    return ops.cast(found, float32)


def _spread(x: TensorView, axis: int, size: Expr, kernel: int, stride: int, padding: int) -> TensorView:
    """For each element along a dimension, the sum over the windows that it is in."""
    at = ops.arange(size) + padding
    found: TensorView | None = None
    for back in range(-(-kernel // stride)):
        window = at // stride - back
        inside = ops.logical_and(ops.logical_and(ops.ge(window, 0), ops.lt(window, x.shape[axis])), ops.lt(at - window * stride, kernel))
        taken = ops.take(x, ops.maximum(ops.minimum(window, x.shape[axis] - 1), 0), axis)
        term = ops.where(_along(inside, axis, x.ndim), taken, 0.0)
        found = term if found is None else ops.add(found, term)
    assert found is not None
    return found


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
