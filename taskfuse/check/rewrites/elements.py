"""Equality of an element of the original fusion with an element of the rewritten one, which is lowered.

Two elements are equal if they are one element of an input, or of a tensor that is known to be the same on both sides, or if they have the same function of
equal operands. Copies and choices that are decided are looked through, other choices are taken case by case. Reductions and scans are compared as sets of
terms (:mod:`taskfuse.check.rewrites.sums`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from taskfuse.check.constraints import Constraints
from taskfuse.check.linear import Linear
from taskfuse.check.ranges import Ranges, nonnegative_form
from taskfuse.check.rewrites.chosen_terms import compared_with, term_of
from taskfuse.check.rewrites.gathers import FoundPlace, choice_of, found_element
from taskfuse.check.rewrites.sides import CONVERSIONS, At, Different, condition_of, each_case, follows, integer, points
from taskfuse.ir.expr import is_same_number
from taskfuse.ir.scalar import (
    ONE,
    ZERO,
    Expr,
    Facts,
    Max,
    Min,
    Sym,
    and_,
    children,
    const,
    eq,
    fails_somewhere,
    ge,
    interval,
    le,
    lt,
    not_,
    private,
    prove,
    rebuild,
    samples_of,
    simplify,
    substitute,
    sym,
)
from taskfuse.kir.operands import Access, Immediate, IndexOf, Operand, ScalarValue
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Iterate, Reduce, Send, Whole, operands_of

LIMIT = 1000
"""The most comparisons for one tensor."""
SYMBOLS, NUMBERED = (private(name).name for name in ("r.", "r.of."))
"""What the names of new symbols begin with, and those of numbered ones: no text has such names."""
DEPTH = 60
"""The most nested comparisons."""


class ElementPairs:
    """The state of comparisons.

    Attributes:
        same: tensors whose elements are known to be equal on both sides.
        finite: tensors whose elements are assumed finite: maxima to which sums are relative.
        compares: compares two elements with definitions as sets of terms.
        bounded: what is known to be bounded by a reference, of numbered symbols (:mod:`~taskfuse.check.rewrites.linear_forms`).
    """

    def __init__(self, compares: Callable[[ElementPairs, At, At, Facts], None]) -> None:
        self.same: set[str] = set()
        self.finite: set[str] = set()
        self.compares = compares
        self.bounded: set[tuple[object, At, Facts]] = set()
        self._equal: set[tuple[Operand, Operand, Facts, bool]] = set()
        self._failed: dict[tuple[Operand, Operand, Facts, bool], str] = {}
        self._asked: dict[tuple[Operand, Operand, Facts, bool], int] = {}  # under way, each with its depth
        self._rests = DEPTH  # the least depth of those under way on which a failure in the innermost one rests
        self._symbols = 0
        self._count = 0
        self._depth = 0
        self._places: list[FoundPlace] = []

    def restart(self) -> None:
        """Begin another tensor: more tensors may be known to be the same."""
        self._count = 0
        self._failed.clear()

    def fresh(self, extent: Expr, facts: Facts) -> tuple[Sym, Facts]:
        """A new symbol for an index below an extent, and the facts with its range."""
        made = self.symbol()
        return made, facts.with_range(made.name, 0, extent - 1)

    def symbol(self) -> Sym:
        """A new symbol."""
        self._symbols += 1
        return private(f"r.{self._symbols}")

    @staticmethod
    def numbered(names: Iterable[str]) -> dict[str, Expr]:
        """For each new symbol among some names one that its place among them says: questions about other new symbols become one question."""
        made = sorted(int(name.removeprefix(SYMBOLS)) for name in names if name.startswith(SYMBOLS) and not name.startswith(NUMBERED))
        return {f"{SYMBOLS}{k}": private(f"r.of.{place}") for place, k in enumerate(made)}

    # -- elements -------------------------------------------------------------------------------------------------------------------

    def check(self, a: At, b: At, facts: Facts, *, is_converted: bool = False) -> None:
        """Return if two operands have the same value wherever the facts hold.

        Args:
            a: of the original definitions.
            b: of the rewritten ones.
            is_converted: readers convert both to one dtype, so that equal numbers suffice.

        Raises:
            Different: they differ, or no proof was found.
        """
        key = (a.operand, b.operand, facts, is_converted)
        if key in self._equal or self._is_one(a, b, facts):
            return
        if key in self._failed:
            raise Different(self._failed[key])
        if key in self._asked:
            self._rests = min(self._rests, self._asked[key])
            raise Different("its comparison rests on itself")
        self._count += 1
        if self._count > LIMIT or self._depth == DEPTH:
            raise Different("its comparison takes too many steps")
        depth = self._asked[key] = self._depth
        before, self._rests = self._rests, DEPTH
        self._depth += 1
        try:
            a, b = self._seen(a, facts), self._seen(b, facts)
            if is_converted and a.side.dtype(a.operand) is not b.side.dtype(b.operand):
                a, b = a.side.seen(a, facts, is_converted=True), b.side.seen(b, facts, is_converted=True)
            if not self._is_one(a, b, facts) and not self._by_cases(a, b, facts, is_converted):
                self._by_rules(a, b, facts)
        except Different as error:
            if self._rests >= depth:  # else one that is under way may turn out equal, and this with it
                self._failed[key] = error.reason
            raise
        finally:
            self._depth = depth
            del self._asked[key]
            self._rests = min(before, self._rests) if self._rests < depth else before
        self._equal.add(key)

    def _seen(self, at: At, facts: Facts) -> At:
        """The operand behind copies, behind choices that are decided, and behind what is found at integers whose place is known."""
        at = at.side.seen(at, facts)
        while self._places:
            match at.side.defined(at.operand):
                case Definition(rule=Find() as rule) if (place := self._place_of(at, rule, facts)) is not None:
                    at = found_element(at, rule, place.at)
                    at = at.side.seen(at, facts)
                case _:
                    break
        return at

    def _place_of(self, at: At, rule: Find, facts: Facts) -> FoundPlace | None:
        assert isinstance(at.operand, Access)
        values = [at.side.at(o, points(at.operand.index)) for o in rule.values]
        for place in self._places:
            is_equally_long = len(values) == len(place.values) and all(is_equal(e, f, facts) for e, f in zip(rule.extents, place.extents, strict=True))
            if is_equally_long and all(map(self._is_value(facts), place.values, values)):
                return place
        return None

    def _is_value(self, facts: Facts) -> Callable[[At, At], bool]:
        """Whether an integer is one that was written, on either side."""

        def holds(written: At, at: At) -> bool:
            if written.side is at.side:
                return written == at
            try:
                self.check(written, at, facts)
            except Different:
                return False
            return True

        return holds

    def _found(self, a: At, rule: Find, b: At, facts: Facts) -> None:
        """Compare an element that is found with a choice between something and 0."""
        assert isinstance(a.operand, Access)
        match b.side.defined(b.operand):
            case Definition(rule=Reduce() as summed) as d:
                self._chosen_term(a, rule, b, d, summed, facts)
                return
            case _:
                pass
        chosen = choice_of(b)
        self._require(chosen is not None, f"{shown(a)} was found, and {shown(b)} is there")
        assert chosen is not None
        values = tuple(a.side.at(o, points(a.operand.index)) for o in rule.values)
        extents = tuple(substitute(n, points(a.operand.index)) for n in rule.extents)
        given = tuple(self.symbol() for _ in values)
        is_value = self._is_value(facts)
        cond = condition_of(chosen.cond, lambda at: next((w for value, w in zip(values, given, strict=True) if is_value(value, at)), None))
        inside = and_(*(c for w, n in zip(given, extents, strict=True) for c in (ge(w, -n), lt(w, n))))
        is_inside = follows(cond, facts.with_assumption(inside)) and follows(not_(cond), facts.with_assumption(not_(inside)))
        self._require(is_inside, f"{shown(b)} is chosen elsewhere than where its integers are inside")
        other = chosen.other.side.seen(chosen.other, facts)
        self._require(isinstance(other.operand, Immediate) and is_same_number(other.operand.value, 0), f"{shown(b)} is not 0 outside")
        at = list[Sym]()
        for n in extents:
            v, facts = self.fresh(n, facts)
            at.append(v)
        self._places.append(FoundPlace(values, extents, tuple(at)))
        try:
            self.check(found_element(a, rule, tuple(at)), chosen.value, facts)
        finally:
            self._places.pop()

    def _chosen_term(self, a: At, rule: Find, b: At, d: Definition, summed: Reduce, facts: Facts) -> None:
        """Compare an element that is found with a sum of which one term is chosen (:mod:`taskfuse.check.rewrites.chosen_terms`)."""
        assert isinstance(a.operand, Access)
        self._require(len(rule.values) == 1, f"{shown(a)} was found at several integers")
        value, n = a.side.at(rule.values[0], points(a.operand.index)), substitute(rule.extents[0], points(a.operand.index))
        is_value, w, dtype = self._is_value(facts), self.symbol(), a.side.dtype(value.operand)
        j, of_terms = self.fresh(n, facts)
        of_terms = of_terms.with_range(w.name, int(dtype.min_value), int(dtype.max_value))
        cond = term_of(b, d, summed, j, n).cond
        for case, place in ((and_(ge(w, 0), lt(w, n)), w), (and_(ge(w, -n), lt(w, 0)), w + n), (ge(w, n), None), (lt(w, -n), None)):
            if follows(not_(case), of_terms):
                continue
            for at, inside in compared_with(cond, j, lambda at: w if is_value(value, at) else None, of_terms.with_assumption(case)):
                is_there = holds(eq(at, place), inside) if place is not None else holds(lt(at, 0), inside) or holds(ge(at, n), inside)
                self._require(is_there, f"the term of {shown(b)} that is chosen is not the one that was found")
        v, inside = self.fresh(n, facts)
        self._places.append(FoundPlace((value,), (n,), (v,)))
        try:
            self.check(found_element(a, rule, (v,)), term_of(b, d, summed, v, n).value, inside)
        finally:
            self._places.pop()

    def _is_one(self, a: At, b: At, facts: Facts) -> bool:
        match a.operand, b.operand:
            case Access(buffer=name, index=index), Access(buffer=other, index=there):
                is_shared = name == other and (name in self.same or (name in a.side.inputs and name in b.side.inputs))
                return is_shared and all(is_equal(e, f, facts) for e, f in zip(index, there, strict=True))
            case IndexOf(value=value), IndexOf(value=other):
                return is_equal(value, other, facts)
            case ((Immediate() | ScalarValue()), (Immediate() | ScalarValue())):
                return a.operand == b.operand
            case _:
                return False

    def _by_cases(self, a: At, b: At, facts: Facts, is_converted: bool) -> bool:
        """Compare a choice with anything, case by case. False if neither is a choice."""
        for mine, first in ((a, True), (b, False)):
            if isinstance(mine.operand, Access) and mine.side.cases(mine.operand):
                for value, inside in each_case(mine.side.open_cases(mine.operand, facts), facts):
                    self.check(value if first else a, b if first else value, inside, is_converted=is_converted)
                return True
        return False

    def _by_rules(self, a: At, b: At, facts: Facts) -> None:
        mine, yours = a.side.defined(a.operand), b.side.defined(b.operand)
        if a.side.dtype(a.operand) is not b.side.dtype(b.operand):
            raise Different(f"{shown(b)} is {b.side.dtype(b.operand)}, and was written as {a.side.dtype(a.operand)}")
        if isinstance(a.operand, IndexOf) or isinstance(b.operand, IndexOf):
            one, other = integer(a), integer(b)
            if one is not None and other is not None and is_equal(one, other, facts):
                return
        try:
            if mine is None or yours is None:
                raise Different(f"{shown(a)} was written, and {shown(b)} is there")
            if isinstance(mine.rule, Find) and not isinstance(yours.rule, Find):
                self._found(a, mine.rule, b, facts)
                return
            self.same_rules(a, mine, b, yours, facts)
        except Different:
            if not any(d is not None and isinstance(d.rule, Reduce | Accumulate | Iterate) for d in (mine, yours)):
                raise
            self.compares(self, a, b, facts)

    def same_rules(self, a: At, mine: Definition, b: At, yours: Definition, facts: Facts) -> None:
        """Compare two elements by one rule: equal operands at one point of equal iteration spaces."""
        assert isinstance(a.operand, Access)
        assert isinstance(b.operand, Access)
        before = f"{mine.tensor} was written as another function than {yours.tensor} is"
        match mine.rule, yours.rule:
            case Apply() as one, Apply() as other:
                is_function = one.op is other.op or (one.op in CONVERSIONS and other.op in CONVERSIONS)
                self._require(is_function and one.dtype is other.dtype, before)
                self._operands(a, one.operands, points(a.operand.index), b, other.operands, points(b.operand.index), facts, is_converted=True)
                return
            case Reduce() as one, Reduce() as other:
                is_function = one.combine is other.combine and one.body is other.body and one.rescaled == other.rescaled and one.init == other.init
                self._require(is_function and one.dtype is other.dtype and mine.place == yours.place, before)
                point, there, facts = self._reduced(a.operand, mine, b.operand, yours, facts)
                for what, bounds, others in (("start", one.starts, other.starts), ("end", one.ends, other.ends)):
                    pairs = list(zip(bounds, others, strict=False))
                    same = len(bounds) == len(others) and all(k == j for (k, _), (j, _) in pairs)
                    same = same and all(is_equal(substitute(e, point), substitute(f, there), facts) for (_, e), (_, f) in pairs)
                    self._require(same, f"the terms of {yours.tensor} {what} elsewhere")
            case Accumulate() as one, Accumulate() as other:
                is_function = one.combine is other.combine and one.is_exclusive == other.is_exclusive and one.axis == other.axis
                self._require(is_function and one.dtype is other.dtype, before)
                self._require(is_equal(a.operand.index[one.axis], b.operand.index[one.axis], facts), before)
                start, other_start = substitute(one.start, points(a.operand.index)), substitute(other.start, points(b.operand.index))
                self._require(is_equal(start, other_start, facts), f"the terms of {yours.tensor} start elsewhere")
                at, facts = self.fresh(mine.space[one.axis], facts)
                point, there = points(a.operand.index) | {f"i{one.axis}": at}, points(b.operand.index) | {f"i{one.axis}": at}
            case Iterate() as one, Iterate() as other:
                is_function = one.op is other.op and one.axis == other.axis and one.init == other.init and one.dtype is other.dtype
                self._require(is_function and mine.place == yours.place, before)
                point, there, facts = self._reduced(a.operand, mine, b.operand, yours, facts)
            case (Find() | Send()) as one, (Find() | Send()) as other:
                is_function = type(one) is type(other) and len(one.extents) == len(other.extents)
                is_function = is_function and all(is_equal(e, f, facts) for e, f in zip(one.extents, other.extents, strict=True))
                self._require(is_function and (not isinstance(one, Send) or (isinstance(other, Send) and one.combine is other.combine)), before)
                point, there = points(a.operand.index), points(b.operand.index)
                for k, extent in enumerate(one.extents):
                    value, facts = self.fresh(extent, facts)
                    point, there = point | {f"v{k}": value}, there | {f"v{k}": value}
            case Whole() as one, Whole() as other:
                self._wholes(a, one, b, other, facts)
                return
            case _:
                raise Different(before)
        is_converted = not isinstance(mine.rule, Find | Send)
        self._operands(a, operands_of(mine.rule), point, b, operands_of(yours.rule), there, facts, is_converted=is_converted)

    def _wholes(self, a: At, one: Whole, b: At, other: Whole, facts: Facts) -> None:
        """Equal parts at equal places, whichever element is asked for."""
        assert isinstance(a.operand, Access)
        assert isinstance(b.operand, Access)
        self._require(len(one.parts) == len(other.parts), "it has another number of parts")
        self._require(all(is_equal(e, f, facts) for e, f in zip(a.operand.index, b.operand.index, strict=True)), "another element is read")
        self._require(one.places == other.places and one.conditions == other.conditions, "its parts lie elsewhere")
        for part, there in zip(one.parts, other.parts, strict=True):
            d, e = a.side.definitions.get(part), b.side.definitions.get(there)
            self._require(d is not None and e is not None and d.shape == e.shape, f"{there} is no part as {part} was")
            assert d is not None
            inside, index = facts, list[Expr]()
            for extent in d.shape:
                at, inside = self.fresh(extent, inside)
                index.append(at)
            self.check(At(a.side, Access(part, tuple(index))), At(b.side, Access(there, tuple(index))), inside)

    def _reduced(self, a: Access, mine: Definition, b: Access, yours: Definition, facts: Facts) -> tuple[dict[str, Expr], dict[str, Expr], Facts]:
        """One point of both iteration spaces, which must be equal: the element's indices, and symbols for the axes that are reduced."""
        self._require(len(mine.space) == len(yours.space), f"{yours.tensor} is reduced over other axes")
        point, there = dict[str, Expr](), dict[str, Expr]()
        for e, x, y in zip(mine.place, a.index, b.index, strict=True):
            self._require(isinstance(e, Sym) and str(e) not in point, "its axes are made of others")
            point[str(e)], there[str(e)] = x, y
        for k, (n, m) in enumerate(zip(mine.space, yours.space, strict=True)):
            if f"i{k}" not in point:
                self._require(is_equal(n, m, facts), f"{yours.tensor} is reduced over {m} indices, and {mine.tensor} was over {n}")
                point[f"i{k}"], facts = self.fresh(n, facts)
                there[f"i{k}"] = point[f"i{k}"]
        return point, there, facts

    def _operands(
        self,
        a: At,
        mine: Sequence[Operand],
        point: dict[str, Expr],
        b: At,
        yours: Sequence[Operand],
        there: dict[str, Expr],
        facts: Facts,
        *,
        is_converted: bool,
    ) -> None:
        self._require(len(mine) == len(yours), "it has another number of operands")
        for x, y in zip(mine, yours, strict=True):
            self.check(a.side.at(x, point), b.side.at(y, there), facts, is_converted=is_converted)

    @staticmethod
    def _require(holds: bool, reason: str) -> None:
        if not holds:
            raise Different(reason)


