"""Elements as sets of terms: nested reductions, scans and the functions that combine them, expanded to their terms.

The function that combines is associative and commutative (docs/proof.md, "Assumptions"), so that an element is given by the set of its terms. A set is a
list of parts; a part has variables in boxes, conditions on them, and a term at each point where they hold. Terms that are the neutral element are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from taskfuse.check.rewrites.elements import ElementPairs
from taskfuse.check.rewrites.sides import CONVERSIONS, At, Different, each_value, is_neutral, moved_to, points
from taskfuse.check.rewrites.updates import sent, sent_terms
from taskfuse.dtypes import DType, contains
from taskfuse.ir.combine import COMBINES, Combine
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.expr import is_same_number
from taskfuse.ir.scalar import (
    Compare,
    CompareOp,
    Const,
    Expr,
    Facts,
    FloorDiv,
    Sym,
    children,
    conjuncts,
    const,
    eq,
    ge,
    is_multiple,
    le,
    lt,
    not_,
    prove,
    simplify,
    substitute,
)
from taskfuse.kir.operands import Access, Immediate
from taskfuse.kir.walk import map_operand
from taskfuse.kir.witness import Accumulate, Apply, Definition, Iterate, Reduce, Whole

DEPTH = 6
"""The most nested functions in the search for the values of a part's variables."""


@dataclass(frozen=True, slots=True, eq=False)
class TermPart:
    """Terms of one form.

    Attributes:
        variables: each with its exclusive upper bound.
        conditions: the values of the variables at which there is a term.
        body, operands: the term.
    """

    variables: tuple[tuple[Sym, Expr], ...]
    conditions: tuple[Expr, ...]
    body: Elementwise
    operands: tuple[At, ...]

    def inside(self, facts: Facts) -> Facts:
        """The conditions of its points."""
        for v, extent in self.variables:
            facts = facts.with_range(v.name, 0, extent - 1)
        for condition in self.conditions:
            facts = facts.with_assumption(condition)
        return facts

    def at(self, values: Mapping[str, Expr]) -> TermPart:
        """The part with some variables substituted, which are removed from its variables."""
        return replace(
            self,
            variables=tuple((v, substitute(n, values)) for v, n in self.variables if v.name not in values),
            conditions=tuple(substitute(c, values) for c in self.conditions),
            operands=tuple(moved_to(o, values) for o in self.operands),
        )

    def alike(self, written: TermPart) -> Iterator[tuple[At, At]]:
        """Operands of an original part, each with an operand of this part that may be equal."""
        yield from zip(written.operands, self.operands, strict=False)

    def check(self, written: TermPart, elements: ElementPairs, inside: Facts) -> None:
        """Return if its term equals that of an original part, at one point.

        Raises:
            Different: it differs, or no proof was found.
        """
        is_function = self.body is written.body or (self.body in CONVERSIONS and written.body in CONVERSIONS)
        if not is_function or len(self.operands) != len(written.operands):
            raise Different(f"a term is {self.body.name}, and was written as {written.body.name}")
        for mine, yours in zip(written.operands, self.operands, strict=True):
            elements.check(mine, yours, inside, is_converted=True)


@dataclass(frozen=True, slots=True, eq=False)
class TermSet:
    """The terms that an element combines, starting at ``init``, in ``wide``; the result has ``dtype``."""

    combine: Combine
    wide: DType
    dtype: DType
    init: float
    parts: tuple[TermPart, ...]


WRAPPING = ("add", "mul", "bitwise_and", "bitwise_or", "bitwise_xor")
"""Functions of integers whose lowest bits are those of their operands' lowest bits."""


@dataclass(frozen=True, slots=True, eq=False)
class CombineForm:
    """The common properties of a set's terms.

    Attributes:
        atoms: tensors whose elements are atoms, except the element in question.
    """

    combine: Combine
    wide: DType
    dtype: DType
    atoms: frozenset[str] = frozenset()

    def is_neutral(self, at: At) -> bool:
        """True for the neutral element: for floats also that of the result's dtype, to which partial results may be rounded."""
        if isinstance(at.operand, Immediate) and is_same_number(at.operand.value, self.combine.neutral(self.wide)):
            return True
        return self.dtype.is_float and is_neutral(at, self.combine.neutral(self.dtype), self.dtype)

    def may_be(self, dtype: DType) -> bool:
        """True if partial results of a dtype give the same result.

        Floats may be rounded to the result's dtype; where nothing else rounds, as in maxima, only if what is too large for it becomes infinite. Integers may
        wrap where their lowest bits say those of the result. No other conversion and function commute.
        """
        if dtype not in (self.wide, self.dtype):
            return False
        if contains(dtype, self.wide):
            return True
        if dtype.is_float and self.wide.is_float:
            return dtype.has_infinity or not self.combine.idempotent
        return dtype.is_integer and self.wide.is_integer and self.combine.name in WRAPPING

    def starts_neutral(self, rule: Reduce | Iterate) -> bool:
        """True if a reduction adds nothing of its own."""
        return is_same_number(rule.init.value, self.combine.neutral(rule.dtype))


