"""Fills by bulk copies: the thread that starts them says at the slot's mbarrier how many bytes they bring, which is the same in every fill."""

from __future__ import annotations

from taskfuse.errors import LoweringError
from taskfuse.ir.scalar import Const, eq, simplify, substitute, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import INDEX_TYPES, THREAD_TYPES
from taskfuse.lowering.domains import ancestors
from taskfuse.lowering.plan import PStmt, base_name
from taskfuse.lowering.statements import Statements
from taskfuse.lowering.thread_ranges import hardware_index
from taskfuse.schedule.joins import Loop


def fill_bytes(st: Statements, tv: TensorView, loop: Loop | None, issued: list[PStmt]) -> int:
    """The bytes of all transfers of ``tv`` in an iteration of ``loop``, which ``issued`` starts.

    Raises:
        LoweringError: their number is no constant.
    """
    indexer, ranges = st.indexer, st.indexer.ranges
    paths = indexer.joins.path[tv]
    at = paths.index(loop) + 1 if loop is not None else 0
    trips = 1
    for inner, a in zip(paths[at:], tv.loop[at:], strict=True):
        if tv.schedule.ptype(a).is_loop:
            extent = indexer.index_maps.work.trips(inner, simplify(a.extent, ranges.facts), tv)
            if not isinstance(extent, Const):
                raise LoweringError(
                    what=tv.name,
                    reason=f"one fill of its ring takes {extent} bulk copies (loop axis {inner.depth}): the bytes of a fill are a constant",
                    help="inline it into that loop, or split the axis by a constant",
                    location=tv.location,
                )
            if extent.value > 1 and any(x.is_foreign for x in ancestors(tv, (a,))):
                raise LoweringError(
                    what=tv.name,
                    reason=f"loop axis {inner.depth} runs over an axis of a consumer inside of one fill of its ring: bulk copies would write a tile again",
                    help="inline it into that loop, or give it no such axis (propagate with a smaller upto)",
                    location=tv.location,
                )
            trips *= extent.value
    task = indexer.tree.place[tv]
    first = {eq(sym(base_name(p, task)), 0) for p in THREAD_TYPES}
    guards = [g for s in issued if s.tv is tv for g in s.guards if g not in first]
    if guards:
        index = {base_name(p, task): hardware_index(p) - ranges.range(task, p).start for p in INDEX_TYPES}
        guard = simplify(substitute(guards[0], index), ranges.facts)
        raise LoweringError(
            what=tv.name,
            reason=f"its bulk copies run under the guard {guard}, and every fill of a ring brings the same bytes",
            help="split by divisors, or so that only the last tile overhangs",
            location=tv.location,
        )
    return trips * st.transfers[tv]
