"""Reductions across threads and blocks: the stage that joins accumulators.

Each thread (or block) of a reduced digit holds a partial result in its accumulator. Across threads a tree over Shared memory joins them
and every thread of the region reads the result, so that it is replicated; across blocks every block reads all partial results from a
Global workspace. The barriers between the steps are the sync pass's: the steps are plain statements.
"""

from __future__ import annotations

from taskfuse.ir.axes import Axis
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Reduction
from taskfuse.ir.scalar import Expr, and_, bounds, const, lt, prove, simplify, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import INDEX_TYPES, MemoryType, ParallelType
from taskfuse.kir.limits import MAX_THREADS
from taskfuse.kir.nodes import Access, Compute, Immediate
from taskfuse.lowering.domains import digit_values, digits, product
from taskfuse.lowering.plan import Environment, PLoop, PNode, base_name
from taskfuse.lowering.statements import Statements

COPY = ELEMENTWISE["copy"]


def finish(statements: Statements, tv: TensorView, loops: dict[Axis, Expr]) -> list[PNode]:
    """The statements that join the accumulators of ``tv`` and store the result, for one element of it."""
    nodes: list[PNode] = []
    for p in reversed(INDEX_TYPES):
        for axis in reversed(digits(tv, p)):
            if axis.is_reduction:
                nodes += _join_threads(statements, tv, loops, p, axis) if p.is_thread else _join_blocks(statements, tv, loops, p, axis)
    if statements.accumulator(tv) != tv.name:
        nodes.append(statements.store(tv, loops))
    return nodes


def workspace(tv: TensorView, memory: MemoryType) -> str:
    """The name of the buffer in which partial results meet."""
    return f"{tv.name}.{'part' if memory is MemoryType.Shared else 'blocks'}"


def _workspace_types(statements: Statements, tv: TensorView, memory: MemoryType) -> list[ParallelType]:
    """The index types of which each index has its own partial result."""
    task = statements.indexer.tree.place[tv]
    regions = statements.indexer.regions
    return [p for p in INDEX_TYPES if not memory.is_private_to(p) and regions.region(task, p).extent is not const(1)]


def workspace_shape(statements: Statements, tv: TensorView, memory: MemoryType) -> tuple[Expr, ...]:
    """One element per thread of the task's region (Shared), and per block of it (Global)."""
    task = statements.indexer.tree.place[tv]
    return tuple(statements.indexer.regions.region(task, p).extent for p in _workspace_types(statements, tv, memory))


def _place(statements: Statements, tv: TensorView, env: Environment, memory: MemoryType, replace: dict[ParallelType, Expr]) -> Access:
    task = statements.indexer.tree.place[tv]
    types = _workspace_types(statements, tv, memory)
    return Access(workspace(tv, memory), tuple(simplify(replace[p] if p in replace else sym(base_name(p, task)), env.facts) for p in types))


def _outside(statements: Statements, tv: TensorView, loops: dict[Axis, Expr]) -> Environment:
    return statements.indexer.variant(tv, loops, MemoryType.Local, outside=True)


def _accumulator(statements: Statements, tv: TensorView, env: Environment) -> Access:
    return statements.indexer.write(tv, env, MemoryType.Local, statements.accumulator(tv))


def _join_threads(statements: Statements, tv: TensorView, loops: dict[Axis, Expr], p: ParallelType, axis: Axis) -> list[PNode]:
    expr = statements.definition(tv)
    assert isinstance(expr, Reduction)
    env = _outside(statements, tv, loops)
    dtype = tv.dtype.compute
    acc = _accumulator(statements, tv, env)
    mine = _place(statements, tv, env, MemoryType.Shared, {})
    base = sym(base_name(p, statements.indexer.tree.place[tv]))
    own = digits(tv, p)
    stride = const(1)
    for a in own[own.index(axis) + 1 :]:
        stride = stride * a.extent
    digit = digit_values(own, base, env.facts)[axis]
    most = bounds(axis.extent, env.facts)[1]
    limit = MAX_THREADS if most is None else min(most, MAX_THREADS)
    nodes: list[PNode] = [statements.statement(tv, Compute(mine, COPY, (acc,), dtype, expr.location), env, env.guards)]
    step = 1
    while step * 2 < limit:
        step *= 2
    while step >= 1 and limit > 1:
        inside = (lt(base, product(own)), lt(digit, step), lt(digit + step, axis.extent))
        guarded = Environment(env.values, env.facts.with_assumption(and_(*inside)), env.guards)
        other = _place(statements, tv, guarded, MemoryType.Shared, {p: base + stride * step})
        stmt = Compute(mine, expr.combine.op, (mine, other), dtype, expr.location)
        if not prove(lt(axis.extent, step + 1), env.facts):
            nodes.append(statements.statement(tv, stmt, guarded, (*env.guards, *_unproved(inside, env))))
        step //= 2
    result = _place(statements, tv, env, MemoryType.Shared, {p: base - stride * digit})
    nodes.append(statements.statement(tv, Compute(acc, COPY, (result,), dtype, expr.location), env, env.guards))
    return nodes


def _unproved(conds: tuple[Expr, ...], env: Environment) -> tuple[Expr, ...]:
    """The conditions that do not follow from the facts and from the conditions before them."""
    found: list[Expr] = []
    facts = env.facts
    for c in conds:
        if not prove(c, facts):
            found.append(c)
            facts = facts.with_assumption(c)
    return tuple(found)


def _join_blocks(statements: Statements, tv: TensorView, loops: dict[Axis, Expr], p: ParallelType, axis: Axis) -> list[PNode]:
    expr = statements.definition(tv)
    assert isinstance(expr, Reduction)
    env = _outside(statements, tv, loops)
    dtype = tv.dtype.compute
    acc = _accumulator(statements, tv, env)
    mine = _place(statements, tv, env, MemoryType.Global, {})
    base = sym(base_name(p, statements.indexer.tree.place[tv]))
    own = digits(tv, p)
    stride = const(1)
    for a in own[own.index(axis) + 1 :]:
        stride = stride * a.extent
    digit = digit_values(own, base, env.facts)[axis]
    var = f"{tv.name}.{p.value}"
    inner = Environment(env.values, env.facts.with_range(var, 0, axis.extent - 1), env.guards)
    other = _place(statements, tv, inner, MemoryType.Global, {p: base + stride * (sym(var) - digit)})
    inside = _unproved((lt(base, product(own)),), inner) if axis is not own[0] else ()
    step = Compute(acc, expr.combine.op, (acc, other), dtype, expr.location)
    return [
        statements.statement(tv, Compute(mine, COPY, (acc,), dtype, expr.location), env, env.guards),
        statements.statement(tv, Compute(acc, COPY, (Immediate(expr.init.value, expr.init.dtype),), dtype, expr.location), env, env.guards),
        PLoop(var, axis.extent, False, [statements.statement(tv, step, inner, (*env.guards, *inside))]),
    ]
