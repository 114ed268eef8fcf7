"""Fault operators on values: each plants one typical mistake in indices, operands, functions, guards or loops.

They keep the witness of the right kernel. Not every mutant is wrong. :mod:`taskfuse.testing.value_faults` reports which are, and which check
finds them; :mod:`taskfuse.testing.tile_operators` has operators on instructions that copy or multiply tiles, :mod:`taskfuse.testing.lie_operators`
operators that change the witness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

from taskfuse.dtypes import DTYPES, DType
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import TRUE, And, Compare, Const, Expr, FloorDiv, Mod, and_, compare, const, eq, maximum, minimum, ne, not_, rebuild, substitute, sym
from taskfuse.kir import Kernel, bodies, held, map_stmts, walk, with_bodies
from taskfuse.kir.declarations import ScalarParam, TensorParam
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Branch, Choose, Compute, For, GatherCopy, If, Stmt, VectorCopy
from taskfuse.kir.operands import Access, ChoiceCase, Content, GatherValue, Immediate, Operand, ScalarValue
from taskfuse.kir.products import Shuffle
from taskfuse.kir.synchronization import Cursor, CursorInit
from taskfuse.testing.accumulator_operators import ACCUMULATOR_OPERATORS, RESCALE_OPERATORS
from taskfuse.testing.lie_operators import LIE_OPERATORS
from taskfuse.testing.mutations import Edit, Mutants, Operator, all_bodies, at, change, inner, with_body
from taskfuse.testing.tile_operators import TILE_OPERATORS
from taskfuse.testing.value_edits import Writer, in_each, in_writers, index_of, reads, rewritten, writers, writes

AGAIN = "again"
"""A loop variable that no kernel of the corpus uses."""

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


# -- loops and guards -----------------------------------------------------------------------------------------------------------------


def _computes(s: Stmt) -> bool:
    return any(isinstance(t, Writer) for t in walk(s))


def _loop(new: Callable[[For], Stmt]) -> Edit:
    return change(For, lambda s: new(s) if isinstance(s, For) and _computes(s) else None)


def _longer(s: For) -> Stmt:
    """One more iteration, which repeats the last one."""
    clamped = minimum(sym(s.var), s.stop - 1)

    def other(t: Stmt) -> Stmt:
        return rewritten(t, lambda e: substitute(e, {s.var: clamped}) if s.var in e.free else e, lies=False)

    return replace(s, stop=s.stop + 1, body=map_stmts(s.body, other))


def _first_again(s: For) -> Stmt:
    """Every iteration does the work of the first."""

    def other(t: Stmt) -> Stmt:
        return rewritten(t, lambda e: substitute(e, {s.var: s.start}) if s.var in e.free else e, lies=False)

    return replace(s, body=map_stmts(s.body, other))


def _guards(new: Callable[[If], Stmt | tuple[Stmt, ...] | None]) -> Edit:
    """Another guard around a statement that computes."""

    def change_(s: Stmt) -> Stmt | tuple[Stmt, ...] | None:
        return new(s) if isinstance(s, If) and len(s.branches) == 1 and s.branches[0].label is None and _computes(s) else None

    return change(If, change_)


def _condition(new: Callable[[Expr], Expr]) -> Edit:
    return _guards(lambda s: replace(s, branches=(Branch(new(s.branches[0].cond), s.branches[0].body),)))


def _bounds(by: int) -> Callable[[Expr], Expr]:
    """A condition whose last comparison is wider by a number, or tighter."""

    def shifted(e: Expr) -> Expr:
        match e:
            case Compare():
                return compare(e.op, e.a - by, e.b)
            case And():
                return and_(*e.args[:-1], shifted(e.args[-1]))
            case _:
                return e

    return shifted


def _except(lane: Expr) -> Callable[[Kernel, Writer], Iterator[Stmt]]:
    """A statement that one thread, or one block, skips."""

    def apply(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
        if not isinstance(s, Shuffle):
            yield If((Branch(lane, (s,)),))

    return apply


# -- statements -----------------------------------------------------------------------------------------------------------------------


def _dropped(kernel: Kernel) -> Mutants:
    for s in writers(kernel):
        yield at(kernel, s, ())


def _repeated(kernel: Kernel) -> Mutants:
    for s in writers(kernel):
        yield at(kernel, s, (s, replace(s)))


def _looped(kernel: Kernel) -> Mutants:
    """A statement inside a loop with an unused variable: in every iteration, or in one."""
    stops = (const(2), *(sym(e.name) for e in kernel.extents[:1]))
    for s in writers(kernel):
        for stop in stops:
            yield at(kernel, s, For(AGAIN, const(0), stop, const(1), False, (s,)))
            yield at(kernel, s, For(AGAIN, const(0), stop, const(1), False, (If((Branch(eq(sym(AGAIN), 1), (s,)),)),)))


def _copied_behind(kernel: Kernel) -> Mutants:
    """A statement repeated after a later one, by some threads or blocks."""
    for body in all_bodies(kernel):
        places = [k for k, s in enumerate(body) if isinstance(inner(s), Writer) and not isinstance(inner(s), Shuffle)]
        for first, later in combinations(places, 2):
            for lane in (eq(THREAD, 0), ne(THREAD, 0), eq(sym("blockIdx.x"), 0), ne(sym("blockIdx.x"), 0)):
                copy = If((Branch(lane, (replace(body[first]),)),))
                yield with_body(kernel, body, (*body[: later + 1], copy, *body[later + 1 :]))


def _neighbours(kernel: Kernel) -> Mutants:
    """Two statements that compute, exchanged."""
    for body in all_bodies(kernel):
        for k in range(len(body) - 1):
            if all(isinstance(inner(s), Writer) for s in body[k : k + 2]):
                yield with_body(kernel, body, (*body[:k], body[k + 1], body[k], *body[k + 2 :]))


def _hoisted(kernel: Kernel) -> Mutants:
    """The last statement of a loop moved after it, and the one before a loop moved inside it."""
    for body in all_bodies(kernel):
        for k, s in enumerate(body):
            if isinstance(s, For) and s.body and isinstance(inner(s.body[-1]), Writer) and len(s.body) > 1:
                last = at_start(s.body[-1], s)
                yield with_body(kernel, body, (*body[:k], replace(s, body=s.body[:-1]), last, *body[k + 1 :]))
            if k and isinstance(s, For) and isinstance(inner(body[k - 1]), Writer):
                yield with_body(kernel, body, (*body[: k - 1], replace(s, body=(body[k - 1], *s.body)), *body[k + 1 :]))


def at_start(s: Stmt, loop: For) -> Stmt:
    """A statement with the loop's variable at its start value."""
    (new,) = map_stmts((s,), lambda t: rewritten(t, lambda e: substitute(e, {loop.var: loop.start}) if loop.var in e.free else e, lies=False))
    return new


