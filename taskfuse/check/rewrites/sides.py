"""The two lists of definitions that are compared: the original one and the rewritten one. Operands of either at a point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from taskfuse.check.row_tiles import tiles_of
from taskfuse.dtypes import DType, contains, converts_once, int64
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule, Elementwise
from taskfuse.ir.expr import is_same_number
from taskfuse.ir.scalar import FALSE, TRUE, Expr, Facts, and_, conjuncts, const, eq, ge, gt, le, lt, ne, not_, or_, prove, simplify, substitute, sym
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import ScalarParam
from taskfuse.kir.operands import Access, Immediate, IndexOf, Operand, dtype_of
from taskfuse.kir.walk import map_definition, map_operand
from taskfuse.kir.witness import Apply, Definition, Pick, Send, Whole

CONVERSIONS = (ELEMENTWISE["copy"], ELEMENTWISE["cast"])
"""Functions that convert their operand to another dtype."""


COMPARISONS: Mapping[Elementwise, Callable[[Expr, Expr], Expr]] = MappingProxyType(
    {ELEMENTWISE["lt"]: lt, ELEMENTWISE["le"]: le, ELEMENTWISE["gt"]: gt, ELEMENTWISE["ge"]: ge, ELEMENTWISE["eq"]: eq, ELEMENTWISE["ne"]: ne}
)
CONNECTIVES: Mapping[Elementwise, Callable[..., Expr]] = MappingProxyType(
    {ELEMENTWISE["logical_and"]: and_, ELEMENTWISE["logical_or"]: or_, ELEMENTWISE["logical_not"]: not_}
)
"""Functions of conditions, with their scalar expressions."""
BITWISE: Mapping[Elementwise, Callable[..., Expr]] = MappingProxyType(
    {ELEMENTWISE["bitwise_and"]: and_, ELEMENTWISE["bitwise_or"]: or_, ELEMENTWISE["bitwise_not"]: not_}
)
"""The same of booleans, as the operators of Python make them."""


class Different(Exception):
    """Two values differ, or no proof of their equality was found. Its text has the names of symbols without the mark that tells them from those of texts.

    Attributes:
        reason: what is kept of it: an error that is kept itself forms a reference cycle with the frames that it went through.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason.replace("'", "")


class At(NamedTuple):
    """An operand at a point: its indices are expressions over the extents and the symbols of the caller.

    Attributes:
        side: the definitions of its tensors.
    """

    side: Definitions
    operand: Operand


def moved_to(at: At, values: Mapping[str, Expr]) -> At:
    """An operand with some symbols substituted."""
    return At(at.side, map_operand(at.operand, lambda e: substitute(e, values)))


def symbols_of(at: At) -> frozenset[str]:
    """The symbols in the indices of an operand."""
    match at.operand:
        case Access(index=index):
            return frozenset[str]().union(*(e.free for e in index))
        case IndexOf(value=value):
            return value.free
        case _:
            return frozenset()


class ChoiceOf(NamedTuple):
    """The value of an element where a condition holds, and none of the previous conditions."""

    cond: Expr
    value: At


