"""What tables decide, as unknown functions of the index that it depends on.

The first row of a tile of ragged rows, the length of its sequence, and such, are long expressions of elements of tables, which occur in every condition and
end of a definition, on both sides. Here each of them, if it depends on one index, becomes element x of an unknown table, for index x: one table for one
expression, whatever that index is called; the terms of a sum that depend on one index are one expression. What is proved for any contents of these tables
holds for the expressions that they stand for. What rests on the form of such an expression, or on how two of them are related, is lost; so where a
comparison fails, the expressions themselves are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from taskfuse.ir.scalar import (
    ONE,
    And,
    Compare,
    Const,
    Element,
    Expr,
    Facts,
    FloorDiv,
    Max,
    Min,
    Not,
    Or,
    Select,
    Sum,
    Sym,
    const,
    element,
    integers_of,
    interval,
    lookups_of,
    maximum,
    minimum,
    private,
    rebuild,
    substitute,
    sym,
)

ANY = private("unknown.any")
"""The index, in what a table stands for. An index of a definition is at least 0."""


class UnknownFunctions:
    """The tables so far. Called with an expression of a definition: the same with elements of unknown tables.

    Args:
        facts: of the extents.
        extents: their names.
    """

    def __init__(self, facts: Facts, extents: frozenset[str]) -> None:
        self._facts = facts.with_range(ANY.name, 0, None)
        self._extents = extents
        self._tables: dict[Expr, Expr | None] = {}
        self._done: dict[Expr, Expr] = {}

    def __call__(self, e: Expr) -> Expr:
        if not lookups_of(e):
            return e
        found = self._done.get(e)
        if found is None:
            found = self._done[e] = self._changed(e)
        return found

    def _changed(self, e: Expr) -> Expr:
        match e:
            case Sum(terms, constant):
                total = _sum_of(self._grouped(terms), constant)
                assert total is not None
                return total
            case Compare() | And() | Or() | Not():
                return rebuild(e, self)
            case Min(args) | Max(args) if any(isinstance(x, FloorDiv) for x in args):
                return rebuild(e, self)
            case FloorDiv(_, Const()):  # a number of chunks: of what, is said elsewhere, too
                return rebuild(e, self._in_quotient)
            case _:
                of_table = self._of_table(e)
                return rebuild(e, self) if of_table is None else of_table

    def _in_quotient(self, e: Expr) -> Expr:
        return rebuild(e, self) if isinstance(e, Min | Max) else rebuild(e, self._in_quotient) if isinstance(e, Sum) else self(e)

    def _grouped(self, terms: Sequence[tuple[Expr, int]]) -> Iterator[tuple[Expr, int]]:
        """The terms of a sum; those that tables decide by one index are one, up to its sign."""
        by_index: dict[str, list[tuple[Expr, int]]] = {}
        for term, k in terms:
            index = self._index_of(term) if lookups_of(term) else None
            if index is None:
                yield self(term), k
            else:
                by_index.setdefault(index, []).append((term, k))
        for group in by_index.values():
            sign = 1 if group[0][1] > 0 else -1
            together = _sum_of(((term, sign * k) for term, k in group), 0) if len(group) > 1 else None
            of_table = None if together is None else self._of_table(together)
            if of_table is None:
                yield from ((self(term), k) for term, k in group)
            else:
                yield of_table, sign

    def _index_of(self, e: Expr) -> str | None:
        """The only index on which an expression depends."""
        indices = integers_of(e) - self._extents
        return next(iter(indices)) if len(indices) == 1 else None

    def _of_table(self, e: Expr) -> Expr | None:
        """The element of an unknown table that an expression is; ``None``: it depends on several indices, or has no known bounds."""
        index = self._index_of(e)
        if index is None:
            return None
        form = substitute(e, {index: ANY})
        if form not in self._tables:
            self._tables[form] = self._table(form, private(f"unknown.{len(self._tables)}"))
        table = self._tables[form]
        return None if table is None else substitute(table, {ANY.name: sym(index)})

    def _table(self, form: Expr, name: Sym) -> Expr | None:
        lo, hi = self._bounds(form)
        return None if lo is None or hi is None or lo is hi else element(name, ANY, ONE, lo, hi)

    def _bounds(self, e: Expr) -> tuple[Expr | None, Expr | None]:
        """The least and the greatest value, over the extents; ``None`` where none was found."""
        least, greatest = interval(e, self._facts)
        lo, hi = (None if x is None else const(x) for x in (least, greatest))
        if lo is not None and hi is not None:
            return lo, hi
        if integers_of(e) <= self._extents and not lookups_of(e):
            return e, e
        match e:
            case Sum(terms, constant):
                spans = [(self._bounds(term)[:: 1 if k > 0 else -1], k) for term, k in terms]
                low, high = (_sum_of(((span[end], k) for span, k in spans), constant) for end in (0, 1))
            case Min(args):
                spans = [self._bounds(x) for x in args]
                low, high = _extreme(minimum, [a for a, _ in spans]), _extreme(minimum, [b for _, b in spans if b is not None])
            case Max(args):
                spans = [self._bounds(x) for x in args]
                low, high = _extreme(maximum, [a for a, _ in spans if a is not None]), _extreme(maximum, [b for _, b in spans])
            case Select(_, a, b):
                spans = [self._bounds(a), self._bounds(b)]
                low, high = _extreme(minimum, [x for x, _ in spans]), _extreme(maximum, [x for _, x in spans])
            case FloorDiv(a, Const(value=d)) if d > 0:
                low, high = (None if x is None else x // d for x in self._bounds(a))
            case Element(low=low, high=high) if ANY.name not in low.free | high.free and not lookups_of(low) + lookups_of(high):
                pass
            case _:
                low, high = None, None
        return low if lo is None else lo, high if hi is None else hi


def _extreme(of: Callable[..., Expr], values: Sequence[Expr | None]) -> Expr | None:
    """The least or greatest of some values; ``None`` if there is none, or one is unknown."""
    known = [x for x in values if x is not None]
    return of(*known) if known and len(known) == len(values) else None


def _sum_of(terms: Iterable[tuple[Expr | None, int]], constant: int) -> Expr | None:
    """A sum; ``None`` if a term is unknown."""
    total: Expr = const(constant)
    for term, k in terms:
        if term is None:
            return None
        total = total + term * k
    return total
