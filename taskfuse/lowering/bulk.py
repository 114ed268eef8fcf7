"""Bulk tensor copies (TMA): one instruction, started by one thread, moves a box between an argument and Shared memory.

The axes bound to Bulk are not loops: one instruction moves all their points. The box is derived from the two index maps, which are evaluated
on every point of the constant tile and compared with what the instruction does (PTX ISA, "cp.async.bulk.tensor" and "Tensor swizzling
modes"): a dense box of the tensor in Global memory, row-major in Shared memory under the swizzle. If no instruction moves the tile, an
error names the point that disagrees.

The thread that starts the copies of a fill announces their bytes at the slot's mbarrier; every fill of a ring has the same number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taskfuse.errors import LoweringError
from taskfuse.ir.atoms import Atom
from taskfuse.ir.combine import is_bulk_update
from taskfuse.ir.expr import Update
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Const, Expr, Facts, conjuncts, const, eq, evaluate, ge, is_multiple, lt, prove, simplify, substitute, sym
from taskfuse.ir.shared_layouts import SWIZZLES, swizzle_period, swizzled
from taskfuse.ir.storage import storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import INDEX_TYPES, THREAD_TYPES, MemoryType
from taskfuse.kir.declarations import TensorMapParam
from taskfuse.kir.nodes import TmaLoad, TmaStore
from taskfuse.kir.operands import Access, BarrierSlot
from taskfuse.lowering.clusters import Part, part
from taskfuse.lowering.completion import is_transfer
from taskfuse.lowering.domains import ancestors, bound, refused
from taskfuse.lowering.fragments import atom_symbols
from taskfuse.lowering.plan import PStmt, base_name
from taskfuse.lowering.statements import Statements
from taskfuse.lowering.thread_ranges import hardware_index
from taskfuse.lowering.witness import holds
from taskfuse.schedule.shared_loops import Loop
from taskfuse.target import TMA_AXES, TMA_BOX, TMA_BYTES, TMA_STEP


class NoBulkCopyError(Exception):
    """No instruction makes this copy: the reason, and a remedy."""

    def __init__(self, reason: str, help: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.help = help


@dataclass(frozen=True, slots=True)
class BulkTransfer:
    """One transfer.

    Attributes:
        coords: of the box's first element in Global memory, outermost axis first.
        box: elements per axis of the tensor, outermost axis first.
        steps: distance of neighbors in elements of the tensor, for each axis.
        start: index of the box's first element in Shared memory, before the swizzle.
        swizzle: 0, 32, 64 or 128: bytes of the swizzle's span.
        bytes: of the full box, which all arrive, also if the box overhangs the tensor.
        align: alignment of the box's first byte in Shared memory.
    """

    coords: tuple[Expr, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    start: tuple[Expr, ...]
    swizzle: int
    bytes: int
    align: int


def derive(coords: Sequence[Expr], place: Sequence[Expr], shape: Sequence[Expr], itemsize: int, atoms: Mapping[str, int], facts: Facts) -> BulkTransfer:
    """The transfer that copies the tile of ``atoms``.

    Args:
        coords: the index in Global memory.
        place: the index in Shared memory, of a buffer of ``shape`` (row-major).
        atoms: the Bulk axes: symbol and extent.

    Raises:
        NoBulkCopyError: no instruction makes this copy.
    """
    zero = {name: const(0) for name in atoms}
    grid = dict(zip(atoms, np.meshgrid(*(np.arange(n, dtype=np.int64) for n in atoms.values()), indexing="ij"), strict=True))
    points = int(np.prod(list(atoms.values())))
    if not 1 <= len(coords) <= TMA_AXES:
        raise NoBulkCopyError(f"the tensor in Global memory has {len(coords)} axes", f"a bulk copy takes 1 to {TMA_AXES}: merge axes with reshape")

    def values(e: Expr, what: str) -> NDArray[np.int64]:
        delta = simplify(e - substitute(e, zero), facts)
        if not delta.free <= atoms.keys():
            raise NoBulkCopyError(f"{what} moves by {delta} along its Bulk axes", "a tile has one shape: split the axes by constants first")
        return np.broadcast_to(np.asarray(evaluate(delta, grid), np.int64), tuple(atoms.values()))

    moves = [values(e, f"axis {d} of the tensor in Global memory") for d, e in enumerate(coords)]
    steps = (*(max(int(np.gcd.reduce(m, axis=None)), 1) for m in moves[:-1]), 1)
    moves = [m // step for m, step in zip(moves, steps, strict=True)]
    box = tuple(int(m.max()) + 1 for m in moves)
    linear = np.zeros_like(moves[0])
    for m, n in zip(moves, box, strict=True):
        linear = linear * n + m
    if any(m.min() < 0 for m in moves) or int(np.prod(box)) != points or not np.array_equal(np.sort(linear, axis=None), np.arange(points)):
        raise NoBulkCopyError(
            f"its {points} Bulk points span a box of {' x '.join(map(str, box))} elements in Global memory",
            "bind to Bulk whole inner parts of splits, so that the tile is a dense box",
        )
    if max(n * step for n, step in zip(box, steps, strict=True)) > TMA_BOX:
        reach = "" if max(steps) == 1 else f", {' x '.join(map(str, steps))} from one to the next"
        raise NoBulkCopyError(f"its box is {' x '.join(map(str, box))} elements{reach}", f"an axis of a box has at most {TMA_BOX}: split it")
    if max(steps) > TMA_STEP:
        raise NoBulkCopyError(f"its elements are {' x '.join(map(str, steps))} from one to the next", f"an axis of a box takes at least every {TMA_STEP}th")
    if box[-1] * itemsize % TMA_BYTES:
        raise NoBulkCopyError(f"the innermost axis of its box is {box[-1] * itemsize} bytes", f"it must be a multiple of {TMA_BYTES} bytes: use a wider tile")
    linear = np.zeros_like(moves[0])
    for m, n in zip(moves, box, strict=True):
        linear = linear * n + m
    offset: Expr = const(0)
    for i, extent in zip(place, shape, strict=True):
        offset = offset * extent + i
    bytes_ = values(offset, "the place in Shared memory") * itemsize
    for swizzle in SWIZZLES:
        if (not swizzle or box[-1] * itemsize == swizzle) and np.array_equal(swizzled(linear * itemsize, swizzle), bytes_):
            break
    else:
        k = int(np.argmax((linear * itemsize != bytes_).ravel()))
        raise NoBulkCopyError(
            f"element {int(linear.ravel()[k])} of its box would lie at byte {int(bytes_.ravel()[k])} of the tile in Shared memory",
            "a bulk copy writes boxes row-major, or under a swizzle of 32, 64 or 128 bytes that is a row of the box: "
            "set_allocation_domain(tf.layouts.swizzled(...)), or leave it unset",
        )
    first = tuple(simplify(substitute(i, zero), facts) for i in place)
    align = swizzle_period(swizzle)
    start = simplify(substitute(offset, zero) * itemsize, facts)
    if not (isinstance(start, Const) and start.value % align == 0) and not is_multiple(start, align, facts):
        raise NoBulkCopyError(
            f"its tile starts at byte {start} of its buffer", f"a box must start at a multiple of {align} bytes: make the slots and tiles multiples of it"
        )
    corner = tuple(simplify(substitute(c, zero), facts) for c in coords)
    if not is_multiple(corner[-1] * itemsize, TMA_BYTES, facts):
        # not in the PTX ISA's list of restrictions, but an H200 calls such a copy an illegal instruction
        raise NoBulkCopyError(
            f"its box starts at element {corner[-1]} of the innermost axis, which is not provably a multiple of {TMA_BYTES} bytes",
            f"slice and tile the innermost axis at multiples of {TMA_BYTES} bytes",
        )
    return BulkTransfer(corner, box, steps, first, swizzle, points * itemsize, align)


def bulk_copy(st: Statements, tv: TensorView) -> list[PStmt]:
    """One bulk tensor copy between an argument and Shared memory, or an update of an output by a box there, with its tensor map.

    Raises:
        LoweringError: its source or destination is in another memory, is read before it is complete, or is not a box.
    """
    atom = tv.schedule.atom
    assert atom is not None
    index_map = st.indexer.index_maps.of(tv)
    operands, valid = st.operands(tv, index_map)
    update = expr if isinstance(expr := st.definition(tv), Update) else None
    out, source, is_valid = st.indexer.write(tv, index_map), operands[update is not None], valid[update is not None]
    assert isinstance(source, Access)
    if update is not None:
        _check_update(tv, atom, update)
    facts = st.indexer.index_maps.before_ends(tv, index_map.facts)
    if missing := [c for c in conjuncts(is_valid) if not prove(c, facts) and not prove(c, _existing(source, st.source(tv), facts))]:
        reason = f"the atom {atom.name} copies whole boxes, and its tensor has zeros where {missing[0]} does not hold"
        raise refused(tv, reason, "split the axis so that a loop over its tiles ends where its terms do")
    loads = is_transfer(tv)
    inside = tv if loads else st.source(tv)
    shared, there = (out, source) if loads else (source, out)
    outside = st.source(tv) if loads else _stored_to(st.fusion, tv, there)
    if st.indexer.memory.get(inside) is not MemoryType.Shared or there.buffer != outside.name or not (outside.is_input or outside.is_output):
        way = "from an input to Shared memory" if loads else "from Shared memory to an output"
        raise refused(tv, f"the atom {atom.name} copies {way}", "cache_after() of an input and cache_before() of an output make such copies")
    if not loads and update is None and storage_uses(st.fusion, tv):
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
    begins = () if loads else _begins(st, tv, inside, outside, shared, there, shape)
    try:
        box = derive(share.coords, share.place, shape, tv.dtype.itemsize, share.atoms, index_map.facts)
    except NoBulkCopyError as e:
        raise refused(tv, f"the atom {atom.name} cannot make its copy: {e.reason}", e.help) from None
    if not loads and max(box.steps) > 1:
        reason = f"the atom {atom.name} cannot make its copy: its elements are {' x '.join(map(str, box.steps))} from one to the next"
        raise refused(tv, reason, "bind to Bulk whole inner parts of splits, so that the tile is a dense box")
    name = f"{tv.name}.map"
    st.needs.maps[name] = TensorMapParam(name, outside.name, box.box, box.swizzle, box.steps if max(box.steps) > 1 else ())
    st.needs.align(inside, box.align)
    st.needs.transfers[tv] = box.bytes * share.blocks
    place = Access(shared.buffer, box.start)
    full = st.indexer.full(inside)
    if loads and full is None:
        reason = "a bulk load completes at a barrier of a ring, and it has none"
        raise refused(tv, reason, f"make {inside.name} a boundary of a vertical group, or a ring in a loop: circular_buffer")
    if full is not None and loads:
        stmt = TmaLoad(place, name, box.coords, BarrierSlot(full, shared.index[0]), share.across, holds=holds(tv, index_map))
    else:
        stmt = TmaStore(name, box.coords, place, None if update is None else update.combine, holds=holds(tv, index_map))
    writes = (shared,) if loads else () if update is None else (there,)  # of what is only stored in bulk nobody writes the same elements
    reads = (there,) if loads and outside.is_output else () if loads else (shared, *writes)  # of an input nobody writes
    return [PStmt(tv, st.indexer.tree.place[tv], stmt, (*index_map.guards, *begins), index_map.facts, writes, reads)]


def _stored_to(fusion: Fusion, tv: TensorView, there: Access) -> TensorView:
    """The output that has the elements of ``tv``: itself, or the whole of which it is a part."""
    return next((out for out in fusion.outputs if out.name == there.buffer), tv)


def _check_update(tv: TensorView, atom: Atom, update: Update) -> None:
    """Raises :class:`LoweringError` if no bulk copy makes an update."""
    if update.extents:
        help = "let threads make these updates, or update whole tiles"
        raise refused(tv, f"the atom {atom.name} sends boxes, and integers of {tv.name}'s data name each element", help)
    if not is_bulk_update(update.combine, tv.dtype):
        raise refused(tv, f"the atom {atom.name} does not combine {tv.dtype.name} by {update.combine.name}", "let threads make these updates")


def _existing(source: Access, tensor: TensorView, facts: Facts) -> Facts:
    """Facts where an element lies inside its tensor: outside it, the engine writes zeros."""
    for e, n in zip(source.index, tensor.shape, strict=True):
        for condition in (ge(e, 0), lt(e, n)):
            facts = facts.with_assumption(simplify(condition, facts))
    return facts


def _begins(
    st: Statements, tv: TensorView, inside: TensorView, outside: TensorView, shared: Access, there: Access, shape: tuple[Expr, ...]
) -> tuple[Expr, ...]:
    """The conditions under which the storage that a bulk store reads has all of its box: none, or that the box begins inside the tensor.

    The engine writes nothing past the end of the tensor, but it reads the whole box in Shared memory. Raises :class:`LoweringError`.
    """
    index_map = st.indexer.index_maps.of(tv)
    atoms = dict.fromkeys(atom_symbols(tv).values(), const(0))
    first = [simplify(substitute(e, atoms), index_map.facts) for e in there.index]
    for begins in ((), tuple(c for e, n in zip(first, outside.shape, strict=True) for c in bound(e, n, index_map.facts))):
        facts = index_map.facts
        for c in begins:
            facts = facts.with_assumption(c)
        if all(n is const(1) or prove(lt(e, n), facts) for e, n in zip(shared.index, shape, strict=True)):
            return begins
    raise refused(
        tv,
        f"its box may extend past {inside.name} in Shared memory, which has {' x '.join(map(str, shape))} elements there",
        f"split {inside.name} as {tv.name} is split, so that it has room for whole tiles",
    )


def fill_bytes(st: Statements, tv: TensorView, loop: Loop | None, issued: list[PStmt]) -> int:
    """The bytes of all transfers of ``tv`` in an iteration of ``loop``, which ``issued`` starts.

    Raises:
        LoweringError: their number is not a constant.
    """
    indexer, ranges = st.indexer, st.indexer.ranges
    paths = indexer.shared_loops.path[tv]
    at = paths.index(loop) + 1 if loop is not None else 0
    trips = 1
    for inner, a in zip(paths[at:], tv.loop[at:], strict=True):
        if tv.schedule.ptype(a).is_loop:
            extent = indexer.index_maps.trips(inner, simplify(a.extent, ranges.facts), tv)
            if not isinstance(extent, Const):
                raise LoweringError(
                    what=tv.name,
                    reason=f"one fill of its ring takes {extent} bulk copies (loop axis {inner.depth}): the bytes of a fill are a constant",
                    help="inline it into that loop, or split the axis by a constant",
                    location=tv.location,
                )
            if extent.value > 1 and any(x.is_foreign for x in ancestors(tv, (a,))):
                raise LoweringError(
                    what=tv.name,
                    reason=f"loop axis {inner.depth} runs over an axis of a consumer inside one fill of its ring: bulk copies would write a tile again",
                    help="inline it into that loop, or give it no such axis (propagate with a smaller upto)",
                    location=tv.location,
                )
            trips *= extent.value
    task = indexer.tree.place[tv]
    first = {eq(sym(base_name(p, task)), 0) for p in THREAD_TYPES}
    guards = [g for s in issued if s.tv is tv for g in s.guards if g not in first]
    if guards:
        index = {base_name(p, task): hardware_index(p) - ranges.range(task, p).start for p in INDEX_TYPES}
        guard = simplify(substitute(guards[0], index), ranges.facts)
        raise LoweringError(
            what=tv.name,
            reason=f"its bulk copies run under the guard {guard}, and every fill of a ring brings the same bytes",
            help="split by divisors, or so that only the last tile overhangs",
            location=tv.location,
        )
    return trips * st.needs.transfers[tv]
