"""Fault operators on definitions: mistakes that lowering might make when it writes the definitions of a fusion.

The proof compares a kernel with its definitions, so it cannot find these; :mod:`taskfuse.kir.faithful`, which compares them with the fusion, and
:mod:`taskfuse.kir.meaning`, which computes them, do. To the proof such a kernel is one with another task: if it is proved, it must compute what the changed
definitions mean (:mod:`taskfuse.testing.soundness`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from taskfuse.dtypes import float16, float32, float64, int8, int32, int64, uint8
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.scalar import ZERO, Expr, const, not_
from taskfuse.kir import Kernel
from taskfuse.kir.operands import Access, ChoiceCase, Immediate, IndexOf, Operand
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Rule, Send, Whole, operands_of

Change = Callable[[Kernel, Definition], Iterator[Definition]]
Bounds = tuple[tuple[int, Expr], ...]
"""Axes, and where terms start or end along each."""


@dataclass(frozen=True, slots=True)
class DefinitionOperator:
    """A kind of mistake in one definition."""

    name: str
    change: Change

    def apply(self, kernel: Kernel) -> Iterator[Kernel]:
        """Yield the kernels that have the mistake in one place."""
        for k, d in enumerate(kernel.definitions):
            for new in self.change(kernel, d):
                if new != d:
                    yield replace(kernel, definitions=(*kernel.definitions[:k], new, *kernel.definitions[k + 1 :]))


def all_operands(rule: Rule) -> tuple[Operand, ...]:
    """The operands of a rule, in order; for a ``whole``, its parts, each at its place."""
    if isinstance(rule, Whole):
        return tuple(Access(p, e) for p, e in zip(rule.parts, rule.places, strict=True))
    return operands_of(rule)


def with_operands(rule: Rule, operands: tuple[Operand, ...]) -> Rule:
    """The same rule on other operands."""
    accesses = [o for o in operands if isinstance(o, Access)]
    match rule:
        case Apply() | Reduce() | Iterate():
            return replace(rule, operands=operands)
        case Pick(cases=cases):
            return replace(rule, cases=tuple(ChoiceCase(c.cond, o) for c, o in zip(cases, operands, strict=True)))
        case Accumulate():
            return replace(rule, operand=operands[0])
        case Find():
            return replace(rule, source=accesses[0], values=tuple(accesses[1:]))
        case Send():
            return replace(rule, operand=operands[0], values=tuple(o for o in operands[1:] if isinstance(o, Access)))
        case Whole():
            return replace(rule, parts=tuple(a.buffer for a in accesses), places=tuple(a.index for a in accesses))


def _each(change: Callable[[Kernel, Operand], Iterator[Operand]]) -> Change:
    """One operand changed."""

    def apply(kernel: Kernel, d: Definition) -> Iterator[Definition]:
        operands = all_operands(d.rule)
        for k, o in enumerate(operands):
            for new in change(kernel, o):
                yield replace(d, rule=with_operands(d.rule, (*operands[:k], new, *operands[k + 1 :])))

    return apply


def _index(change: Callable[[Expr, Expr], Expr]) -> Change:
    """One index changed: a function of it and of the extent of its axis."""

    def apply(kernel: Kernel, operand: Operand) -> Iterator[Operand]:
        shapes = {d.tensor: d.shape for d in kernel.definitions} | {p.name: p.shape for p in kernel.inputs}
        match operand:
            case Access(buffer=name, index=index):
                for k, (e, n) in enumerate(zip(index, shapes[name], strict=False)):
                    yield Access(name, (*index[:k], change(e, n), *index[k + 1 :]))
            case IndexOf(value=value):
                yield IndexOf(change(value, const(1 << 20)))
            case _:
                pass

    return _each(apply)


def _exchanged(kernel: Kernel, operand: Operand) -> Iterator[Operand]:
    if isinstance(operand, Access):
        for k in range(len(operand.index) - 1):
            yield Access(operand.buffer, (*operand.index[:k], operand.index[k + 1], operand.index[k], *operand.index[k + 2 :]))


def _another(kernel: Kernel, operand: Operand) -> Iterator[Operand]:
    """Another tensor of that dtype and rank that is defined first."""
    if isinstance(operand, Access):
        mine = next((p for p in kernel.inputs if p.name == operand.buffer), None)
        yield from (Access(p.name, operand.index) for p in kernel.inputs if mine is not None and p.dtype is mine.dtype and len(p.shape) == len(mine.shape))


def _constants(kernel: Kernel, operand: Operand) -> Iterator[Operand]:
    if isinstance(operand, Immediate):
        yield replace(operand, value=not operand.value if isinstance(operand.value, bool) else operand.value + 1)


def _swapped(kernel: Kernel, d: Definition) -> Iterator[Definition]:
    """Two operands exchanged, where this changes the function."""
    operands = all_operands(d.rule)
    match d.rule:
        case Apply(op=op) | Reduce(body=op):
            pairs = range(1 if op.commutative else 0, len(operands) - 1)
        case Pick() | Whole() | Iterate():
            pairs = range(len(operands) - 1)
        case Accumulate() | Find() | Send():
            return
    for k in pairs:
        yield replace(d, rule=with_operands(d.rule, (*operands[:k], operands[k + 1], operands[k], *operands[k + 2 :])))


def _functions(kernel: Kernel, d: Definition) -> Iterator[Definition]:
    match d.rule:
        case Apply(op=op):
            yield from (replace(d, rule=replace(d.rule, op=other)) for other in _alike(op))
        case Iterate(op=op):
            yield from (replace(d, rule=replace(d.rule, op=other)) for other in _alike(op))
        case Reduce(body=body, combine=combine):
            yield from (replace(d, rule=replace(d.rule, body=other)) for other in _alike(body))
            yield from (replace(d, rule=replace(d.rule, combine=other)) for other in COMBINES.values() if other.op.rule is combine.op.rule)
        case Accumulate(combine=combine) | Send(combine=combine):
            yield from (replace(d, rule=replace(d.rule, combine=other)) for other in COMBINES.values() if other.op.rule is combine.op.rule)
        case _:
            pass


def _alike(op: Elementwise) -> list[Elementwise]:
    """The next two functions with the same operands."""
    alike = [other for other in ELEMENTWISE.values() if other.arity == op.arity and other.rule is op.rule]
    k = alike.index(op)
    return (alike[k + 1 :] + alike[:k])[:2]


def _starts(kernel: Kernel, d: Definition) -> Iterator[Definition]:
    if isinstance(d.rule, Reduce):
        for new in _constants(kernel, d.rule.init):
            assert isinstance(new, Immediate)
            yield replace(d, rule=replace(d.rule, init=new))


def _shorter(kernel: Kernel, d: Definition) -> Iterator[Definition]:
    """A reduction over one point less, or over at most one point, along a summed axis, or one that starts or ends elsewhere or not at all."""
    if isinstance(d.rule, Accumulate) and d.rule.start is not ZERO:
        yield from (replace(d, rule=replace(d.rule, start=start)) for start in (d.rule.start + 1, d.rule.start - 1, ZERO))
    if isinstance(d.rule, Reduce):
        yield from (replace(d, rule=replace(d.rule, ends=ends)) for ends in _moved(d.rule.ends))
        yield from (replace(d, rule=replace(d.rule, starts=starts)) for starts in _moved(d.rule.starts))
        kept = {n for e in d.place for n in e.free}
        for k, n in enumerate(d.space):
            if f"i{k}" not in kept:
                for other in (n - 1, const(1)):
                    yield replace(d, space=(*d.space[:k], other, *d.space[k + 1 :]))


def _moved(bounds: Bounds) -> Iterator[Bounds]:
    """Bounds of terms of which one is elsewhere, or missing."""
    for j, (k, e) in enumerate(bounds):
        for others in (((k, e - 1),), ((k, e + 1),), ()):
            yield (*bounds[:j], *others, *bounds[j + 1 :])


def _places(kernel: Kernel, d: Definition) -> Iterator[Definition]:
    """Terms that go to another element."""
    if isinstance(d.rule, Reduce):
        for k, (e, n) in enumerate(zip(d.place, d.shape, strict=True)):
            yield replace(d, place=(*d.place[:k], (e + 1) % n, *d.place[k + 1 :]))


def _axes(kernel: Kernel, d: Definition) -> Iterator[Definition]:
    if isinstance(d.rule, Accumulate):
        yield from (replace(d, rule=replace(d.rule, axis=k)) for k in range(len(d.space)) if k != d.rule.axis)


def _cases(kernel: Kernel, d: Definition) -> Iterator[Definition]:
    """One condition inverted, or one case left out."""
    if isinstance(d.rule, Pick):
        cases = d.rule.cases
        for k, c in enumerate(cases[:-1]):
            yield replace(d, rule=Pick((*cases[:k], ChoiceCase(not_(c.cond), c.operand), *cases[k + 1 :])))
            yield replace(d, rule=Pick((*cases[:k], *cases[k + 1 :])))


def _dtypes(kernel: Kernel, d: Definition) -> Iterator[Definition]:
    """Elements, or what makes them, in another dtype of its kind, or with another sign."""
    for other in (float16, float32, float64, int8, uint8, int32, int64):
        yield replace(d, dtype=other)
        if isinstance(d.rule, Apply | Reduce | Accumulate | Iterate):
            yield replace(d, rule=replace(d.rule, dtype=other))


DTYPES_OF_DEFINITIONS = DefinitionOperator("another dtype", _dtypes)
"""Often without effect: a sum of integers that is stored in 8 bits may be computed in any number of them."""
DEFINITION_OPERATORS: tuple[DefinitionOperator, ...] = (
    DefinitionOperator("index shifted", _index(lambda e, n: (e + 1) % n)),
    DefinitionOperator("index backwards", _index(lambda e, n: n - 1 - e)),
    DefinitionOperator("axis dropped", _index(lambda e, n: const(0))),
    DefinitionOperator("indices exchanged", _each(_exchanged)),
    DefinitionOperator("another tensor", _each(_another)),
    DefinitionOperator("another constant", _each(_constants)),
    DefinitionOperator("operands swapped", _swapped),
    DefinitionOperator("another function", _functions),
    DefinitionOperator("another start", _starts),
    DefinitionOperator("points left out", _shorter),
    DefinitionOperator("terms elsewhere", _places),
    DefinitionOperator("another axis of a scan", _axes),
    DefinitionOperator("other cases", _cases),
)
"""Every operator, with the name that reports use."""
