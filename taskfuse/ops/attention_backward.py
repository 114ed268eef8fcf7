"""The gradients of attention as math: five products, of which three need the other two, the scores and the gradients of their exponentials.

A schedule need not store intermediate tensors: one walk over the keys for each tile of queries computes the gradients of queries, and one over the queries for
each tile of keys those of keys and values (Dao et al., arXiv:2205.14135, section 3 and appendix B.4).
"""

from __future__ import annotations

import math

from taskfuse.dtypes import DType, bool_, float32
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.attention import LOG2_E, causal, check_operands, heads_per_key, positive_scale, repeated, transposed
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, described, dtype_error, shape_error
from taskfuse.ops.elementwise import add, eq, exp, exp2, mul, sub, where
from taskfuse.ops.linalg import matmul
from taskfuse.ops.reduce import reduce_axes
from taskfuse.ops.registry import OpKind, floating_only, op
from taskfuse.ops.views import expand_dims, reshape

__all__ = ["scaled_dot_product_attention_backward"]

_ADD = COMBINES["add"]


@op(OpKind.COMPOSITE, floating_only, numpy="", torch="")
def scaled_dot_product_attention_backward(
    grad: TensorView,
    query: TensorView,
    key: TensorView,
    value: TensorView,
    result: TensorView,
    logsumexp: TensorView,
    attn_mask: TensorView | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[TensorView, TensorView, TensorView]:
    """The gradients of ``query``, ``key`` and ``value`` of :func:`scaled_dot_product_attention`.

    With scores ``s`` after scale and masks: ``p = exp(s - logsumexp)``, ``dv = p.T @ grad``, ``ds = p * (grad @ value.T - sum(grad * result))``,
    ``dq = ds @ key * scale``, ``dk = ds.T @ query * scale`` (Dao et al., arXiv:2205.14135). ``p`` and ``ds`` are float32, or float64 for such operands; for
    products they are rounded to the dtype of the other factor. A query without unmasked keys contributes to no gradient.

    Args:
        grad: of the result, ``[..., L, V]``, of the dtype of ``query``.
        query, key, value, attn_mask, is_causal, scale, enable_gqa: as in :func:`scaled_dot_product_attention`.
        result: its result, ``[..., L, V]``.
        logsumexp: of each row of scores, ``[..., L]``, float32, or float64 for such operands; -inf for a row without keys.

    Returns:
        The gradients, each of the shape of its operand and of the dtype of ``query``; if heads share keys, the sum over these heads.

    Raises:
        ShapeError: shapes do not fit; see :func:`scaled_dot_product_attention`.
        DTypeError: dtypes do not fit, or the scale is not a positive number.
    """
    name = "scaled_dot_product_attention_backward"
    given = (grad, query, key, value, result, logsumexp, *(() if attn_mask is None else (attn_mask,)))
    common_fusion(name, tuple(check_tensor(name, tv) for tv in given))
    check_operands(name, query, key, value, attn_mask)
    wide = query.dtype.compute if query.dtype.compute.itemsize > float32.itemsize else float32
    _check_rows(name, query, value, (grad, result), logsumexp, wide)
    factor = positive_scale(name, query, scale)
    with query.fusion.call():
        keys, values = (repeated(name, tv, query) if enable_gqa else tv for tv in (key, value))
        scores = matmul(query, transposed(keys), dtype=wide)
        is_biased = attn_mask is not None and attn_mask.dtype is not bool_
        if attn_mask is not None and is_biased:
            scores = add(mul(scores, factor), cast_tensor(attn_mask, wide))
        if attn_mask is not None and attn_mask.dtype is bool_:
            scores = where(attn_mask, scores, -math.inf)
        if is_causal:
            scores = causal(scores, -math.inf)
        shift = where(eq(logsumexp, -math.inf), 0.0, logsumexp)  # without keys, exponentials are of -inf
        if is_biased:  # by up to the most negative float, any multiple of which overflows
            p = exp(sub(scores, expand_dims(shift, shift.ndim)))
        else:
            shift = mul(shift, LOG2_E)
            p = exp2(sub(mul(scores, factor * LOG2_E), expand_dims(shift, shift.ndim)))
        products = mul(cast_tensor(grad, wide), cast_tensor(result, wide))
        delta = reduce_axes(products, (products.ndim - 1,), _ADD, wide, keepdims=True)
        ds = cast_tensor(mul(p, sub(matmul(grad, transposed(values), dtype=wide), delta)), query.dtype)
        dv = matmul(transposed(cast_tensor(p, query.dtype)), grad, dtype=wide)
        dq, dk = (mul(matmul(a, b, dtype=wide), factor) for a, b in ((ds, keys), (transposed(ds), query)))
        found = (dq, *(_shared(name, d, tv, query) if enable_gqa else d for d, tv in ((dk, key), (dv, value))))
        dq, dk, dv = (cast_tensor(tv, query.dtype) for tv in found)
        return dq, dk, dv


def _check_rows(name: str, query: TensorView, value: TensorView, rows: tuple[TensorView, ...], logsumexp: TensorView, wide: DType) -> None:
    for tv, shape, dtype in (*((tv, (*query.shape[:-1], value.shape[-1]), query.dtype) for tv in rows), (logsumexp, query.shape[:-1], wide)):
        if len(tv.shape) != len(shape) or any(mine is not wanted for mine, wanted in zip(tv.shape, shape, strict=True)):
            wanted = ", ".join(map(str, shape))
            raise shape_error(name, f"{described(tv)} is not [{wanted}]", "gradient and result are [..., L, V], and logarithms of sums [..., L]")
        if tv.dtype is not dtype:
            raise dtype_error(name, f"{described(tv)} is {tv.dtype}, not {dtype}")


def _shared(name: str, tv: TensorView, of: TensorView, query: TensorView) -> TensorView:
    """The gradient of heads that several of the query share: the sum over these."""
    times = heads_per_key(name, query, of)
    if times == 1:
        return tv
    split = reshape(tv, (*tv.shape[:-3], of.shape[-3], times, *tv.shape[-2:]))
    return reduce_axes(split, (split.ndim - 3,), _ADD, tv.dtype, keepdims=False)
