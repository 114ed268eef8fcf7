"""Attention: torch's fused ops, of which each device has its own."""

from __future__ import annotations

from typing import Final

from taskfuse import ops
from taskfuse.torch.metadata import Refused
from taskfuse.torch.rules.call import AtenCall, Made, rule

ATTENTION: Final = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
)


@rule(*ATTENTION)
def attention(call: AtenCall) -> Made:
    """The result; logarithms of sums and states of random numbers, which gradients are computed of, are not made."""
    query, key, value = (call.tensor(name) for name in ("query", "key", "value"))
    if call["dropout_p"] != 0:
        raise Refused("it drops elements at random")
    call.passed -= {"compute_log_sumexp", "return_debug_mask"}
    mask = call.get("attn_mask", call.get("attn_bias"))
    scale = call["scale"]
    y = ops.scaled_dot_product_attention(query, key, value, mask, bool(call["is_causal"]), None if scale is None else float(scale))
    return y, *(None for _ in call.outs[1:])
