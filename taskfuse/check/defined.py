"""Every expression has a value, and every number in a statement is in its range.

A divisor is at least 1, and an index of a table of constants is inside it: the other rules hold only for expressions that have values. A choice has a
case that holds, unless definitions say of which case an element is. Loop steps are at least 1 and advances of cursors at least 0; a slot of an mbarrier
exists. No buffer begins before Shared memory, and no array has a negative extent: what lies behind it would lie on what stands before it. An mbarrier counts
at least one arrival, a semaphore one release: a phase without any would be complete at once.

Claims and definitions have values, too: the proof of values computes with them.

Expressions are checked in the order in which a thread reaches them, so each may be assumed to have a value where the next one is reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from taskfuse.check.bounds import at_least
from taskfuse.check.statement_tree import Context, StatementTree
from taskfuse.ir.scalar import (
    TRUE,
    And,
    Const,
    Element,
    Expr,
    FloorDiv,
    Mod,
    Or,
    Select,
    Sym,
    Table,
    UpperBound,
    children,
    conjuncts,
    const,
    forgotten_by,
    ge,
    lt,
    not_,
    or_,
    substitute,
    sym,
)
from taskfuse.kir import Kernel, barrier_slots, expressions, held, stmt_text, walk
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Choose, For, GatherCopy, If, Stmt
from taskfuse.kir.operands import Access, IndexOf, Operand
from taskfuse.kir.synchronization import Advance, Expect, InitBarrier
from taskfuse.kir.walk import definition_expressions
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Send, Whole
from taskfuse.reports.certificate import Layer, Obligation, Verdict

Conditions = tuple[Expr, ...]

PointRule = Apply | Pick | Reduce | Accumulate | Iterate | Find | Send
"""The rules by which an element is computed at a point of an iteration space."""

DIVISORS = "divisors"
"""The subject of obligations that expressions have values."""
CHOICES = "choices"
"""The subject of the obligation that a case of each choice holds, in kernels without definitions."""


@dataclass(frozen=True, slots=True)
class Demand:
    """``low <= value``, and ``value <= high`` if there is a bound, wherever ``conditions`` hold.

    Attributes:
        kind: of all demands in one obligation.
        what: the meaning of the value.
    """

    kind: str
    what: str
    value: Expr
    low: int
    high: Expr | int | None = None
    conditions: Conditions = ()

    def is_bounded(self, context: Context) -> bool:
        """True only if constant bounds of symbols show it."""
        lo, hi = context.ranges.of(self.value)
        if lo is None or lo < self.low:
            return False
        if isinstance(self.high, Expr):
            room, _ = context.ranges.of(self.high - self.value)
            return room is not None and room >= 0
        return self.high is None or (hi is not None and hi <= self.high)

    @property
    def is_constant(self) -> bool:
        """True if the value and its bounds are constants, and the value is within them."""
        high = self.high.value if isinstance(self.high, Const) else self.high
        return isinstance(self.value, Const) and self.value.value >= self.low and (high is None or (isinstance(high, int) and self.value.value <= high))

    def holds(self, context: Context) -> bool:
        """True only if the value is within its bounds in a context."""
        context = context.under(self.conditions) if self.conditions else context
        if context.ranges.empty:
            return True
        if isinstance(self.value, Or):
            return _one_holds(self.value.args, context)
        return at_least(self.value, self.low, context) and (self.high is None or at_least(self.high - self.value, 0, context))

    @property
    def bound(self) -> str:
        """The required bounds, as text."""
        return f"at least {self.low}" if self.high is None else f"in {self.low}..{self.high + 1}"

    @property
    def reason(self) -> str:
        """The unproved demand, as text."""
        return f"{self.what} {self.value} is not known to be {self.bound}"


def _one_holds(conditions: Conditions, context: Context) -> bool:
    """True only if one of some conditions holds: that each has a failing conjunct is a contradiction."""
    if context.ranges.empty:
        return True
    if not conditions:
        return False
    first, *rest = conditions
    for part in conjuncts(first):
        if not context.constraints.proves(part) and not _one_holds(tuple(rest), context.under((not_(part),))):
            return False
        context = context.under((part,))
    return True


def demands(e: Expr) -> tuple[Demand, ...]:
    """The demands under which an expression has a value."""
    if isinstance(e, (Const, Sym)):
        return ()
    found = _DEMANDS.get(e)
    if found is None:
        found = _DEMANDS[e] = tuple(_demands(e))
    return found


_DEMANDS: dict[Expr, tuple[Demand, ...]] = {}  # as long as expressions
forgotten_by(_DEMANDS.clear)


def _demands(e: Expr) -> Iterator[Demand]:
    match e:
        case And(args):
            for k, arg in enumerate(args):
                yield from _under(args[:k], demands(arg))
        case Or(args):
            for k, arg in enumerate(args):
                yield from _under(tuple(map(not_, args[:k])), demands(arg))
        case Select(cond, a, b):
            yield from demands(cond)
            yield from _under(conjuncts(cond), demands(a))
            yield from _under((not_(cond),), demands(b))
        case _:
            for part in children(e):
                yield from demands(part)
    match e:
        case FloorDiv(_, b) | Mod(_, b) if not (isinstance(b, Const) and b.value > 0):
            yield Demand(DIVISORS, "the divisor", b, 1)
        case Table(values, index):
            yield Demand(DIVISORS, "the index of a table", index, 0, len(values) - 1)
        case Element(tensor, index, size, low, high):
            yield Demand(DIVISORS, f"the index of an element of {tensor.name}:", index, 0, size - 1)
            if not (isinstance(low, Const) and isinstance(high, Const) and low.value <= high.value):
                yield Demand(DIVISORS, f"the room between the bounds of an element of {tensor.name}:", high - low, 0)
        case UpperBound(tensor, size):
            yield Demand(DIVISORS, f"the number of elements of {tensor.name}:", size, 2)
        case _:
            pass


def _under(conditions: Conditions, found: Iterable[Demand]) -> Iterator[Demand]:
    if not conditions:
        yield from found
        return
    for d in found:
        yield Demand(d.kind, d.what, d.value, d.low, d.high, (*conditions, *d.conditions))


def of_statement(stmt: Stmt, slots: Mapping[str, int]) -> Iterator[Demand]:
    """The demands of a statement on its own expressions: guarded ones where the guard holds; the conditions of arms, where the previous ones failed.

    Args:
        slots: of each array of mbarriers.
    """
    before: Conditions
    for b in barrier_slots(stmt):
        if not isinstance(b.slot, Const):
            yield Demand("slots", f"the slot of {b.name}:", b.slot, 0, slots[b.name] - 1)
    match stmt:
        case For(start=start, stop=stop, step=step):
            for e in (start, stop, step):
                yield from demands(e)
            if not _is_at_least(step, 1):
                yield Demand("steps", f"the step of the loop over {stmt.var}:", step, 1, conditions=(lt(start, stop),))
        case Choose(out=out, cases=cases):
            for e in out.index:
                yield from demands(e)
            before = ()
            for case in cases:
                yield from _under(before, demands(case.cond))
                own = () if case is cases[-1] else conjuncts(case.cond)  # the CUDA text does not ask for the last one
                for e in _operand(case.operand):
                    yield from _under((*before, *own), demands(e))
                before = (*before, not_(case.cond))
            one = or_(*(case.cond for case in cases))
            if one is not TRUE:
                yield Demand(CHOICES, "whether a case of a choice holds,", one, 1)
        case AsyncCopy(out=out, source=source, valid=valid):
            for e in (*out.index, valid):
                yield from demands(e)
            for e in source.index:
                yield from _under(conjuncts(valid), demands(e))
        case Advance(cursor=cursor, count=count):
            yield from demands(count)
            if not _is_at_least(count, 0):
                yield Demand("advances", f"the advance of cursor {cursor}:", count, 0)
        case InitBarrier(barrier=slot, count=count):
            for e in (slot.slot, count):
                yield from demands(e)
            if not _is_at_least(count, 1):
                yield Demand("counts", f"the count of {slot.name}:", count, 1)
        case Expect(barrier=slot, bytes=count):
            yield from demands(slot.slot)
            yield from demands(count)
            if not _is_at_least(count, 0):
                yield Demand("bytes", f"the bytes that {slot.name} expects:", count, 0)
        case AtomicUpdate(out=out, source=source, values=found):
            for e in (*source.index, *(e for v in found for e in (*v.source.index, v.extent))):
                yield from demands(e)
            inside = tuple(c for v in found for c in (ge(sym(v.symbol), 0), lt(sym(v.symbol), v.extent)))
            for e in out.index:
                yield from _under(inside, demands(e))
        case GatherCopy(out=out, source=source, values=found):
            for e in (*out.index, *(e for v in found for e in (*v.source.index, v.extent))):
                yield from demands(e)
            inside = tuple(c for v in found for c in (ge(sym(v.symbol), 0), lt(sym(v.symbol), v.extent)))
            for e in source.index:
                yield from _under(inside, demands(e))
        case If(branches=branches):
            before = ()
            for arm in branches:
                yield from _under(before, demands(arm.cond))
                before = (*before, not_(arm.cond))
        case _:
            for e in expressions(stmt):
                if not isinstance(e, Const | Sym):  # by far the most
                    yield from demands(e)


def _of_statements(tree: StatementTree, slots: Mapping[str, int]) -> Iterator[tuple[Demand, Stmt, Context]]:
    """The demands of all statements, and those on the elements that they claim to write."""
    for stmt, context in tree.evaluated:
        for d in of_statement(stmt, slots):
            yield d, stmt, context
        claim = held(stmt)
        if claim is not None:
            for e in claim.index:
                for d in demands(e):
                    yield d, stmt, context


def of_definition(d: Definition) -> Iterator[Demand]:
    """The demands of a tensor's definition on its expressions, at every point of its iteration space."""
    yield from _extents(f"{d.tensor}, or of its iteration space", (*d.shape, *d.space))
    found = [x for e in d.place for x in demands(e)]
    if not isinstance(d.rule, Whole):
        found += _of_rule(d.rule)
    if found:  # most definitions have none
        yield from _under(tuple(c for k, n in enumerate(d.space) for c in (ge(sym(f"i{k}"), 0), lt(sym(f"i{k}"), n))), found)
    if isinstance(d.rule, Whole):
        for place, condition in zip(d.rule.places, d.rule.conditions, strict=True):
            yield from demands(condition)
            yield from _under(conjuncts(condition), (x for e in place for x in demands(e)))


