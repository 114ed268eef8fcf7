"""What tables decide, as unknown functions of the index that it depends on.

The first row of a tile of ragged rows, the length of its sequence, and such, are long expressions of elements of tables, which occur in every condition and
end of a definition, on both sides. Here each of them, if it depends on one index, becomes element x of an unknown table, for index x: one table for one
expression, whatever that index is called. What is proved for any contents of these tables holds for the expressions that they stand for. What rests on the
form of such an expression, or on how two of them are related, is lost; so where a comparison fails, the expressions themselves are compared.
"""

from __future__ import annotations

from taskfuse.ir.scalar import (
    ONE,
    And,
    Compare,
    Element,
    Expr,
    Facts,
    Not,
    Or,
    Sum,
    Sym,
    const,
    element,
    integers_of,
    interval,
    lookups_of,
    rebuild,
    substitute,
    sym,
)

ANY = sym("any")
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
            of_table = self._of_table(e)
            found = self._done[e] = rebuild(e, self) if of_table is None else of_table
        return found

    def _of_table(self, e: Expr) -> Expr | None:
        """The element of an unknown table that an expression is; ``None``: it depends on several indices, is a sum or a condition, or has no known bounds."""
        if isinstance(e, Sum | Compare | And | Or | Not):
            return None
        indices = integers_of(e) - self._extents
        if len(indices) != 1:
            return None
        (index,) = indices
        form = substitute(e, {index: ANY})
        if form not in self._tables:
            self._tables[form] = self._table(form, sym(f"unknown.{len(self._tables)}"))
        table = self._tables[form]
        return None if table is None else substitute(table, {ANY.name: sym(index)})

    def _table(self, form: Expr, name: Sym) -> Expr | None:
        if isinstance(form, Element) and ANY.name not in integers_of(form.low) | integers_of(form.high):
            return element(name, ANY, ONE, form.low, form.high)
        lo, hi = interval(form, self._facts)
        return None if lo is None or hi is None or lo == hi else element(name, ANY, ONE, const(lo), const(hi))
