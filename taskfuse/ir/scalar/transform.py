"""Rebuilding expressions bottom-up: ``rebuild`` and ``substitute``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from taskfuse.ir.scalar.arithmetic import add_all, floordiv, mod, mul
from taskfuse.ir.scalar.expr import (
    MEMORY,
    And,
    Compare,
    Const,
    Element,
    Expr,
    FloorDiv,
    IntLike,
    Max,
    Min,
    Mod,
    Not,
    Or,
    Product,
    Select,
    Sum,
    Sym,
    Table,
    UpperBound,
    Xor,
    wrap,
)
from taskfuse.ir.scalar.logic import and_, compare, element, maximum, minimum, not_, or_, select, table, upper_bound, xor
from taskfuse.ir.scalar.memory import forgotten_by


def rebuild(e: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """``e`` with ``change`` applied to each operand; the same object if no operand changed."""
    match e:
        case Sum(terms, constant):
            changed: list[tuple[Expr, int]] = []
            same = True
            for term, k in terms:
                new = change(term)
                same = same and new is term
                changed.append((new, k))
            return e if same else add_all(changed, constant)
        case FloorDiv(a, b):
            x, y = change(a), change(b)
            return e if x is a and y is b else floordiv(x, y)
        case Mod(a, b):
            x, y = change(a), change(b)
            return e if x is a and y is b else mod(x, y)
        case Compare(op, a, b):
            x, y = change(a), change(b)
            return e if x is a and y is b else compare(op, x, y)
        case Product(args):
            result = change(args[0])
            for arg in args[1:]:
                result = mul(result, change(arg))
            return result
        case Const() | Sym():
            return e
        case Xor(a, b):
            return xor(change(a), change(b))
        case Min(args):
            return minimum(*map(change, args))
        case Max(args):
            return maximum(*map(change, args))
        case And(args):
            return and_(*map(change, args))
        case Or(args):
            return or_(*map(change, args))
        case Not(a):
            return not_(change(a))
        case Select(cond, a, b):
            return select(change(cond), change(a), change(b))
        case Table(values, index):
            x = change(index)
            return e if x is index else table(values, x)
        case Element(tensor, index, size, low, high):
            parts = change(tensor), change(index), change(size), change(low), change(high)
            return e if parts == (tensor, index, size, low, high) else element(*parts)
        case UpperBound(tensor, size, low, high, divisor, step, sought):
            operands = change(tensor), change(size), change(low), change(high), change(sought)
            return e if operands == (tensor, size, low, high, sought) else upper_bound(*operands, divisor=divisor, step=step)
        case _:
            raise AssertionError(type(e))


def substitute(e: Expr, values: Mapping[str, IntLike]) -> Expr:
    """``e`` with symbols replaced, all at once, by name."""
    if e.free.isdisjoint(values):
        return e
    if isinstance(e, Sym):
        value = values[e.name]
        return value if isinstance(value, Expr) else wrap(value)
    key = (e, *map(values.get, e.free))  # the order of the symbols of a node is always the same
    found = _KNOWN.get(key)
    return Substitution(values).rebuilt(e, key) if found is None else found


_KNOWN: dict[tuple[object, ...], Expr] = {}
forgotten_by(_KNOWN.clear)


class Substitution:
    """One substitution in several expressions, with a cache of rewritten subexpressions. What whole expressions become is kept for other substitutions, too.

    A recursive closure would be a reference cycle, which only the collector frees.
    """

    __slots__ = ("done", "values")

    def __init__(self, values: Mapping[str, IntLike]) -> None:
        self.values = values
        self.done: dict[Expr, Expr] = {}

    def __call__(self, e: Expr) -> Expr:
        values = self.values
        if e.free.isdisjoint(values):
            return e
        if isinstance(e, Sym):
            value = values[e.name]
            return value if isinstance(value, Expr) else wrap(value)
        found = self.done.get(e)
        if found is None:
            key = (e, *map(values.get, e.free))
            found = _KNOWN.get(key)
            self.done[e] = found = self.rebuilt(e, key) if found is None else found
        return found

    def rebuilt(self, e: Expr, key: tuple[object, ...]) -> Expr:
        """What a whole expression becomes, which is kept by it and by what becomes of its symbols."""
        if len(_KNOWN) >= MEMORY:
            _KNOWN.clear()
        found = _KNOWN[key] = rebuild(e, self._operand)
        return found

    def _operand(self, e: Expr) -> Expr:
        values = self.values
        if e.free.isdisjoint(values):
            return e
        if isinstance(e, Sym):
            value = values[e.name]
            return value if isinstance(value, Expr) else wrap(value)
        found = self.done.get(e)
        if found is None:
            found = self.done[e] = rebuild(e, self._operand)
        return found
