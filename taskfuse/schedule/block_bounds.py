"""Where masks start and end the terms of a block: neighboring elements of a reduction, such as the rows of a tile.

A bound of one element's terms (:mod:`taskfuse.schedule.masked_ends`) is an expression over its index. That of a block counts for all of its elements: the
least start, or the greatest end. Walks take the chunks between the two. A sum over the rows of such a walk has, for each chunk, terms of the blocks whose walks
take the chunk: the same relation of blocks and chunks, solved for the other one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from taskfuse.ir.axes import Axis, iteration_symbol
from taskfuse.ir.expr import Reduction
from taskfuse.ir.scalar import (
    ZERO,
    Const,
    Expr,
    Facts,
    FloorDiv,
    IntLike,
    Max,
    Min,
    Mod,
    Select,
    Sum,
    Sym,
    and_,
    ceildiv,
    const,
    eq,
    ge,
    integers_of,
    le,
    lt,
    maximum,
    minimum,
    private,
    prove,
    range_where,
    select,
    simplify,
    substitute,
    sym,
)
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.masked_ends import masked_end, masked_start


@dataclass(frozen=True, slots=True)
class BlockBound:
    """A bound of the terms of a block, over the symbols of the axes of its reduction, and facts about these."""

    value: Expr
    facts: Facts


def block_bound(expr: Reduction, axis: int, rows: int, along: Axis | None, *, is_end: bool) -> BlockBound | None:
    """Where the terms of blocks of ``rows`` neighboring elements of a reduction start, or end, along one of its reduced axes; ``None``: unknown.

    Args:
        along: the axis along which a block has its elements; ``None``: the one on which the bound depends.
    """
    tv = expr.output
    keys, facts = Keys(tv.fusion), tv.fusion.facts()
    bound = (masked_end if is_end else masked_start)(tv.fusion, expr, axis)
    if bound is None:
        return None
    bound = simplify(bound, facts)
    names = {str(iteration_symbol(p)): a for p, a in enumerate(tv.root)}
    found = sorted(name for name in integers_of(bound) if name in names and (along is None or keys.equal(names[name], along)))
    if len(found) > 1:
        return None
    for name in found:
        first = sym(name) // rows * rows
        of_block = _extreme(bound, name, first, first + (rows - 1), facts, is_most=is_end)
        if of_block is None:
            return None
        bound, facts = of_block, facts.with_range(name, 0, names[name].extent - 1)
    return BlockBound(bound, facts)


def _extreme(e: Expr, name: str, first: Expr, last: Expr, facts: Facts, *, is_most: bool) -> Expr | None:
    """No less, or no more, than an expression for any value of a symbol from ``first`` to ``last``; ``None``: none is known."""

    def of(part: Expr, *, is_most: bool = is_most) -> Expr | None:
        return _extreme(part, name, first, last, facts, is_most=is_most)

    def all_of(parts: Iterable[Expr | None]) -> list[Expr] | None:
        found = list(parts)
        known = [part for part in found if part is not None]
        return known if len(known) == len(found) else None

    if name not in integers_of(e):
        return e
    match e:
        case Sym():
            return last if is_most else first
        case Sum(terms, constant):
            parts = all_of(of(term, is_most=is_most == (k > 0)) for term, k in terms)
            if parts is not None:
                return sum((part * k for part, (_, k) in zip(parts, terms, strict=True)), start=const(constant))
        case Min(args) | Max(args):
            parts = all_of(map(of, args))
            return None if parts is None else minimum(*parts) if isinstance(e, Min) else maximum(*parts)
        case FloorDiv(a, Const(value=n)) if n > 0:
            part = of(a)
            return None if part is None else part // n
        case Mod(_, Const(value=n)) if n > 0:
            return const(n - 1 if is_most else 0)
        case Select(cond, a, b) if name not in integers_of(cond):
            parts = all_of(map(of, (a, b)))
            return None if parts is None else select(cond, *parts)
        case _:
            pass
    rises = prove(ge(substitute(e, {name: sym(name) + 1}) - e, 0), facts)
    return substitute(e, {name: last if is_most else first}) if rises else None


def pieces(e: Expr, size: IntLike, *, up: bool) -> Expr:
    """The number of whole pieces of a size before an index, or, if ``up``, of all that begin before it; of minima and maxima that of each operand."""
    match e:
        case Min(args):
            return minimum(*(pieces(a, size, up=up) for a in args))
        case Max(args):
            return maximum(*(pieces(a, size, up=up) for a in args))
        case _:
            return ceildiv(e, size) if up else e // size


@dataclass(frozen=True, slots=True)
class BlockWalk:
    """The chunks that blocks of rows walk.

    Attributes:
        expr: a reduction of the walk.
        rows: of a block; ``chunk``: elements of a chunk; ``steps``: chunks of the axis.
        start, end: the first chunk of a block, and the first one behind its last, over the symbols of the axes of ``expr``.
    """

    expr: Reduction
    rows: int
    chunk: int
    steps: Expr
    start: Expr
    end: Expr


@dataclass(frozen=True, slots=True)
class ChunkTerms:
    """The first term of a sum for each element of a chunk, and the first one behind its last, in whole blocks, over the symbol of the axis of chunks."""

    start: Expr
    end: Expr


def terms_of_chunks(expr: Reduction, axis: int, chunks: int, walk: BlockWalk) -> ChunkTerms | None:
    """The terms of a sum over the rows of a walk, for each chunk: those of the blocks that take the chunk. ``None``: it is not known that these are all.

    Args:
        axis: that of the rows, in the sum's iteration space; ``chunks``: that of which the walk takes chunks.
    """
    tv = expr.output
    keys = Keys(tv.fusion)
    row = next((p for p, a in enumerate(walk.expr.output.root) if keys.equal(a, tv.root[axis])), None)
    if row is None:
        return None
    name, extent = str(iteration_symbol(chunks)), tv.root[axis].extent
    block, blocks = private("block"), ceildiv(extent, walk.rows)
    facts = tv.fusion.facts().with_range(block.name, 0, blocks - 1).with_range(name, 0, walk.steps - 1)
    at: dict[str, Expr] = {name: sym(name) * walk.chunk}
    low, high = ZERO, blocks
    for is_end in (False, True):
        found = block_bound(expr, axis, walk.chunk, tv.root[chunks], is_end=is_end)
        if found is None:
            continue
        bound = simplify(maximum(pieces(substitute(found.value, at), walk.rows, up=is_end), 0), facts)
        low, high = (low, minimum(high, bound)) if is_end else (bound, high)
    of_block: dict[str, Expr] = {str(iteration_symbol(row)): block * walk.rows}
    start, end = (simplify(substitute(e, of_block), facts) for e in (walk.start, walk.end))
    known = {block.name, name, *tv.fusion.dims}
    if any(not integers_of(e) <= known for e in (low, high, start, end)):
        return None
    first, behind = range_where(and_(le(low, block), lt(block, high)), name)
    is_start = prove(eq(ZERO if first is None else maximum(first, 0), start), facts)
    is_end = prove(eq(walk.steps if behind is None else minimum(maximum(behind, 0), walk.steps), end), facts)
    high = simplify(high, facts)
    return ChunkTerms(low * walk.rows, extent if high is blocks else minimum(high * walk.rows, extent)) if is_start and is_end else None
