"""Searches become reads of a table of places.

Definitions contain searches, and ``search_by`` schedules how they are done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from taskfuse.ir.scalar import ZERO, Expr, Facts, UpperBound, and_, element, le, lookups_of, lt, prove, rebuild, sym
from taskfuse.ir.tables import of_keys
from taskfuse.kir import Kernel, map_expressions, map_stmts
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.scope import loop_facts
from taskfuse.kir.walk import expressions, walk


@dataclass(frozen=True, slots=True)
class ReadPlaces:
    """Read the places of keys in tables that hold them, instead of searching.

    Requires: a verified kernel. Ensures: the same behavior, for tables that keep their promises, with a read of a table of places (:mod:`taskfuse.ir.tables`)
    in place of each search whose results the table holds, if the key of every such search is known to be inside the table; otherwise no search is replaced.
    """

    name: ClassVar[str] = "read-places"

    def run(self, kernel: Kernel) -> Kernel:
        """The kernel with reads of its tables of places."""
        tables = {p.holds: p for p in kernel.tables if p.holds is not None}
        if not tables:
            return kernel
        facts = loop_facts(kernel)
        searches = {u for s in walk(kernel) for e in expressions(s) for u in lookups_of(e) if isinstance(u, UpperBound)}
        open = {of_keys(u) for u in searches if (table := tables.get(of_keys(u))) is not None and not _is_inside(u, table, facts)}
        usable = {holds: p for holds, p in tables.items() if holds not in open}

        def read(e: Expr) -> Expr:
            e = rebuild(e, read)
            table = usable.get(of_keys(e)) if isinstance(e, UpperBound) else None
            if table is None:
                return e
            assert isinstance(e, UpperBound)
            return element(sym(table.name), e.sought, table.shape[0], ZERO, e.most)

        return replace(kernel, body=map_stmts(kernel.body, lambda s: map_expressions(s, lambda e: read(e) if lookups_of(e) else e)))


def _is_inside(found: UpperBound, table: TensorParam, facts: Facts) -> bool:
    return prove(and_(le(ZERO, found.sought), lt(found.sought, table.shape[0])), facts)