def form_of(at: At) -> CombineForm | None:
    """The form of a reduction or a scan; ``None`` for another element, or a rescaled sum."""
    d = at.side.defined(at.operand)
    match d:
        case Definition(rule=Reduce(rescaled=None) as rule):
            return CombineForm(rule.combine, rule.dtype, d.dtype)
        case Definition(rule=Accumulate() as rule):
            return CombineForm(rule.combine, rule.dtype, d.dtype)
        case Definition(rule=Iterate() as rule) if (combine := combine_of(rule)) is not None:
            return CombineForm(combine, rule.dtype, d.dtype)
        case _:
            return None


def combine_of(rule: Iterate) -> Combine | None:
    """The combining function of a fold, if its steps combine."""
    return next((c for c in COMBINES.values() if c.op is rule.op), None)


def terms(at: At, form: CombineForm, elements: ElementPairs, facts: Facts) -> TermSet:
    """The terms of an element: of a reduction or a scan of the form; any other element is a single term.

    Raises:
        Different: its dtype is not that of the form.
    """
    d = at.side.defined(at.operand)
    init: float = form.combine.neutral(form.wide)
    if not contains(form.wide, form.dtype) and not _is_combined(d, form):
        raise Different(f"it is {form.dtype}, which {form.combine.name} in {form.wide} would round")
    if isinstance(d, Definition):
        if d.dtype is not form.dtype:
            raise Different(f"{d.tensor} is {d.dtype}, not {form.dtype}")
        match d.rule:
            case Reduce() as rule if form_of(at) is not None and rule.combine is form.combine:
                init = rule.init.value
            case Iterate() as rule if rule.op is form.combine.op:
                init = rule.init.value
            case Apply() as rule if rule.op is not form.combine.op:
                one = TermPart((), (), rule.op, tuple(at.side.at(o, points(_index(at))) for o in rule.operands))
                if rule.dtype is form.wide:
                    return TermSet(form.combine, form.wide, form.dtype, init, tuple(eliminated(one, facts)))
            case _:
                pass
    return TermSet(form.combine, form.wide, form.dtype, init, tuple(terms_of(at, form, elements, facts)))


def _is_combined(d: Definition | None, form: CombineForm) -> bool:
    """True if an element is computed in the dtype in which terms are combined."""
    match d:
        case Definition(rule=Reduce(combine=combine, dtype=dtype) | Accumulate(combine=combine, dtype=dtype)):
            return combine is form.combine and dtype is form.wide
        case Definition(rule=Iterate(op=op, dtype=dtype)):
            return op is form.combine.op and dtype is form.wide
        case Definition(rule=Apply(dtype=dtype)):
            return dtype is form.wide
        case _:
            return False


def terms_of(whole: At | TermPart, form: CombineForm, elements: ElementPairs, facts: Facts) -> Iterator[TermPart]:
    """The parts of an element, or of the elements of a part."""
    is_outer = not isinstance(whole, TermPart)
    part = TermPart((), (), ELEMENTWISE["copy"], (whole,)) if is_outer else whole
    for made in _expanded(part, form, elements, facts, is_outer):
        yield from (in_digits(p, elements, facts) for p in eliminated(made, facts))


def _index(at: At) -> tuple[Expr, ...]:
    assert isinstance(at.operand, Access)
    return at.operand.index


