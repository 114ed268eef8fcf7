"""Fault operators on operands: another element, another function, another case of a choice, in one statement that computes, copies or gathers.

They keep the witness of the right kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from taskfuse.ir.combine import ATOMIC, COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import TRUE, Const, Expr, FloorDiv, Mod, const, maximum, minimum, not_, rebuild, substitute, sym
from taskfuse.kir import Kernel, walk
from taskfuse.kir.declarations import ScalarParam, TensorParam
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Choose, Compute, GatherCopy, Stmt, TmaStore, VectorCopy
from taskfuse.kir.operands import Access, ChoiceCase, GatherValue, Immediate, Operand, ScalarValue
from taskfuse.kir.products import Shuffle
from taskfuse.kir.synchronization import Cursor, CursorInit
from taskfuse.testing.mutations import Edit, Operator
from taskfuse.testing.value_edits import Writer, in_each, in_writers, index_of, moved_bounds, reads, rewritten, similar, writers, writes

# -- indices --------------------------------------------------------------------------------------------------------------------------


def _next(e: Expr, n: Expr) -> Expr:
    return (e + 1) % n


def _before(e: Expr, n: Expr) -> Expr:
    return maximum(e - 1, const(0))


def _last(e: Expr, n: Expr) -> Expr:
    return minimum(e + 1, n - 1)


def _reversed(e: Expr, n: Expr) -> Expr:
    return n - 1 - e


def _first(e: Expr, n: Expr) -> Expr:
    return const(0)


def _plain(e: Expr, n: Expr) -> Expr:
    return e + 1


def _exchanged(kernel: Kernel, operand: Operand) -> Iterator[Operand]:
    """Two indices exchanged."""
    if isinstance(operand, Access):
        for k in range(len(operand.index) - 1):
            index = [*operand.index]
            index[k], index[k + 1] = index[k + 1], index[k]
            yield Access(operand.buffer, tuple(index))


def _elsewhere(kernel: Kernel, operand: Operand) -> Iterator[Operand]:
    """The same index in another buffer or tensor of that rank, dtype and memory."""
    if isinstance(operand, Access):
        tensors = [(p.name, p.dtype, len(p.shape), p.is_output) for p in kernel.params if isinstance(p, TensorParam)]
        stores = [*tensors, *((b.name, b.dtype, len(b.shape), b.memory) for b in kernel.buffers)]
        mine = next(s for s in stores if s[0] == operand.buffer)
        for other in stores:
            if other[0] != mine[0] and other[1:] == mine[1:]:
                yield Access(other[0], operand.index)


def _slots(by: int) -> Callable[[Kernel, Operand], Iterator[Operand]]:
    """Another slot of a ring."""

    def apply(kernel: Kernel, operand: Operand) -> Iterator[Operand]:
        if not isinstance(operand, Access):
            return
        for s in walk(kernel):
            if isinstance(s, CursorInit) and s.slots > 1:
                slot = Cursor(s.name).slot
                index = tuple(substitute(e, {slot.name: (slot + by) % s.slots}) if slot.name in e.free else e for e in operand.index)
                yield Access(operand.buffer, index)

    return apply


def _other_symbol(s: Writer) -> Iterator[Callable[[Expr], Expr]]:
    """One index of a thread, a block or a loop in place of another."""
    names = sorted({n for site in (*reads(s), *writes(s)) if isinstance(site.operand, Access) for e in site.operand.index for n in e.free})
    for name in names:
        if name.startswith(("threadIdx", "blockIdx", "i")):
            yield lambda e, name=name: substitute(e, {name: const(0)}) if name in e.free else e
            for other in names:
                if other != name and other.split(".")[0] == name.split(".")[0]:
                    yield lambda e, name=name, other=other: substitute(e, {name: sym(other)}) if name in e.free else e


def _symbols(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    for f in _other_symbol(s):
        yield rewritten(s, f, lies=False)


def _digits(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    """A divisor in an index doubled."""
    found: list[FloorDiv | Mod] = []

    def collect(e: Expr) -> Expr:
        if isinstance(e, FloorDiv | Mod) and isinstance(e.b, Const) and e not in found:
            found.append(e)
        return rebuild(e, collect)

    rewritten(s, collect, lies=False)
    for digit in found:
        other = digit.a // (digit.b * 2) if isinstance(digit, FloorDiv) else digit.a % (digit.b * 2)

        def put(e: Expr, digit: Expr = digit, other: Expr = other) -> Expr:
            return other if e is digit else rebuild(e, put)

        yield rewritten(s, put, lies=False)


# -- operands and functions -----------------------------------------------------------------------------------------------------------


def _swapped(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    if isinstance(s, Compute):
        for k in range(len(s.operands) - 1):
            operands = [*s.operands]
            operands[k], operands[k + 1] = operands[k + 1], operands[k]
            yield replace(s, operands=tuple(operands))


def _functions(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    """The next two functions with the same operands."""
    if isinstance(s, Compute):
        alike = [op for op in ELEMENTWISE.values() if op.arity == s.op.arity and op.rule is s.op.rule]
        k = alike.index(s.op)
        yield from (replace(s, op=op) for op in (*alike[k + 1 :], *alike[:k])[:2])


def _immediates(kernel: Kernel, operand: Operand) -> Iterator[Operand]:
    if isinstance(operand, Immediate):
        number = not operand.value if isinstance(operand.value, bool) else operand.value + 1
        yield replace(operand, value=number)
        if operand.value and not isinstance(operand.value, bool):
            yield replace(operand, value=-operand.value)


def _paddings(kernel: Kernel, operand: Operand) -> Iterator[Operand]:
    if isinstance(operand, Immediate) and not isinstance(operand.value, bool):
        for value in (0, 1):
            yield replace(operand, value=float(value) if operand.dtype.is_float else value)


def _scalars(kernel: Kernel, operand: Operand) -> Iterator[Operand]:
    if isinstance(operand, ScalarValue):
        mine = next(p for p in kernel.params if isinstance(p, ScalarParam) and p.name == operand.name)
        yield Immediate(1.0 if mine.dtype.is_float else 1, mine.dtype)
        for p in kernel.params:
            if isinstance(p, ScalarParam) and p is not mine and p.dtype is mine.dtype:
                yield ScalarValue(p.name)


def _literals(kernel: Kernel, operand: Operand) -> Iterator[Operand]:
    """0 for an element."""
    if isinstance(operand, Access):
        stores = {b.name: b.dtype for b in (*kernel.buffers, *(p for p in kernel.params if isinstance(p, TensorParam)))}
        dtype = stores[operand.buffer]
        yield Immediate(False if dtype.is_bool else 0.0 if dtype.is_float else 0, dtype)


def _compute_dtypes(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    if isinstance(s, Compute):
        yield from (replace(s, dtype=d) for d in similar(s.dtype))


def _casts(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    """A cast value before the cast: the operand of the casting statement, which may be a copy of an accumulator into a tensor of another dtype."""
    if isinstance(s, Compute):
        dtypes = {b.name: b.dtype for b in (*kernel.buffers, *(p for p in kernel.params if isinstance(p, TensorParam)))}
        converting = (t for t in writers(kernel) if isinstance(t, Compute) and t.op in (ELEMENTWISE["cast"], ELEMENTWISE["copy"]))
        made = {t.out: t for t in converting if isinstance(o := t.operands[0], Access) and dtypes[o.buffer] is not dtypes[t.out.buffer]}
        for k, o in enumerate(s.operands):
            if isinstance(o, Access) and o in made and made[o] is not s:
                yield replace(s, operands=(*s.operands[:k], made[o].operands[0], *s.operands[k + 1 :]))
        if s.op is ELEMENTWISE["cast"]:
            yield replace(s, op=ELEMENTWISE["copy"])


# -- choices, gathers, copies ---------------------------------------------------------------------------------------------------------


def _cases(new: Callable[[tuple[ChoiceCase, ...]], Iterator[tuple[ChoiceCase, ...]]]) -> Edit:
    def apply(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
        if isinstance(s, Choose):
            yield from (replace(s, cases=cases) for cases in new(s.cases))

    return in_writers(apply)


def _inverted(cases: tuple[ChoiceCase, ...]) -> Iterator[tuple[ChoiceCase, ...]]:
    for k, c in enumerate(cases[:-1]):
        yield (*cases[:k], ChoiceCase(not_(c.cond), c.operand), *cases[k + 1 :])


def _operands_swapped(cases: tuple[ChoiceCase, ...]) -> Iterator[tuple[ChoiceCase, ...]]:
    for k in range(len(cases) - 1):
        a, b = cases[k : k + 2]
        yield (*cases[:k], ChoiceCase(a.cond, b.operand), ChoiceCase(b.cond, a.operand), *cases[k + 2 :])


def _reordered(cases: tuple[ChoiceCase, ...]) -> Iterator[tuple[ChoiceCase, ...]]:
    for k in range(len(cases) - 1):
        yield (*cases[:k], cases[k + 1], cases[k], *cases[k + 2 :])


def _shifted_case(by: int) -> Callable[[tuple[ChoiceCase, ...]], Iterator[tuple[ChoiceCase, ...]]]:
    def apply(cases: tuple[ChoiceCase, ...]) -> Iterator[tuple[ChoiceCase, ...]]:
        for k, c in enumerate(cases):
            new = moved_bounds(by)(c.cond)
            if new is not c.cond:
                yield (*cases[:k], ChoiceCase(new, c.operand), *cases[k + 1 :])

    return apply


def _gathers(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    if isinstance(s, GatherCopy | AtomicUpdate):
        for k, v in enumerate(s.values):
            for other in (v.extent - 1, v.extent + 1):
                yield replace(s, values=(*s.values[:k], GatherValue(v.symbol, v.source, other), *s.values[k + 1 :]))
            named = s.source if isinstance(s, GatherCopy) else s.out
            at_first = Access(named.buffer, tuple(substitute(e, {v.symbol: const(0)}) if v.symbol in e.free else e for e in named.index))
            yield replace(s, source=at_first) if isinstance(s, GatherCopy) else replace(s, out=at_first)
        for k in range(len(s.values) - 1):
            a, b = s.values[k : k + 2]
            yield replace(s, values=(*s.values[:k], replace(a, source=b.source), replace(b, source=a.source), *s.values[k + 2 :]))


def _narrower(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    if isinstance(s, VectorCopy | AsyncCopy | GatherCopy | AtomicUpdate) and s.width > 1:
        yield replace(s, width=s.width // 2)


def _updates(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    """An update by another function; a bulk update that stores."""
    if isinstance(s, AtomicUpdate | TmaStore) and s.combine is not None:
        yield from (replace(s, combine=other) for name, other in COMBINES.items() if name in ATOMIC and other is not s.combine)
        if isinstance(s, TmaStore):
            yield replace(s, combine=None)


def _valid(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    if isinstance(s, AsyncCopy):
        yield from (replace(s, valid=c) for c in (TRUE, not_(s.valid), moved_bounds(1)(s.valid), moved_bounds(-1)(s.valid)))


def _masks(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    if isinstance(s, Shuffle):
        yield from (replace(s, mask=m) for m in (s.mask * 2, s.mask // 2) if m in (1, 2, 4, 8, 16))


OPERAND_OPERATORS: tuple[Operator, ...] = (
    Operator("read the next element", in_each(reads, index_of(_next))),
    Operator("read the element before", in_each(reads, index_of(_before))),
    Operator("read the next element, clamped", in_each(reads, index_of(_last))),
    Operator("read one further", in_each(reads, index_of(_plain))),
    Operator("read backwards", in_each(reads, index_of(_reversed))),
    Operator("read the first element", in_each(reads, index_of(_first))),
    Operator("read transposed", in_each(reads, _exchanged)),
    Operator("read another tensor", in_each(reads, _elsewhere)),
    Operator("read the slot after", in_each(reads, _slots(1))),
    Operator("read the slot before", in_each(reads, _slots(-1))),
    Operator("read a constant", in_each(lambda s: reads(s) if isinstance(s, Compute | Choose) else iter(()), _literals)),
    Operator("write the next element", in_each(writes, index_of(_next))),
    Operator("write the element before", in_each(writes, index_of(_before))),
    Operator("write backwards", in_each(writes, index_of(_reversed))),
    Operator("write the first element", in_each(writes, index_of(_first))),
    Operator("write transposed", in_each(writes, _exchanged)),
    Operator("write another buffer", in_each(writes, _elsewhere)),
    Operator("write the slot after", in_each(writes, _slots(1))),
    Operator("another index's symbol", in_writers(_symbols)),
    Operator("digit of an index doubled", in_writers(_digits)),
    Operator("operands swapped", in_writers(_swapped)),
    Operator("another function", in_writers(_functions)),
    Operator("another constant", in_each(reads, _immediates)),
    Operator("padding not neutral", in_each(reads, _paddings)),
    Operator("another scalar", in_each(reads, _scalars)),
    Operator("computed in another dtype", in_writers(_compute_dtypes)),
    Operator("cast dropped", in_writers(_casts)),
    Operator("case inverted", _cases(_inverted)),
    Operator("cases swapped", _cases(_operands_swapped)),
    Operator("cases in another order", _cases(_reordered)),
    Operator("case too wide", _cases(_shifted_case(1))),
    Operator("case too tight", _cases(_shifted_case(-1))),
    Operator("gather of others", in_writers(_gathers)),
    Operator("half a vector", in_writers(_narrower)),
    Operator("update by another function", in_writers(_updates)),
    Operator("copy's condition", in_writers(_valid)),
    Operator("another shuffle", in_writers(_masks)),
)
"""Every operator, with the name that reports use."""
