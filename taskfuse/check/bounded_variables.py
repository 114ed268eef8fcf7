"""Variables with bounds: iterations of loops, and elements that an instruction touches; assumptions in addition to conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from taskfuse.check.ranges import terms_of, without_floor
from taskfuse.ir.scalar import ZERO, Const, Expr, FloorDiv, Select, le, private, prove, substitute, sym
from taskfuse.kir.nodes import For


@dataclass(frozen=True, slots=True)
class Trip:
    """``start <= symbol < stop``: an iteration of a loop.

    Attributes:
        implied: other conditions that hold in an iteration.
    """

    symbol: Expr
    start: Expr
    stop: Expr
    implied: tuple[Expr, ...]

    @staticmethod
    def of(loop: For) -> Trip:
        """An iteration of a loop: its end, if it has one, and the implications.

        ``select(c, a, b)`` without iterations up to ``b`` implies ``a`` and ``c``; ``max(a, 0)`` from 0 on implies ``a``; likewise a block's share of the work.
        """
        match loop.stop:
            case Select(cond=c, a=a, b=b) if prove(le(b, loop.start)):
                stop, implied = a, (c,)
            case stop:
                stop, implied = without_floor(stop) if loop.start is ZERO else stop, ()
        share = share_of(loop)
        return Trip(sym(loop.var), loop.start, stop, implied if share is None else (*implied, share))

    @property
    def free(self) -> frozenset[str]:
        """The symbols in it."""
        return self.symbol.free.union(self.start.free, self.stop.free, *(e.free for e in self.implied))

    def renamed(self, names: Mapping[str, Expr], number: int) -> Trip:
        """The iteration with other names, its own by a number."""
        own = private(f"trip.{number}")
        implied = tuple(substitute(e, {**names, str(self.symbol): own}) for e in self.implied)
        return Trip(own, substitute(self.start, names), substitute(self.stop, names), implied)


@dataclass(frozen=True, slots=True)
class BoundedElement:
    """``lo <= symbol <= hi``: one of the elements that an instruction accesses."""

    symbol: Expr
    span: tuple[int, int]

    @property
    def free(self) -> frozenset[str]:
        """The symbols in it."""
        return self.symbol.free

    def renamed(self, names: Mapping[str, Expr], number: int) -> BoundedElement:
        """The element, renamed by a number."""
        del names
        return BoundedElement(private(f"element.{number}"), self.span)


Assumption = Trip | BoundedElement | Expr
"""An assumption at a statement; an expression is a condition."""


def with_names(assumption: Assumption, names: Mapping[str, Expr]) -> Assumption:
    """An assumption about symbols of other names."""
    match assumption:
        case Trip(symbol=symbol, start=start, stop=stop, implied=implied):
            symbol, start, stop, *more = (substitute(e, names) for e in (symbol, start, stop, *implied))
            return Trip(symbol, start, stop, tuple(more))
        case BoundedElement(symbol=symbol, span=span):
            return BoundedElement(substitute(symbol, names), span)
        case condition:
            return substitute(condition, names)


def share_of(loop: For) -> Expr | None:
    """The implications of a block's share of the work in the loop's body: ``i < ceildiv(e, n)`` gives ``n*i < e``, which bounds ``blockIdx.x + n*i``."""
    terms, constant = terms_of(loop.stop)
    match terms:
        case ((FloorDiv(a, Const(n)), 1),) if n > 1:  # stop = (a + n*constant)//n, so i + 1 <= stop gives n*(i + 1) <= a + n*constant
            return le(sym(loop.var) * n + n, a + n * constant)
        case _:
            return None
