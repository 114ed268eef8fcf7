"""Reductions across threads and blocks: the stage that joins accumulators.

Each thread (or block) of a reduced digit holds a partial result in its accumulator; after this stage every thread of the region holds the
result. Where the region is made of whole warps, the lanes of a warp exchange accumulators in a butterfly of shuffles; if partial results of
several warps are left, one lane of each group stores its own to Shared memory and every thread combines all of them, in the same order.
Any other set of threads joins in a tree over Shared memory. Across blocks every block combines all partial results from a Global workspace.
The barriers between the steps are the sync pass's: the steps are plain statements. Accumulators may be the registers of an atom's tile, which are
joined one by one: threads that hold one place of it in two partial results differ in reduced digits alone.
"""

from __future__ import annotations

from taskfuse.ir.axes import Axis
from taskfuse.ir.elementwise import ELEMENTWISE, Elementwise
from taskfuse.ir.expr import Reduction
from taskfuse.ir.scalar import Expr, and_, bounds, const, eq, le, lt, prove, simplify, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import INDEX_TYPES, MemoryType, ParallelType
from taskfuse.kir.limits import MAX_THREADS
from taskfuse.kir.nodes import Access, Compute, Content, Immediate, Operand, Shuffle
from taskfuse.lowering.domains import digit_values, digits, product
from taskfuse.lowering.environments import Environment
from taskfuse.lowering.lanes import WarpReduction
from taskfuse.lowering.partials import Partials, lane_registers
from taskfuse.lowering.plan import PLoop, PNode, PStmt, base_name
from taskfuse.lowering.statements import Statements

COPY = ELEMENTWISE["copy"]

Steps = list[list[PNode]]


def finish(statements: Statements, tv: TensorView, loops: dict[Axis, Expr]) -> list[PNode]:
    """The code that joins the accumulators of ``tv`` and stores the result; ``loops``: over the elements that a thread has."""
    partials = Partials.of(statements.indexer, tv)
    join = _Join(statements, tv, loops, partials)
    reduced = [(p, a) for p in reversed(INDEX_TYPES) for a in reversed(digits(tv, p)) if a.is_reduction and not join.is_alone(p, a)]
    steps: Steps = []
    if partials.warps is not None:
        steps += join.warps(partials.warps)
    else:
        for p, axis in reduced:
            steps += join.threads(p, axis) if p.is_thread else []
    for p, axis in reduced:
        steps += [] if p.is_thread else join.blocks(p, axis)
    if statements.accumulator(tv) != tv.name:
        steps.append([statements.store(tv, loops)])
    return partials.wrapped(steps, loops)