@dataclass(eq=False)
class Definitions:
    """The tensors of one list of definitions.

    Attributes:
        definitions: by name.
        dtypes: of all tensors and scalar arguments.
        inputs: the names of the input tensors.
        rows: of tensors whose rows are those of tiles of ragged rows, the tile of row ``i0`` and its place in the tile.
    """

    definitions: Mapping[str, Definition]
    dtypes: Mapping[str, DType]
    inputs: frozenset[str]
    rows: Mapping[str, tuple[Expr, Expr]] = field(default_factory=dict[str, tuple[Expr, Expr]])
    _conditions: dict[str, Expr | None] = field(default_factory=dict[str, "Expr | None"])

    @staticmethod
    def of(kernel: Kernel, definitions: Sequence[Definition]) -> Definitions:
        """The definitions, and the arguments of the kernel."""
        dtypes = {p.name: p.dtype for p in (*kernel.inputs, *(p for p in kernel.params if isinstance(p, ScalarParam)))}
        known = {d.tensor: d for d in definitions}
        row, rows = sym("i0"), dict[str, tuple[Expr, Expr]]()
        for d in definitions:
            if (tiles := tiles_of(kernel, d, definitions)) is not None:
                rows[d.tensor] = tiles.tile(row), tiles.place(row)
        return Definitions(known, dtypes | {d.tensor: d.dtype for d in definitions}, frozenset(p.name for p in kernel.inputs), rows)

    def mapped(self, change: Callable[[Expr], Expr]) -> Definitions:
        """The same with every expression changed."""
        changed = {name: map_definition(d, change) for name, d in self.definitions.items()}
        return replace(self, definitions=changed, rows={name: (change(tile), change(place)) for name, (tile, place) in self.rows.items()}, _conditions={})

    def dtype(self, operand: Operand) -> DType:
        """The dtype of an operand's values."""
        return dtype_of(operand, self.dtypes.__getitem__)

    def defined(self, operand: Operand) -> Definition | None:
        """The definition of the operand's tensor; ``None`` for an input and for other operands."""
        return self.definitions.get(operand.buffer) if isinstance(operand, Access) else None

    def at(self, operand: Operand, point: Mapping[str, Expr]) -> At:
        """An operand of a definition, at a point of its iteration space."""
        return moved_to(At(self, operand), point)

    def cases(self, found: Access) -> tuple[ChoiceOf, ...]:
        """The cases of an element that is chosen by indices, or that belongs to one of several parts; none for others."""
        d = self.definitions.get(found.buffer)
        if d is None:
            return ()
        point = points(found.index)
        match d.rule:
            case Pick(cases=cases) if all(self.dtype(c.operand) is d.dtype for c in cases):
                return tuple(ChoiceOf(substitute(c.cond, point), self.at(c.operand, point)) for c in cases)
            case Whole(parts=(part,)) if found.buffer in self.rows:  # each row belongs to one tile (taskfuse/check/row_tiles.py)
                tile, place = (substitute(e, point) for e in self.rows[found.buffer])
                return (ChoiceOf(TRUE, At(self, Access(part, (tile, place, *found.index[1:])))),)
            case Whole() as rule:
                return self._parts(rule, found.index)
            case Apply(op=op, operands=(cond, value, other), dtype=dtype) if op.rule is DTypeRule.SELECT:
                condition = self._condition(d, cond) if self.keeps(value, dtype, d.dtype) and self.keeps(other, dtype, d.dtype) else None
                if condition is None:
                    return ()
                return ChoiceOf(substitute(condition, point), self.at(value, point)), ChoiceOf(TRUE, self.at(other, point))
            case _:
                return ()

    def _condition(self, d: Definition, condition: Operand) -> Expr | None:
        """What a choice asks for, if that is about indices."""
        if d.tensor not in self._conditions:
            try:
                self._conditions[d.tensor] = condition_of(At(self, condition), lambda at: None)
            except Different:
                self._conditions[d.tensor] = None
        return self._conditions[d.tensor]

    def _parts(self, rule: Whole, index: tuple[Expr, ...]) -> tuple[ChoiceOf, ...]:
        """Parts that lie along axes of their own: of each the element that is at an index, where there is one. None if another part lies otherwise."""
        made: list[ChoiceOf] = []
        for part, place, condition in zip(rule.parts, rule.places, rule.conditions, strict=True):
            d = self.definitions.get(part)
            if d is None or isinstance(d.rule, Send):
                return ()
            cond, here = TRUE, dict[str, Expr]()
            for e, at in zip(place, index, strict=True):
                names = [n for n in e.free if n in {f"i{k}" for k in range(len(d.shape))}]
                if not names:
                    cond = and_(cond, eq(at, e))
                    continue
                start = simplify(e - sym(names[0]))
                if len(names) > 1 or names[0] in here or names[0] in start.free:
                    return ()
                here[names[0]] = at - start
            if len(here) < len(d.shape):
                return ()
            own = tuple(here[f"i{k}"] for k in range(len(d.shape)))
            inside = [c for e, n in zip(own, d.shape, strict=True) for c in (ge(e, 0), lt(e, n))]
            made.append(ChoiceOf(and_(cond, *inside, substitute(condition, here)), At(self, Access(part, own))))
        return tuple(made)

    def seen(self, at: At, facts: Facts, *, is_converted: bool = False) -> At:
        """The operand behind copies, and behind choices that the facts decide.

        Args:
            is_converted: its reader converts it, so that only the number counts: lossless conversions are skipped, too.
        """
        while isinstance(found := at.operand, Access):
            d = self.definitions.get(found.buffer)
            if d is None:
                return at
            match d.rule:
                case Apply(op=op, operands=(only,), dtype=dtype) if op in CONVERSIONS and self.keeps(only, dtype, d.dtype, is_converted=is_converted):
                    at = self.at(only, points(found.index))
                    continue
                case _:
                    cases = list(self.open_cases(found, facts))
            if not cases or not follows(cases[0].cond, facts):
                return at
            at = cases[0].value
        return at

    def keeps(self, operand: Operand, computed: DType, result: DType, *, is_converted: bool = False) -> bool:
        """True if an operand keeps its number when converted to the compute dtype and then to the result's dtype; and its dtype, unless readers convert it.

        A reader's conversion depends on whether the number is a float: conversions of floats to integers clamp, those of integers wrap.
        """
        source = self.dtype(operand)
        is_alike = source.is_float == result.is_float or source.is_bool
        return converts_once(computed, source, result) and (source is result or (is_converted and is_alike and contains(result, source)))

    def open_cases(self, found: Access, facts: Facts) -> Iterator[ChoiceOf]:
        """The cases that the facts leave open, up to the first that they decide."""
        for case in self.cases(found):
            if follows(not_(case.cond), facts):
                continue
            yield case
            if follows(case.cond, facts):
                return