def is_equal(a: Expr, b: Expr, facts: Facts) -> bool:
    """True only if two expressions are equal wherever the facts hold."""
    if a is b:
        return True
    if _fails(eq(a, b), facts):
        return False
    if prove(eq(a, b), facts):
        return True
    first, second = chosen(a, facts), chosen(b, facts)
    if first is a and second is b:
        return False
    return holds(ge(first, second), facts) and holds(le(first, second), facts)


def chosen(e: Expr, facts: Facts) -> Expr:
    """A simpler expression, without minima and maxima that linear arithmetic resolves."""
    e = simplify(e, facts)
    return simplify(_chosen(e, facts), facts) if _has_extremum(e) else e


def _chosen(e: Expr, facts: Facts) -> Expr:
    if isinstance(e, Min | Max):
        for x in e.args:
            if all(x is y or holds(le(x, y) if isinstance(e, Min) else ge(x, y), facts) for y in e.args):
                return _chosen(x, facts)
    return rebuild(e, lambda part: _chosen(part, facts)) if _has_extremum(e) else e


def _has_extremum(e: Expr) -> bool:
    return isinstance(e, Min | Max) or any(map(_has_extremum, children(e)))


def holds(condition: Expr, facts: Facts) -> bool:
    """True only if a condition holds where the facts do, by the prover or by linear arithmetic with quotients."""
    if _fails(condition, facts):
        return False
    if prove(condition, facts):
        return True
    form = nonnegative_form(condition)
    if form is None:
        return False
    known = {**{sym(n): interval(sym(n), facts) for n in facts.ranges}, **facts.intervals}
    return Linear(Constraints(Ranges(known), facts)).nonnegative(form)


def _fails(condition: Expr, facts: Facts) -> bool:
    """True only if a condition fails at values at which the facts hold: no proof exists."""
    try:
        return fails_somewhere(condition, samples_of(facts))
    except ZeroDivisionError:  # of constants
        return False


def learn(e: Expr, f: Expr, wanted: set[str], found: dict[str, Expr]) -> None:
    """Solve ``e == f`` for a symbol of ``e`` if it is the only unknown of ``e``, and ``e`` is that symbol plus other terms."""
    names = [n for n in e.free & wanted if n not in found]
    if len(names) == 1:
        rest = substitute(e, {names[0]: ZERO})
        if substitute(e, {names[0]: ONE}) - rest is ONE and names[0] not in rest.free and substitute(e, {names[0]: const(7)}) - rest is const(7):
            found[names[0]] = f - substitute(rest, found)


def shown(at: At) -> str:
    """An operand, for a reader."""
    match at.operand:
        case Access(buffer=name, index=index):
            return f"{name}[{', '.join(map(str, index))}]"
        case Immediate(value=value, dtype=dtype):
            return f"{value} of {dtype}"
        case ScalarValue(name=name):
            return name
        case IndexOf(value=value):
            return f"the index {value}"
