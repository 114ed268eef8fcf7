"""Attention and its gradients: torch's fused ops, of which each device has its own."""

from __future__ import annotations

from typing import Final

from taskfuse import ops
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.attention import attention_with_logsumexp
from taskfuse.torch.metadata import Meta, Refused
from taskfuse.torch.rules.call import AtenCall, Made, rule

ATTENTION: Final = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
)

GRADIENTS: Final = tuple(f"{name}_backward" for name in ATTENTION)
"""The ops of their gradients."""

STATES: Final = frozenset({"philox_seed", "philox_offset", "cum_seq_q", "cum_seq_k"})
"""Operands of gradients without effect if no element is dropped and all sequences have one length."""

SUMS: Final = 1
"""The place of the logarithms of sums among the results; what comes after them is the state of random numbers, and extents."""


@rule(*ATTENTION)
def attention(call: AtenCall) -> Made:
    """The result; if they are read, the logarithms of sums for the gradients, and states of random numbers, which are not drawn."""
    query, key, value = (call.tensor(name) for name in ("query", "key", "value"))
    if call["dropout_p"] != 0:
        raise Refused("it drops elements at random")
    call.passed -= {"compute_log_sumexp", "return_debug_mask"}
    mask = call.get("attn_mask", call.get("attn_bias"))
    scale = None if call["scale"] is None else float(call["scale"])
    is_causal = bool(call["is_causal"])
    sums: TensorView | None = None
    is_shared = query.ndim > 2 and query.shape[-3] is not key.shape[-3]  # some of these ops take fewer heads of keys than of queries
    out = call.outs[SUMS] if SUMS in call.read and mask is None else None
    if out is None:
        y = ops.scaled_dot_product_attention(query, key, value, mask, is_causal, scale, is_shared)
    else:
        y, sums = attention_with_logsumexp(query, key, value, is_causal, scale, is_shared)
        sums = sums if len(out.shape) == sums.ndim else ops.expand_dims(sums, sums.ndim)
    return y, sums, *(_state(meta) if place in call.read else None for place, meta in enumerate(call.outs) if place > SUMS)


@rule(*GRADIENTS)
def gradients(call: AtenCall) -> Made:
    """The gradients of query, key and value; that of a mask is torch's."""
    grad = call.tensor("grad_out_" if "grad_out_" in call.given else "grad_out")
    query, key, value, result = (call.tensor(name) for name in ("query", "key", "value", "out"))
    if call["dropout_p"] != 0:
        raise Refused("it drops elements at random")
    call.passed -= {*STATES, "max_q", "max_k", "grad_input_mask"}
    mask = call.get("attn_mask", call.get("attn_bias"))
    scale = None if call["scale"] is None else float(call["scale"])
    sums = call.tensor("logsumexp")
    sums = ops.squeeze(sums, sums.ndim - 1) if sums.ndim == query.ndim else sums
    is_shared = query.ndim > 2 and query.shape[-3] is not key.shape[-3]
    found = ops.scaled_dot_product_attention_backward(grad, query, key, value, result, sums, mask, bool(call["is_causal"]), scale, is_shared)
    return *found, *[None] * (len(call.outs) - len(found))


def _state(meta: Meta | None) -> TensorView | None:
    return None if meta is None or meta.dtype.is_float else ops.full(list(meta.shape), 0, meta.dtype)