def _starts(new: Callable[[Compute], Stmt | tuple[Stmt, ...] | None]) -> Edit:
    def apply(s: Stmt) -> Stmt | tuple[Stmt, ...] | None:
        assert isinstance(s, Compute)
        holds = held(s)
        return new(s) if holds is not None and holds.content in (Content.START, Content.ZERO) else None

    return change(Compute, apply)


def _start_inside(kernel: Kernel) -> Mutants:
    """The initialization of a reduction or scan in every iteration of its loop."""
    starts = [s for s in writers(kernel) if isinstance(s, Compute) and s.holds is not None and s.holds.content is Content.START]
    for s in starts:
        for loop in walk(kernel):
            if isinstance(loop, For) and any(isinstance(t, Compute) and t.out == s.out and t is not s for b in bodies(loop) for t in b):
                moved = map_stmts(kernel.body, lambda t, s=s, v=loop.var: _first_inside(t, s, v))
                yield replace(kernel, body=moved)


def _first_inside(t: Stmt, start: Stmt, var: str) -> Stmt | tuple[Stmt, ...]:
    if t is start:
        return ()
    return with_bodies(t, ((start, *t.body),)) if isinstance(t, For) and t.var == var else t


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


def _near(dtype: DType) -> Iterator[DType]:
    return (d for d in DTYPES.values() if d is not dtype and d.kind is dtype.kind)