def _expanded(part: TermPart, form: CombineForm, elements: ElementPairs, facts: Facts, is_outer: bool = False) -> Iterator[TermPart]:
    """A part whose terms may be combined of terms themselves, as parts of those."""
    if part.body not in CONVERSIONS:
        yield from _products(part, form, facts)
        return
    inside = part.inside(facts)
    (operand,) = part.operands
    operand = operand.side.seen(operand, inside, is_converted=True)
    if form.is_neutral(operand):
        return
    part = replace(part, operands=(operand,))
    d = operand.side.defined(operand.operand)
    cases = list(operand.side.open_cases(operand.operand, inside)) if isinstance(operand.operand, Access) else []
    if cases:
        for value, conditions in each_value(cases, inside):
            yield from _expanded(replace(part, conditions=(*part.conditions, *conditions), operands=(value,)), form, elements, facts)
        return
    if d is None or (d.tensor in form.atoms and not is_outer) or not (form.may_be(d.dtype) or (is_outer and d.dtype is form.dtype)):
        yield part
        return
    match d.rule:
        case Reduce() as rule if rule.rescaled is None and rule.combine is form.combine and rule.dtype is form.wide and (is_outer or form.starts_neutral(rule)):
            yield from _of_reduction(part, operand, d, rule, rule.body, form, elements, facts)
        case Accumulate() as rule if rule.combine is form.combine and rule.dtype is form.wide:
            v, _ = elements.fresh(d.space[rule.axis], facts)
            own = _index(operand)[rule.axis]
            at = operand.side.at(rule.operand, points(_index(operand)) | {f"i{rule.axis}": v})
            within = (le(substitute(rule.start, points(_index(operand))), v), (lt if rule.is_exclusive else le)(v, own))
            yield from _expanded(_joined(part, ((v, d.space[rule.axis]),), within, ELEMENTWISE["copy"], (at,)), form, elements, facts)
        case Iterate() as rule if rule.op is form.combine.op and rule.dtype is form.wide and (is_outer or form.starts_neutral(rule)):
            yield from _of_reduction(part, operand, d, rule, ELEMENTWISE["copy"], form, elements, facts)
        case Apply() as rule if rule.op is form.combine.op and rule.dtype is form.wide:
            for o in rule.operands:
                yield from _expanded(replace(part, operands=(operand.side.at(o, points(_index(operand))),)), form, elements, facts)
        case Whole() as rule if (updates := sent(rule, operand.side, form.combine, form.wide)) is not None:
            before = operand.side.at(Access(rule.parts[0], rule.places[0]), points(_index(operand)))
            yield from _expanded(replace(part, operands=(before,)), form, elements, facts)
            for s in sent_terms(operand.side, updates, _index(operand), elements.symbol, facts):
                yield from _expanded(_joined(part, s.variables, s.conditions, part.body, (s.term,)), form, elements, facts)
        case _:
            yield part


def _products(part: TermPart, form: CombineForm, facts: Facts) -> Iterator[TermPart]:
    """A part without the points at which its terms are products of zeros."""
    if part.body is not ELEMENTWISE["mul"] or form.combine.op is not ELEMENTWISE["add"]:
        yield part
        return
    inside = part.inside(facts)
    operands = tuple(o.side.seen(o, inside, is_converted=True) for o in part.operands)
    if all(map(form.is_neutral, operands)):
        return
    chosen = [list(o.side.open_cases(o.operand, inside)) if isinstance(o.operand, Access) else [] for o in operands]
    if not all(any(form.is_neutral(c.value) for c in cases) for cases in chosen):
        yield part
        return
    for value, conditions in each_value(chosen[0], inside):
        here = replace(part, conditions=(*part.conditions, *conditions), operands=(value, *operands[1:]))
        yield from _products(here, form, facts) if form.is_neutral(value) else (here,)


def _of_reduction(
    part: TermPart, operand: At, d: Definition, rule: Reduce | Iterate, body: Elementwise, form: CombineForm, elements: ElementPairs, facts: Facts
) -> Iterator[TermPart]:
    reduced = reduced_points(operand, d, rule, elements)
    operands = tuple(operand.side.at(o, reduced.point) for o in rule.operands)
    yield from _expanded(_joined(part, reduced.variables, reduced.conditions, body, operands), form, elements, facts)


class ReducedPoints(NamedTuple):
    """The points of an iteration space that belong to an element.

    Attributes:
        point: the values of the space's symbols.
        variables: those of the axes that the element leaves open, each with its exclusive upper bound.
        conditions: on them.
    """

    point: Mapping[str, Expr]
    variables: tuple[tuple[Sym, Expr], ...]
    conditions: tuple[Expr, ...]


def reduced_points(at: At, d: Definition, rule: Reduce | Iterate, elements: ElementPairs) -> ReducedPoints:
    """The points over which an element is reduced or folded."""
    point, variables, conditions = dict[str, Expr](), list[tuple[Sym, Expr]](), list[Expr]()
    open_places: list[tuple[Expr, Expr]] = []
    for e, there in zip(d.place, _index(at), strict=True):
        if isinstance(e, Sym) and e.name not in point and e.name in points(d.space):
            point[e.name] = there
        else:
            open_places.append((e, there))
    for k, n in enumerate(d.space):
        if f"i{k}" not in point:
            point[f"i{k}"] = v = elements.symbol()
            variables.append((v, n))
    conditions += [eq(substitute(e, point), there) for e, there in open_places]
    if isinstance(rule, Reduce):
        conditions += [le(substitute(e, point), point[f"i{k}"]) for k, e in rule.starts]
        conditions += [lt(point[f"i{k}"], substitute(e, point)) for k, e in rule.ends]
    return ReducedPoints(point, tuple(variables), tuple(conditions))


