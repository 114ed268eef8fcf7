"""Reductions across threads and blocks: the stage that joins accumulators.

Each thread (or block) of a reduced digit holds a partial result in its accumulator; after this stage every thread of the region holds the
result. Where the region is made of whole warps, the lanes of a warp exchange accumulators in a butterfly of shuffles; if partial results of
several warps are left, one lane of each group stores its own to Shared memory and every thread combines all of them, in the same order.
Any other set of threads joins in a tree over Shared memory. Across blocks every block combines all partial results from a Global workspace.
The barriers between the steps are the sync pass's: the steps are plain statements. A thread that has several elements of the result takes each
step for all of them, so that they share its barrier, if their partial results together are not too large.
"""

from __future__ import annotations

from taskfuse.ir.axes import Axis
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Reduction
from taskfuse.ir.scalar import Expr, Facts, and_, bounds, const, eq, le, lt, prove, simplify, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import INDEX_TYPES, THREAD_TYPES, MemoryType, ParallelType
from taskfuse.kir.limits import MAX_THREADS
from taskfuse.kir.nodes import Access, Compute, Content, Immediate, Shuffle
from taskfuse.lowering.domains import digit_values, digits, product
from taskfuse.lowering.environments import Environment
from taskfuse.lowering.lanes import WarpReduction, warp_reduction
from taskfuse.lowering.plan import PLoop, PNode, base_name
from taskfuse.lowering.statements import Statements

COPY = ELEMENTWISE["copy"]
MOST_BYTES = 16 * 1024
"""Of Shared memory, for the partial results of all elements that a thread has; above it takes one element after the other."""

Steps = list[list[PNode]]


def finish(statements: Statements, tv: TensorView, loops: dict[Axis, Expr]) -> Steps:
    """The steps that join the accumulators of ``tv`` and store the result: statements for one element of it, with a barrier between."""
    steps: Steps = []
    reduced = [(p, a) for p in reversed(INDEX_TYPES) for a in reversed(digits(tv, p)) if a.is_reduction]
    threads = [(p, a) for p, a in reduced if p.is_thread]
    warps = _warps(statements, tv) if threads else None
    if warps is not None:
        steps += _join_warps(statements, tv, loops, warps)
    else:
        for p, axis in threads:
            steps += _join_threads(statements, tv, loops, p, axis)
    for p, axis in reduced:
        if not p.is_thread:
            steps += _join_blocks(statements, tv, loops, p, axis)
    if statements.accumulator(tv) != tv.name:
        steps.append([statements.store(tv, loops)])
    return steps if _own(statements, tv) else [[n for step in steps for n in step]]


def inner_axes(tv: TensorView) -> tuple[Axis, ...]:
    """The loops of a reduction over its result that stand inside its outermost reduction loop: a thread has an accumulator for each of their values."""
    first = next((d for d, a in enumerate(tv.loop) if a.is_reduction), len(tv.loop))
    return tuple(a for a in tv.loop[first:] if tv.schedule.ptype(a).is_loop and not a.is_reduction)


# -- workspaces ---------------------------------------------------------------------------------------------------------------------


def workspace(tv: TensorView, memory: MemoryType) -> str:
    """The name of the buffer in which partial results meet."""
    return f"{tv.name}.{'part' if memory is MemoryType.Shared else 'blocks'}"


def lane_registers(tv: TensorView) -> tuple[str, str]:
    """The names of what a lane brings to shuffles where its accumulator may not exist, and of what it gets."""
    return f"{tv.name}.lane", f"{tv.name}.peer"


def workspace_shape(statements: Statements, tv: TensorView, memory: MemoryType) -> tuple[Expr, ...]:
    """Shared: one element per partial result that shuffles leave, or per thread of the task's region; Global: per block of it, too.

    Each for every element of the result that a thread has, as far as they take their steps together.
    """
    return _shape(statements, tv, memory) + tuple(a.extent for a in _own(statements, tv))


def _shape(statements: Statements, tv: TensorView, memory: MemoryType) -> tuple[Expr, ...]:
    warps = _warps(statements, tv) if memory is MemoryType.Shared else None
    if warps is not None:
        return (warps.slots, *(extent for _, extent in _elements(statements, tv, statements.indexer.regions.facts)))
    task = statements.indexer.tree.place[tv]
    return tuple(statements.indexer.regions.region(task, p).extent for p in _workspace_types(statements, tv, memory))


def _own(statements: Statements, tv: TensorView) -> tuple[Axis, ...]:
    """The axes of the elements that a thread joins together: all that it has, or none."""
    axes = inner_axes(tv)
    size = const(tv.dtype.compute.itemsize) * product(axes)
    if any(a.is_reduction for p in THREAD_TYPES for a in digits(tv, p)):
        for extent in _shape(statements, tv, MemoryType.Shared):
            size = size * extent
    return axes if prove(le(size, MOST_BYTES), statements.indexer.regions.facts) else ()


