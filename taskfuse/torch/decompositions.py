"""Which ops torch decomposes before taskfuse sees a graph."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch._decomp

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
    "native_batch_norm_backward batch_norm_backward cudnn_batch_norm_backward",
)
"""Ops that core ATen keeps but torch can decompose: their sums become fusions with the readers of the result."""


@cache
def decompositions() -> dict[Any, Any]:
    """The table: that of core ATen without :data:`KEPT`. Ops that torch decomposes before autograd need no entry, and listing them takes a second."""
    table: Any = getattr(torch._decomp, "_core_aten_decompositions_post_autograd", torch._decomp.core_aten_decompositions)
    more = [getattr(torch.ops.aten, name) for line in ADDED for name in line.split()]
    return {op: body for op, body in dict(table()).items() if _name(op) not in KEPT} | torch._decomp.get_decompositions(more)


def _name(op: Any) -> str:
    return op._schema.name.split("::")[1] if isinstance(op, torch._ops.OpOverload) else ""
