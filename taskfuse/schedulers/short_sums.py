"""Reductions of a few terms with many results: distances of all pairs of points with three coordinates, areas of overlap of all pairs of boxes.

Such a result is cheaper to compute where it is read than to store: a reduction over one of its axes (the nearest point) then reads the inputs alone. Its terms
become elementwise functions for that (:meth:`~taskfuse.ir.tensor.TensorView.unroll_reduction`).
"""

from __future__ import annotations

from taskfuse.ir.expr import Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import needed, producers
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.unroll_reduction import can_unroll
from taskfuse.schedulers.elementwise import ancestors
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script

MOST_TERMS = 4
MORE = 4
"""The least ratio of elements of a result to those of its inputs."""


def unroll_short_sums(fusion: Fusion, extent: Sizes) -> Script | None:
    """A copy of ``fusion`` whose reductions of a few terms are elementwise if they make many elements from few; ``None`` if there are none.

    Args:
        extent: numbers for extents.
    """
    found = [e.output.name for e in needed(fusion) if isinstance(e, Reduction) and not e.output.is_output and _is_short(fusion, e, extent)]
    if not found:
        return None
    script = Script(copy_fusion(fusion)[0])
    for name in found:
        script.unroll_reduction(script.fusion.tensor(name))
    return script


def _is_short(fusion: Fusion, expr: Reduction, extent: Sizes) -> bool:
    """Whether a reduction has few terms, and makes many elements of those of its inputs."""
    tv = expr.output
    if not can_unroll(tv, expr, MOST_TERMS):
        return False
    return extent.elements(tv) >= MORE * sum(extent.elements(source) for source in _sources(fusion, tv))


def _sources(fusion: Fusion, tv: TensorView) -> set[TensorView]:
    """The inputs that a tensor is computed of."""
    return {p for a in (tv, *ancestors(fusion, tv)) for p in producers(fusion, a) if p.is_input}