def _of_rule(rule: PointRule) -> Iterator[Demand]:
    """The demands of a definition's rule at a point of the iteration space."""
    before: Conditions
    match rule:
        case Apply(operands=operands) | Reduce(operands=operands) | Iterate(operands=operands):
            bounds = [e for _, e in (*rule.starts, *rule.ends)] if isinstance(rule, Reduce) else []
            for e in (*bounds, *(e for o in operands for e in _operand(o))):
                yield from demands(e)
        case Accumulate(operand=operand, start=start):
            for e in (start, *_operand(operand)):
                yield from demands(e)
        case Pick(cases=cases):
            before = ()
            for case in cases:
                yield from _under(before, demands(case.cond))
                yield from _under((*before, *conjuncts(case.cond)), (x for e in _operand(case.operand) for x in demands(e)))
                before = (*before, not_(case.cond))
        case Find(source=source, values=values, extents=extents):
            for e in (*extents, *(e for v in values for e in v.index)):
                yield from demands(e)
            found = tuple(c for k, n in enumerate(extents) for c in (ge(sym(f"v{k}"), 0), lt(sym(f"v{k}"), n)))
            yield from _under(found, (x for e in source.index for x in demands(e)))
        case Send(operand=operand, values=values, extents=extents):
            for e in (*_operand(operand), *extents, *(e for v in values for e in v.index)):
                yield from demands(e)


