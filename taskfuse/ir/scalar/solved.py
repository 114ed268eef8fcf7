"""Conditions solved for a symbol: the values at which they hold begin and end somewhere.

A comparison is solved if its sides are linear in the symbol, or in a quotient of such a form by a positive constant, or in a minimum or maximum of forms that
all have to satisfy it.
"""

from __future__ import annotations

from taskfuse.ir.scalar.arithmetic import floordiv, linear, linear_parts, scale, shift, sub
from taskfuse.ir.scalar.expr import Compare, CompareOp, Const, Expr, FloorDiv, Max, Min, Sum, Sym, const
from taskfuse.ir.scalar.logic import conjuncts, maximum, minimum


def range_where(condition: Expr, name: str) -> tuple[Expr | None, Expr | None]:
    """The value of a symbol before which a condition does not hold, and that from which on it does not, over its other symbols; ``None``: none is known."""
    found = _SolvedRange(name)
    for part in conjuncts(condition):
        if isinstance(part, Compare) and part.op in (CompareOp.LT, CompareOp.LE):
            found.positive(shift(sub(part.b, part.a), 1 if part.op is CompareOp.LE else 0))
    return maximum(*found.starts) if found.starts else None, minimum(*found.ends) if found.ends else None


class _SolvedRange:
    """The starts and ends of a symbol's values, of which all count."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.starts: list[Expr] = []
        self.ends: list[Expr] = []

    def positive(self, form: Expr) -> None:
        """A form is greater than 0."""
        terms, constant = linear_parts(form)
        mine = [(term, k) for term, k in terms if self._name in term.free]
        if len(mine) != 1:
            return
        ((term, k),) = mine
        rest = linear([pair for pair in terms if pair[0] is not term], constant)
        if k > 0:
            self._at_least(term, shift(floordiv(scale(rest, -1), const(k)), 1))
        else:
            self._below(term, floordiv(shift(rest, -k - 1), const(-k)))

    def _at_least(self, e: Expr, low: Expr) -> None:
        match e:
            case Sym():
                self.starts.append(low)
            case FloorDiv(a, Const(value=n)) if n > 0:
                self._at_least(a, scale(low, n))
            case Min(args):
                for a in args:
                    self._at_least(a, low)
            case Sum():
                self.positive(shift(sub(e, low), 1))
            case _:
                pass

    def _below(self, e: Expr, end: Expr) -> None:
        match e:
            case Sym():
                self.ends.append(end)
            case FloorDiv(a, Const(value=n)) if n > 0:
                self._below(a, scale(end, n))
            case Max(args):
                for a in args:
                    self._below(a, end)
            case Sum():
                self.positive(sub(end, e))
            case _:
                pass
