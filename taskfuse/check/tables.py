"""Tables: all joint values of symbols, and two tables joined on equal keys.

A table is a grid with an axis for each symbol (or for symbols with joint values), and the points of it that satisfy the conditions. An
expression is computed along the axes of its own symbols, and each subexpression once; only the result is broadcast to the points. Keys of several
columns are numbered digit by digit, alike in both tables, so that equal numbers are equal keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import gcd, prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.flags import all_of, any_of, filled, greatest, least, numbers_of, ones
from taskfuse.ir.scalar import Const, Evaluation, Expr, FloorDiv, Sym, children

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
S = TypeVar("S", bound=np.generic)

KEPT = 1 << 15
"""The most points of the grid of a table that is kept for the next question."""
SMALL = 1 << 12
"""The most values that are searched for a common divisor."""
DENSE = 8
"""The most numbers per row: with more, the occurring ones are renumbered."""
NUMBERS = 1 << 62
NO_STEPS: Mapping[str, int] = {}


class ValueTable:
    """Points of a grid.

    Attributes:
        names: the symbols.
        count: number of points: one if there are no symbols.

    Args:
        axes: the values of symbols along each axis; the last one changes fastest.
        filters: conditions on the symbols.
    """

    __slots__ = ("_places", "_shape", "_values", "count", "names")

    def __init__(self, axes: Sequence[Mapping[str, Ints]], filters: Iterable[Expr] = ()) -> None:
        self._shape = tuple(next(iter(axis.values())).size for axis in axes)
        env: dict[str, Ints] = {}
        for k, axis in enumerate(axes):
            along = [1] * len(axes)
            along[k] = self._shape[k]
            env |= {name: values.reshape(along) for name, values in axis.items()}
        self.names = frozenset(env)
        self._values = Evaluation(env)
        mask: Bools | None = None
        for c in filters:
            one = np.asarray(self._values.of(c), np.bool_)
            mask = one if mask is None else mask & one
        self.count = prod(self._shape)
        self._places: Ints | None = None  # in the grid; all of them
        if mask is not None and not all_of(mask):
            self._places = numbers_of(everywhere(mask, self._shape))
            self.count = self._places.size

    def some(self, mask: Bools) -> ValueTable:
        """The points at which a mask holds."""
        found = ValueTable.__new__(ValueTable)
        found.names, found._shape, found._values = self.names, self._shape, self._values
        found._places = numbers_of(mask) if self._places is None else self._places[mask]
        found.count = found._places.size
        return found

    def within(self, other: ValueTable) -> ValueTable:
        """The points that agree with a point of another table on the symbols of both."""
        common = sorted(self.names & other.names)
        if not common or not self.count:
            return self
        mine, theirs, _ = numbered([(self._column(n), other._column(n)) for n in common])
        mask = np.isin(self.spread(mine), other.spread(theirs))
        return self if all_of(mask) else self.some(mask)

    def grid(self, e: Expr) -> Ints:
        """The values of an expression along the axes of its symbols."""
        return np.asarray(self._values.of(e), np.int64)

    def spread(self, values: Ints) -> Ints:
        """Values along some axes, at each of the points."""
        flat = (values if values.shape == self._shape else everywhere(values, self._shape)).reshape(-1)
        return flat if self._places is None else flat[self._places]

    def values(self, e: Expr) -> Ints:
        """The values of an expression at each of the points."""
        return self.spread(self.grid(e))

    def _column(self, name: str) -> Ints:
        return np.asarray(self._values.env[name], np.int64)

    def at(self, point: int) -> dict[str, int]:
        """The values of the symbols at one of the points."""
        place = np.unravel_index(point if self._places is None else self._places[point], self._shape or (1,))
        return {name: int(np.broadcast_to(self._column(name), self._shape or (1,))[place]) for name in sorted(self.names)}


class Tables:
    """The tables of independent symbols, of one proof.

    Attributes:
        left: the remaining rows of a table after a join with another one, by both tables and the question.
    """

    def __init__(self) -> None:
        self.left: dict[tuple[object, ...], ValueTable] = {}
        self._known: dict[tuple[object, ...], ValueTable] = {}

    def of(self, spans: Mapping[str, tuple[int, int]], filters: Iterable[Expr] = (), steps: Mapping[str, int] = NO_STEPS) -> ValueTable:
        """All values of symbols, in their order, from their first to their last ones under some conditions.

        Args:
            steps: for a symbol of which only its quotients by multiples of a number matter, that number: one value of each such quotient is taken.
        """
        filters = tuple(filters)
        key = (*spans.items(), *filters, *steps.items())
        found = self._known.get(key)
        if found is None:
            axes = [np.arange(lo, hi + 1) if (g := steps.get(name, 1)) == 1 else np.arange(lo // g * g, hi + 1, g) for name, (lo, hi) in spans.items()]
            found = ValueTable([{name: values} for name, values in zip(spans, axes, strict=True)], filters)
            if prod(values.size for values in axes) <= KEPT:
                self._known[key] = found
        return found


def everywhere(values: NDArray[S], shape: tuple[int, ...]) -> NDArray[S]:
    """Values along some axes, at every point of a grid. ``np.broadcast_to`` is written in Python, and takes longer than a copy of so few."""
    found = np.empty(shape or (1,), values.dtype)
    found[...] = values
    return found


def steps_of(names: AbstractSet[str], expressions: Iterable[Expr]) -> dict[str, int]:
    """For symbols that occur in some expressions only in their quotients by constants: the greatest divisor of these constants, if it is not 1."""
    found: dict[str, int] = {}
    waiting = list(expressions)
    while waiting:
        e = waiting.pop()
        if e.free.isdisjoint(names):
            continue
        match e:
            case FloorDiv(Sym(name), Const(d)) if d > 0:
                found[name] = gcd(found.get(name, 0), d)
            case Sym(name):
                found[name] = 1
            case _:
                waiting += children(e)
    return {name: step for name, step in found.items() if step != 1}


class TableJoin:
    """Points of one table and points of another one that have equal keys.

    Args:
        keys: values of both, along axes of each.

    Attributes:
        hit: the points of the second table that have the keys of some point of the first.
    """

    def __init__(self, one: ValueTable, two: ValueTable, keys: Iterable[tuple[Ints, Ints]]) -> None:
        self._one, self._two = one, two
        mine, theirs, count = numbered(keys)
        self._mine, self._theirs = one.spread(mine), two.spread(theirs)
        if count > DENSE * (one.count + two.count):
            self._mine, self._theirs, count = _ranked(self._mine, self._theirs)
        at = filled(count, -1)
        at[self._mine] = np.arange(one.count)
        self._count = count
        self._same = at[self._mine]  # for each point, one of those with its keys
        self._first = at[self._theirs]
        self.hit: Bools = self._first >= 0

    def is_one(self, pairs: Iterable[tuple[Ints, Ints]]) -> bool:
        """Whether all points of the two tables with the same keys also have the same values, pair by pair."""
        return self.fault(pairs) is None

    def fault(self, pairs: Iterable[tuple[Ints, Ints]]) -> int | None:
        """Where values differ: a point of the second table, or -1 if they differ for points of the first with the same keys; ``None``: nowhere."""
        a, b, _ = numbered(pairs, few=False)
        left, right = self._one.spread(a), self._two.spread(b)
        apart = left != left[self._same]
        if any_of(apart):
            read = np.zeros(self._count, np.bool_)
            read[self._theirs] = True
            if any_of(apart & read[self._mine]):
                return -1
        bad = numbers_of(self.hit & (left[self._first] != right))
        return int(bad[0]) if bad.size else None


def numbered(columns: Iterable[tuple[Ints, Ints]], *, few: bool = True) -> tuple[Ints, Ints, int]:
    """A number for the values in each row of two lists of columns, the same for equal rows; and how many numbers there may be.

    Args:
        few: with common divisors of a column's values out of its numbers, so that there are few; only worth it where that is a table's size.
    """
    mine = theirs = np.zeros((), np.int64)
    count = 1
    for a, b in columns:
        low, high = min(least(a), least(b)), max(greatest(a), greatest(b))
        if low == high:
            continue
        width = high - low + 1
        if width > NUMBERS:
            a, b, width = _ranked(a, b)
            low = 0
        a, b = a - low, b - low
        if few and count * width > SMALL and a.size + b.size <= SMALL and (step := int(np.gcd(np.gcd.reduce(a, axis=None), np.gcd.reduce(b, axis=None)))) > 1:
            a, b, width = a // step, b // step, (width - 1) // step + 1
        if count * width > NUMBERS:
            a, b, width = _ranked(a, b)
            mine, theirs, count = _ranked(mine, theirs)
        mine, theirs, count = mine * width + a, theirs * width + b, count * width
    return mine, theirs, count


def distinct(values: Ints) -> Ints:
    """The values that occur, in rising order. ``np.unique`` takes longer, and its first call loads masked arrays."""
    ordered = np.sort(values, axis=None)
    first = ones(ordered.size)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def distinct_columns(rows: Ints) -> Ints:
    """The columns that occur, in rising order of their values from the first row on."""
    ordered = rows[:, np.lexsort(rows[::-1])]
    first = ones(ordered.shape[1])
    (ordered[:, 1:] != ordered[:, :-1]).any(axis=0, out=first[1:])
    return ordered[:, first]


def _ranked(a: Ints, b: Ints) -> tuple[Ints, Ints, int]:
    """Numbers of the values that occur."""
    values, ranks = np.unique(np.concatenate([a.reshape(-1), b.reshape(-1)]), return_inverse=True)
    return ranks[: a.size].reshape(a.shape), ranks[a.size :].reshape(b.shape), values.size
