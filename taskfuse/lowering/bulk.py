"""Bulk tensor copies (TMA): one instruction, started by one thread, moves a box between an argument and Shared memory."""

from __future__ import annotations

from taskfuse.ir.scalar import Expr, const, lt, prove, simplify, substitute
from taskfuse.ir.storage import storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.kir.nodes import Access, BarrierSlot, TensorMapParam, TmaLoad, TmaStore
from taskfuse.lowering.box import NoBulkCopyError, derive
from taskfuse.lowering.clusters import Part, part
from taskfuse.lowering.completion import is_transfer
from taskfuse.lowering.domains import bound, refused
from taskfuse.lowering.fragments import atom_symbols
from taskfuse.lowering.plan import PStmt
from taskfuse.lowering.statements import Statements
from taskfuse.lowering.witness import holds


def bulk_copy(st: Statements, tv: TensorView) -> list[PStmt]:
    """One bulk tensor copy between an argument and Shared memory, with its tensor map.

    Raises:
        LoweringError: what it would copy is elsewhere, is read before it is there, or is no box.
    """
    atom = tv.schedule.atom
    assert atom is not None
    index_map = st.indexer.index_maps.of(tv)
    out, source = st.indexer.write(tv, index_map), st.operands(tv, index_map)[0][0]
    assert isinstance(source, Access)
    loads = is_transfer(tv)
    inside = tv if loads else st.source(tv)
    outside = st.source(tv) if loads else tv
    shared, there = (out, source) if loads else (source, out)
    if st.indexer.memory.get(inside) is not MemoryType.Shared or there.buffer != outside.name or not (outside.is_input or outside.is_output):
        way = "from an input to Shared memory" if loads else "from Shared memory to an output"
        raise refused(tv, f"the atom {atom.name} copies {way}", "cache_after() of an input and cache_before() of an output make such copies")
    if not loads and storage_uses(st.fusion, tv):
        reason = f"the atom {atom.name} writes {tv.name} later, and {next(iter(storage_uses(st.fusion, tv))).output.name} reads it again"
        raise refused(tv, reason, f"let the readers take {inside.name}, or store a copy of {tv.name} in bulk")
    if loads and any(tv.schedule.ptype(a).is_thread for a in tv.loop):
        raise refused(tv, f"the atom {atom.name} is started by one thread", "bind none of its axes to a thread index")
    atoms = {name: int(str(a.extent)) for a, name in atom_symbols(tv).items()}
    share = Part(there.index, shared.index, atoms, (), 1)
    if atom.multicast:
        share = part(st.indexer.ranges, tv, st.indexer.tree.place[tv], there.index, shared.index, atoms)
    kept = tuple(a.extent for a in st.indexer.kept_axes(inside))
    shape = (const(1),) * (len(shared.index) - len(kept)) + kept
    begins = () if loads else _begins(st, tv, inside, shared, there, shape)
    try:
        box = derive(share.coords, share.place, shape, tv.dtype.itemsize, share.atoms, index_map.facts)
    except NoBulkCopyError as e:
        raise refused(tv, f"the atom {atom.name} cannot make its copy: {e.reason}", e.help) from None
    name = f"{tv.name}.map"
    st.maps[name] = TensorMapParam(name, outside.name, box.box, box.swizzle)
    st.alignments[inside.name] = max(st.alignments.get(inside.name, 1), box.align)
    st.transfers[tv] = box.bytes * share.blocks
    place = Access(shared.buffer, box.start)
    full = st.indexer.full(inside)
    if loads and full is None:
        reason = "a bulk load completes at a barrier of a ring, and it has none"
        raise refused(tv, reason, f"make {inside.name} a boundary of a vertical group, or a ring in a loop: circular_buffer")
    if full is not None and loads:
        stmt = TmaLoad(place, name, box.coords, BarrierSlot(full, shared.index[0]), share.across, holds=holds(tv, index_map))
    else:
        stmt = TmaStore(name, box.coords, place, holds=holds(tv, index_map))
    reads = (there,) if loads and outside.is_output else () if loads else (shared,)  # of an input nobody writes
    return [PStmt(tv, st.indexer.tree.place[tv], stmt, (*index_map.guards, *begins), index_map.facts, (shared,) if loads else (), reads)]


def _begins(st: Statements, tv: TensorView, inside: TensorView, shared: Access, there: Access, shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The conditions under which the storage that a bulk store reads has all of its box: none, or that the box begins inside of the tensor.

    The engine writes nothing behind the end of the tensor, but it reads the whole box in Shared memory. Raises :class:`LoweringError`.
    """
    index_map = st.indexer.index_maps.of(tv)
    atoms = dict.fromkeys(atom_symbols(tv).values(), const(0))
    first = [simplify(substitute(e, atoms), index_map.facts) for e in there.index]
    for begins in ((), tuple(c for e, a in zip(first, tv.logical, strict=True) for c in bound(e, a.extent, index_map.facts))):
        facts = index_map.facts
        for c in begins:
            facts = facts.with_assumption(c)
        if all(n is const(1) or prove(lt(e, n), facts) for e, n in zip(shared.index, shape, strict=True)):
            return begins
    raise refused(
        tv,
        f"its box may end behind {inside.name} in Shared memory, which has {' x '.join(map(str, shape))} elements there",
        f"split {inside.name} as {tv.name} is split, so that it has room for whole tiles",
    )
