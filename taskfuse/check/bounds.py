"""Bounds: no index leaves its extent. All other rules are about elements; they imply facts about addresses only inside the extents."""

from __future__ import annotations

from collections.abc import Iterator

from taskfuse.check.constraints import Constraints
from taskfuse.check.enumeration import extremes, named
from taskfuse.check.linear import DEPTH, Linear
from taskfuse.check.statement_tree import Context, Node, StatementTree, chosen
from taskfuse.check.tiles import BufferLayouts, TouchedBytes, blocks, row_major
from taskfuse.ir import fragments
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Const, Expr, FloorDiv, Mod, Product, Sum, Sym, conjuncts, const, ge, is_multiple, le, lt, prove, sym
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Choose, GatherCopy, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Access, Descriptor
from taskfuse.kir.products import LdMatrix, Mma, StMatrix, Wgmma
from taskfuse.kir.walk import own_symbols
from taskfuse.reports.certificate import Layer, Obligation, Verdict


def inside(tree: StatementTree) -> Iterator[Obligation]:
    """Every index of every access is at least 0 and less than its extent: those that may not be, one by one; or one obligation for all."""
    kernel = tree.kernel
    storage = BufferLayouts.of(kernel)
    shapes = storage.shapes
    local = {b.name for b in kernel.buffers if not MEDIA[b.memory].has_addresses}
    failed = False
    count = 0
    for node in tree.leaves():
        for access, width, context in touched(node):
            shape = shapes[access.buffer]
            if (access.buffer in local and not shape) or context.ranges.empty:  # of an operand that is never read
                continue
            count += 1
            for axis, (e, extent) in enumerate(zip(access.index, shape, strict=True)):
                last = e + (width - 1) if axis == len(shape) - 1 else e
                if not _within(e, last, extent, context):
                    text = f"{access.buffer}[{', '.join(map(str, access.index))}]"
                    reason = f"index {last} of axis {axis} is not known to be in 0..{extent}"
                    failed = True
                    yield Obligation(Layer.ADDRESS, text, Verdict.OUTSIDE, reason, (node.text + (f" in {node.role}" if node.role else ""),))
                    break
    if not failed:
        yield Obligation(Layer.ADDRESS, "bounds", Verdict.PROVED, f"{count} accesses stay inside their extents")
    yield from _whole(tree, storage)


def _whole(tree: StatementTree, storage: BufferLayouts) -> Iterator[Obligation]:
    """Every box of a bulk copy, and every tile of a wgmma, ends inside its buffer: those that may not, one by one; or one obligation for all."""
    failed = False
    count = 0
    for node in tree.leaves():
        if node.context.ranges.empty:
            continue
        empty = _may_be_empty(node, storage)
        if empty is not None:
            failed = True
            reason = f"a transfer where extent {empty[1]} of '{empty[0]}' may be 0: an empty tensor has no map"
            yield Obligation(Layer.ADDRESS, empty[0], Verdict.OUTSIDE, reason, (node.text + (f" in {node.role}" if node.role else ""),))
        for block in blocks(node, storage):
            count += 1
            if not _ends_inside(block, node.context, storage):
                shape = storage.shapes[block.access.buffer]
                text = f"{block.access.buffer}[{', '.join(map(str, block.access.index))}]"
                reason = f"its {block.what} of {block.bytes} bytes from byte {block.start} on is not known to lie inside the buffer"
                note = f"{block.access.buffer} has {row_major_size(shape) * storage.sizes[block.access.buffer]} bytes"
                failed = True
                yield Obligation(Layer.ADDRESS, text, Verdict.OUTSIDE, reason, (node.text + (f" in {node.role}" if node.role else ""), note))
    if count and not failed:
        yield Obligation(Layer.ADDRESS, "boxes and tiles", Verdict.PROVED, f"{count} boxes and tiles lie inside their buffers")


def _may_be_empty(node: Node, storage: BufferLayouts) -> tuple[str, Expr] | None:
    """The tensor of a bulk copy, and an extent of it, that is not known to have an element where the copy is made."""
    match node.stmt:
        case TmaLoad(map=name) | TmaStore(map=name):
            tensor = storage.maps[name].tensor
            return next(((tensor, e) for e in storage.shapes[tensor] if not _nonnegative(e - 1, node.context)), None)
        case _:
            return None


