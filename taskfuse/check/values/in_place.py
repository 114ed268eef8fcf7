"""Inputs that an output is written into: each read of an element precedes its write.

All other rules assume that an element of an input is what the caller passed. Two accesses of one array by two names never race (:mod:`taskfuse.check.races`
treats them as one), so they are ordered as in the sequential nest: it suffices that a write of an element follows every read of it there.
"""

from __future__ import annotations

from collections.abc import Iterator

from taskfuse.check.accesses import Use, Uses
from taskfuse.check.bounded_variables import Trip, with_names
from taskfuse.check.paths import common_loops
from taskfuse.check.relation import Relation
from taskfuse.check.ring_order import RingOrder
from taskfuse.check.statement_tree import BLOCK_NAMES, THREAD_NAMES, Node, cursor_of
from taskfuse.check.structure import Structure
from taskfuse.check.values.arms import in_other_arm
from taskfuse.check.values.written import written_symbol
from taskfuse.ir.scalar import Expr, const, eq, le, lt, substitute, sym
from taskfuse.kir.declarations import TensorMapParam
from taskfuse.kir.nodes import For, TmaLoad
from taskfuse.reports.certificate import Layer, Obligation, Verdict


def read_before_written(structure: Structure) -> Iterator[tuple[Obligation, Node]]:
    """The inputs for which this is not proved, each with the statement that reads."""
    kernel = structure.tree.kernel
    if not kernel.in_place:
        return
    maps = {p.name: p.tensor for p in kernel.params if isinstance(p, TensorMapParam)}
    uses = Uses(structure.tree)
    rings = RingOrder(structure.rings.rings, structure.threads, structure.paths)
    for source in kernel.in_place.values():
        mine = uses.by_buffer.get(source, [])
        writes = [u for u in mine if u.is_write]
        for read in (u for u in mine if not u.is_write and source in _read(u.node, maps)):
            late = next((w for w in writes if not _comes_first(read, w, structure, rings)), None)
            if late is not None:
                reason = f"it may read an element of {source} after another value was written there"
                notes = tuple(f"{'write' if u.is_write else 'read'} of {u.text}: {u.node.text}" for u in (read, late))
                yield Obligation(Layer.VALUES, f"{source}, in place", Verdict.OUTSIDE, reason, notes), read.node


def _read(node: Node, maps: dict[str, str]) -> set[str]:
    """The names of the tensors that a statement reads."""
    names = {a.buffer for a in node.accesses[1]}
    if isinstance(node.stmt, TmaLoad):
        names.add(maps[node.stmt.map])
    return names


def _comes_first(read: Use, write: Use, structure: Structure, rings: RingOrder) -> bool:
    """True only if a read of an element stands before every write of it.

    Loops that the ends of a ring share are one loop, in which what precedes an arrival stands before what follows the wait for it.
    """
    found = Relation(read, write, structure.threads)
    if found.never or found.excluded():
        return True
    loops = [n.stmt.var for n in common_loops(read.node, write.node) if isinstance(n.stmt, For)]
    if not found.equal.issuperset(loops):
        return found.apart(read, write) or _is_in_later_iteration(read, write, found.equal)
    if read.node is write.node:
        return not read.engine.is_async and not write.engine.is_async
    if read.node.number < write.node.number and not in_other_arm(read.node, write.node):
        return True
    return any(rings.comes_first(ring, visit, read, write, found.equal) for ring, visit in rings.positions(read.node))


def _is_in_later_iteration(read: Use, write: Use, equal: set[str]) -> bool:
    """True only if a write of the element that is read is made in a later iteration, or in the same one and after the read.

    The outermost common loop whose iterations differ decides. It counts alike for all threads: its bounds are theirs, or one thread makes both accesses.

    Args:
        equal: the names of symbols that have one value in both accesses.
    """
    if in_other_arm(read.node, write.node):
        return False
    kernel = read.context.kernel
    own = [str(a.symbol) for a in write.context.constraints.assumptions if not isinstance(a, Expr)]
    hardware = dict(zip((*THREAD_NAMES, *BLOCK_NAMES), (*kernel.block, *kernel.grid), strict=True))
    touching = (*(e for e in write.index if e is not None), *(a for a in write.context.constraints.assumptions if isinstance(a, Expr)))
    cursors = {n for e in touching for n in e.free if cursor_of(n) is not None}
    names: dict[str, Expr] = {n: written_symbol(n) for n in (*own, *hardware, *sorted(cursors)) if n not in equal}
    constraints = read.context.constraints
    for name, extent in hardware.items():
        if name in names:
            constraints = constraints.given(Trip(names[name], const(0), extent, ()))
    for a in write.context.constraints.assumptions:
        constraints = constraints.given(with_names(a, names))
    touched = ((x, y) for x, y in zip(read.index, write.index, strict=True) if x is not None and y is not None)
    constraints = constraints.given(*(eq(x, substitute(y, names)) for x, y in touched))
    one_thread = equal.issuperset(hardware)
    for loop in reversed(common_loops(read.node, write.node)):
        stmt = loop.stmt
        if not isinstance(stmt, For) or stmt.var in equal:
            continue
        if not one_thread and not (stmt.start.free | stmt.step.free).isdisjoint(names):
            return False
        mine, its = sym(stmt.var), names[stmt.var]
        if constraints.proves(lt(mine, its)):
            return True
        if not constraints.proves(le(mine, its)):
            return False
        constraints = constraints.given(eq(mine, its))
    return read.node.number < write.node.number or (read.node is write.node and not read.engine.is_async and not write.engine.is_async)
