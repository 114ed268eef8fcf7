"""Which ops torch decomposes before taskfuse sees a graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import torch._decomp

from taskfuse.torch.lists import of_lists

aten: Any = torch.ops.aten

KEPT = frozenset(
    name
    for line in (
        "_softmax_backward_data silu silu_backward gelu gelu_backward addmm baddbmm addcmul addcdiv native_layer_norm logsumexp index_add",
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention scaled_dot_product_attention",
        "_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward",
        "upsample_bilinear2d upsample_nearest2d upsample_bicubic2d grid_sampler_2d",
    )
    for name in line.split()
)
"""Ops that are not decomposed: rules of taskfuse take them, or torch computes them faster as they are."""

ADDED = (
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional _batch_norm_with_update_functional cudnn_batch_norm",
    "_native_batch_norm_legit_no_training",
    "native_batch_norm_backward batch_norm_backward cudnn_batch_norm_backward",
    "_log_softmax",
)
"""Ops that core ATen keeps but torch can decompose: their sums become fusions with the readers of the result. In training, the backward graph computes again
what follows from these sums: of a log-softmax the logits are kept, in their own dtype, and not the result in float32."""


@cache
def decompositions(device: str) -> dict[Any, Any]:
    """The table: that of core ATen without :data:`KEPT`. Ops that torch decomposes before autograd need no entry, and listing them takes a second.

    Args:
        device: the type of the devices whose ops become fusions.
    """
    table: Any = getattr(torch._decomp, "_core_aten_decompositions_post_autograd", torch._decomp.core_aten_decompositions)
    more = [getattr(torch.ops.aten, name) for line in ADDED for name in line.split()]
    kept = {op: body for op, body in dict(table()).items() if _name(op) not in KEPT}
    return kept | torch._decomp.get_decompositions(more) | of_lists(device) | {aten.convolution_backward.default: convolution_backward}


def convolution_backward(
    grad: Any,
    x: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    """The gradients of a convolution: that of the bias is a sum, and that of the input of a depthwise one with steps of 1 a depthwise convolution, with the
    places of its windows in reverse; of both, fusions are made with what comes before and after. ``NotImplemented`` if torch's op has to make all.

    The gradient of the weights of a depthwise one in 16-bit floats is asked for with channels last, for which alone torch uses cuDNN: that takes 52 us,
    torch's own 694 (windows of 7 x 7 of 32 x 384 x 28 x 28, on an H200).
    """
    windows = weight.shape[2:]
    before, apart = (list(n) * len(windows) if len(n) == 1 else list(n) for n in (padding, dilation))  # one number may stand for all axes
    places = [d * (n - 1) - p for d, n, p in zip(apart, windows, before, strict=True)]
    is_depthwise = not transposed and x.shape[1] == groups == weight.shape[0] and weight.shape[1] == 1 and all(s == 1 for s in stride)
    turns = bool(output_mask[0] and is_depthwise and groups > 1 and all(p >= 0 for p in places))
    if not turns and not output_mask[2]:
        return NotImplemented
    dims = list(range(2, grad.dim()))
    grad_x = aten.convolution(grad, weight.flip(dims), None, stride, places, dilation, False, output_padding, groups) if turns else None
    grad_bias = grad.sum([0, *dims]) if output_mask[2] else None
    rest = [bool(output_mask[0]) and not turns, bool(output_mask[1]), False]
    if any(rest):
        if is_depthwise and groups > 1 and not rest[0] and x.dim() == 4 and x.dtype.is_floating_point and x.element_size() == 2:
            grad, x = (t if isinstance(t.stride(1), int) and t.stride(1) == 1 else t.clone(memory_format=torch.channels_last) for t in (grad, x))
        made = aten.convolution_backward(grad, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, rest)
        return (grad_x if turns else made[0]), made[1], grad_bias
    return grad_x, None, grad_bias


def _name(op: Any) -> str:
    return op._schema.name.split("::")[1] if isinstance(op, torch._ops.OpOverload) else ""
