"""Tables of places (:mod:`taskfuse.ir.tables`): what is proved of a search holds of the read that replaces it.

The caller promises that such a table holds the results of the search; the certificate names this promise. Bounds, waits and termination must not depend
on it. They do not: if the reads have replaced all such searches, these layers treat a read, like a search, as an unknown function of the key
with values in 0, ..., size - 2; a proof for every such function holds for the one that is read. If a kernel has both searches and reads,
the reads are treated as unknown data.

The check that the index of a read is inside its table uses the original kernel.
"""

from __future__ import annotations

from dataclasses import replace

from taskfuse.ir.scalar import ZERO, Element, Expr, UpperBound, lookups_of, rebuild, substitute
from taskfuse.ir.tables import KEY, of_keys
from taskfuse.kir import Kernel, map_expressions, map_stmts
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.walk import expressions, walk


def searched(kernel: Kernel) -> Kernel:
    """The kernel with a search in place of each read of a table of places; the same object if it has no such read."""
    if all(p.holds is None for p in kernel.tables):
        return kernel
    found = {u for s in walk(kernel) for e in expressions(s) for u in lookups_of(e)}
    asked = {of_keys(u) for u in found if isinstance(u, UpperBound)}
    tables = {p.name: p for p in kernel.tables if p.holds is not None and p.holds not in asked}
    used = {e for e in found if isinstance(e, Element) and e.tensor.name in tables}
    mistaken = {e.tensor.name for e in used if not _is_clamped(e, tables[e.tensor.name])}
    if not used or used <= {e for e in used if e.tensor.name in mistaken}:
        return kernel

    def search(e: Expr) -> Expr:
        e = rebuild(e, search)
        if not isinstance(e, Element) or e.tensor.name not in tables or e.tensor.name in mistaken:
            return e
        holds = tables[e.tensor.name].holds
        assert holds is not None
        return substitute(holds, {KEY.name: e.index})

    return replace(kernel, body=map_stmts(kernel.body, lambda s: map_expressions(s, lambda e: search(e) if lookups_of(e) else e)))


def _is_clamped(read: Element, table: TensorParam) -> bool:
    """True if a read has the values that a search may have, and no others."""
    return isinstance(table.holds, UpperBound) and read.low is ZERO and read.high is table.holds.most
