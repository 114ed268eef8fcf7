"""Where a split with a remainder overhangs: past the end of a tensor, or inside of it.

An index past the end of one of the tensor's own axes is no element: what pads it with zeros writes places that hold nothing else, and what reads
it finds zeros. So it is for the axis itself, for the outer part of its split, which counts whole pieces of it, and for a merge in which it is the
outer part. Any other overhang, of the inner part of a split, repeats elements that other iterations have: code there stays under a guard.
"""

from __future__ import annotations

from collections.abc import Mapping

from taskfuse.ir.axes import Axis, Merge, Rasterize, Split, iteration_position
from taskfuse.ir.expr import Read
from taskfuse.ir.scalar import Expr, Facts, eq, ge, lt, prove
from taskfuse.ir.tensor import TensorView
from taskfuse.lowering.domains import divides


def end_of(tv: TensorView, source: Axis) -> Axis | None:
    """The root axis past whose end the overhang of a split of ``source`` lies; ``None``: it lies inside of the tensor."""
    above = {t.outer: t.source for t in tv.schedule.transforms if isinstance(t, Split)}
    above |= {t.result: t.outer for t in tv.schedule.transforms if isinstance(t, Merge)}
    while source not in tv.root and source in above:
        source = above[source]
    return source if source in tv.root else None


def overhanging(tv: TensorView, facts: Facts) -> dict[Axis, Axis]:
    """The axes of ``tv`` whose splits overhang past its end, with the root axis that ends there."""
    splits = [t for t in tv.schedule.transforms if isinstance(t, Split) and not t.source.is_foreign and not divides(t, facts)]
    return {t.source: end for t in splits if (end := end_of(tv, t.source)) is not None}


def along(reader: TensorView, end: Axis, read: Read, facts: Facts) -> int | None:
    """The axis of what is read that ends where ``end``, a root axis of the reader, does; ``None`` if what lies past ``end`` may exist there."""
    position = reader.root.index(end)
    for k, (index, a) in enumerate(zip(read.index, read.tensor.logical, strict=True)):
        if iteration_position(index) == position and prove(eq(a.extent, end.extent), facts):
            return k
    return None


def told_apart(tv: TensorView, stored: tuple[Axis, ...], values: Mapping[Axis, Expr], facts: Facts) -> set[Axis]:
    """The axes whose index in code follows from the place that it writes: the place tells the values of ``stored``.

    ``facts``: what is known where the code runs. An index of an inner part that may leave its extent is lost where it is joined with another.
    """

    def is_inside(a: Axis) -> bool:
        value = values.get(a)
        return value is not None and prove(ge(value, 0), facts) and prove(lt(value, a.extent), facts)

    known = set(stored)
    before = -1
    while len(known) != before:
        before = len(known)
        for t in tv.schedule.transforms:
            if all(a in known for a in t.outputs) and (not isinstance(t, Merge) or is_inside(t.inner)):
                known.update(t.inputs)
            if all(a in known for a in t.inputs) and not isinstance(t, Rasterize) and (not isinstance(t, Split) or is_inside(t.inner)):
                known.update(t.outputs)
    return known
