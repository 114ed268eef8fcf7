"""The buffers of a kernel, and the offsets of those in Shared memory.

Lifetimes are branch-aware: members of a dispatch on threads never share bytes of Shared memory, members of a dispatch on blocks overlay theirs,
and buffers of one role whose lifetimes end before another's begin may share (the sync pass then orders them).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from taskfuse.errors import LoweringError
from taskfuse.ir.axes import Axis
from taskfuse.ir.expr import Assemble, Scan
from taskfuse.ir.medium import MEDIA, nearest
from taskfuse.ir.scalar import Const, Expr, ceildiv, const, simplify
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import INDEX_TYPES, MemoryType, ParallelType
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import CLAIM_BYTES, Buffer
from taskfuse.kir.fields import with_buffers
from taskfuse.kir.shared_memory import shared_layout, summed_up
from taskfuse.lowering.clusters import cluster_blocks
from taskfuse.lowering.domains import digits, product
from taskfuse.lowering.indexing import Indexer
from taskfuse.lowering.partials import JOINED_IN, Partials, lane_registers, workspace
from taskfuse.lowering.plan import Needs, PDispatch, PLoop, PNode, children, is_base, statements
from taskfuse.lowering.rings import RoleRings
from taskfuse.lowering.scans import carried_axes
from taskfuse.lowering.statements import Statements
from taskfuse.target import Target

HELP = "use smaller tiles or fewer stages, or set_memory_type(Global)"
"""Remedies for a block with too little Shared memory."""
ALIGN = 16
MAX_LOCAL = 1024


def buffers(indexer: Indexer, st: Statements, rings: RoleRings, plan: list[PNode], needs: Needs) -> list[Buffer]:
    """Every buffer that the plan's statements use, in the order of the tensors."""
    used = {a.buffer for s in statements(plan) for a in (*s.writes, *s.reads)}
    found: list[Buffer] = []
    for tv in indexer.tree.place:
        memory = indexer.memory[tv]
        if tv not in indexer.placed and not tv.is_output:
            shape = tuple(a.extent for a in indexer.kept_axes(tv))
            slots = (const(rings.slots(tv)),) if rings.slots(tv) else ()
            if MEDIA[memory].is_by_rank:
                shape = (cluster_blocks(indexer.ranges), *(a.extent for a in indexer.kept_axes(tv) if not tv.schedule.ptype(a).is_cluster))
            shape = (*slots, *shape)
            if indexer.in_order(tv):
                shape = (simplify(product(indexer.kept_axes(tv)) * (slots[0] if slots else 1), indexer.ranges.facts),)
            if not MEDIA[memory].has_addresses:
                shape = tuple(simplify(e, indexer.ranges.facts) for e in shape)
            found.append(Buffer(tv.name, tv.dtype, memory, shape, max(1, tv.dtype.bits // 8, needs.alignments.get(tv.name, 1))))
        if st.has_term(tv):
            found.append(_registers(st.term(tv), tv, (), indexer))
        if isinstance(expr := st.definition(tv), Scan):
            found.append(_registers(st.accumulator(tv), tv, carried_axes(expr), indexer))
        if st.is_reduction(tv):
            if st.accumulator(tv) != tv.name:
                found.append(_registers(st.accumulator(tv), tv, indexer.kept_axes(tv, MemoryType.Local), indexer))
            found += [_registers(name, tv, (), indexer) for name in lane_registers(tv)]
            for kind in JOINED_IN:
                if any(a.is_reduction for p in INDEX_TYPES for a in digits(tv, p) if nearest(p) is kind):
                    found.append(Buffer(workspace(tv, kind), tv.dtype.compute, kind, Partials.of(indexer, tv).shape(kind), max(1, tv.dtype.compute.bits // 8)))
    for expr in indexer.fusion.exprs():
        tv = expr.output
        if isinstance(expr, Assemble) and not tv.is_output and tv not in indexer.placed:
            found.append(Buffer(tv.name, tv.dtype, MemoryType.Global, tv.shape, max(1, tv.dtype.bits // 8)))
    return [b for b in found if b.name in used]


def share(plan: list[PNode], all_buffers: list[Buffer], shared: Mapping[str, str]) -> list[Buffer]:
    """The buffers without those of tensors that have the storage of another one (``shared``), whose accesses then name that.

    Raises:
        LoweringError: the two would not be one array.
    """
    found = {b.name: b for b in all_buffers}
    for name, other in shared.items():
        if name not in found or other not in found:
            continue
        mine, theirs = found.pop(name), found[other]
        if (mine.dtype, mine.memory, mine.shape) != (theirs.dtype, theirs.memory, theirs.shape):
            one, two = (f"{b.memory.value} {b.dtype.name}[{', '.join(map(str, b.shape))}]" for b in (theirs, mine))
            reason = f"its ring's name gives it the storage of {other}, which is {one}, not {two}"
            raise LoweringError(what=name, reason=reason, help="give both tiles one shape and dtype, or pass another ring name to circular_buffer")
        found[other] = replace(theirs, align=max(mine.align, theirs.align))
    for s in statements(plan):
        s.stmt = with_buffers(s.stmt, shared)
        s.writes, s.reads = (tuple(replace(a, buffer=shared.get(a.buffer, a.buffer)) for a in some) for some in (s.writes, s.reads))
    return list(found.values())


def _registers(name: str, tv: TensorView, axes: Sequence[Axis], indexer: Indexer) -> Buffer:
    """Registers in which a tensor is computed, one for each index of some axes."""
    dtype = tv.dtype.compute
    return Buffer(name, dtype, MemoryType.Local, tuple(simplify(a.extent, indexer.ranges.facts) for a in axes), max(1, dtype.bits // 8))


def unroll_for_registers(plan: list[PNode], all_buffers: list[Buffer], indexer: Indexer) -> None:
    """Unroll every loop whose variable indexes a Local buffer, so that the index is a constant. Raises :class:`LoweringError` if one cannot be."""
    local = {b.name: b for b in all_buffers if not MEDIA[b.memory].has_addresses}
    needed: dict[str, str] = {}
    for s in statements(plan):
        for a in (*s.writes, *s.reads):
            if a.buffer in local:
                for e in a.index:
                    for name in sorted(e.free):
                        if name in indexer.fusion.dims:
                            raise LoweringError(
                                what=a.buffer,
                                reason=f"it is Local, and {s.tv.name} finds elements in it by an index that depends on {name}: a register has no address",
                                help=f"set_memory_type(Shared), or give {name} as a constant",
                                location=s.tv.location,
                            )
                        if is_base(name):
                            raise LoweringError(
                                what=a.buffer,
                                reason=f"it is Local, and {s.tv.name} would find an element in it by the thread's index: a register has no address",
                                help=f"bind the axes of {a.buffer} and {s.tv.name} alike (propagate, parallelize_like), or set_memory_type(Shared)",
                                location=s.tv.location,
                            )
                        needed.setdefault(name, a.buffer)
    for b in local.values():
        size = const(1)
        for e in b.shape:
            size = size * e
        size = simplify(size, indexer.ranges.facts)
        if not isinstance(size, Const) or size.value > MAX_LOCAL:
            raise LoweringError(
                what=b.name,
                reason=f"it would be a Local array of {size} elements per thread; a register array has a constant size of at most {MAX_LOCAL}",
                help="inline it deeper (fusion.inline_most() does), bind an axis to threads, or set_memory_type(Shared)",
                location=next((t.location for t in indexer.tree.place if t.name == b.name), None),
            )

    def visit(nodes: list[PNode]) -> None:
        for n in nodes:
            if isinstance(n, PLoop) and n.var in needed and not n.unroll:
                trips = simplify(n.extent, indexer.ranges.facts)
                if not isinstance(trips, Const):
                    raise LoweringError(
                        what=needed[n.var],
                        reason=f"a loop of {n.extent} trips indexes its Local array, which needs a constant index",
                        help="split the loop's axis by a constant and unroll the inner part, or set_memory_type(Shared)",
                    )
                n.unroll, n.extent = True, trips
            for block in children(n):
                visit(block)

    visit(plan)


@dataclass(frozen=True, slots=True)
class _Life:
    """A lifetime: positions in the plan, and the dispatch arms around it."""

    first: int
    last: int
    arms: tuple[tuple[int, int, ParallelType], ...]


def lay_out(plan: list[PNode], all_buffers: list[Buffer], limit: int, copied: Container[str], target: Target) -> list[Buffer]:
    """Give every Shared buffer its byte offset. Memory is reused only if ``limit`` bytes would not suffice (overlaying blocks is free).

    Buffers of ``copied``, which bulk copies write or read, or copies that no thread waits for, share bytes with no other buffer of the same block: a
    barrier orders the accesses of threads, not those of the copy engine. Nor do buffers that other blocks of a cluster access: these blocks may be at another
    place of the code.

    A lifetime is the range of the children of the innermost block that contains all uses, so that a use inside a loop keeps a value from
    before the loop alive to the loop's end.
    """
    lives = _lives(plan, {b.name for b in all_buffers if MEDIA[b.memory].is_placed})
    fixed: list[tuple[Buffer, int, int]] = []
    symbolic: list[Buffer] = []
    total = sum((s.value + ALIGN - 1) // ALIGN * ALIGN for b in all_buffers if MEDIA[b.memory].is_placed and isinstance(s := b.bytes_of_block, Const))
    reuse = total > limit
    for b in all_buffers:
        if not MEDIA[b.memory].is_placed:
            continue
        size = b.bytes_of_block
        if not isinstance(size, Const):
            symbolic.append(b)
            continue
        bytes_ = (size.value + ALIGN - 1) // ALIGN * ALIGN
        clashes = sorted(
            (o, n)
            for other, o, n in fixed
            if _interfere(lives[b.name], lives[other.name], reuse and b.name not in copied and other.name not in copied)
            or MEDIA[b.memory].is_by_rank
            or MEDIA[other.memory].is_by_rank
        )
        align = max(b.align, ALIGN)
        at = 0
        for o, n in clashes:
            if at + bytes_ <= o:
                break
            at = max(at, (o + n + align - 1) // align * align)
        fixed.append((b, at, bytes_))
    _require_room(max((o + n for _, o, n in fixed), default=0), [(b.name, n) for b, _, n in fixed], target)
    offsets: dict[str, Expr] = {b.name: const(o) for b, o, _ in fixed}
    end: Expr = const(max((o + n for _, o, n in fixed), default=0))
    for b in symbolic:
        align = max(b.align, ALIGN)
        end = simplify(ceildiv(end, align) * align)
        offsets[b.name] = end
        end = end + ceildiv(b.bytes_of_block, ALIGN) * ALIGN
    return [replace(b, offset=offsets[b.name], align=max(b.align, ALIGN)) if b.name in offsets else b for b in all_buffers]


def check_room(kernel: Kernel, target: Target) -> None:
    """Raise :class:`LoweringError` if the Shared memory of a block, offsets of groups and claims included, exceeds the limit."""
    needed = shared_layout(kernel).bytes
    if isinstance(needed, Const):
        parts = [(b.name, b.bytes_of_block) for b in kernel.buffers if MEDIA[b.memory].is_placed]
        parts += [(q.name, (q.size + 1) * CLAIM_BYTES) for q in kernel.queues]
        summed = [(p.name, p.shape[0] * p.dtype.itemsize) for p in summed_up(kernel)]
        help = "pass offsets, tf.table(..., rising=True), in place of lengths" if summed else HELP
        _require_room(needed.value, [(name, size.value) for name, e in (*parts, *summed) if isinstance(size := simplify(e), Const)], target, help)


def _require_room(needed: int, parts: Sequence[tuple[str, int]], target: Target, help: str = HELP) -> None:
    """Raise :class:`LoweringError` if so many bytes of Shared memory are more than a block has. ``parts``: what they hold, and how many it takes."""
    room = MEDIA[MemoryType.Shared].capacity(target)
    if room is not None and needed > room:
        raise LoweringError(
            what="Shared memory",
            reason=f"a block would need {needed} bytes; {target.arch} has {room}",
            notes=tuple(f"{name}: {size} bytes" for name, size in sorted(parts, key=lambda part: -part[1])[:3]),
            help=help,
        )


def _interfere(a: _Life, b: _Life, reuse: bool) -> bool:
    for (d, arm, p), (e, other, _) in zip(a.arms, b.arms, strict=False):
        if d == e and arm != other:
            return p.is_thread
        if d != e:
            break
    return not reuse or not (a.last < b.first or b.last < a.first)


def _lives(plan: list[PNode], names: set[str]) -> dict[str, _Life]:
    span: dict[int, tuple[int, int]] = {}
    used: dict[int, set[str]] = {}
    position = 0

    def number(n: PNode) -> set[str]:
        nonlocal position
        start = position
        position += 1
        found = {a.buffer for s in statements([n]) for a in (*s.writes, *s.reads)} & names if not children(n) else set[str]()
        for block in children(n):
            for inner in block:
                found |= number(inner)
        span[id(n)] = (start, position)
        used[id(n)] = found
        return found

    for n in plan:
        number(n)

    def narrow(block: list[PNode], name: str, arms: tuple[tuple[int, int, ParallelType], ...]) -> _Life:
        holders = [n for n in block if name in used[id(n)]]
        if len(holders) == 1:
            inner = [(k, b) for k, b in enumerate(children(holders[0])) if any(name in used[id(n)] for n in b)]
            if len(inner) == 1:
                k, body = inner[0]
                head = holders[0]
                if isinstance(head, PDispatch) and head.group.ptype is not None:
                    arms = (*arms, (id(head), k, head.group.ptype))
                return narrow(body, name, arms)
        return _Life(span[id(holders[0])][0], span[id(holders[-1])][1] - 1, arms)

    return {name: narrow(plan, name, ()) for name in names}
