"""Reductions across threads and blocks: the stage that combines accumulators.

Each thread (or block) of a reduced digit holds a partial result in its accumulator; after this stage every thread of the thread range holds the
result. Where the thread range is made of whole warps, the lanes of a warp exchange accumulators in a butterfly of shuffles; if partial results of
several warps are left, one lane of each group stores its own to Shared memory and every thread combines all of them, in the same order.
Any other set of threads joins in a tree over Shared memory. Across blocks one thread of those that have the same result stores it, for the blocks of a
cluster in its block's Shared memory, for others in a Global workspace, and every thread combines all of them.
The barriers between the steps are the sync pass's: the steps are plain statements. Reductions that end after one loop take their steps together,
and share these barriers, as far as there is room in Shared memory for the partial results of all of them, and the loops over partial results.

Accumulators may be the registers of an atom's tile, which are joined one by one: threads that hold one place of it in two partial results differ in
reduced digits alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from taskfuse.ir.axes import Axis
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.expr import Fold, Reduction
from taskfuse.ir.medium import nearest
from taskfuse.ir.scalar import Expr, and_, bounds, const, eq, le, lt, maximum, prove, simplify, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import INDEX_TYPES, THREAD_TYPES, MemoryType, ParallelType
from taskfuse.kir.nodes import Compute
from taskfuse.kir.operands import Access, Content, Immediate, Operand
from taskfuse.kir.products import Shuffle
from taskfuse.lowering.domains import digit_values, digits, product, refused
from taskfuse.lowering.index_maps import IndexMap
from taskfuse.lowering.lanes import WarpReduction
from taskfuse.lowering.partials import MOST_BYTES, JoinStep, Partials, lane_registers
from taskfuse.lowering.plan import PLoop, PNode, PStmt, base_name
from taskfuse.lowering.statements import Statements
from taskfuse.target import MAX_THREADS

COPY = ELEMENTWISE["copy"]


def finish(statements: Statements, ended: Sequence[tuple[TensorView, dict[Axis, Expr]]]) -> list[PNode]:
    """The code that joins the accumulators of reductions that end after one loop, and stores their results.

    Args:
        ended: each with the loops over a thread's elements of it.
    """
    nodes: list[PNode] = []
    together: list[list[JoinStep]] = []
    room = const(MOST_BYTES)
    for tv, loops in ended:
        partials = Partials.of(statements.indexer, tv)
        steps = partials.joined_together(_steps(statements, tv, loops, partials), loops)
        used = partials.shared_bytes
        if together and not (partials.takes_all and prove(le(used, room), statements.indexer.ranges.facts)):
            nodes += _side_by_side(together)
            together, room = [], const(MOST_BYTES)
        if partials.takes_all:
            together.append(steps)
            room = room - used
        else:
            nodes += partials.in_rounds(_side_by_side([steps]), loops)
    return nodes + _side_by_side(together)


def _side_by_side(reductions: Sequence[Sequence[JoinStep]]) -> list[PNode]:
    """The first steps of all, then their second ones, and so on; loops over as many partial results are one."""
    found: list[PNode] = []
    for taken in zip_longest(*reductions, fillvalue=JoinStep([])):
        found += [node for step in taken for node in step.nodes]
        loops: dict[tuple[str, Expr], PLoop] = {}
        for loop in (step.loop for step in taken if step.loop is not None):
            key = loop.var, loop.extent
            loops[key] = replace(loop, body=[*loops[key].body, *loop.body]) if key in loops else loop
        found += loops.values()
    return found


def _steps(statements: Statements, tv: TensorView, loops: dict[Axis, Expr], partials: Partials) -> list[JoinStep]:
    """The steps of one reduction, for one element of its result."""
    stored = [JoinStep([statements.store(tv, loops)])] if statements.accumulator(tv) != tv.name else []
    if isinstance(statements.definition(tv), Fold):  # a thread has all of it
        return stored
    join = _JoinSteps(statements, tv, loops, partials)
    reduced = [(p, a) for p in reversed(INDEX_TYPES) for a in reversed(digits(tv, p)) if a.is_reduction and not join.is_alone(p, a)]
    if (reduced or partials.warps is not None) and not join.expr.starts_neutral and not join.expr.combine.idempotent:
        reason = f"its threads or blocks have partial results, and each would begin with its initial value {join.expr.init.value}"
        raise refused(tv, reason, f"give the bound axes to another tensor, {tv.name}.rfactor(...), or bind them to none")
    steps: list[JoinStep] = []
    if partials.warps is not None:
        steps += join.warps(partials.warps)
    else:
        for p, axis in reduced:
            steps += join.threads(p, axis) if p.is_thread else []
    for p, axis in reduced:
        steps += [] if p.is_thread else join.blocks(p, axis)
    return [*steps, *stored]


class _JoinSteps:
    """The steps for one reduction, each for one element of its result."""

    def __init__(self, statements: Statements, tv: TensorView, loops: dict[Axis, Expr], partials: Partials) -> None:
        expr = statements.definition(tv)
        assert isinstance(expr, Reduction)
        self.statements, self.tv, self.expr, self.partials = statements, tv, expr, partials
        self.index_map = statements.indexer.index_maps.variant(tv, loops, MemoryType.Local, outside=True)
        if statements.tiles.are_computed(tv):
            self.index_map = self.index_map.unguarded()
        self.acc = partials.accumulator(statements.first_accumulator(tv, self.index_map))
        self.neutral = Immediate(expr.init.value, expr.init.dtype)

    def is_alone(self, p: ParallelType, axis: Axis) -> bool:
        """True if a digit has one value, the same for all indices of the thread range: nothing is joined."""
        index_range = self.statements.indexer.ranges.range(self.statements.indexer.tree.place[self.tv], p)
        return axis.extent is const(1) and prove(le(index_range.extent, product(digits(self.tv, p))), self.index_map.facts)

    def _compute(self, out: Access, op: Elementwise, operands: tuple[Operand, ...], index_map: IndexMap, guards: tuple[Expr, ...]) -> PStmt:
        stmt = Compute(out, op, operands, self.tv.dtype.compute)
        return self.statements.statement(self.tv, stmt, index_map, guards, Content.PART)

    def _digit(self, p: ParallelType, axis: Axis) -> tuple[Expr, Expr, Expr]:
        """The local index of an index type, how far one step of the digit that an axis is moves it, and the digit."""
        own, base = digits(self.tv, p), sym(base_name(p, self.statements.indexer.tree.place[self.tv]))
        return base, product(own[own.index(axis) + 1 :]), digit_values(own, base, self.index_map.facts)[axis]

    # -- whole warps ----------------------------------------------------------------------------------------------------------------

    def warps(self, warps: WarpReduction) -> list[JoinStep]:
        """Shuffles in every warp, then, if partial results remain, one round over Shared memory.

        All lanes take part in a shuffle, so it is unguarded: a lane whose accumulator is excluded by a guard contributes the neutral element.
        """
        index_map, acc, op = self.index_map, self.acc, self.expr.combine.op
        everyone = IndexMap({}, self.statements.indexer.ranges.facts, ())
        lane, peer = (Access(name, ()) for name in lane_registers(self.tv))
        mine = lane if warps.masks and index_map.guards else acc
        nodes: list[PNode] = []
        steps = [JoinStep(nodes)]
        if mine is lane:
            nodes.append(self._compute(lane, COPY, (self.neutral,), everyone, ()))
            nodes.append(self._compute(lane, COPY, (acc,), index_map, index_map.guards))
        for mask in warps.masks:
            nodes.append(self.statements.statement(self.tv, Shuffle(peer, mine, mask), everyone, (), Content.PART))
            nodes.append(self._compute(mine, op, (mine, peer), everyone, ()))
        if not warps.is_local:
            slot, leads = self._slot(warps)
            nodes.append(self._compute(self.partials.of_slot(index_map, slot), COPY, (mine,), index_map, (*index_map.guards, *leads)))
            var = "part.k"
            inner = IndexMap(index_map.values, index_map.facts.with_range(var, 0, warps.slots - 1), index_map.guards)
            step = self._compute(acc, op, (acc, self.partials.of_slot(inner, sym(var))), inner, index_map.guards)
            steps.append(JoinStep([self._compute(acc, COPY, (self.neutral,), index_map, index_map.guards)], PLoop(var, warps.slots, False, [step])))
        elif mine is lane:
            nodes.append(self._compute(acc, COPY, (lane,), index_map, index_map.guards))
        return steps

    def _slot(self, warps: WarpReduction) -> tuple[Expr, tuple[Expr, ...]]:
        """The slot of a thread's partial result, and which threads store: the first lane of each group, none past the end of a digit."""
        slot: Expr = const(0)
        conds: list[Expr] = []
        for s in warps.spreads:
            base, _, digit = self._digit(s.ptype, s.axis)
            conds += [lt(base, product(digits(self.tv, s.ptype))), eq(simplify(digit % s.lanes, self.index_map.facts), 0)]
            slot = slot * s.groups + digit // s.lanes
        leads = _unproved(tuple(conds), self.index_map)
        facts = self.index_map.facts
        for cond in leads:
            facts = facts.with_assumption(cond)
        return simplify(slot, facts), leads

    # -- any set of threads ---------------------------------------------------------------------------------------------------------

    def threads(self, p: ParallelType, axis: Axis) -> list[JoinStep]:
        """A tree over Shared memory along one reduced digit."""
        index_map = self.index_map
        mine = self.partials.of_thread(index_map, {})
        base, stride, digit = self._digit(p, axis)
        most = bounds(axis.extent, index_map.facts)[1]
        limit = MAX_THREADS if most is None else min(most, MAX_THREADS)
        steps = [JoinStep([self._compute(mine, COPY, (self.acc,), index_map, index_map.guards)])]
        step = 1
        while step * 2 < limit:
            step *= 2
        while step >= 1 and limit > 1:
            inside = (lt(base, product(digits(self.tv, p))), lt(digit, step), lt(digit + step, axis.extent))
            guarded = IndexMap(index_map.values, index_map.facts.with_assumption(and_(*inside)), index_map.guards)
            other = self.partials.of_thread(guarded, {p: base + stride * step})
            if not prove(lt(axis.extent, step + 1), index_map.facts):
                steps.append(JoinStep([self._compute(mine, self.expr.combine.op, (mine, other), guarded, (*index_map.guards, *_unproved(inside, index_map)))]))
            step //= 2
        result = self.partials.of_thread(index_map, {p: base - stride * digit})
        steps.append(JoinStep([self._compute(self.acc, COPY, (result,), index_map, index_map.guards)]))
        return steps

    # -- blocks ---------------------------------------------------------------------------------------------------------------------

    def blocks(self, p: ParallelType, axis: Axis) -> list[JoinStep]:
        """A round along one reduced digit, over Shared memory of the blocks of a cluster, or over Global memory."""
        memory = nearest(p)
        index_map = self.index_map
        own = digits(self.tv, p)
        base, stride, digit = self._digit(p, axis)
        var = f"part.{p.value}"
        inner = IndexMap(index_map.values, index_map.facts.with_range(var, 0, axis.extent - 1), index_map.guards)
        other = self.partials.of_block(memory, inner, {p: base + stride * (sym(var) - digit)})
        inside = _unproved((lt(base, product(own)),), inner) if axis is not own[0] else ()
        step = self._compute(self.acc, self.expr.combine.op, (self.acc, other), inner, (*index_map.guards, *inside))
        leads = self._leads()
        return [
            JoinStep([self._compute(self.partials.of_block(memory, index_map, {}), COPY, (self.acc,), index_map, (*index_map.guards, *leads))]),
            JoinStep([self._compute(self.acc, COPY, (self.neutral,), index_map, index_map.guards)], PLoop(var, axis.extent, False, [step])),
        ]

    def _leads(self) -> tuple[Expr, ...]:
        """Which of the threads that have one result stores it: the first along every reduced digit."""
        conds: list[Expr] = []
        for p in THREAD_TYPES:
            own = digits(self.tv, p)
            reduced = [a for a in own if a.is_reduction]
            if reduced:
                base = sym(base_name(p, self.statements.indexer.tree.place[self.tv]))
                conds.append(lt(base, maximum(product(own), 1)))  # of no threads' terms the one thread that there is stores the neutral element
                conds += [eq(self._digit(p, a)[2], 0) for a in reduced]
        return _unproved(tuple(conds), self.index_map)


def _unproved(conds: tuple[Expr, ...], index_map: IndexMap) -> tuple[Expr, ...]:
    """The conditions that do not follow from the facts and from the conditions before them."""
    found: list[Expr] = []
    facts = index_map.facts
    for c in conds:
        if not prove(c, facts):
            found.append(c)
            facts = facts.with_assumption(c)
    return tuple(found)