def _warps(statements: Statements, tv: TensorView) -> WarpReduction | None:
    return warp_reduction(statements.indexer.regions, statements.indexer.tree.place[tv], tv)


def _elements(statements: Statements, tv: TensorView, facts: Facts) -> list[tuple[Expr, Expr]]:
    """Which element of the result a thread has a part of: (index, extent) of each digit that is not reduced and of each index that replicates."""
    task = statements.indexer.tree.place[tv]
    found: list[tuple[Expr, Expr]] = []
    for p in reversed(THREAD_TYPES):
        own, base = digits(tv, p), sym(base_name(p, task))
        values = digit_values(own, base, facts)
        found += [(values[a], a.extent) for a in own if not a.is_reduction] if own else [(base, statements.indexer.regions.region(task, p).extent)]
    return [(index, extent) for index, extent in found if extent is not const(1)]


def _workspace_types(statements: Statements, tv: TensorView, memory: MemoryType) -> list[ParallelType]:
    """The index types of which each index has its own partial result."""
    task = statements.indexer.tree.place[tv]
    regions = statements.indexer.regions
    return [p for p in INDEX_TYPES if not memory.is_private_to(p) and regions.region(task, p).extent is not const(1)]


def _place(statements: Statements, tv: TensorView, env: Environment, memory: MemoryType, replace: dict[ParallelType, Expr]) -> Access:
    task = statements.indexer.tree.place[tv]
    types = _workspace_types(statements, tv, memory)
    index = tuple(simplify(replace[p] if p in replace else sym(base_name(p, task)), env.facts) for p in types)
    return Access(workspace(tv, memory), (*index, *_element(statements, tv, env)))


def _element(statements: Statements, tv: TensorView, env: Environment) -> tuple[Expr, ...]:
    """Which of the elements that a thread joins together."""
    return tuple(env.values[a] for a in _own(statements, tv))


def _outside(statements: Statements, tv: TensorView, loops: dict[Axis, Expr]) -> Environment:
    return statements.indexer.environments.variant(tv, loops, MemoryType.Local, outside=True)


def _digit(statements: Statements, tv: TensorView, env: Environment, p: ParallelType, axis: Axis) -> tuple[Expr, Expr, Expr]:
    """The local index of an index type, how far one step of the digit that an axis is moves it, and the digit."""
    own, base = digits(tv, p), sym(base_name(p, statements.indexer.tree.place[tv]))
    return base, product(own[own.index(axis) + 1 :]), digit_values(own, base, env.facts)[axis]


def _accumulator(statements: Statements, tv: TensorView, env: Environment) -> Access:
    return statements.indexer.write(tv, env, MemoryType.Local, statements.accumulator(tv))


# -- whole warps --------------------------------------------------------------------------------------------------------------------


def _join_warps(statements: Statements, tv: TensorView, loops: dict[Axis, Expr], warps: WarpReduction) -> Steps:
    """Shuffles in every warp, then, if partial results are left, one round over Shared memory.

    All lanes take part in a shuffle, so it stands under no guard: a lane that a guard keeps from its accumulator brings the neutral element.
    """
    expr = statements.definition(tv)
    assert isinstance(expr, Reduction)
    env = _outside(statements, tv, loops)
    everyone = Environment({}, statements.indexer.regions.facts, ())
    dtype = tv.dtype.compute
    neutral = Immediate(expr.init.value, expr.init.dtype)
    acc = _accumulator(statements, tv, env)
    lane, peer = (Access(name, ()) for name in lane_registers(tv))
    mine = lane if warps.masks and env.guards else acc
    nodes: list[PNode] = []
    steps: Steps = [nodes]

    def compute(stmt: Compute | Shuffle, where: Environment, guards: tuple[Expr, ...]) -> None:
        nodes.append(statements.statement(tv, stmt, where, guards, Content.PART))

    if mine is lane:
        compute(Compute(lane, COPY, (neutral,), dtype, expr.location), everyone, ())
        compute(Compute(lane, COPY, (acc,), dtype, expr.location), env, env.guards)
    for mask in warps.masks:
        compute(Shuffle(peer, mine, mask, expr.location), everyone, ())
        compute(Compute(mine, expr.combine.op, (mine, peer), dtype, expr.location), everyone, ())
    if not warps.is_local:
        elements = (*(index for index, _ in _elements(statements, tv, env.facts)), *_element(statements, tv, env))
        slot, leads = _slot(statements, tv, env, warps)
        compute(Compute(Access(workspace(tv, MemoryType.Shared), (slot, *elements)), COPY, (mine,), dtype, expr.location), env, (*env.guards, *leads))
        nodes = []
        steps.append(nodes)
        compute(Compute(acc, COPY, (neutral,), dtype, expr.location), env, env.guards)
        var = f"{tv.name}.slot"
        inner = Environment(env.values, env.facts.with_range(var, 0, warps.slots - 1), env.guards)
        other = Access(workspace(tv, MemoryType.Shared), (sym(var), *elements))
        step = Compute(acc, expr.combine.op, (acc, other), dtype, expr.location)
        nodes.append(PLoop(var, warps.slots, False, [statements.statement(tv, step, inner, env.guards, Content.PART)]))
    elif mine is lane:
        compute(Compute(acc, COPY, (lane,), dtype, expr.location), env, env.guards)
    return steps