def _joined(part: TermPart, variables: tuple[tuple[Sym, Expr], ...], conditions: tuple[Expr, ...], body: Elementwise, operands: tuple[At, ...]) -> TermPart:
    return TermPart((*part.variables, *variables), (*part.conditions, *conditions), body, operands)


def eliminated(part: TermPart, facts: Facts) -> Iterator[TermPart]:
    """A part without the variables that are 0 or that a condition determines, with their ranges as conditions; nothing if it has no term."""
    while (said := _said(part)) is not None:
        v, value, rest = said
        part = replace(part, conditions=rest).at({v.name: value})
    inside = replace(part, conditions=()).inside(facts)
    kept: list[Expr] = []
    for condition in (c for whole in part.conditions for c in conjuncts(whole)):
        if prove(not_(condition), inside):
            return
        if not prove(condition, inside):
            kept.append(simplify(condition, inside))
            inside = inside.with_assumption(kept[-1])
    yield replace(part, conditions=tuple(kept))


def in_digits(part: TermPart, elements: ElementPairs, facts: Facts) -> TermPart:
    """A part with some variables split into quotient and remainder, if its operands, or their definitions, read at both."""
    operands = tuple(o.side.seen(o, part.inside(facts), is_converted=True) for o in part.operands)
    divided = [e for o in operands for e in _divided(o, part, elements, facts)]
    for v, n in part.variables:
        sizes = (e.b for e in divided if e.a is v and isinstance(e.b, Const) and is_multiple(n, e.b, facts))
        size = next((b for b in sizes if not prove(ge(b, n), facts)), None)
        if size is not None:
            (high, _), (low, _) = elements.fresh(n // size, facts), elements.fresh(size, facts)
            moved = replace(part, operands=operands).at({v.name: high * size + low})
            moved = replace(moved, variables=(*moved.variables, (high, simplify(n // size, facts)), (low, size)))
            return in_digits(_simple(moved, facts), elements, facts)
    return part


def _divided(at: At, part: TermPart, elements: ElementPairs, facts: Facts, depth: int = DEPTH) -> Iterator[FloorDiv]:
    """The quotients of a part's variables at which an element, or what it is made of, is read."""
    if not isinstance(at.operand, Access) or not any(v.name in e.free for v, _ in part.variables for e in at.operand.index):
        return
    found = [e for index in at.operand.index for e in _quotients(index)]
    yield from found
    d = at.side.defined(at.operand)
    if found or d is None or not depth:
        return
    for value in [c.value for c in at.side.open_cases(at.operand, part.inside(facts))]:
        yield from _divided(value, part, elements, facts, depth - 1)
    if isinstance(d.rule, Apply | Reduce):
        point = reduced_points(at, d, d.rule, elements).point if isinstance(d.rule, Reduce) else points(at.operand.index)
        for o in d.rule.operands:
            yield from _divided(at.side.at(o, point), part, elements, facts, depth - 1)


def _simple(part: TermPart, facts: Facts) -> TermPart:
    """A part with simpler conditions and indices."""
    part = next(eliminated(part, facts), part)
    inside = part.inside(facts)
    return replace(part, operands=tuple(At(o.side, map_operand(o.operand, lambda e: simplify(e, inside))) for o in part.operands))


def _quotients(e: Expr) -> Iterator[FloorDiv]:
    if isinstance(e, FloorDiv):
        yield e
    for part in children(e):
        yield from _quotients(part)


def _said(part: TermPart) -> tuple[Sym, Expr, tuple[Expr, ...]] | None:
    """A variable, what it must be, and the conditions that are left: with those that put this into the variable's range."""
    for v, n in part.variables:
        if n is const(1):
            return v, const(0), part.conditions
        for k, c in enumerate(part.conditions):
            for value in (c.a, c.b) if isinstance(c, Compare) and c.op is CompareOp.EQ else ():
                if v.name not in value.free and eq(v, value) is c:
                    return v, value, (*part.conditions[:k], *part.conditions[k + 1 :], ge(value, 0), lt(value, n))
    return None
