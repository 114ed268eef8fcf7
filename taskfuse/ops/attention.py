"""Attention as math: two products with a softmax between them. A schedule turns it into one walk over the keys (:func:`taskfuse.cascade`)."""

from __future__ import annotations

import math
from numbers import Real

from taskfuse.dtypes import bool_, float32
from taskfuse.errors import shown
from taskfuse.ir.axes import axis, iteration_point
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.expr import FirstValid, Literal, Read
from taskfuse.ir.scalar import Const, Expr, ge
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, described, dtype_error, shape_error
from taskfuse.ops.elementwise import add, div, eq, exp, exp2, log, mul, sub, where
from taskfuse.ops.linalg import matmul
from taskfuse.ops.rearrange import repeat
from taskfuse.ops.reduce import reduce_axes
from taskfuse.ops.registry import OpKind, floating_only, op
from taskfuse.ops.views import permute, reshape, squeeze

__all__ = ["scaled_dot_product_attention"]

LOG2_E = math.log2(math.e)
ROWS = 64
"""Rows of a tensor-core instruction."""
FULL = 0.9
"""Heads that share keys become one product if they fill rows of instructions better than this share of those of a product."""


@op(OpKind.COMPOSITE, floating_only, torch="scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: TensorView,
    key: TensorView,
    value: TensorView,
    attn_mask: TensorView | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> TensorView:
    """``softmax(query @ key.T * scale + mask) @ value``, as ``torch.nn.functional.scaled_dot_product_attention`` without dropout.

    Scores, sums and the result before its rounding are float32, or float64 for such operands; the factor of 16-bit values is rounded to their dtype first
    (Dao et al., arXiv:2205.14135). A row without unmasked keys is 0, as in torch.

    Args:
        query: ``[..., L, E]``.
        key: ``[..., S, E]``.
        value: ``[..., S, V]``.
        attn_mask: broadcasts to ``[..., L, S]``: booleans, true for keys to attend to, or floats that are added to the scores.
        is_causal: queries i >= j attend to key j: the diagonal begins at the first query and key.
        scale: a positive number; by default ``1 / sqrt(E)``.
        enable_gqa: ``key`` and ``value`` have fewer heads, in dimension -3, each shared by consecutive heads of ``query``.

    Returns:
        ``[..., L, V]``, of the dtype of ``query``.

    Raises:
        ShapeError: shapes do not fit, a mask does not broadcast, the heads of the query are not a multiple, or E is not constant and ``scale`` is missing.
        DTypeError: operands differ in dtype or are not floats, or the scale is not a positive number.
    """
    return _attention(query, key, value, attn_mask, is_causal, scale, enable_gqa, has_sums=False)[0]


def attention_with_logsumexp(
    query: TensorView, key: TensorView, value: TensorView, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False
) -> tuple[TensorView, TensorView]:
    """:func:`scaled_dot_product_attention` without a mask, and for gradients the logarithm of the sum of the exponentials of each row's scores.

    Returns:
        ``[..., L, V]``, of the dtype of ``query``; and ``[..., L]``, float32, or float64 for such operands.
    """
    result, sums = _attention(query, key, value, None, is_causal, scale, enable_gqa, has_sums=True)
    assert sums is not None
    return result, sums


def _attention(
    query: TensorView,
    key: TensorView,
    value: TensorView,
    attn_mask: TensorView | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    has_sums: bool,
) -> tuple[TensorView, TensorView | None]:
    name = "scaled_dot_product_attention"
    for tv in (query, key, value):
        check_tensor(name, tv)
    fusion = common_fusion(name, (query, key, value, *(() if attn_mask is None else (check_tensor(name, attn_mask),))))
    check_operands(name, query, key, value, attn_mask)
    factor = positive_scale(name, query, scale)
    shape = (*query.shape[:-1], value.shape[-1])
    with fusion.call():
        is_shared = enable_gqa and heads_per_key(name, query, key) > 1 and heads_per_key(name, query, value) == heads_per_key(name, query, key)
        rows = query.shape[-2] * (heads_per_key(name, query, key) if is_shared else 1)
        is_grouped = is_shared and attn_mask is None and not is_causal and pack(query.shape[-2], rows)
        if is_grouped:  # the few queries of heads that have keys together are the rows of one product
            query = reshape(query, (*query.shape[:-3], key.shape[-3], rows, query.shape[-1]))
        elif enable_gqa:
            key, value = (repeated(name, tv, query) for tv in (key, value))
        wide = query.dtype.compute if query.dtype.compute.itemsize > float32.itemsize else float32
        scores = matmul(query, transposed(key), dtype=wide)
        lowest = -math.inf
        is_biased = attn_mask is not None and attn_mask.dtype is not bool_
        if attn_mask is not None and is_biased:
            scores = add(mul(scores, factor), cast_tensor(attn_mask, wide))
        if attn_mask is not None and attn_mask.dtype is bool_:
            scores = where(attn_mask, scores, lowest)
        if is_causal:
            scores = causal(scores, lowest)
        most = reduce_axes(scores, (scores.ndim - 1,), COMBINES["maximum"], wide, keepdims=True)
        if is_biased:  # by up to the most negative float, any multiple of which overflows
            p = exp(sub(scores, most))
        else:
            p = exp2(sub(mul(scores, factor * LOG2_E), mul(most, factor * LOG2_E)))
        if attn_mask is not None:  # a row may have no key
            p = where(eq(scores, lowest), 0.0, p)
        total = reduce_axes(p, (p.ndim - 1,), COMBINES["add"], wide, keepdims=True)
        found = div(matmul(cast_tensor(p, value.dtype), value, dtype=wide), total)
        result = cast_tensor(found if attn_mask is None else where(eq(total, 0.0), 0.0, found), query.dtype)
        sums = squeeze(add(mul(most, factor), log(total)), most.ndim - 1) if has_sums else None
        return (reshape(result, shape) if is_grouped else result), sums


def check_operands(name: str, query: TensorView, key: TensorView, value: TensorView, mask: TensorView | None) -> None:
    """Raise :class:`ShapeError` or :class:`DTypeError` if operands do not fit."""
    for tv in (query, key, value):
        if tv.ndim < 2:
            raise shape_error(name, f"{described(tv)} has fewer than two dimensions", "give [..., L, E], [..., S, E] and [..., S, V]")
        if not tv.dtype.is_float or tv.dtype is not query.dtype:
            raise dtype_error(name, f"{described(tv)} is {tv.dtype}, and the query {query.dtype}", "cast the operands to one float dtype")
    if key.shape[-1] is not query.shape[-1] or key.shape[-2] is not value.shape[-2]:
        shapes = f"{described(query)}, {described(key)} and {described(value)}"
        raise shape_error(name, f"{shapes} do not fit: query and key have the same last dimension, key and value the same last but one")
    if mask is not None and mask.dtype is not bool_ and not mask.dtype.is_float:
        raise dtype_error(name, f"the mask is {mask.dtype}", "give booleans, or floats that are added")


def pack(queries: Expr, rows: Expr) -> bool:
    """Whether the queries of heads that share keys, as the rows of one product, need fewer instructions than a product for each head (FlashAttention packs
    them by the same rule): one query each of 128 heads is 2 tiles of 64 rows, not 128.

    Args:
        queries: of a head.
        rows: of all heads.
    """
    if not isinstance(queries, Const) or not isinstance(rows, Const) or not queries.value:
        return False
    alone, together = (n / (-(-n // ROWS) * ROWS) for n in (queries.value, rows.value))
    return alone < FULL * together


def positive_scale(name: str, query: TensorView, scale: object) -> float:
    """The factor of the scores. Raises :class:`ShapeError` or :class:`DTypeError`: see :func:`scaled_dot_product_attention`."""
    if scale is None:
        extent = query.shape[-1]
        if not isinstance(extent, Const):
            raise shape_error(name, f"the last dimension of {described(query)} is not constant, so scale= must be given", "give scale=1 / math.sqrt(...)")
        if not extent.value:
            raise shape_error(name, f"the last dimension of {described(query)} is 0, so scale= must be given", "give scale=1.0")
        return float(extent.value) ** -0.5
    if isinstance(scale, bool) or not isinstance(scale, Real) or not 0 < float(scale) < math.inf:
        raise dtype_error(name, f"scale is {shown(scale)}", "give a positive number; a negative one negates the query")
    return float(scale)


def transposed(tv: TensorView) -> TensorView:
    """With the last two dimensions in the other order."""
    return permute(tv, (*range(tv.ndim - 2), tv.ndim - 1, tv.ndim - 2))


def heads_per_key(name: str, query: TensorView, tv: TensorView) -> int:
    """The number of heads of the query per head of the keys, or of the values."""
    heads, wanted = (t.shape[-3] if t.ndim > 2 else None for t in (tv, query))
    if not isinstance(heads, Const) or not isinstance(wanted, Const) or not heads.value or wanted.value % heads.value:
        raise shape_error(
            name, f"{described(query)} has {wanted} heads and {described(tv)} {heads}", "give constant numbers of heads, one a multiple of the other"
        )
    return wanted.value // heads.value


def repeated(name: str, tv: TensorView, query: TensorView) -> TensorView:
    """Each head for its group of heads of the query."""
    times = heads_per_key(name, query, tv)
    return tv if times == 1 else repeat(tv, times, tv.ndim - 3)


def causal(scores: TensorView, otherwise: float) -> TensorView:
    """Scores ``[..., queries, keys]`` of the keys up to the query's own position; a constant in place of the others."""
    """Scores of keys up to that of the query's own number."""
    place = iteration_point(scores.ndim)
    there = Read(scores, place, ge(place[-2], place[-1]))
    out = scores.fusion.new_tensor([axis(e) for e in scores.shape], scores.dtype, location=caller())
    return scores.fusion.define(FirstValid(out, "causal", (there, Literal(otherwise, scores.dtype)), out.location))