def _slot(statements: Statements, tv: TensorView, env: Environment, warps: WarpReduction) -> tuple[Expr, tuple[Expr, ...]]:
    """The slot of a thread's partial result, and which threads store: the first lane of each group, none past the end of a digit."""
    slot: Expr = const(0)
    conds: list[Expr] = []
    for s in warps.spreads:
        base, _, digit = _digit(statements, tv, env, s.ptype, s.axis)
        conds += [lt(base, product(digits(tv, s.ptype))), eq(simplify(digit % s.lanes, env.facts), 0)]
        slot = slot * s.groups + digit // s.lanes
    leads = _unproved(tuple(conds), env)
    facts = env.facts
    for cond in leads:
        facts = facts.with_assumption(cond)
    return simplify(slot, facts), leads


# -- any set of threads -------------------------------------------------------------------------------------------------------------


def _join_threads(statements: Statements, tv: TensorView, loops: dict[Axis, Expr], p: ParallelType, axis: Axis) -> Steps:
    expr = statements.definition(tv)
    assert isinstance(expr, Reduction)
    env = _outside(statements, tv, loops)
    dtype = tv.dtype.compute
    acc = _accumulator(statements, tv, env)
    mine = _place(statements, tv, env, MemoryType.Shared, {})
    own = digits(tv, p)
    base, stride, digit = _digit(statements, tv, env, p, axis)
    most = bounds(axis.extent, env.facts)[1]
    limit = MAX_THREADS if most is None else min(most, MAX_THREADS)
    steps: Steps = [[statements.statement(tv, Compute(mine, COPY, (acc,), dtype, expr.location), env, env.guards, Content.PART)]]
    step = 1
    while step * 2 < limit:
        step *= 2
    while step >= 1 and limit > 1:
        inside = (lt(base, product(own)), lt(digit, step), lt(digit + step, axis.extent))
        guarded = Environment(env.values, env.facts.with_assumption(and_(*inside)), env.guards)
        other = _place(statements, tv, guarded, MemoryType.Shared, {p: base + stride * step})
        stmt = Compute(mine, expr.combine.op, (mine, other), dtype, expr.location)
        if not prove(lt(axis.extent, step + 1), env.facts):
            steps.append([statements.statement(tv, stmt, guarded, (*env.guards, *_unproved(inside, env)), Content.PART)])
        step //= 2
    result = _place(statements, tv, env, MemoryType.Shared, {p: base - stride * digit})
    steps.append([statements.statement(tv, Compute(acc, COPY, (result,), dtype, expr.location), env, env.guards, Content.PART)])
    return steps


def _unproved(conds: tuple[Expr, ...], env: Environment) -> tuple[Expr, ...]:
    """The conditions that do not follow from the facts and from the conditions before them."""
    found: list[Expr] = []
    facts = env.facts
    for c in conds:
        if not prove(c, facts):
            found.append(c)
            facts = facts.with_assumption(c)
    return tuple(found)


# -- blocks -------------------------------------------------------------------------------------------------------------------------


def _join_blocks(statements: Statements, tv: TensorView, loops: dict[Axis, Expr], p: ParallelType, axis: Axis) -> Steps:
    expr = statements.definition(tv)
    assert isinstance(expr, Reduction)
    env = _outside(statements, tv, loops)
    dtype = tv.dtype.compute
    acc = _accumulator(statements, tv, env)
    mine = _place(statements, tv, env, MemoryType.Global, {})
    own = digits(tv, p)
    base, stride, digit = _digit(statements, tv, env, p, axis)
    var = f"{tv.name}.{p.value}"
    inner = Environment(env.values, env.facts.with_range(var, 0, axis.extent - 1), env.guards)
    other = _place(statements, tv, inner, MemoryType.Global, {p: base + stride * (sym(var) - digit)})
    inside = _unproved((lt(base, product(own)),), inner) if axis is not own[0] else ()
    step = Compute(acc, expr.combine.op, (acc, other), dtype, expr.location)
    neutral = Compute(acc, COPY, (Immediate(expr.init.value, expr.init.dtype),), dtype, expr.location)
    return [
        [statements.statement(tv, Compute(mine, COPY, (acc,), dtype, expr.location), env, env.guards, Content.PART)],
        [
            statements.statement(tv, neutral, env, env.guards, Content.PART),
            PLoop(var, axis.extent, False, [statements.statement(tv, step, inner, (*env.guards, *inside), Content.PART)]),
        ],
    ]