def _compute_dtypes(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    if isinstance(s, Compute):
        yield from (replace(s, dtype=d) for d in _near(s.dtype))


def _storage_dtypes(kernel: Kernel) -> Mutants:
    """A buffer of elements of another kind of the same size or less."""
    for b in kernel.buffers:
        for d in _near(b.dtype):
            if d.itemsize <= b.dtype.itemsize:
                yield replace(kernel, buffers=tuple(replace(c, dtype=d) if c is b else c for c in kernel.buffers))


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
            new = _bounds(by)(c.cond)
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
    if isinstance(s, VectorCopy | AsyncCopy | GatherCopy) and s.width > 1:
        yield replace(s, width=s.width // 2)


def _valid(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    if isinstance(s, AsyncCopy):
        yield from (replace(s, valid=c) for c in (TRUE, not_(s.valid), _bounds(1)(s.valid), _bounds(-1)(s.valid)))


def _masks(kernel: Kernel, s: Writer) -> Iterator[Stmt]:
    if isinstance(s, Shuffle):
        yield from (replace(s, mask=m) for m in (s.mask * 2, s.mask // 2) if m in (1, 2, 4, 8, 16))


# -- declarations ---------------------------------------------------------------------------------------------------------------------


def _grids(kernel: Kernel) -> Mutants:
    for k, n in enumerate(kernel.grid):
        for other in (n - 1, n + 1):
            grid = [*kernel.grid]
            grid[k] = other
            yield replace(kernel, grid=(grid[0], grid[1], grid[2]))


def _shared_places(kernel: Kernel) -> Mutants:
    """A Shared buffer at the address of another one."""
    shared = [b for b in kernel.buffers if MEDIA[b.memory].is_placed and b.offset is not None]
    for i, a in enumerate(shared):
        for b in shared[i + 1 :]:
            yield replace(kernel, buffers=tuple(replace(c, offset=a.offset) if c is b else c for c in kernel.buffers))


THREAD = sym("threadIdx.x")

VALUE_OPERATORS: tuple[Operator, ...] = (
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
    Operator("loop starts one later", _loop(lambda s: replace(s, start=s.start + 1))),
    Operator("loop stops one earlier", _loop(lambda s: replace(s, stop=s.stop - 1))),
    Operator("step doubled", _loop(lambda s: replace(s, step=s.step * 2))),
    Operator("last trip twice", _loop(_longer)),
    Operator("first trip each time", _loop(_first_again)),
    Operator("guard dropped", _guards(lambda s: s.branches[0].body)),
    Operator("guard too tight", _condition(_bounds(-1))),
    Operator("guard too wide", _condition(_bounds(1))),
    Operator("guard inverted", _condition(not_)),
    Operator("not by thread 1", in_writers(_except(ne(THREAD, 1)))),
    Operator("not by the last block", in_writers(_except(ne(sym("blockIdx.x"), 1)))),
    Operator("by thread 0 alone", in_writers(_except(eq(THREAD, 0)))),
    Operator("statement dropped", _dropped),
    Operator("statement twice", _repeated),
    Operator("statement in a loop of its own", _looped),
    Operator("statement again behind a later one", _copied_behind),
    Operator("statements exchanged", _neighbours),
    Operator("statement across a loop's end", _hoisted),
    Operator("start dropped", _starts(lambda _: ())),
    Operator("start inside the loop", _start_inside),
    Operator("operands swapped", in_writers(_swapped)),
    Operator("another function", in_writers(_functions)),
    Operator("another constant", in_each(reads, _immediates)),
    Operator("padding not neutral", in_each(reads, _paddings)),
    Operator("another scalar", in_each(reads, _scalars)),
    Operator("computed in another dtype", in_writers(_compute_dtypes)),
    Operator("stored in another dtype", _storage_dtypes),
    Operator("cast dropped", in_writers(_casts)),
    Operator("case inverted", _cases(_inverted)),
    Operator("cases swapped", _cases(_operands_swapped)),
    Operator("cases in another order", _cases(_reordered)),
    Operator("case too wide", _cases(_shifted_case(1))),
    Operator("case too tight", _cases(_shifted_case(-1))),
    Operator("gather of others", in_writers(_gathers)),
    Operator("half a vector", in_writers(_narrower)),
    Operator("copy's condition", in_writers(_valid)),
    Operator("another shuffle", in_writers(_masks)),
    Operator("one block more or less", _grids),
    Operator("buffers at one place", _shared_places),
    *ACCUMULATOR_OPERATORS,
    *TILE_OPERATORS,
    *RESCALE_OPERATORS,
    *LIE_OPERATORS,
)
"""Every operator, with the name that reports use."""
