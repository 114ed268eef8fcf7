"""No index leaves its extent: what the other rules say about elements would otherwise say nothing about addresses."""

from __future__ import annotations

from collections.abc import Iterator

from taskfuse.check.certificate import Layer, Obligation, Verdict
from taskfuse.check.enumeration import extremes, named
from taskfuse.check.knowledge import Knowledge
from taskfuse.check.linear import DEPTH, Linear
from taskfuse.check.program import Context, Node, Program, conjuncts
from taskfuse.ir.scalar import Expr, FloorDiv, Mod, Sum, ge, lt, not_, prove, sym
from taskfuse.ir.types import MemoryType
from taskfuse.kir import Kernel, fragments
from taskfuse.kir.nodes import Access, AsyncCopy, Choose, Compute, Gather, LdMatrix, Mma, Shuffle, StMatrix, TensorParam, TmaLoad, TmaStore, VectorCopy, Wgmma
from taskfuse.kir.walk import own_symbols


def inside(program: Program) -> Iterator[Obligation]:
    """Every index of every access is at least 0 and less than its extent: those that may not be, one by one; or one obligation for all."""
    kernel = program.kernel
    shapes = {p.name: p.shape for p in kernel.params if isinstance(p, TensorParam)} | {b.name: b.shape for b in kernel.buffers}
    local = {b.name for b in kernel.buffers if b.memory is MemoryType.Local}
    failed = False
    count = 0
    for node in program.leaves():
        for access, width, context in touched(node):
            shape = shapes[access.buffer]
            if (access.buffer in local and not shape) or context.ranges.empty:  # of an operand that nobody ever reads
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
        yield Obligation(Layer.ADDRESS, "bounds", Verdict.PROVED, f"{count} accesses stay inside of their extents")


def _within(e: Expr, last: Expr, extent: Expr, context: Context) -> bool:
    lo, _ = context.ranges.of(e)
    gap = extent - last
    room, _ = context.ranges.of(gap)
    below = (lo is None or lo < 0) and not _nonnegative(e, context)
    above = (room is None or room <= 0) and not _less(last, extent, context)
    if not (below or above) or _enumerated(e, gap, context):
        return True
    return not below and _linear(gap - 1, context)


def at_least(e: Expr, low: int, context: Context) -> bool:
    """True only if an expression is found to be no less than a number."""
    lo, _ = context.ranges.of(e)
    if (lo is not None and lo >= low) or _nonnegative(e - low, context):
        return True
    found = extremes(e, context)
    return found is not None and found[0] >= low


def _less(a: Expr, b: Expr, context: Context) -> bool:
    return _linear(b - a - 1, context, 1) or context.knowledge.proves(lt(a, b))


def _nonnegative(e: Expr, context: Context) -> bool:
    knowledge, form = context.knowledge.about(e)
    return Linear.of(knowledge).nonnegative(form) or _by_parts(form, knowledge)


def _linear(e: Expr, context: Context, depth: int = DEPTH) -> bool:
    """True only if linear arithmetic finds that an expression is not negative. More than a depth of 1 takes long: what else may settle it goes first."""
    knowledge, form = context.knowledge.about(e)
    return Linear.of(knowledge).nonnegative(form, depth)


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


def _by_parts(e: Expr, known: Knowledge) -> bool:
    lo, _ = known.ranges.of(e)
    if (lo is not None and lo >= 0) or prove(ge(e, 0), known.facts):
        return True
    match e:
        case Sum(terms, constant):
            return constant >= 0 and all(k > 0 and _by_parts(t, known) for t, k in terms)
        case FloorDiv(a, b):
            return prove(ge(b, 1), known.facts) and _by_parts(a, known)
        case Mod(_, b):
            return prove(ge(b, 1), known.facts)
        case _:
            return False


def touched(node: Node) -> Iterator[tuple[Access, int, Context]]:
    """The accesses of a statement, how many elements along the last axis each has, and what holds there.

    Of boxes and of tiles of wgmma operands, the first element stands for all.
    """
    context = node.context
    match node.stmt:
        case Compute(out=out, operands=operands):
            yield from ((o, 1, context) for o in operands if isinstance(o, Access))
            yield out, 1, context
        case Choose(out=out, cases=cases):
            for k, case in enumerate(cases):
                if isinstance(case.operand, Access) and case.operand.index:
                    yield case.operand, 1, context.under((*(not_(c.cond) for c in cases[:k]), case.cond))
            yield out, 1, context
        case Gather(out=out, source=source, values=values, width=width):
            yield from ((v.source, 1, context) for v in values)
            yield source, width, within(context, node.stmt)
            yield out, width, context
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
        case Wgmma(n=n, acc=acc, a=a, dtype=dtype):
            yield acc, fragments.wgmma_accumulator(n).count, context
            if isinstance(a, Access):
                yield a, fragments.wgmma_a(dtype.itemsize).count, context
        case Mma(acc=acc, a=a, b=b, dtype=dtype):
            yield acc, fragments.mma_accumulator().count, context
            yield a, fragments.mma_a(dtype.itemsize).count, context
            yield b, fragments.mma_b(dtype.itemsize).count, context
        case Shuffle(out=out, source=source):
            yield source, 1, context
            yield out, 1, context
        case _:
            return


def within(context: Context, stmt: Gather) -> Context:
    """What holds where a gather reads: its values are inside of their extents."""
    return context.under(tuple(c for symbol, extent in own_symbols(stmt).items() for c in (ge(sym(symbol), 0), lt(sym(symbol), extent))))


def sizes(kernel: Kernel) -> dict[str, int]:
    """Bytes of an element, by buffer and tensor."""
    return {p.name: p.dtype.itemsize for p in kernel.params if isinstance(p, TensorParam)} | {b.name: b.dtype.itemsize for b in kernel.buffers}