def _is_at_least(e: Expr, low: int) -> bool:
    return isinstance(e, Const) and e.value >= low


def _operand(operand: Operand) -> Conditions:
    match operand:
        case Access(index=index):
            return index
        case IndexOf(value=value):
            return (value,)
        case _:
            return ()


def _extents(name: str, extents: Iterable[Expr]) -> Iterator[Demand]:
    """The demands on the extents of an array."""
    for e in extents:
        if not _is_at_least(e, 0):
            yield from demands(e)
            yield Demand("extents", f"an extent of {name}:", e, 0)


def of_launch(tree: StatementTree) -> Iterator[tuple[Demand, str, Context]]:
    """The demands on the expressions that the host evaluates, their subjects, and the assumptions then."""
    kernel, context = tree.kernel, tree.declared
    for p in kernel.params:
        if isinstance(p, TensorParam):
            yield from ((d, p.name, context) for d in _extents(p.name, p.shape))
    for e in (*kernel.grid, *kernel.block, *kernel.cluster):
        yield from ((d, "the launch", context) for d in demands(e))
    for b in kernel.buffers:
        yield from ((d, b.name, context) for d in _extents(b.name, b.shape))
        if b.offset is not None:
            yield from ((d, b.name, context) for d in demands(b.offset))
            if not _is_at_least(b.offset, 0):
                yield Demand("offsets", f"the offset of {b.name}:", b.offset, 0), b.name, context
    for s in kernel.semaphores:
        yield from ((d, s.name, context) for d in chain(_extents(s.name, s.shape), demands(s.count)))
        if not _is_at_least(s.count, 1):
            yield Demand("counts", f"the count of {s.name}:", s.count, 1), s.name, context