def _ends_inside(block: TouchedBytes, context: Context, storage: BufferLayouts) -> bool:
    """True only if a block lies inside its buffer, or of one of its parts with one value of the first indices, which bounds of indices keep inside.

    A swizzle moves bytes within spans that begin at multiples of their size, as its buffer does: what ends within whole spans of a part stays there.
    """
    access, shape, size = block.access, storage.shapes[block.access.buffer], storage.sizes[block.access.buffer]
    begin = block.start - storage.byte(access)  # bytes from its first element to the beginning of the block
    questions: list[tuple[Expr, Expr]] = []
    for axis in range(len(shape), -1, -1):
        end = row_major_size(shape[axis:]) * size
        if block.span > 1 and not is_multiple(end, block.span, context.facts):
            end = const(end.value // block.span * block.span) if isinstance(end, Const) else end - (block.span - 1)
        start = row_major(access.index[axis:], shape[axis:]) * size + begin
        room = end - start - block.bytes
        least, most = context.ranges.of(room)
        if most is not None and most < 0:  # outside this part, wherever it begins
            continue
        from_first, _ = context.ranges.of(start)
        if least is not None and least >= 0 and from_first is not None and from_first >= 0:
            return True
        questions.append((start, room))
    return any(_nonnegative(start, context) and (_linear(room, context) or _enumerated(start, room + 1, context)) for start, room in questions)


def row_major_size(shape: tuple[Expr, ...]) -> Expr:
    """The number of elements."""
    size: Expr = const(1)
    for extent in shape:
        size = size * extent
    return size


def _within(e: Expr, last: Expr, extent: Expr, context: Context) -> bool:
    if isinstance(e, Const) and isinstance(last, Const) and isinstance(extent, Const) and e.value >= 0 and last.value < extent.value:
        return True
    lo, _ = context.ranges.of(e)
    gap = extent - last
    room, _ = context.ranges.of(gap)
    below = (lo is None or lo < 0) and not _nonnegative(e, context)
    above = (room is None or room <= 0) and not _less(last, extent, context)
    if not (below or above) or _enumerated(e, gap, context):
        return True
    return not below and (_linear(gap - 1, context) or _by_quotient(gap - 1, context))


def _by_quotient(e: Expr, context: Context) -> bool:
    """True only if an expression is proved nonnegative by the greatest value of one quotient in it that constant bounds of the rest allow."""
    if not isinstance(e, Sum):
        return False
    for term, k in e.terms:
        if k < 0 and isinstance(term, FloorDiv):
            least, _ = context.ranges.of(e - term * k)
            if least is not None and least >= 0 and context.constraints.proves(le(term, least // -k)):
                return True
    return False


def at_least(e: Expr, low: int, context: Context) -> bool:
    """True only if an expression is proved to be at least a number."""
    lo, _ = context.ranges.of(e)
    if (lo is not None and lo >= low) or _nonnegative(e - low, context):
        return True
    match e:  # what a quotient by a constant, or a product, needs of its parts
        case FloorDiv(a, Const(d)) if d > 0 and at_least(a, low * d, context):
            return True
        case Product(factors) if low <= 1 and all(at_least(f, 1, context) for f in factors):
            return True
        case _:
            pass
    found = extremes(e, context)
    return found is not None and found[0] >= low


def _less(a: Expr, b: Expr, context: Context) -> bool:
    return _ends_at(a, b, context) or _linear(b - a - 1, context, 1) or context.constraints.proves(lt(a, b))


def _ends_at(a: Expr, b: Expr, context: Context) -> bool:
    """True only if ``a`` is a symbol that ends before ``b``, as half of those do that index an axis of symbolic extent."""
    return isinstance(a, Sym) and context.facts.ranges.get(a.name, (None, None))[1] is b - 1


def _nonnegative(e: Expr, context: Context) -> bool:
    constraints, form = context.constraints.about(e)
    return Linear.of(constraints).nonnegative(form) or by_parts(form, constraints)


def _linear(e: Expr, context: Context, depth: int = DEPTH) -> bool:
    """True only if linear arithmetic finds that an expression is not negative. More than a depth of 1 takes long: what else may settle it goes first."""
    constraints, form = context.constraints.about(e)
    return Linear.of(constraints).nonnegative(form, depth)


def _enumerated(e: Expr, gap: Expr, context: Context) -> bool:
    """True only if ``e >= 0`` and ``gap > 0`` for all values of their symbols, or of their divisions by symbols."""
    found, room = extremes(e, context), extremes(gap, context)
    if found is not None and room is not None:
        return found[0] >= 0 and room[0] > 0
    simpler, wider = named(e, context)
    rest, widest = named(gap, context)
    if simpler is e and rest is gap:
        return False
    low, high = wider.ranges.of(simpler)[0], widest.ranges.of(rest)[0]
    return low is not None and low >= 0 and high is not None and high > 0


def by_parts(e: Expr, known: Constraints) -> bool:
    """True only if an expression is proved nonnegative: no term is negative, and no dividend or divisor in the terms."""
    lo, _ = known.ranges.of(e)
    if (lo is not None and lo >= 0) or prove(ge(e, 0), known.facts):
        return True
    match e:
        case Sum(terms, constant):
            return constant >= 0 and all(k > 0 and by_parts(t, known) for t, k in terms)
        case FloorDiv(a, b):
            return prove(ge(b, 1), known.facts) and by_parts(a, known)
        case Mod(_, b):
            return prove(ge(b, 1), known.facts)
        case _:
            return False


def touched(node: Node) -> Iterator[tuple[Access, int, Context]]:
    """The accesses of a statement, the number of elements along the last axis of each, and the conditions there.

    For boxes and tiles, the first element.
    """
    context = node.context
    match node.stmt:
        case Choose(out=out):
            yield from ((o, 1, there) for o, there in chosen(node.stmt, context) if isinstance(o, Access) and o.index)
            yield out, 1, context
        case GatherCopy(out=out, source=source, values=values, width=width):
            yield from ((v.source, 1, context) for v in values)
            yield source, width, within(context, node.stmt)
            yield out, width, context
        case AtomicUpdate(out=out, source=source, values=values, width=width):
            yield from ((v.source, 1, context) for v in values)
            yield source, width, context
            yield out, width, within(context, node.stmt)
        case VectorCopy(out=out, source=source, width=width):
            yield source, width, context
            yield out, width, context
        case AsyncCopy(out=out, source=source, width=width, valid=valid):
            yield source, width, context.under(conjuncts(valid))
            yield out, width, context
        case LdMatrix(out=registers, source=rows) | StMatrix(out=rows, source=registers):
            size = sizes(context.kernel)[rows.buffer]
            yield registers, fragments.matrices(node.stmt.matrices, size).count, context
            yield rows, fragments.MATRIX_ROW_BYTES // size, context
        case TmaLoad(out=access) | TmaStore(source=access):
            yield access, 1, context
        case Wgmma() | Mma():
            row = node.stmt.row
            for operand, fragment in ((node.stmt.acc, node.stmt.accumulators), (node.stmt.a, row.a_registers), (node.stmt.b, row.b_registers)):
                if isinstance(operand, Descriptor):
                    yield operand.base, 1, context
                elif fragment is not None:
                    yield operand, fragment.count, context
        case _:
            written, read = node.accesses
            yield from ((a, 1, context) for a in (*read, *written))


def within(context: Context, stmt: GatherCopy | AtomicUpdate) -> Context:
    """The conditions where a gather reads, or an update is made: its values are inside their extents."""
    return context.under(tuple(c for symbol, extent in own_symbols(stmt).items() for c in (ge(sym(symbol), 0), lt(sym(symbol), extent))))


def sizes(kernel: Kernel) -> dict[str, int]:
    """Bytes of an element, by buffer and tensor."""
    return {p.name: p.dtype.itemsize for p in kernel.params if isinstance(p, TensorParam)} | {b.name: b.dtype.itemsize for b in kernel.buffers}
