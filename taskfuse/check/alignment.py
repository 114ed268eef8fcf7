"""Alignment: the address of an access of several bytes is a multiple of what its instruction requires.

Vectors, asynchronous copies and rows of matrices need multiples of their size. A bulk copy needs a multiple of 128 bytes in Shared memory,
or of the period of its swizzle, and of 16 bytes along the last axis of the tensor. A tile of ``wgmma`` begins at a multiple of 16 bytes; under a
swizzle it begins in the first of the eight rows of a period, and its strides lead to such rows (PTX ISA, "Alignment", "cp.async", "ldmatrix",
"Matrix base offset").

The beginning of a buffer is known: Shared ones lie at multiples of their alignment, workspace at multiples of 256 bytes. A launch checks the
addresses and strides of tensor arguments, or takes a variant that copies single elements (the assumption :data:`TENSORS`). What remains to be shown is
the offset of an element in its buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from taskfuse.check.enumeration import extremes
from taskfuse.check.ranges import terms_of
from taskfuse.check.statement_tree import Context, Node, StatementTree
from taskfuse.check.tiles import BufferLayouts, blocks
from taskfuse.ir.fragments import MATRIX_ROW_BYTES
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import ONE, Expr, const, is_multiple, private, substitute
from taskfuse.ir.shared_layouts import CHUNK, ROWS, Major, swizzle_period
from taskfuse.kir import Kernel, walk
from taskfuse.kir.declarations import Buffer
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, For, GatherCopy, Stmt, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Access, Descriptor
from taskfuse.kir.products import LdMatrix, StMatrix, Wgmma
from taskfuse.reports.certificate import Layer, Obligation, Verdict
from taskfuse.target import TMA_BYTES

TENSORS = "tensors begin, and their rows follow each other, at multiples of the bytes that vectors and tensor maps move: the launch checks it"


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that must be a multiple of ``of``.

    Attributes:
        bytes: offset of the access in the buffer or tensor; ``access``: the access.
        what: the instruction that requires it.
        below: the greatest allowed remainder.
        begins: the beginning of an access; false: a stride.
    """

    access: Access
    bytes: Expr
    of: int
    what: str
    below: int = 1
    begins: bool = True


def needs_alignment(stmt: Stmt) -> bool:
    """True if a statement moves several bytes of tensors, which a launch must have aligned."""
    return isinstance(stmt, (VectorCopy, AsyncCopy, TmaLoad, TmaStore)) or (isinstance(stmt, (GatherCopy, AtomicUpdate)) and stmt.width > 1)


def aligned(tree: StatementTree) -> Iterator[Obligation]:
    """Every instruction that moves several elements begins at an aligned address: those that may not, one by one; or one obligation for all."""
    storage = BufferLayouts.of(tree.kernel)
    buffers = {b.name: b for b in tree.kernel.buffers}
    questions = _Questions()
    failed = False
    shown = 0
    for node in tree.leaves():
        if node.context.ranges.empty:
            continue
        for need in needs(node, storage):
            shown += 1
            reason = _reason(need, node.context, buffers, questions)
            if reason:
                failed = True
                text = f"{need.access.buffer}[{', '.join(map(str, need.access.index))}]"
                yield Obligation(Layer.ADDRESS, text, Verdict.OUTSIDE, reason, (node.text + (f" in {node.role}" if node.role else ""),))
    if shown and not failed:
        yield Obligation(Layer.ADDRESS, "alignment", Verdict.PROVED, f"{shown} accesses of several bytes begin at multiples of what they need")


def needs(node: Node, storage: BufferLayouts) -> Iterator[Need]:
    """The alignment that the accesses of a statement need."""
    match node.stmt:
        case VectorCopy(out=out, source=source, width=width) | AsyncCopy(out=out, source=source, width=width) | GatherCopy(out=out, source=source, width=width):
            size = width * storage.sizes[out.buffer]
            for access in (out, source):
                if width > 1:
                    yield Need(access, storage.byte(access), size, f"a copy of {size} bytes")
        case AtomicUpdate(out=out, width=width) if width > 1:
            size = width * storage.sizes[out.buffer]
            yield Need(out, storage.byte(out), size, f"an update of {size} bytes")
        case LdMatrix(source=rows) | StMatrix(out=rows):
            yield Need(rows, storage.byte(rows), MATRIX_ROW_BYTES, "a row of a matrix")
        case TmaLoad(map=name, coords=coords) | TmaStore(map=name, coords=coords):
            box = storage.maps[name]
            for block in blocks(node, storage):
                yield Need(block.access, block.start, swizzle_period(box.swizzle), "a box of a bulk copy")
            yield Need(Access(box.tensor, coords), coords[-1] * storage.sizes[box.tensor], TMA_BYTES, "the last coordinate of a bulk copy")
        case Wgmma(a=a, b=b, n=n, k=k, row=row):
            for d, rows in ((a, row.m), (b, n)):
                if isinstance(d, Descriptor):
                    yield from of_tile(d, rows, k, storage.byte(d.base) + d.offset, storage.sizes[d.base.buffer])
        case _:
            return


