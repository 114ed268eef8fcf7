"""The change of a value when a reduction that it reads changes, derived on the elementwise graph between them.

A term ``g(x, r)`` has a **repair** if ``g(x, r') = g(x, r) * h(r, r')`` for some h that does not depend on x: then one multiplication turns a sum of such terms
relative to r into the sum relative to r'. Each function has a rule: ``x - r`` changes by the addition of ``r - r'``, ``exp`` turns an addend into a factor, a
product has the product of its operands' factors. A function of r alone changes by its own difference, or, where sums are factors, by its own quotient. No op is
recognised by its position in a pattern.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from taskfuse.dtypes import bool_
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import IndexValue, Literal, Operand, Pointwise, Read, ScalarRead
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import TRUE
from taskfuse.ir.storage import storage_operands
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.term_bounds import bounds_of

FINITE = frozenset(
    {"copy", "neg", "abs", "add", "sub", "minimum", "maximum", "where", "isfinite", "isinf", "isnan", "eq", "ne", "lt", "le", "gt", "ge", "sin", "cos"}
)
"""Functions with finite, or bool, results for finite operands: terms may be relative to such a function of any running maximum."""
Emit = Callable[..., Operand]
"""Makes a tensor of an elementwise function's name and operands."""
Change = Callable[[Operand, Operand, Emit], Operand]
"""From the reduction's value before and after, and what makes tensors."""
Value = Callable[[Operand, Emit], Operand]
"""From the reduction's value, and what makes tensors, to that of a function of it."""


@dataclass(frozen=True, slots=True)
class Repair:
    """The change of a value with the reduction, in both forms; each may be unknown.

    Attributes:
        added: the addend; the value does not change if ``is_free``.
        factor: the factor.
        is_free: the value does not depend on the reduction.
    """

    added: Change | None = None
    factor: Change | None = None
    is_free: bool = False


FREE = Repair(is_free=True)


class Repairs:
    """The repairs of values for the change of one reduction, while others do not change.

    Args:
        as_factor: it may be read as a factor, not as a term: the quotient of two of its values is known, and not their difference.
    """

    def __init__(self, fusion: Fusion, reduction: TensorView, others: Collection[TensorView] = (), *, as_factor: bool = False) -> None:
        self.fusion = fusion
        self.reduction = reduction
        self.others = others
        self.as_factor = as_factor
        self._known: dict[TensorView, Repair | None] = {}

    def of_operand(self, operand: Operand) -> Repair | None:
        """The repair of an operand; ``None``: unknown."""
        match operand:
            case Read():
                return self.of(operand.tensor)
            case Literal() | ScalarRead() | IndexValue():
                return FREE

    def of(self, tv: TensorView) -> Repair | None:
        """The repair of a tensor's elements."""
        if tv is self.reduction:
            return self._of_function_alone(lambda value, emit: value)
        if tv not in self._known:
            self._known[tv] = self._of_tensor(tv)
        return self._known[tv]

    def _of_tensor(self, tv: TensorView) -> Repair | None:
        expr = self.fusion.definition(tv)
        if expr is None or among(tv, self.others) or not depends(self.fusion, tv, (self.reduction,), self.others):
            return FREE
        if not isinstance(expr, Pointwise):
            return None
        operands = storage_operands(self.fusion, expr)
        found = [self.of_operand(o) for o in operands]
        known = [f for f in found if f is not None]
        repair = _of_function(expr.op.name, operands, known) if len(known) == len(found) else None
        if repair is None and (same := self._unchanged(expr.op.name, operands)) is not None:
            return found[same]
        alone = self._alone(tv) if repair is None else None
        return repair if alone is None else self._of_function_alone(alone)

    def _unchanged(self, name: str, operands: Sequence[Operand]) -> int | None:
        """The operand of a clamp that lies in its range whatever the maximum is, so that it is the result."""
        if name not in ("minimum", "maximum"):
            return None
        a, b = (bounds_of(self.fusion, o, self.reduction) for o in operands)
        if name == "maximum":
            a, b = (-a[1], -a[0]), (-b[1], -b[0])
        return 0 if a[1] <= b[0] else 1 if b[1] <= a[0] else None

    def _of_function_alone(self, value: Value) -> Repair | None:
        """The repair of what is a function of the reduction alone: its own difference, or quotient. A sum is put off as if it were 1, so it must be a
        factor there."""
        if self.as_factor:
            one = value(Literal(1.0, self.reduction.dtype), computed)
            if not isinstance(one, Literal) or not math.isfinite(one.value) or one.value == 0:
                return None
            return Repair(factor=lambda old, new, emit: emit("div", value(new, emit), value(old, emit)))
        return Repair(added=lambda old, new, emit: emit("sub", value(new, emit), value(old, emit)))

    def _alone(self, tv: TensorView) -> Value | None:
        """A tensor as a function of the reduction and of constants, in the reduction's dtype; ``None``: it is of something else, too."""
        if tv is self.reduction:
            return lambda value, emit: value
        expr = self.fusion.definition(tv)
        if not isinstance(expr, Pointwise) or tv.dtype not in (self.reduction.dtype, bool_) or not (self.as_factor or expr.op.name in FINITE):
            return None
        parts = [self._alone_operand(o) for o in storage_operands(self.fusion, expr)]
        known = [part for part in parts if part is not None]
        return _applied(expr.op.name, known) if len(known) == len(parts) else None

    def _alone_operand(self, operand: Operand) -> Value | None:
        match operand:
            case Read():
                return self._alone(operand.tensor) if operand.valid is TRUE else None
            case Literal() | ScalarRead():
                return lambda value, emit: operand
            case IndexValue():
                return None


