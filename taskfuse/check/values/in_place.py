"""Inputs that an output is written into: each read of an element precedes its write.

Everything else takes an element of an input for what the caller passed. Two accesses of one array by two names never race (:mod:`taskfuse.check.races`
treats them as one), so they are ordered as in the sequential nest: it suffices that a write of an element follows every read of it there.
"""

from __future__ import annotations

from collections.abc import Iterator

from taskfuse.check.accesses import Use, Uses
from taskfuse.check.paths import common_loops
from taskfuse.check.relation import Relation
from taskfuse.check.ring_order import RingOrder
from taskfuse.check.statement_tree import Node
from taskfuse.check.structure import Structure
from taskfuse.kir import accesses
from taskfuse.kir.declarations import TensorMapParam
from taskfuse.kir.nodes import For, TmaLoad
from taskfuse.reports.certificate import Layer, Obligation, Verdict


def read_before_written(structure: Structure) -> Iterator[tuple[Obligation, Node]]:
    """Those that are not known to be, with the statement that reads."""
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
    """The names of what a statement reads."""
    names = {a.buffer for a in accesses(node.stmt)[1]}
    if isinstance(node.stmt, TmaLoad):
        names.add(maps[node.stmt.map])
    return names


def _comes_first(read: Use, write: Use, structure: Structure, rings: RingOrder) -> bool:
    """True only if a read of an element stands before every write of it: in the same iteration of all loops around both, or nowhere.

    Loops that the ends of a ring share are one loop, in which what precedes an arrival stands before what follows the wait for it.
    """
    found = Relation(read, write, structure.threads)
    if found.never or found.excluded():
        return True
    loops = [n.stmt.var for n in common_loops(read.node, write.node) if isinstance(n.stmt, For)]
    if not found.equal.issuperset(loops):
        return found.apart(read, write)
    if read.node is write.node:
        return not read.engine.is_async and not write.engine.is_async
    if read.node.number < write.node.number and not _in_other_arms(read.node, write.node):
        return True
    return any(rings.comes_first(ring, visit, read, write, found.equal) for ring, visit in rings.positions(read.node))


def _in_other_arms(a: Node, b: Node) -> bool:
    """True if two statements stand in different arms: the text does not say which one is executed first."""
    for x, y in zip(a.path, b.path, strict=False):
        if x.block is not y.block:
            return True
        if x is not y:
            return False
    return False
