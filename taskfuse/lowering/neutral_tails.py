"""Loops that begin at the first term and end at the last one, or are skipped where their sum is never read.

A ragged or masked axis is as long as its longest row; past the end of a row its terms are neutral by definition, and so are those before a window. A loop over
such an axis runs from the start of the row to its end where these are known before it: functions of extents, of block indices, of loops around it, and of
elements of tables. All roles compute them from the same, so rings make as many fills as there are reads.

Of an update, only points that are valid are sent: a loop over others, too, is bounded by their condition in the same way.

A choice reads a result only where its condition holds: padding rows of a product are zero, whatever the product would be there. If no choice takes any element
of a loop's results, directly or through elementwise functions at the same place, the loop has no trips. The condition that some element is taken is a function
of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice

from taskfuse.ir.atoms import Bounds
from taskfuse.ir.axes import Axis, iteration_point, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Assemble, FirstValid, Fold, Literal, Operand, Pointwise, Read, Reduction, Scan, Update, View, at_point, is_same_number
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import (
    ONE,
    TRUE,
    ZERO,
    Compare,
    CompareOp,
    Const,
    Expr,
    Facts,
    and_,
    ceildiv,
    conjuncts,
    elements_of,
    eq,
    ge,
    integers_of,
    is_multiple,
    le,
    lt,
    maximum,
    minimum,
    prove,
    range_where,
    select,
    simplify,
    substitute,
    sym,
)
from taskfuse.ir.storage import resolve, storage_reads, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import BLOCK_TYPES, INDEX_TYPES, THREAD_TYPES, MemoryType, ParallelType
from taskfuse.lowering.domains import refused
from taskfuse.lowering.index_maps import IndexMaps
from taskfuse.lowering.plan import base_name
from taskfuse.lowering.read_parts import ReadPart
from taskfuse.lowering.thread_ranges import hardware_index
from taskfuse.schedule.masked_ends import counted_from_front, ends_of
from taskfuse.schedule.shared_loops import Loop

LEAST_STEPS = 3
"""The fewest steps of a product of which a part is left out where nobody reads it: with two, a tile of 128 x 256 spilled what the test needs."""
_SAME = (ELEMENTWISE["copy"],)
_PRODUCT = ELEMENTWISE["mul"]


def end_of_terms(fusion: Fusion, expr: Reduction, axis: int) -> Expr | None:
    """An expression over the other iteration symbols, from which on along an axis a reduction has no terms, or only neutral ones; ``None``: unknown."""
    if axis in dict(expr.ends):
        return dict(expr.ends)[axis]
    return _end_of_terms(fusion, expr, expr.operands, axis)


def start_of_terms(fusion: Fusion, expr: Reduction, axis: int) -> Expr | None:
    """An expression over the other iteration symbols, before which along an axis a reduction has no terms, or only neutral ones; ``None``: unknown."""
    if axis in dict(expr.starts):
        return dict(expr.starts)[axis]
    extent = expr.output.root[axis].extent
    backwards: dict[str, Expr] = {f"i{axis}": extent - 1 - sym(f"i{axis}")}
    end = _end_of_terms(fusion, expr, tuple(at_point(o, backwards) for o in expr.operands), axis)
    return None if end is None else counted_from_front(end, extent)


def _end_of_terms(fusion: Fusion, expr: Reduction, operands: Collection[Operand], axis: int) -> Expr | None:
    neutral = expr.combine.neutral(expr.output.dtype.compute)
    is_product = expr.body is _PRODUCT and neutral == 0  # of zeros: one of a zero and an infinity is not a number
    if (expr.body not in _SAME and not is_product) or expr.rescaled is not None:  # a sum is also rescaled where its terms are neutral
        return None
    ends = [_end(fusion, o, f"i{axis}", neutral) for o in operands]
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
                found = [*islice(ends_of(substitute(o.valid, point), axis), 1), moved(o)] if isinstance(o, Read) else []
                known = [e for e in found if e is not None]
                if not known:
                    return None
                ends.append(minimum(*known))
            return maximum(*ends) if ends else None
        case _:
            return None


@dataclass(frozen=True, slots=True, eq=False)
class LoopBounds:
    """Where loops over reduced axes begin and end, as indices of their axes, in the variables of enclosing loops and in hardware indices, which count from the
    first thread or block of a role: roles that share a loop have one entry each.
    """

    starts: dict[Loop, Expr] = field(default_factory=dict["Loop", Expr])
    ends: dict[Loop, Expr] = field(default_factory=dict["Loop", Expr])


def find_bounds(index_maps: IndexMaps, indexes_registers: Callable[[TensorView, Loop], bool]) -> LoopBounds:
    """The loops over reduced axes that begin or end with their terms.

    Args:
        indexes_registers: whether code of a tensor indexes registers by a loop, which is therefore unrolled: its number of trips is constant.
    """
    fusion, found = index_maps.fusion, LoopBounds()
    for loop in index_maps.shared_loops.loops:
        reducing = [tv for tv, a in loop.axes.items() if isinstance(fusion.definition(tv), Reduction) and a.is_reduction]
        sending = [tv for tv in loop.axes if isinstance(fusion.definition(tv), Update) and tv in index_maps.belongs]
        alone = all(among(tv, reducing) or index_maps.memory[tv] is MemoryType.Local for tv in loop.axes)
        types = (*BLOCK_TYPES, *THREAD_TYPES) if alone else BLOCK_TYPES  # threads that wait for each other inside make equally many trips
        ends = [_end_of(loop, tv, index_maps, types) for tv in reducing]
        ends = [_end_where_read(loop, tv, index_maps, types) if end is None else end for tv, end in zip(reducing, ends, strict=True)]
        ends += [_of_points(loop, tv, index_maps, is_end=True) for tv in sending]
        in_order = [tv for tv in loop.axes if isinstance(fusion.definition(tv), Scan | Fold)]
        starts = [_start_of(loop, tv, index_maps, types) for tv in (*reducing, *in_order)]
        starts += [_of_points(loop, tv, index_maps, is_end=False) for tv in sending]
        known_ends, known_starts = ([e for e in bounds if e is not None] for bounds in (ends, starts))
        once = any(a.is_foreign and index_maps.memory[tv] is not MemoryType.Local for tv, a in loop.axes.items())  # a copy at the first index alone
        bounding = [*reducing, *sending]
        has_end, has_start = bounding and len(known_ends) == len(ends), bounding and len(known_starts) == len(starts) and not once
        if not (has_end or has_start) or not _ends_unseen(fusion, loop, bounding) or any(indexes_registers(tv, loop) for tv in loop.axes):
            continue
        if has_end:
            found.ends[loop] = simplify(maximum(0, *known_ends), index_maps.outer_facts)
        start = simplify(maximum(0, minimum(*known_starts)), index_maps.outer_facts) if has_start else ZERO
        if start is not ZERO:
            found.starts[loop] = start
    _check_bounds(index_maps, found)
    for loop in sorted({*found.starts, *found.ends}, key=lambda loop: loop.depth):
        outer = {x for tv in loop.axes for x in index_maps.shared_loops.path[tv][: loop.depth] if x in found.starts}
        begun = {index_maps.variables.name(x): index_maps.variables.symbol(x) + found.starts[x] for x in outer}
        for bounds in (found.starts, found.ends) if begun else ():  # an index of a loop around is its variable, counted from its own start
            if loop in bounds:
                bounds[loop] = substitute(bounds[loop], begun)
    return found


def _check_bounds(index_maps: IndexMaps, found: LoopBounds) -> None:
    """Where terms of a reduction or a scan start, or end, by definition, a loop over the axis begins or ends. Raises :class:`LoweringError`."""
    for expr in index_maps.fusion.exprs():
        tv = expr.output
        bounds: list[tuple[str, int]] = []
        if isinstance(expr, Reduction):
            bounds = [*(("start", k) for k, _ in expr.starts), *(("end", k) for k, _ in expr.ends)]
        elif isinstance(expr, Scan) and expr.start is not ZERO:
            bounds = [("start", expr.axis)]
        for what, k in bounds:
            loop = next((loop for a, loop in zip(tv.loop, index_maps.shared_loops.path[tv], strict=True) if a is tv.root[k]), None)
            known, bound_of = (found.starts, _start_of) if what == "start" else (found.ends, _end_of)
            own = None if loop is None else bound_of(loop, tv, index_maps, (*BLOCK_TYPES, *THREAD_TYPES))
            if loop is None or own is None or not prove(eq(known.get(loop, ZERO), maximum(own, 0)), index_maps.outer_facts):
                raise refused(
                    tv,
                    f"its terms {what} along axis {k} where no loop over the axis does",
                    f"leave that axis Serial and unsplit, shared by all tensors that its loop computes, and bind the axes that the {what} depends on to blocks",
                )


def _ends_unseen(fusion: Fusion, loop: Loop, bounding: list[TensorView]) -> bool:
    """True if no code after a loop depends on its trips: all that it computes beside what bounds them is read inside."""
    for tv, a in loop.axes.items():
        if tv.schedule.ptype(a) is not ParallelType.Serial:
            return False
        if not among(tv, bounding) and (tv.is_output or any(use.output not in loop.axes for use in storage_uses(fusion, tv))):
            return False
    return True


def _end_of(loop: Loop, tv: TensorView, index_maps: IndexMaps, types: tuple[ParallelType, ...]) -> Expr | None:
    """The index of a loop's axis from which on all terms of a reduction are neutral, in hardware indices; ``None``: none is known, or not before the loop.

    Args:
        types: of the indices that it may depend on.
    """
    expr = index_maps.fusion.definition(tv)
    assert isinstance(expr, Reduction)
    for k, root in enumerate(tv.root):
        end = end_of_terms(index_maps.fusion, expr, k) if root.is_reduction else None
        at = None if end is None else _in_loop(end, loop, tv, root, index_maps, types)
        if at is not None and at.bound is not None and prove(ge(at.first, 0), at.facts):
            return _where_it_exists(ceildiv(at.bound, at.weight), index_maps.ranges.facts)
    return None


def _start_of(loop: Loop, tv: TensorView, index_maps: IndexMaps, types: tuple[ParallelType, ...]) -> Expr | None:
    """The index of a loop's axis before which all terms of a reduction or a scan are neutral, or not part of it, as in :func:`_end_of`."""
    expr = index_maps.fusion.definition(tv)
    for k, root in enumerate(tv.root):
        start: Expr | None = None
        if isinstance(expr, Reduction) and root.is_reduction:
            start = start_of_terms(index_maps.fusion, expr, k)
        elif isinstance(expr, Scan) and k == expr.axis and expr.start is not ZERO:
            start = expr.start
        at = None if start is None else _in_loop(start, loop, tv, root, index_maps, types)
        if at is not None and at.bound is not None and prove(lt(at.first, at.weight), at.facts):  # in one iteration they are all before it
            return _where_it_exists(maximum(at.bound, 0) // at.weight, index_maps.ranges.facts)
    return None


def _of_points(loop: Loop, tv: TensorView, index_maps: IndexMaps, *, is_end: bool) -> Expr | None:
    """The index of a loop's axis from which on, or before which, no point of an update is valid, as in :func:`_end_of` and :func:`_start_of`."""
    for k, root in enumerate(tv.root):
        first, end = range_where(index_maps.belongs[tv], str(iteration_symbol(k)))
        bound = first if not is_end else None if end is None else minimum(end, root.extent)
        at = None if bound is None else _in_loop(bound, loop, tv, root, index_maps, BLOCK_TYPES)
        if at is None or at.bound is None:
            continue
        if is_end and prove(ge(at.first, 0), at.facts):
            return ceildiv(at.bound, at.weight)
        if not is_end and prove(lt(at.first, at.weight), at.facts):
            return maximum(at.bound, 0) // at.weight
    return None


@dataclass(frozen=True, slots=True)
class _InLoop:
    """A bound of terms along an axis that a loop goes over.

    Attributes:
        bound: in what is known before the loop; ``None``: it depends on more.
        first, weight: the index of the axis is ``first`` and so many times the loop's variable; facts: those at the terms.
    """

    bound: Expr | None
    first: Expr
    weight: Expr
    facts: Facts


def _in_loop(bound: Expr, loop: Loop, tv: TensorView, root: Axis, index_maps: IndexMaps, types: tuple[ParallelType, ...]) -> _InLoop | None:
    """A bound of the terms of ``tv`` along an axis, in a loop; ``None`` if the loop does not go over the axis."""
    weighed = _weighed(loop, tv, root, index_maps)
    if weighed is None:
        return None
    index_map = index_maps.reading(tv)
    here = simplify(substitute(bound, index_maps.point(tv, index_map)), index_map.facts)
    return _InLoop(_known_before(here, loop, tv, index_maps, types), *weighed, index_map.facts)


def _weighed(loop: Loop, tv: TensorView, root: Axis, index_maps: IndexMaps) -> tuple[Expr, Expr] | None:
    """What the index of a root axis is in the first iteration of a loop, and by how much it grows in each; ``None`` if it is no such sum, or another loop does.

    The outermost loop over an axis begins late, or ends early.
    """
    index_map, facts = index_maps.reading(tv), index_maps.ranges.facts
    name = index_maps.variables.name(loop)
    value = index_map.values.get(root)
    if value is None or name not in value.free:
        return None
    first = substitute(value, {name: 0})
    weight = simplify(substitute(value, {name: sym(name) + 1}) - value, facts)
    around = {index_maps.variables.name(outer) for outer in index_maps.shared_loops.path[tv][: loop.depth]}
    if name in weight.free or not prove(ge(weight, 1), facts) or not around.isdisjoint(value.free):
        return None
    return first, weight


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


def find_read_parts(index_maps: IndexMaps) -> dict[TensorView, ReadPart]:
    """The products of tiles whose loops are skipped where nobody reads the tile, and what passes them on, with the conditions of reads.

    A product is not among them unless all that passes it on runs only where it does.
    """
    fusion, found = index_maps.fusion, dict[TensorView, ReadPart]()
    for tv in index_maps.shared_loops.path:
        atom, path = tv.schedule.atom, index_maps.shared_loops.path[tv]
        if not isinstance(fusion.definition(tv), Reduction) or atom is None or atom.bounds is not Bounds.COVER:
            continue
        loop = next((x for a, x in zip(tv.loop, path, strict=True) if a.is_reduction), None)
        condition = condition_of_reads(fusion, tv, assembled=True)
        if (
            condition is None
            or loop is None
            or _is_short(loop.axes[tv])
            or not (loop in index_maps.ends or (not _is_chosen(fusion, tv) and index_maps.grid_stride.is_emptied(loop)))
        ):
            continue
        around, passed = path[: loop.depth], _passing(fusion, tv)
        if not passed.keys() <= index_maps.shared_loops.path.keys():
            continue
        members = {x: _read_part(x, condition, around, atom.lanes, index_maps) for x in (tv, *passed)}
        at = {x: _of_hardware(part.at(index_maps.reading(x).values, index_maps.reading(x).facts), x, index_maps) for x, part in members.items()}
        if at[tv] and all(prove(c, index_maps.outer_facts.with_assumption(and_(*conditions))) for conditions in at.values() for c in at[tv]):
            found |= members
    return found


def _is_short(axis: Axis) -> bool:
    """Whether a loop is over before a test of what is read saves more than it costs, in registers, too."""
    return isinstance(axis.extent, Const) and axis.extent.value < LEAST_STEPS


def _passing(fusion: Fusion, tv: TensorView) -> dict[TensorView, None]:
    """The elementwise functions of a tensor whose elements are read under its condition, but for those that are stored under it."""
    found: dict[TensorView, None] = {}
    for use in storage_uses(fusion, tv):
        if isinstance(use, Pointwise) and not any(isinstance(x, Assemble) for x in use.output.uses):
            found |= {use.output: None, **_passing(fusion, use.output)}
    return found


def _read_part(tv: TensorView, condition: Expr, around: Collection[Loop], lanes: int, index_maps: IndexMaps) -> ReadPart:
    """Where ``tv`` is read, of which so many threads compute a part together, in some loops."""
    task, ranges, variables = index_maps.tree.place[tv], index_maps.ranges, index_maps.variables
    below, own = ONE, set[str]()
    for p in THREAD_TYPES:
        if is_multiple(below, lanes, ranges.facts):
            own.add(base_name(p, task))
        below = below * ranges.launch[p]
    places = {variables.name(x) for x in around} | {str(variables.item(x)) for x in around if index_maps.grid_stride.walk(x) is not None}
    places |= {base_name(p, task) for p in INDEX_TYPES if p not in THREAD_TYPES}
    axes = tuple(a for a in tv.root if not a.is_reduction)
    launch = frozenset(index_maps.fusion.dims)
    return ReadPart(condition, axes, launch, frozenset(places), frozenset(own), _is_chosen(index_maps.fusion, tv))


def _is_chosen(fusion: Fusion, tv: TensorView) -> bool:
    """Whether a choice reads a tensor."""
    return any(isinstance(use, FirstValid) for use in storage_uses(fusion, tv))


def _of_hardware(conditions: tuple[Expr, ...], tv: TensorView, index_maps: IndexMaps) -> tuple[Expr, ...]:
    """Conditions in the indices of the hardware."""
    task = index_maps.tree.place[tv]
    at = {base_name(p, task): hardware_index(p) - index_maps.ranges.range(task, p).start for p in INDEX_TYPES}
    return tuple(simplify(substitute(c, at), index_maps.outer_facts) for c in conditions)


def condition_of_reads(fusion: Fusion, tv: TensorView, *, assembled: bool = False) -> Expr | None:
    """A condition over the symbols of ``tv``'s own logical axes, without which an element is never read; ``None``: no such condition.

    Args:
        assembled: an assembly reads those of its parts' elements that have a place.
    """
    found: set[Expr] = set()
    if tv.is_output:
        return None
    for use in storage_uses(fusion, tv):
        if assembled and isinstance(use, Assemble):
            found |= {p.valid for p in use.parts if p.tensor is tv}
            continue
        if not isinstance(use, FirstValid):
            is_at_point = isinstance(use, Pointwise) and use.output.ndim == tv.ndim
            of_use = condition_of_reads(fusion, use.output, assembled=assembled) if is_at_point else None
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
