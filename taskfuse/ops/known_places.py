"""Indices of a write that are functions of their place, such as a counter: ``cache[arange(B), position] = new``.

An axis of the points then gives the index of an axis of the tensor, from a first one on, and no data says it. What remains for data to say is less: in this
example each element of a row of ``cache`` asks whether ``position`` names it, and which point wrote last is no question. The points fill a box of the
tensor along such axes; outside it nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.index_values import index_value
from taskfuse.ir.scalar import ONE, TRUE, ZERO, Expr, and_, ge, le, lt, prove, simplify
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import Shape, broadcast_read
from taskfuse.ops.select import define_select
from taskfuse.ops.views import view


@dataclass(frozen=True, slots=True)
class IndexSpan:
    """Where the points of one of their axes stand along an axis of the tensor: at consecutive indices.

    Attributes:
        axis: the axis of the points.
        start: the index of the first one.
        extent: how many there are.
    """

    axis: int
    start: Expr
    extent: Expr


def known_spans(fusion: Fusion, whole: Shape, axes: Sequence[int], indices: Sequence[TensorView], common: Shape) -> dict[int, IndexSpan]:
    """The axes of a tensor at which the indices are known, in order: each counts along an axis of the points of its own, and never leaves the tensor.

    Args:
        whole: extents of the tensor.
        axes: its axes that the indices say.
        indices: they broadcast to ``common``.
        common: extents of the points.
    """
    facts, found = fusion.facts(), dict[int, IndexSpan]()
    for a, e in enumerate(common):
        facts = facts.with_range(str(iteration_symbol(a)), 0, e - 1)
    for d, tv in zip(axes, indices, strict=True):
        value = index_value(fusion, broadcast_read(tv, common), facts)
        places = () if value is None else (value, value + whole[d])  # one that is negative counts from the end
        place = next((e for e in places if prove(and_(ge(e, ZERO), lt(e, whole[d])), facts)), None)
        if place is None:
            continue
        free = {str(iteration_symbol(a)) for a in range(len(common))}
        taken = {span.axis for span in found.values()}
        for a in (a for a, e in enumerate(common) if e is not ONE and a not in taken):
            start = simplify(place - iteration_symbol(a), facts)
            if free.isdisjoint(start.free):
                found[d] = IndexSpan(a, start, common[a])
                break
    if len(found) == len(axes) and any(e is not ONE and a not in {span.axis for span in found.values()} for a, e in enumerate(common)):
        found.popitem()  # several points go to one element: a table says which of them is the last one
    return found


def box_of(x: TensorView, spans: Mapping[int, IndexSpan]) -> TensorView:
    """The part of ``x`` that spans fill: ``x`` itself if that is all of it."""
    if _is_whole(x, spans):
        return x
    shape = [spans[d].extent if d in spans else e for d, e in enumerate(x.shape)]
    return view(x, "slice", shape, [iteration_symbol(d) + (spans[d].start if d in spans else ZERO) for d in range(x.ndim)])


def with_box(x: TensorView, spans: Mapping[int, IndexSpan], box: TensorView) -> TensorView:
    """``x`` with another tensor in place of :func:`box_of` it."""
    if _is_whole(x, spans):
        return box
    inside = TRUE
    for d, span in spans.items():
        here = iteration_symbol(d)
        inside = and_(inside, and_(le(span.start, here), lt(here, span.start + span.extent)))
    index = tuple(iteration_symbol(d) - (spans[d].start if d in spans else ZERO) for d in range(x.ndim))
    return define_select(x.fusion, "index_put", x.shape, [Read(box, index, inside), broadcast_read(x, x.shape)], x.dtype)


def _is_whole(x: TensorView, spans: Mapping[int, IndexSpan]) -> bool:
    return all(span.start is ZERO and span.extent is x.shape[d] for d, span in spans.items())
