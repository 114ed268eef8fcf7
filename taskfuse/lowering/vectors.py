"""Copies of a few consecutive elements by one thread: vectors, and asynchronous copies (cp.async)."""

from __future__ import annotations

from dataclasses import replace

from taskfuse.ir.combine import vector_updates
from taskfuse.ir.expr import Gather, Update, is_copy
from taskfuse.ir.scalar import Compare, CompareOp, Const, Expr, Facts, and_, const, is_multiple, prove, simplify, substitute
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.kir.nodes import AsyncCopy, VectorCopy
from taskfuse.kir.operands import Access, Operand
from taskfuse.lowering.domains import product, refused
from taskfuse.lowering.fragments import ATOM
from taskfuse.lowering.index_maps import IndexMap
from taskfuse.lowering.plan import PStmt
from taskfuse.lowering.statements import Statements


def vector_copy(st: Statements, tv: TensorView) -> list[PStmt]:
    """A vector copy; for one element, a plain statement."""
    (axis,) = tv.schedule.atom_axes
    width = int(str(axis.extent))
    if width == 1:
        return st.plain(tv)
    index_map = st.widened(tv, st.indexer.index_maps.of(tv))
    operands, expr = st.operands(tv, index_map)[0], st.definition(tv)
    out, source = st.indexer.write(tv, index_map), operands[isinstance(expr, Update)]
    if not (is_copy(expr) or isinstance(expr, Gather | Update)) or not isinstance(source, Access):
        raise refused(tv, "a vector axis needs a plain copy", f"{tv.name}.cache_before() or cache_after() makes one")
    if isinstance(expr, Update):
        if width not in (widths := vector_updates(expr.combine, tv.dtype)):
            one = f"one instruction combines {' or '.join(map(str, widths))}" if widths else "no instruction combines several"
            raise refused(tv, f"it sends vectors of {width} {tv.dtype.name} to be combined by {expr.combine.name}: {one}", "use another width, or no vectors")
        index_map = _whole(st, tv, index_map, out, source, width)
        first = [_first(o, index_map.facts) if isinstance(o, Access) else o for o in operands]
        _check_same(tv, operands[2:])
        return [st.statement(tv, st.update(tv, expr, _first(out, index_map.facts), first, width), index_map, index_map.guards)]
    index_map = _whole(st, tv, index_map, out, source, width)
    if isinstance(expr, Gather):
        first = [_first(o, index_map.facts) if isinstance(o, Access) else o for o in operands]
        _check_same(tv, operands[1:])
        return [st.statement(tv, st.gather(tv, expr, _first(out, index_map.facts), first, width), index_map, index_map.guards)]
    start = st.tiles.existing(tv, _first(source, index_map.facts), index_map.facts, width)
    return [st.statement(tv, VectorCopy(_first(out, index_map.facts), start, width), index_map, index_map.guards)]


def _check_same(tv: TensorView, values: list[Operand]) -> None:
    """All elements of a vector have the same values."""
    if any(isinstance(v, Access) and any(ATOM in e.free for e in v.index) for v in values):
        raise refused(tv, "its vector axis is one along which the indices differ", "make a dimension of the table after the indexed ones the vector axis")


def async_copy(st: Statements, tv: TensorView) -> list[PStmt]:
    """One asynchronous copy. If Shared memory has room for a split's tail, it is filled with zeros; otherwise the copy is guarded."""
    atom = tv.schedule.atom
    assert atom is not None
    index_map = st.indexer.index_maps.of(tv)
    out, source = st.indexer.write(tv, index_map), st.operands(tv, index_map)[0][0]
    assert isinstance(source, Access)
    origin = st.source(tv)
    if st.indexer.memory[tv] is not MemoryType.Shared or (origin not in st.indexer.placed and st.indexer.memory[origin] is not MemoryType.Global):
        raise refused(
            tv,
            f"the atom {atom.name} copies from Global to Shared memory: {origin.name} is in {st.indexer.memory[origin].value}, "
            f"{tv.name} in {st.indexer.memory[tv].value} memory",
            "copy an input (cache_after), and set_memory_type(Shared)",
        )
    width = product(tv.schedule.atom_axes)
    assert isinstance(width, Const)
    if width.value > 1:
        index_map = _whole(st, tv, index_map, out, source, width.value)
    at = {ATOM: const(0)}
    index_map = replace(index_map, tails=tuple(substitute(g, at) for g in index_map.tails), guards=tuple(substitute(g, at) for g in index_map.guards))
    inside, index_map = st.past_the_end(tv, index_map)
    valid = and_(inside, _exists(st, tv, index_map, width.value))
    stmt = AsyncCopy(_first(st.indexer.write(tv, index_map), index_map.facts), _first(source, index_map.facts), width.value, valid)
    return [st.statement(tv, stmt, index_map, index_map.guards)]