def each_case(cases: Iterator[ChoiceOf], facts: Facts) -> Iterator[tuple[At, Facts]]:
    """The values of cases, each with the conditions under which it is taken.

    Raises:
        Different: at the end, if it is not proved that one always applies.
    """
    for case in cases:
        yield case.value, facts.with_assumption(case.cond)
        if follows(case.cond, facts):
            return
        facts = facts.with_assumption(negation(case.cond, facts))
    raise Different("nothing shows that a case of a choice holds")


def each_value(cases: Sequence[ChoiceOf], inside: Facts) -> Iterator[tuple[At, tuple[Expr, ...]]]:
    """The values of cases, each with the conditions under which it is taken.

    Raises:
        Different: at the end, if it is not proved that one always applies.
    """
    before: tuple[Expr, ...] = ()
    for case in cases:
        yield case.value, (*before, case.cond)
        if follows(case.cond, inside):
            return
        other = negation(case.cond, inside)
        before, inside = (*before, other), inside.with_assumption(other)
    raise Different("nothing shows that a case of a choice holds")


def assuming(facts: Facts, conditions: Sequence[Expr]) -> Facts:
    """Facts, with some conditions added."""
    for condition in conditions:
        facts = facts.with_assumption(condition)
    return facts


def negation(condition: Expr, facts: Facts) -> Expr:
    """A fact where the facts hold and a condition does not: about its undecided conjuncts."""
    return not_(and_(*(c for c in conjuncts(condition) if not follows(c, facts))))


def follows(condition: Expr, facts: Facts) -> bool:
    """True only if a condition holds where the facts do: it is one of them, or the prover finds it."""
    return condition in facts.known or prove(condition, facts)


def points(index: Sequence[Expr]) -> dict[str, Expr]:
    """The symbols of a point of an iteration space, with their values."""
    return {f"i{k}": e for k, e in enumerate(index)}


def is_neutral(at: At, value: float, dtype: DType) -> bool:
    """True for a constant equal to this number."""
    return isinstance(at.operand, Immediate) and at.operand.dtype is dtype and is_same_number(at.operand.value, value)


def condition_of(at: At, integer_of: Callable[[At], Expr | None]) -> Expr:
    """A condition as a scalar expression.

    Args:
        integer_of: the expression of an element that is an integer; ``None`` if it has none.

    Raises:
        Different: it contains something other than comparisons of integers.
    """
    match at.operand, at.side.defined(at.operand):
        case Immediate(value=value, dtype=dtype), _ if dtype.is_bool:
            return TRUE if value else FALSE
        case Access(index=index), Definition(rule=Apply(op=op, operands=operands, dtype=dtype)):
            parts = [at.side.at(o, points(index)) for o in operands]
            if op in CONNECTIVES or (op in BITWISE and dtype.is_bool):
                return (CONNECTIVES if op in CONNECTIVES else BITWISE)[op](*(condition_of(p, integer_of) for p in parts))
            if op in COMPARISONS and all(_is_kept(p, dtype) for p in parts):
                sides = [_integer(p, integer_of) for p in parts]
                return COMPARISONS[op](*sides)
        case _:
            pass
    raise Different("a condition is no comparison of integers")


def _is_kept(at: At, dtype: DType) -> bool:
    """True if an integer is the same number in the dtype that a function computes in."""
    if isinstance(at.operand, Immediate):
        return at.operand.dtype.is_integer and dtype.is_integer and dtype.holds(at.operand.value)
    return dtype.is_integer and contains(dtype, at.side.dtype(at.operand))


def integer(at: At) -> Expr | None:
    """The value of an int64 element that indices alone determine, as an expression of these; ``None`` for another one."""
    try:
        return _integer(at, lambda _: None) if at.side.dtype(at.operand) is int64 else None
    except Different:
        return None


def _integer(at: At, integer_of: Callable[[At], Expr | None]) -> Expr:
    match at.operand:
        case IndexOf(value=value):
            return value
        case Immediate(value=value, dtype=dtype) if dtype.is_integer:
            return const(int(value))
        case _:
            pass
    found = integer_of(at)
    if found is not None:
        return found
    match at.operand, at.side.defined(at.operand):
        case Access(index=index), Definition(rule=Apply(op=op, operands=operands, dtype=dtype), dtype=result) if dtype is result is int64:
            found_at = [at.side.at(o, points(index)) for o in operands]
            if not all(_is_kept(p, dtype) for p in found_at):
                raise Different("a condition is about an integer that is converted")
            parts = [_integer(p, integer_of) for p in found_at]
            match op.name, parts:
                case (("copy" | "cast"), [a]):
                    return a
                case "add", [a, b]:
                    return a + b
                case "sub", [a, b]:
                    return a - b
                case _:
                    pass
        case _:
            pass
    raise Different("a condition is about another integer")