def of_tile(d: Descriptor, rows: int, k: int, start: Expr, itemsize: int) -> Iterator[Need]:
    """The alignment of a wgmma tile that begins at byte ``start`` of its buffer."""
    if not d.swizzle:
        yield Need(d.base, start, CHUNK, "a tile of wgmma")
        return
    # along k, a tile of K-major rows may begin within the first of the eight rows of a period
    inner = d.swizzle - k * itemsize + 1 if d.major is Major.K else 1
    yield Need(d.base, start, ROWS * d.swizzle, f"a tile of wgmma under a swizzle of {d.swizzle} bytes", inner)
    if inner > 1:
        yield Need(d.base, start, CHUNK, "a tile of wgmma")
    spans = -(-rows * itemsize // d.swizzle)
    used = (d.sbo, rows > ROWS) if d.major is Major.K else (d.lbo, spans > 1), (d.sbo, d.major is Major.MN and k > ROWS)
    for stride, is_used in used:
        if is_used:
            yield Need(d.base, const(stride), ROWS * d.swizzle, f"a stride of a tile of wgmma under a swizzle of {d.swizzle} bytes", begins=False)


class _Questions:
    """Answers to earlier questions, by context."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, Expr, int, int], bool] = {}

    def holds(self, need: Need, context: Context) -> bool:
        """True only if the bytes are a multiple, or their remainder is at most the allowed one."""
        terms, constant = terms_of(need.bytes)
        if constant % need.of < need.below and all(k % need.of == 0 for _, k in terms):
            return True
        key = context.constraints, need.bytes, need.of, need.below
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _is_multiple(need, context)
        return found


def _is_multiple(need: Need, context: Context) -> bool:
    if is_multiple(need.bytes, need.of, context.facts):
        return True
    stepped = need.bytes
    for loop in reversed(context.loops):
        if isinstance(loop.stmt, For) and loop.stmt.step is not ONE:
            stepped = substitute(stepped, {loop.stmt.var: loop.stmt.start + loop.stmt.step * private(f"steps.{loop.stmt.var}")})
    if stepped is not need.bytes and is_multiple(stepped, need.of, context.facts):
        return True
    rest = need.bytes % need.of
    _, high = context.ranges.of(rest)
    if high is not None and high < need.below:
        return True
    found = extremes(rest, context)
    return found is not None and found[1] < need.below


def _reason(need: Need, context: Context, buffers: dict[str, Buffer], questions: _Questions) -> str:
    """Why an access may be misaligned; empty if it is aligned."""
    buffer = buffers.get(need.access.buffer)
    if need.begins and buffer is not None and MEDIA[buffer.memory].is_placed and not begins_at(buffer, need.of, context):
        return f"{need.what} needs multiples of {need.of} bytes, and the buffer is aligned to {buffer.align}"
    if questions.holds(need, context):
        return ""
    behind = f", or less than {need.below} bytes behind one" if need.below > 1 else ""
    return f"{need.what} {'begins at byte' if need.begins else 'is'} {need.bytes}, which is not known to be a multiple of {need.of}{behind}"


def begins_at(buffer: Buffer, multiple: int, context: Context) -> bool:
    """True only if a Shared buffer begins at a multiple."""
    return buffer.align % multiple == 0 or (buffer.offset is not None and is_multiple(buffer.offset, multiple, context.facts))


def assumes_tensors(kernel: Kernel) -> bool:
    """True if a kernel moves several elements of tensors at once, so that the alignment of tensors is assumed."""
    return any(map(needs_alignment, walk(kernel)))