def _exists(st: Statements, tv: TensorView, index_map: IndexMap, width: int) -> Expr:
    """The condition under which the elements of a padded copy exist: all of them, or none."""
    condition = st.operands(tv, index_map)[1][0]
    first, facts = substitute(condition, {ATOM: const(0)}), index_map.facts
    for v in range(1, width) if ATOM in condition.free else ():
        other = substitute(condition, {ATOM: const(v)})
        if not (prove(other, facts.with_assumption(first)) and prove(first, facts.with_assumption(other))):
            raise refused(tv, f"whether an element exists depends on its place in the vector: {condition}", "copy element by element, or along another axis")
    return first


def _first(access: Access, facts: Facts) -> Access:
    """The first element of what an atom accesses."""
    at = {ATOM: const(0)}
    return Access(access.buffer, tuple(simplify(substitute(e, at), facts) for e in access.index))


def _whole(st: Statements, tv: TensorView, index_map: IndexMap, out: Access, source: Access, width: int) -> IndexMap:
    """Both sides of a copy are consecutive and aligned. Returns the index map with the guards of the first element."""
    for access in (out, source):
        _check_contiguous(tv, access, width, index_map)
    index_map = _with_whole_guards(tv, index_map, width)
    for access, owner in ((out, tv), (source, st.source(tv))):
        _check_aligned(st, tv, access, owner, width, index_map)
    return index_map


def _with_whole_guards(tv: TensorView, index_map: IndexMap, width: int) -> IndexMap:
    """The index map with the guards of a vector's first element, where they are those of all its elements."""
    guards: list[Expr] = []
    for g in index_map.guards:
        first = substitute(g, {ATOM: const(0)})
        facts = index_map.facts.with_assumption(first)
        if ATOM in g.free and not _is_bound_of_vectors(g, width, facts) and not all(prove(substitute(g, {ATOM: const(v)}), facts) for v in range(1, width)):
            raise refused(tv, f"its vector axis of {width} does not divide what it splits", "declare tf.dim(..., multiple_of=...) or use another width")
        guards.append(first)
    return replace(index_map, guards=tuple(dict.fromkeys(guards)))


def _check_contiguous(tv: TensorView, access: Access, width: int, index_map: IndexMap) -> None:
    head = access.index[:-1]
    if not access.index or any(ATOM in e.free for e in head):
        raise refused(tv, f"its vector axis is not the last axis of {access.buffer}", "make the vector axis the innermost axis of both tensors")
    last = access.index[-1]
    start = substitute(last, {ATOM: const(0)})
    for v in range(width):
        if simplify(substitute(last, {ATOM: const(v)}) - start, index_map.facts) is not const(v):
            raise refused(tv, f"its vector axis is not contiguous in {access.buffer}", "make the vector axis the innermost axis of both tensors")


def _check_aligned(st: Statements, tv: TensorView, access: Access, owner: TensorView, width: int, index_map: IndexMap) -> None:
    """The first element of a vector lies at a multiple of its size, if the storage does and rows follow each other without gaps."""
    while owner in st.indexer.placed:
        owner = st.indexer.placed[owner][0]
    shape = tuple(a.extent for a in st.indexer.kept_axes(owner)) if owner in st.indexer.tree.place else owner.shape
    if owner in st.indexer.tree.place and st.indexer.in_order(owner):
        shape = (const(1),)  # registers with one number each
    place = const(0)
    for e, extent in zip(access.index[len(access.index) - len(shape) :], shape, strict=True):
        place = place * extent + substitute(e, {ATOM: const(0)})
    if not is_multiple(simplify(place, index_map.facts), width, index_map.facts):
        raise refused(
            tv,
            f"its vectors of {width} elements do not provably start at multiples of {width} in {access.buffer}",
            "declare extents with tf.dim(..., multiple_of=...), slice at multiples, or use another width",
        )


def _is_bound_of_vectors(guard: Expr, width: int, facts: Facts) -> bool:
    """True if a guard is ``start + element < end`` with ``end - start`` a multiple of ``width``: it holds for all elements of a vector or for none."""
    if not isinstance(guard, Compare) or guard.op is not CompareOp.LT:
        return False
    room = guard.b - guard.a
    first = simplify(substitute(room, {ATOM: const(0)}), facts)
    return all(simplify(substitute(room, {ATOM: const(v)}) - first, facts) is const(-v) for v in range(width)) and is_multiple(first, width, facts)
