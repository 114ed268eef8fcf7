"""Attention of sequences of different lengths, as math: of packed sequences, and of keys in pages.

Both are two products with a softmax between them, whose factors are views; the index of a row, or of a page, is an element of a table. Packed queries are tiles
of rows (:mod:`taskfuse.ir.row_tiles`), a batch of products with the keys of their sequence. So shapes do not depend on lengths, and one kernel serves all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from taskfuse.dtypes import float32
from taskfuse.errors import FusionError
from taskfuse.ir.axes import axis, iteration_point, iteration_symbol
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.expr import FirstValid, Literal, Read
from taskfuse.ir.row_tiles import RowTiles
from taskfuse.ir.scalar import ZERO, Const, Expr, Sym, and_, ceildiv, element, ge, le, lt, maximum, minimum, prove, select, sym, wrap
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.attention import LOG2_E, pack, positive_scale
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, described, dtype_error, shape_error
from taskfuse.ops.elementwise import div, exp2, mul, sub
from taskfuse.ops.jagged import offset_of, offsets_of
from taskfuse.ops.linalg import matmul
from taskfuse.ops.rearrange import count
from taskfuse.ops.reduce import reduce_axes
from taskfuse.ops.registry import OpKind, floating_only, op
from taskfuse.ops.views import permute, reshape, view

__all__ = ["paged_attention", "varlen_attention"]

TILE = 128
"""Queries of a tile: those of two warpgroups."""
CHUNK = 128
"""The greatest number of keys of a walk is a multiple of this."""


@op(OpKind.COMPOSITE, floating_only, torch="", numpy="")
def varlen_attention(
    query: TensorView,
    key: TensorView,
    value: TensorView,
    offsets_q: TensorView,
    offsets_k: TensorView,
    is_causal: bool = False,
    scale: float | None = None,
    *,
    window: int | None = None,
    tile: int | None = None,
) -> TensorView:
    """Attention of packed sequences: each query attends to the keys of its own sequence.

    This is ``varlen_attn`` of torch and ``flash_attn_varlen_func``; the offsets are their ``cu_seq_q`` and ``cu_seq_k``. A query without keys is 0. Scores
    and sums are those of :func:`scaled_dot_product_attention`. Values of the next sequences, in the last chunk of one, are multiplied by 0: they must be
    finite.

    Args:
        query: ``[total_q, H, E]``.
        key: ``[total_k, Hk, E]``; each of the Hk heads is shared by H / Hk consecutive heads of the query.
        value: ``[total_k, Hk, V]``.
        offsets_q: a table of B + 1 positions in ``query``, declared with ``high=total_q, rising=True``; or of the B lengths, with ``lengths=True``.
        offsets_k: the same of ``key``; it may be ``offsets_q``.
        is_causal: the last query of a sequence is at its last key, and a query attends to the keys up to its own position.
        scale: a positive number; by default ``1 / sqrt(E)``.
        window: with ``is_causal``, a query attends to so many keys, the last of which is at its own position: ``window_size=(window - 1, 0)`` of
            ``flash_attn_varlen_func``. Keys in front of the first window of a tile are not loaded.
        tile: queries of a tile; by default 128.

    Returns:
        ``[total_q, H, V]``, of the dtype of ``query``.

    Raises:
        FusionError: the offsets are not tables declared with ``rising=True`` or ``lengths=True``.
        ShapeError: shapes do not fit, the offsets differ in number of sequences or belong to another axis, the numbers of heads are not constants of which one
            is a multiple of the other, there may be fewer queries than in a tile and their number is not constant, or E is not constant and ``scale`` is
            missing.
        DTypeError: operands differ in dtype or are not floats, or the scale is not a positive number.
    """
    name = "varlen_attention"
    fusion = common_fusion(name, [check_tensor(name, tv) for tv in (query, key, value, offsets_q, offsets_k)])
    group = _check(name, query, key, value, 3, "[total_q, H, E], [total_k, Hk, E] and [total_k, Hk, V]")
    total, keys = query.shape[0], key.shape[0]
    cut, cuts = _cuts(name, offsets_q, query)
    if _cuts(name, offsets_k, key)[1] is not cuts:
        raise shape_error(name, f"{described(offsets_q)} and {described(offsets_k)} differ in the number of sequences")
    factor = positive_scale(name, query, scale)
    size = TILE if tile is None else count(name, "number of queries of a tile", tile, 1)
    if not prove(ge(total, size), fusion.facts()):
        if not isinstance(total, Const) or total.value < 1:
            raise shape_error(name, f"{described(query)} may have fewer than {size} queries", f"declare their number with tf.dim(..., min={size})")
        size = total.value
    tiles = RowTiles(cut, cuts - 1, total, size)
    h, t, i, j = map(iteration_symbol, range(4))
    sequence = tiles.group(t)
    first, end = offset_of(offsets_k, sequence), offset_of(offsets_k, sequence + 1)
    length = select(lt(tiles.first(t), tiles.end(t)), end - first, 0)  # a tile without queries needs no keys
    behind = end - first + tiles.start(t) - offset_of(offsets_q, sequence + 1) + 1  # the key of the first query: the last query is at the last key
    if window is None:
        begin, begins, walked = ZERO, [], _walked(keys)
    else:
        reach = size + count(name, "number of keys of a window", window, 1) - 1  # of the windows of a tile together
        if not is_causal:
            reason, help = "a window ends at the key of its query", "give is_causal=True"
            raise FusionError(fusion=fusion.name, reason=reason, help=help, location=caller())
        begin = maximum(0, behind - window)
        begins, walked = [behind + i - window - begin], _walked(wrap(min(keys.value, reach) if isinstance(keys, Const) else reach))
    ends = [length - begin, *([behind + i - begin] if is_causal else [])]
    with fusion.call():
        rows = view(query, "row_tiles", (query.shape[1], tiles.count, wrap(size), query.shape[2]), (tiles.start(t) + i, h, j))

        def of_tiles(tv: TensorView) -> TensorView:
            there = Read(tv, (first + begin + i, h // group, j), lt(first + begin + i, keys))
            return _choice("keys_of_tiles", there, (query.shape[1], tiles.count, walked, tv.shape[2]), 0.0)

        found = _attended(rows, of_tiles(key), of_tiles(value), ends, factor, begins)
        r, of_head, c = map(iteration_symbol, range(3))
        result = permute(cast_tensor(found, query.dtype), (1, 2, 0, 3))
        return view(result, "rows_of_tiles", (total, query.shape[1], value.shape[2]), (tiles.tile(r), tiles.place(r), of_head, c))


@op(OpKind.COMPOSITE, floating_only, torch="", numpy="")
def paged_attention(
    query: TensorView,
    key_pages: TensorView,
    value_pages: TensorView,
    pages: TensorView,
    lengths: TensorView,
    is_causal: bool = False,
    scale: float | None = None,
) -> TensorView:
    """Attention to keys in pages: sequence b has the pages ``pages[b * T]``, ``pages[b * T + 1]``, ..., up to its length.

    This is vLLM's ``paged_attention``, and ``flash_attn_with_kvcache`` with its ``block_table``, flattened. A query without keys is 0. Scores and sums are
    those of :func:`scaled_dot_product_attention`. Values past the end of a sequence, in its last page, are multiplied by 0: they must be finite.

    Args:
        query: ``[B, H, L, E]``.
        key_pages: ``[P, size, Hk, E]``: pages of ``size`` keys. Each of the Hk heads is shared by H / Hk consecutive heads of the query.
        value_pages: ``[P, size, Hk, V]``.
        pages: a table of B * T pages, declared with ``high=P - 1``.
        lengths: a table of the B numbers of keys, declared with ``high=T * size``.
        is_causal: the last query is at the last key, and a query attends to the keys up to its own position.
        scale: a positive number; by default ``1 / sqrt(E)``.

    Returns:
        ``[B, H, L, V]``, of the dtype of ``query``.

    Raises:
        FusionError: ``pages`` or ``lengths`` is not a table.
        ShapeError: shapes do not fit, a table does not match the pages or sequences, the numbers of heads are not constants of which one is a multiple of the
            other, the size of a page is not constant, or E is not constant and ``scale`` is missing.
        DTypeError: operands differ in dtype or are not floats, or the scale is not a positive number.
    """
    name = "paged_attention"
    common_fusion(name, [check_tensor(name, tv) for tv in (query, key_pages, value_pages, pages, lengths)])
    group = _check(name, query, key_pages, value_pages, 4, "[B, H, L, E], [P, size, Hk, E] and [P, size, Hk, V]")
    known, size, heads, _ = key_pages.shape
    batch, _, queries, depth = query.shape
    if not prove(ge(batch, 1), query.fusion.facts()):
        raise shape_error(name, f"{described(query)} may hold 0 sequences", "declare their number with tf.dim(..., min=1)")
    if not isinstance(size, Const) or size.value < 1:
        raise shape_error(name, f"{described(key_pages)} has pages of {size} keys", "give a constant number of keys")
    each = pages.shape[0] // batch
    most = each * size
    page_range, length_range = _table(name, pages), _table(name, lengths)
    if pages.shape[0] is not each * batch or page_range != (ZERO, known - 1):
        reason = f"{described(pages)}, a table of {page_range[0]} to {page_range[1]}, does not hold indices of {known} pages for {batch} sequences"
        raise shape_error(name, reason, f"declare it with tf.table(name, {batch} * n, high={known - 1})")
    if lengths.shape[0] is not batch or length_range != (ZERO, most):
        reason = f"{described(lengths)}, a table of {length_range[0]} to {length_range[1]}, does not hold the lengths of {batch} sequences"
        raise shape_error(name, reason, f"declare it with tf.table(name, {batch}, high={most})")
    factor = positive_scale(name, query, scale)
    rows = queries * group
    is_grouped = group > 1 and pack(queries, rows)
    b, h, i, j = map(iteration_symbol, range(4))
    length = element(sym(lengths.name), b, batch, *length_range)
    ends = [length, *([length - (queries - 1) + (i % queries if is_grouped else i)] if is_causal else [])]  # the last query is at the last key
    walked = _walked(most)

    def of_pages(tv: TensorView) -> TensorView:
        page = element(sym(pages.name), b * each + minimum(i // size, each - 1), pages.shape[0], *page_range)
        shape = (batch, heads if is_grouped else query.shape[1], walked, tv.shape[3])
        return view(tv, "of_pages", shape, (page, i % size, h if is_grouped else h // group, j))

    with query.fusion.call():
        if is_grouped:  # the few queries of heads that have keys together are the rows of one product
            query = reshape(query, (batch, heads, rows, depth))
        found = _attended(query, of_pages(key_pages), of_pages(value_pages), ends, factor)
        result = cast_tensor(found, query.dtype)
        return reshape(result, (batch, heads * group, queries, value_pages.shape[3])) if is_grouped else result


def _walked(keys: Expr) -> Expr:
    """How many keys are walked at most: those, or a few more, of which none counts, so that chunks of several sizes divide them."""
    step = CHUNK
    while isinstance(keys, Const) and 16 * step <= keys.value:
        step *= 2
    return ceildiv(keys, step) * step


def _table(name: str, table: TensorView) -> tuple[Expr, Expr]:
    """The range of the elements of a table. Raises :class:`FusionError`: it is none."""
    known = table.fusion.tables.get(table)
    if known is None:
        reason = f"{described(table)} is not a table"
        raise FusionError(fusion=table.fusion.name, reason=reason, help="declare it with tf.table(...)", location=caller())
    return known.low, known.high


def _attended(query: TensorView, key: TensorView, value: TensorView, ends: Sequence[Expr], factor: float, begins: Sequence[Expr] = ()) -> TensorView:
    """``softmax(query @ key.T * factor) @ value`` of the keys before the first of ``ends``, expressions over the axes of the query, from the last of ``begins``
    on; 0 where there are none."""
    wide = query.dtype.compute if query.dtype.compute.itemsize > float32.itemsize else float32
    axes = tuple(range(key.ndim - 2))
    scores = matmul(query, permute(key, (*axes, key.ndim - 1, key.ndim - 2)), dtype=wide)
    here = iteration_point(scores.ndim)
    scores = _choice("keys", Read(scores, here, and_(*(lt(here[-1], e) for e in ends), *(le(e, here[-1]) for e in begins))), scores.shape, -math.inf)
    most = reduce_axes(scores, (scores.ndim - 1,), COMBINES["maximum"], wide, keepdims=True)
    p = exp2(sub(mul(scores, factor * LOG2_E), mul(most, factor * LOG2_E)))
    total = reduce_axes(p, (p.ndim - 1,), COMBINES["add"], wide, keepdims=True)
    found = div(matmul(cast_tensor(p, value.dtype), value, dtype=wide), total)
    return _choice("has_keys", Read(found, iteration_point(found.ndim), and_(*(lt(0, e) for e in ends))), found.shape, 0.0)


def _choice(label: str, read: Read, shape: Sequence[Expr], otherwise: float) -> TensorView:
    """The elements of a tensor where they are, and a constant elsewhere."""
    out = read.tensor.fusion.new_tensor([axis(e) for e in shape], read.tensor.dtype, location=caller())
    return read.tensor.fusion.define(FirstValid(out, label, (read, Literal(otherwise, out.dtype)), out.location))


def _check(name: str, query: TensorView, key: TensorView, value: TensorView, rank: int, wanted: str) -> int:
    """Check the operands. Returns how many heads of the query have one of the keys."""
    for tv in (query, key, value):
        if not tv.dtype.is_float or tv.dtype is not query.dtype:
            raise dtype_error(name, f"{described(tv)} is {tv.dtype}, and the query {query.dtype}", "cast the operands to one float dtype")
    fits = query.ndim == key.ndim == value.ndim == rank and key.shape[:-1] == value.shape[:-1] and key.shape[-1] is query.shape[-1]
    if not fits:
        raise shape_error(name, f"{described(query)}, {described(key)} and {described(value)} are not {wanted}")
    heads, of_keys = query.shape[1], key.shape[-2]
    if not isinstance(heads, Const) or not isinstance(of_keys, Const) or not of_keys.value or heads.value % of_keys.value:
        help = "give constant numbers of heads, one a multiple of the other"
        raise shape_error(name, f"{described(query)} has {heads} heads and {described(key)} {of_keys}", help)
    return heads.value // of_keys.value


def _cuts(name: str, offsets: TensorView, rows: TensorView) -> tuple[Sym, Expr]:
    """The name and the number of offsets of sequences. Raises unless they are promised positions in the first axis of ``rows``."""
    known = offsets.fusion.tables.get(offsets)
    if known is None or not (known.rises or known.lengths):
        reason = f"{described(offsets)} is not a table of offsets or of lengths"
        help = "declare it with tf.table(..., rising=True) or tf.table(..., lengths=True)"
        raise FusionError(fusion=offsets.fusion.name, reason=reason, help=help, location=caller())
    if known.low is not ZERO or known.high is not rows.shape[0]:
        raise shape_error(name, f"{described(offsets)}, a table of {known}, does not divide {described(rows)}", f"declare it with high={rows.shape[0]}")
    cut, count = offsets_of(offsets)
    if not prove(ge(count, 2), offsets.fusion.facts()):
        raise shape_error(name, f"{described(offsets)} may be of 0 sequences", "declare their number with tf.dim(..., min=1)")
    return cut, count