def defined(tree: StatementTree) -> Iterator[Obligation]:
    """Every expression has a value in its range: those that may not, one by one; or one obligation for all of a kind. Demands on constants are omitted."""
    slots = {m.name: m.slots for m in tree.kernel.mbarriers}
    counts: dict[str, int] = {}
    failed: set[str] = set()
    asked: dict[tuple[Demand, Context], bool] = {}
    inner = _of_statements(tree, slots)
    if tree.kernel.definitions:  # they say which case an element is of: the proof of values compares it with the one that is read
        inner = (found for found in inner if found[0].kind != CHOICES)
    told = ((d, f"the definition of {known.tensor}", tree.declared) for known in tree.kernel.definitions for d in of_definition(known))
    for d, where, context in chain(of_launch(tree), inner, told):
        key = d, context
        if key in asked or d.is_bounded(context):
            continue
        asked[key] = d.holds(context)
        if asked[key]:
            counts[d.kind] = counts.get(d.kind, 0) + 1
        else:
            failed.add(d.kind)
            yield Obligation(Layer.ADDRESS, d.kind, Verdict.OUTSIDE, d.reason, (where if isinstance(where, str) else _text(where, tree.kernel),))
    for kind, count in counts.items():
        if kind not in failed:
            yield Obligation(Layer.ADDRESS, kind, Verdict.PROVED, f"{count} {_HOLDS[kind]}")


def without_value(kernel: Kernel, extents: Mapping[str, int]) -> Obligation | None:
    """An expression that may have no value at some extents, although its simplified form has one once they are known; ``None``: there is none.

    The kernel evaluates the original: ``8//(M - 1) > 0 && M > 1`` divides by 0 if ``M`` is 1, and simplifies to false.
    """
    values: dict[str, Expr] = {name: const(n) for name, n in extents.items()}
    if not any(_loses(e, values) for e in _expressions(kernel)):
        return None
    known = tuple(replace(e, min=extents[e.name], max=extents[e.name], multiple_of=1, bound=None) for e in kernel.extents)
    return next((o for o in defined(StatementTree.of(replace(kernel, extents=known))) if o.verdict is not Verdict.PROVED), None)


def _expressions(kernel: Kernel) -> Iterator[Expr]:
    for s in walk(kernel):
        yield from expressions(s)
        claim = held(s)
        yield from () if claim is None else claim.index
    for d in kernel.definitions:
        yield from definition_expressions(d)


def _loses(e: Expr, values: Mapping[str, Expr]) -> bool:
    """True if something that an expression has its value by is neither known to hold nor asked for any more once some symbols have values."""
    mine = demands(e)
    if not mine or e.free.isdisjoint(values):
        return False
    left = {(d.value, d.high) for d in demands(substitute(e, values))}
    for d in mine:
        value = substitute(d.value, values)
        high = substitute(d.high, values) if isinstance(d.high, Expr) else d.high
        if (value, high) not in left and not Demand(d.kind, d.what, value, d.low, high).is_constant:
            return True
    return False


def _text(stmt: Stmt, kernel: Kernel) -> str:
    return stmt_text(stmt, kernel)


_HOLDS = {
    DIVISORS: "divisors are at least 1, and indices of tables are in range",
    "steps": "steps of loops are at least 1",
    "advances": "advances of cursors are at least 0",
    "counts": "counts are at least 1",
    "bytes": "numbers of expected bytes are at least 0",
    "slots": "slots of mbarriers are in range",
    "offsets": "offsets of buffers are at least 0",
    "extents": "extents of arrays are at least 0",
    CHOICES: "choices have a case that holds",
}