class _Join:
    """The steps for one reduction, each for one element of its result."""

    def __init__(self, statements: Statements, tv: TensorView, loops: dict[Axis, Expr], partials: Partials) -> None:
        expr = statements.definition(tv)
        assert isinstance(expr, Reduction)
        self.statements, self.tv, self.expr, self.partials = statements, tv, expr, partials
        self.env = statements.indexer.environments.variant(tv, loops, MemoryType.Local, outside=True)
        self.acc = partials.accumulator(statements.first_accumulator(tv, self.env))
        self.neutral = Immediate(expr.init.value, expr.init.dtype)

    def is_alone(self, p: ParallelType, axis: Axis) -> bool:
        """True if a digit has one value, which all indices of the region have: there is nothing to join."""
        region = self.statements.indexer.regions.region(self.statements.indexer.tree.place[self.tv], p)
        return axis.extent is const(1) and prove(le(region.extent, product(digits(self.tv, p))), self.env.facts)

    def _compute(self, out: Access, op: Elementwise, operands: tuple[Operand, ...], env: Environment, guards: tuple[Expr, ...]) -> PStmt:
        stmt = Compute(out, op, operands, self.tv.dtype.compute)
        return self.statements.statement(self.tv, stmt, env, guards, Content.PART)

    def _digit(self, p: ParallelType, axis: Axis) -> tuple[Expr, Expr, Expr]:
        """The local index of an index type, how far one step of the digit that an axis is moves it, and the digit."""
        own, base = digits(self.tv, p), sym(base_name(p, self.statements.indexer.tree.place[self.tv]))
        return base, product(own[own.index(axis) + 1 :]), digit_values(own, base, self.env.facts)[axis]

    # -- whole warps ----------------------------------------------------------------------------------------------------------------

    def warps(self, warps: WarpReduction) -> Steps:
        """Shuffles in every warp, then, if partial results are left, one round over Shared memory.

        All lanes take part in a shuffle, so it stands under no guard: a lane that a guard keeps from its accumulator brings the neutral element.
        """
        env, acc, op = self.env, self.acc, self.expr.combine.op
        everyone = Environment({}, self.statements.indexer.regions.facts, ())
        lane, peer = (Access(name, ()) for name in lane_registers(self.tv))
        mine = lane if warps.masks and env.guards else acc
        nodes: list[PNode] = []
        steps: Steps = [nodes]
        if mine is lane:
            nodes.append(self._compute(lane, COPY, (self.neutral,), everyone, ()))
            nodes.append(self._compute(lane, COPY, (acc,), env, env.guards))
        for mask in warps.masks:
            nodes.append(self.statements.statement(self.tv, Shuffle(peer, mine, mask), everyone, (), Content.PART))
            nodes.append(self._compute(mine, op, (mine, peer), everyone, ()))
        if not warps.is_local:
            slot, leads = self._slot(warps)
            nodes.append(self._compute(self.partials.of_slot(env, slot), COPY, (mine,), env, (*env.guards, *leads)))
            var = f"{self.tv.name}.slot"
            inner = Environment(env.values, env.facts.with_range(var, 0, warps.slots - 1), env.guards)
            step = self._compute(acc, op, (acc, self.partials.of_slot(inner, sym(var))), inner, env.guards)
            steps.append([self._compute(acc, COPY, (self.neutral,), env, env.guards), PLoop(var, warps.slots, False, [step])])
        elif mine is lane:
            nodes.append(self._compute(acc, COPY, (lane,), env, env.guards))
        return steps

    def _slot(self, warps: WarpReduction) -> tuple[Expr, tuple[Expr, ...]]:
        """The slot of a thread's partial result, and which threads store: the first lane of each group, none past the end of a digit."""
        slot: Expr = const(0)
        conds: list[Expr] = []
        for s in warps.spreads:
            base, _, digit = self._digit(s.ptype, s.axis)
            conds += [lt(base, product(digits(self.tv, s.ptype))), eq(simplify(digit % s.lanes, self.env.facts), 0)]
            slot = slot * s.groups + digit // s.lanes
        leads = _unproved(tuple(conds), self.env)
        facts = self.env.facts
        for cond in leads:
            facts = facts.with_assumption(cond)
        return simplify(slot, facts), leads

    # -- any set of threads ---------------------------------------------------------------------------------------------------------

    def threads(self, p: ParallelType, axis: Axis) -> Steps:
        """A tree over Shared memory along one reduced digit."""
        env, shared = self.env, MemoryType.Shared
        mine = self.partials.of_thread(env, shared, {})
        base, stride, digit = self._digit(p, axis)
        most = bounds(axis.extent, env.facts)[1]
        limit = MAX_THREADS if most is None else min(most, MAX_THREADS)
        steps: Steps = [[self._compute(mine, COPY, (self.acc,), env, env.guards)]]
        step = 1
        while step * 2 < limit:
            step *= 2
        while step >= 1 and limit > 1:
            inside = (lt(base, product(digits(self.tv, p))), lt(digit, step), lt(digit + step, axis.extent))
            guarded = Environment(env.values, env.facts.with_assumption(and_(*inside)), env.guards)
            other = self.partials.of_thread(guarded, shared, {p: base + stride * step})
            if not prove(lt(axis.extent, step + 1), env.facts):
                steps.append([self._compute(mine, self.expr.combine.op, (mine, other), guarded, (*env.guards, *_unproved(inside, env)))])
            step //= 2
        result = self.partials.of_thread(env, shared, {p: base - stride * digit})
        steps.append([self._compute(self.acc, COPY, (result,), env, env.guards)])
        return steps

    # -- blocks ---------------------------------------------------------------------------------------------------------------------

    def blocks(self, p: ParallelType, axis: Axis) -> Steps:
        """A round over Global memory along one reduced digit."""
        env, workspace = self.env, MemoryType.Global
        own = digits(self.tv, p)
        base, stride, digit = self._digit(p, axis)
        var = f"{self.tv.name}.{p.value}"
        inner = Environment(env.values, env.facts.with_range(var, 0, axis.extent - 1), env.guards)
        other = self.partials.of_thread(inner, workspace, {p: base + stride * (sym(var) - digit)})
        inside = _unproved((lt(base, product(own)),), inner) if axis is not own[0] else ()
        step = self._compute(self.acc, self.expr.combine.op, (self.acc, other), inner, (*env.guards, *inside))
        return [
            [self._compute(self.partials.of_thread(env, workspace, {}), COPY, (self.acc,), env, env.guards)],
            [self._compute(self.acc, COPY, (self.neutral,), env, env.guards), PLoop(var, axis.extent, False, [step])],
        ]


def _unproved(conds: tuple[Expr, ...], env: Environment) -> tuple[Expr, ...]:
    """The conditions that do not follow from the facts and from the conditions before them."""
    found: list[Expr] = []
    facts = env.facts
    for c in conds:
        if not prove(c, facts):
            found.append(c)
            facts = facts.with_assumption(c)
    return tuple(found)