def computed(name: str, *operands: Operand) -> Operand:
    """A function of constants; one of something else as it is."""
    values = [o.value for o in operands if isinstance(o, Literal)]
    if len(values) < len(operands):
        return operands[0] if not isinstance(operands[0], Literal) else operands[-1]
    row, dtype = ELEMENTWISE[name], next(o.dtype for o in reversed(operands) if isinstance(o, Literal))
    with np.errstate(all="ignore"):
        found = row.function(*(np.asarray(v, np.bool_ if isinstance(v, bool) else np.float64) for v in values))
    return Literal(found.item(), row.result_dtype(dtype))


def _applied(name: str, parts: list[Value]) -> Value:
    return lambda value, emit: emit(name, *(part(value, emit) for part in parts))


def depends(fusion: Fusion, tv: TensorView, sources: Collection[TensorView], others: Collection[TensorView] = ()) -> bool:
    """True if ``tv`` is among some tensors, or computed from one of them, not through others."""
    stack, seen = [tv], set[TensorView]()
    while stack:
        t = stack.pop()
        if among(t, sources):
            return True
        if t in seen or among(t, others):
            continue
        seen.add(t)
        expr = fusion.definition(t)
        stack += [o.tensor for o in expr.operands if isinstance(o, Read)] if expr is not None else []
    return False


def product_of(repairs: list[Repair]) -> Repair | None:
    """The repair of a product."""
    factors = [r.factor for r in repairs if not r.is_free]
    if not factors:
        return FREE
    first, *rest = factors
    if first is None:
        return None
    for other in rest:
        if other is None:
            return None
        first = _both("mul", first, other)
    return Repair(factor=first)


def _both(name: str, a: Change, b: Change) -> Change:
    return lambda old, new, emit: emit(name, a(old, new, emit), b(old, new, emit))


def _then(name: str, a: Change, *others: Operand) -> Change:
    return lambda old, new, emit: emit(name, a(old, new, emit), *others)


def _of_function(name: str, operands: tuple[Operand, ...], repairs: list[Repair]) -> Repair | None:
    """The repair of a function's result, not all of whose operands are free."""
    match name, repairs:
        case (("copy" | "cast"), [a]):
            return a
        case (("exp" | "exp2"), [a]) if a.added is not None:
            return Repair(factor=_then(name, a.added))
        case "neg", [a]:
            return Repair(added=None if a.added is None else _then("neg", a.added), factor=a.factor)
        case (("add" | "sub"), [a, b]):
            return _of_sum(name, a, b)
        case "mul", [a, b]:
            return _scaled(a, operands[1], b, "mul") or _scaled(b, operands[0], a, "mul") or product_of([a, b])
        case "div", [a, b]:
            return _scaled(a, operands[1], b, "div") or _of_quotient(a, b)
        case "fma", [a, b, c]:
            product = _scaled(a, operands[1], b, "mul") or _scaled(b, operands[0], a, "mul") or (FREE if a.is_free and b.is_free else None)
            return None if product is None else _of_sum("add", product, c)
        case "where", [condition, a, b] if condition.is_free:
            return _of_choice(operands, a, b)
        case _:
            return None


def _of_sum(name: str, a: Repair, b: Repair) -> Repair | None:
    if a.is_free and b.is_free:
        return FREE
    if b.is_free:
        return None if a.added is None else Repair(added=a.added)
    if b.added is None:
        return None
    if a.is_free:
        return Repair(added=b.added if name == "add" else _then("neg", b.added))
    return None if a.added is None else Repair(added=_both(name, a.added, b.added))


def _scaled(a: Repair, by: Operand, b: Repair, name: str) -> Repair | None:
    """``a`` times, or divided by, a number that is the same for all elements."""
    if not b.is_free or a.is_free or not isinstance(by, Literal | ScalarRead):
        return None
    return Repair(added=None if a.added is None else _then(name, a.added, by), factor=a.factor)


def _of_quotient(a: Repair, b: Repair) -> Repair | None:
    if b.is_free:
        return None if a.factor is None else Repair(factor=a.factor)
    if b.factor is None:
        return None
    if a.is_free:
        below = b.factor
        return Repair(factor=lambda old, new, emit: emit("reciprocal", below(old, new, emit)))
    return None if a.factor is None else Repair(factor=_both("div", a.factor, b.factor))


def _of_choice(operands: tuple[Operand, ...], a: Repair, b: Repair) -> Repair | None:
    """A choice of a value and a constant that its change leaves as it is: 0, which any factor does, or an infinity, to which anything is added."""
    for mine, other, constant in ((a, b, operands[2]), (b, a, operands[1])):
        if other.is_free and isinstance(constant, Literal):
            found = Repair(mine.added if math.isinf(constant.value) else None, mine.factor if constant.value == 0 else None)
            return found if found.added is not None or found.factor is not None else None
    return None
