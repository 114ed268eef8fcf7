"""Everything that a statement stores into memory that all blocks share."""

from __future__ import annotations

from taskfuse.check.program import BLOCK_NAMES, THREAD_NAMES, THREADS, Program
from taskfuse.check.values.claims import Place
from taskfuse.check.values.match import inside
from taskfuse.check.values.runs import Span, Visits, runs, threads_of
from taskfuse.ir.scalar import Expr, const, substitute
from taskfuse.kir.nodes import For


def stores(program: Program, place: Place, shape: tuple[Expr, ...]) -> Visits:
    """The elements that a statement stores, by all blocks, threads and iterations. Raises :class:`Open`."""
    node, kernel = place.node, program.kernel
    spans: dict[str, Span] = {}
    for names, extents in ((BLOCK_NAMES, kernel.grid), (THREAD_NAMES, kernel.block)):
        spans |= {n: (const(0), e) for n, e in zip(names, extents, strict=True)}
    exists = inside(place.element, shape)
    free = {n for e in place.element for n in e.free} | {n for c in node.conditions for n in c.free}
    again = [n for n in node.loops if isinstance(n.stmt, For) and n.stmt.var not in free and n.runs()]  # a thread stores the same again
    spans, conditions = runs(node, [n for n in node.loops if n not in again], spans, dict(place.points), exists)
    threads = [c for c in conditions if c.free <= THREADS]
    rows = threads_of(kernel, threads) if threads else None  # of all threads their spans say it
    if rows is None:
        return Visits(node, place.element, spans, tuple(conditions), node.context.ranges)
    fixed = {n: const(int(v[0])) for n, v in rows.items() if v.size and (v == v[0]).all()}
    rows = {n: v for n, v in rows.items() if n not in fixed}
    left = tuple(substitute(c, fixed) for c in conditions if c not in threads)
    spans = {n: s for n, s in spans.items() if n not in fixed}
    return Visits(node, tuple(substitute(e, fixed) for e in place.element), spans, left, node.context.ranges, rows or None)
