"""Loops that end at the last term, or are skipped where their sum is never read.

A ragged or masked axis is as long as its longest row; past the end of a row its terms are neutral by definition. A loop over such an axis runs to the end
of the row where that is known before it: a function of extents, of block indices, of loops around it, and of elements of tables. All roles compute it
from the same, so rings make as many fills as there are reads.

A choice reads a result only where its condition holds: padding rows of a product are zero, whatever the product would be there. If no choice takes any element
of a loop's results, directly or through elementwise functions at the same place, the loop has no trips. The condition that some element is taken is a function
of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from taskfuse.ir.axes import iteration_point
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import FirstValid, Literal, Operand, Pointwise, Read, Reduction, View, is_same_number
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import (
    TRUE,
    Compare,
    CompareOp,
    Expr,
    Facts,
    and_,
    ceildiv,
    conjuncts,
    elements_of,
    eq,
    ge,
    integers_of,
    le,
    lt,
    maximum,
    prove,
    select,
    simplify,
    substitute,
    sym,
)
from taskfuse.ir.storage import resolve, storage_reads, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import BLOCK_TYPES, THREAD_TYPES, MemoryType, ParallelType
from taskfuse.lowering.domains import refused
from taskfuse.lowering.index_maps import IndexMaps
from taskfuse.lowering.plan import base_name
from taskfuse.lowering.thread_ranges import hardware_index
from taskfuse.schedule.masked_ends import ends_of
from taskfuse.schedule.shared_loops import Loop

_SAME = (ELEMENTWISE["copy"],)
_PRODUCT = ELEMENTWISE["mul"]


def end_of_terms(fusion: Fusion, expr: Reduction, axis: int) -> Expr | None:
    """An expression over the other iteration symbols, from which on along an axis a reduction has no terms, or only neutral ones; ``None``: unknown."""
    if axis in dict(expr.ends):
        return dict(expr.ends)[axis]
    neutral = expr.combine.neutral(expr.output.dtype.compute)
    is_product = expr.body is _PRODUCT and neutral == 0  # of zeros: one of a zero and an infinity is not a number
    if (expr.body not in _SAME and not is_product) or expr.rescaled is not None:  # a sum is also rescaled where its terms are neutral
        return None
    ends = [_end(fusion, o, f"i{axis}", neutral) for o in expr.operands]
    known = [e for e in ends if e is not None]
    return maximum(*known) if known and len(known) == len(ends) else None


def _end(fusion: Fusion, operand: Operand, axis: str, neutral: float) -> Expr | None:
    if not isinstance(operand, Read) or not operand.tensor.dtype.holds(neutral):
        return None
    point = {f"i{k}": e for k, e in enumerate(operand.index)}

    def moved(inner: Read) -> Expr | None:
        return _end(fusion, Read(inner.tensor, tuple(substitute(e, point) for e in inner.index)), axis, neutral)

    match fusion.definition(operand.tensor):
        case View(operand=inner):
            return moved(inner)
        case Pointwise(op=op, operands=(Read() as inner,)) if op in _SAME:
            return moved(inner)
        case FirstValid(operands=operands):
            ends: list[Expr] = []
            for o in operands:
                if isinstance(o, Literal) and is_same_number(o.value, neutral):
                    continue
                found = next(ends_of(substitute(o.valid, point), axis), None) if isinstance(o, Read) else None
                if found is None:
                    return None
                ends.append(found)
            return maximum(*ends) if ends else None
        case _:
            return None


def find_ends(index_maps: IndexMaps, indexes_registers: Callable[[TensorView, Loop], bool]) -> dict[Loop, Expr]:
    """The loops over reduced axes that end with their terms, and their trips, in the variables of enclosing loops and in hardware indices, which count from the
    first thread or block of a role: roles that share a loop have one entry each.

    Args:
        indexes_registers: whether code of a tensor indexes registers by a loop, which is therefore unrolled: its number of trips is constant.
    """
    fusion = index_maps.fusion
    found: dict[Loop, Expr] = {}
    for loop in index_maps.shared_loops.loops:
        reducing = [tv for tv, a in loop.axes.items() if isinstance(fusion.definition(tv), Reduction) and a.is_reduction]
        alone = all(among(tv, reducing) or index_maps.memory[tv] is MemoryType.Local for tv in loop.axes)
        types = (*BLOCK_TYPES, *THREAD_TYPES) if alone else BLOCK_TYPES  # threads that wait for each other inside make equally many trips
        ends = [_end_of(loop, tv, index_maps, types) for tv in reducing]
        ends = [_end_where_read(loop, tv, index_maps, types) if end is None else end for tv, end in zip(reducing, ends, strict=True)]
        if not ends or None in ends or not _ends_unseen(fusion, loop, reducing) or any(indexes_registers(tv, loop) for tv in loop.axes):
            continue
        found[loop] = simplify(maximum(0, *(e for e in ends if e is not None)), index_maps.ranges.facts)
    _check_ends(index_maps, found)
    return found


def _check_ends(index_maps: IndexMaps, found: dict[Loop, Expr]) -> None:
    """Where a reduction has no terms any more, a loop over the axis ends just there. Raises :class:`LoweringError`."""
    for expr in index_maps.fusion.exprs():
        if not isinstance(expr, Reduction):
            continue
        tv = expr.output
        for k, _ in expr.ends:
            loop = next((loop for a, loop in zip(tv.loop, index_maps.shared_loops.path[tv], strict=True) if a is tv.root[k]), None)
            own = None if loop is None or loop not in found else _end_of(loop, tv, index_maps, (*BLOCK_TYPES, *THREAD_TYPES))
            if own is None or loop is None or not prove(eq(found[loop], maximum(own, 0)), index_maps.ranges.facts):
                raise refused(
                    tv,
                    f"its terms end along axis {k} where no loop over the axis does",
                    "leave that axis Serial and unsplit, shared by all tensors that its loop computes, and bind the axes that the end depends on to blocks",
                )


def _ends_unseen(fusion: Fusion, loop: Loop, reducing: list[TensorView]) -> bool:
    """True if no code after a loop depends on its trips: all else that it computes is read inside."""
    for tv, a in loop.axes.items():
        if tv.schedule.ptype(a) is not ParallelType.Serial:
            return False
        if not among(tv, reducing) and (tv.is_output or any(use.output not in loop.axes for use in storage_uses(fusion, tv))):
            return False
    return True


def _end_of(loop: Loop, tv: TensorView, index_maps: IndexMaps, types: tuple[ParallelType, ...]) -> Expr | None:
    """The trips of a loop after which all terms of a reduction are neutral, in hardware indices; ``None``: none are known, or not before the loop.

    Args:
        types: of the indices that it may depend on.
    """
    fusion = index_maps.fusion
    expr = fusion.definition(tv)
    assert isinstance(expr, Reduction)
    facts = index_maps.ranges.facts
    for k, root in enumerate(tv.root):
        end = end_of_terms(fusion, expr, k) if root.is_reduction else None
        if end is None:
            continue
        index_map = index_maps.reading(tv)
        name = index_maps.variables.name(loop)
        value = index_map.values.get(root)
        if value is None or name not in value.free:
            continue
        first = substitute(value, {name: 0})
        weight = simplify(substitute(value, {name: sym(name) + 1}) - value, facts)
        if name in weight.free or not prove(ge(weight, 1), facts) or not prove(ge(first, 0), index_map.facts):
            continue
        around = {index_maps.variables.name(outer) for outer in index_maps.shared_loops.path[tv][: loop.depth]}
        if not around.isdisjoint(value.free):  # the outermost loop over the axis ends early
            continue
        found = _known_before(simplify(substitute(end, index_maps.point(tv, index_map)), index_map.facts), loop, tv, index_maps, types)
        if found is not None:
            return _where_it_exists(ceildiv(found, weight), facts)
    return None


def _end_where_read(loop: Loop, tv: TensorView, index_maps: IndexMaps, types: tuple[ParallelType, ...]) -> Expr | None:
    """The trips of the outermost loop over the reduced axes of ``tv``: none if it is known before that nobody reads what is summed up in it."""
    path = index_maps.shared_loops.path[tv]
    condition = condition_of_reads(index_maps.fusion, tv)
    reduced = [k for k, (a, outer) in enumerate(zip(tv.loop, path, strict=True)) if a.is_reduction and outer in path]
    if condition is None or not reduced or path[reduced[0]] is not loop:
        return None
    index_map = index_maps.reading(tv)
    logical = [k for k, root in enumerate(tv.root) if not root.is_reduction]
    if any(tv.root[k] not in index_map.values for k in logical):
        return None
    point = {f"i{place}": index_map.values[tv.root[k]] for place, k in enumerate(logical)}
    known = {index_maps.variables.name(outer) for outer in path[: loop.depth]} | {base_name(p, index_maps.tree.place[tv]) for p in types}
    found = somewhere(substitute(condition, point), known | index_maps.fusion.dims.keys(), index_map.facts)
    if found is TRUE:
        return None
    trips = _known_before(select(found, tv.loop[reduced[0]].extent, 0), loop, tv, index_maps, types)
    return None if trips is None else _where_it_exists(trips, index_maps.ranges.facts)


def _known_before(e: Expr, loop: Loop, tv: TensorView, index_maps: IndexMaps, types: tuple[ParallelType, ...]) -> Expr | None:
    """An expression at the code of ``tv``, if it is known before a loop; ``None`` if it is not. Hardware indices in it are those of the role, from 0 on."""
    task = index_maps.tree.place[tv]
    indices = {base_name(p, task): hardware_index(p) for p in types}
    outside = index_maps.shared_loops.path[tv][: loop.depth]
    around = {index_maps.variables.name(outer) for outer in outside}
    around |= {str(index_maps.variables.item(outer)) for outer in outside if index_maps.grid_stride.walk(outer) is not None}
    return substitute(e, indices) if integers_of(e) <= around | indices.keys() | index_maps.fusion.dims.keys() else None


def _where_it_exists(trips: Expr, facts: Facts) -> Expr:
    """Trips, or none where the table that decides them has no such element: there is no work."""
    rows = (c for e in elements_of(trips) for c in (ge(e.index, 0), lt(e.index, e.size)))
    there = [c for c in dict.fromkeys(rows) if not prove(c, facts)]
    return select(and_(*there), trips, 0) if there else trips


def condition_of_reads(fusion: Fusion, tv: TensorView) -> Expr | None:
    """A condition over the symbols of ``tv``'s own logical axes, without which an element is never read; ``None``: no such condition."""
    found: set[Expr] = set()
    if tv.is_output:
        return None
    for use in storage_uses(fusion, tv):
        if not isinstance(use, FirstValid):
            of_use = condition_of_reads(fusion, use.output) if isinstance(use, Pointwise) and use.output.ndim == tv.ndim else None
            if of_use is None or any(r.index != iteration_point(tv.ndim) for r in storage_reads(fusion, use) if r.tensor is tv):
                return None
            found.add(of_use)
            continue
        for operand in use.operands:
            read = resolve(fusion, operand) if isinstance(operand, Read) else None
            if read is not None and read.tensor is tv:
                if read.index != iteration_point(tv.ndim):
                    return None
                found.add(read.valid)
    return next(iter(found)) if len(found) == 1 else None


def somewhere(condition: Expr, known: Collection[str], facts: Facts) -> Expr:
    """A condition over the symbols ``known`` and the extents that holds if ``condition`` holds for some values of its other symbols, in their ranges."""
    found = (c for part in conjuncts(condition) for c in _relaxed(part, known, facts))
    return and_(*found)


def _relaxed(condition: Expr, known: Collection[str], facts: Facts) -> Iterator[Expr]:
    """A comparison at the values of its unknown symbols at which it is easiest to satisfy."""
    if integers_of(condition) <= set(known):
        yield condition
        return
    if not isinstance(condition, Compare) or condition.op not in (CompareOp.LT, CompareOp.LE):
        return
    room = condition.b - condition.a
    for name in sorted(integers_of(room) - set(known)):
        low, high = facts.ranges.get(name, (None, None))
        step = simplify(substitute(room, {name: sym(name) + 1}) - room, facts)
        best = low if prove(le(step, 0), facts) else high if prove(ge(step, 0), facts) else None
        if best is None:
            return
        room = simplify(substitute(room, {name: best}), facts)
    if integers_of(room) <= set(known):
        yield lt(0, room) if condition.op is CompareOp.LT else le(0, room)
