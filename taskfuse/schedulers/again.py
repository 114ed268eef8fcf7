"""What several kernels need of the same tensors, computed by each of them: elements that few functions compute, or that are gathered, on both sides of a cut.

A kernel that stores a tensor for another one, which reads it, moves its elements twice. Where what it is computed of has fewer bytes, or is read anyway, the
second kernel computes it again instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from math import prod
from typing import Final, TypeGuard

from taskfuse.ir.expr import Assemble, FirstValid, Gather, MathExpr, Pointwise
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import storage_reads, storage_uses, table
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.roofline import bytes_of
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.segment_search import Search

CROSSING_SHARE: Final = 0.1
"""The least bytes of a tensor that is stored for another kernel, and worth a search of its own, relative to those of inputs and outputs."""
MOST_AGAIN: Final = 8
"""The most elementwise functions that are worth to be computed on both sides of a cut: arithmetic takes time, too, and the model says less of it."""
FEW_AGAIN: Final = 2
"""The same where computing all of them again is no faster: casts, and one function more."""


def again(search: Search, extent: Sizes, most: int = MOST_AGAIN) -> Script | None:
    """A copy in which what one segment computes, or gathers of an input, element by element and another one reads is computed by that one, too, if reading what
    it is computed of moves fewer bytes than storing and reading it: the sums over rows and over columns of the gradients of a norm then both read 16-bit
    inputs, and the messages of the edges of a graph the rows of its nodes. Where several read parts of it, such as the first column and the others, no
    element is computed twice. Outputs that it is computed of are stored anyway, and read. ``None`` if there is no such tensor among those that move most
    bytes.

    Args:
        most: functions that are worth to be computed again for an element, and one more.
    """
    script = Script(copy_fusion(search.fusion)[0])
    fusion = script.fusion
    least = CROSSING_SHARE * bytes_of(fusion, extent)
    outputs = {tv for tv in fusion.outputs if isinstance(fusion.definition(tv), Pointwise)}
    segments = {tv.name: k for k, segment in enumerate(search.segments) for tv in segment}
    crossed = [(fusion.tensor(old.name), {fusion.tensor(r.name) for r in them}) for old, them in search.crossed()]
    points = dict[TensorView, float]()
    for tv, readers in crossed:
        points[tv] = points.get(tv, -_spared(fusion, tv, crossed, extent)) + _points(readers, extent)
    for tv, readers in crossed:
        expr, size = fusion.definition(tv), extent.elements(tv) * tv.dtype.itemsize
        if tv.is_output or not _is_step(expr) or size <= least or not 0 < bytes_behind(fusion, expr, extent, outputs) < 2 * size:
            continue
        if not is_short(fusion, expr, extent, outputs, min(points[tv] / extent.elements(tv), 1.0), most):
            continue
        stored = [tv for tv in behind(fusion, expr, outputs) if tv in outputs]
        together: dict[tuple[object, ...], list[TensorView]] = {}  # readers in one kernel share what is computed again
        for use in [e for e in storage_uses(fusion, tv) if e.output in readers and not isinstance(e, Assemble) and table(fusion, e) is not tv]:
            together.setdefault((segments[use.output.name], *(a.extent for a in use.output.root)), []).append(use.output)
        for same in together.values():
            script.recompute(tv, same, stored)
    return script if script.lines else None


def bytes_behind(fusion: Fusion, expr: MathExpr, extent: Sizes, stored: AbstractSet[TensorView] = frozenset()) -> float:
    """Bytes of what an elementwise tensor is computed of: inputs, results of other functions, and what is stored; of a table, no more than is gathered."""
    found = behind(fusion, expr, stored)
    gathered = dict[TensorView | None, float]()
    for e in (expr, *(d for tv, d in found.items() if tv not in stored)):
        if isinstance(e, Gather):
            source = table(fusion, e)
            gathered[source] = gathered.get(source, 0.0) + extent.elements(e.output) * e.output.dtype.itemsize
    read = {tv: extent.elements(tv) * tv.dtype.itemsize for tv, definition in found.items() if tv in stored or not _is_step(definition)}
    return sum(min(size, gathered.get(tv, size)) for tv, size in read.items())


def _points(readers: AbstractSet[TensorView], extent: Sizes) -> float:
    """How many elements are computed for readers in one kernel: those over the same extents share them."""
    return sum(prod(extent(e) for e in shape) for shape in {tuple(a.extent for a in tv.root) for tv in readers})


def _spared(fusion: Fusion, tv: TensorView, crossed: Sequence[tuple[TensorView, AbstractSet[TensorView]]], extent: Sizes) -> float:
    """How many elements of a tensor need not be computed in its place if other kernels compute it: all, where no reader is left."""
    others = frozenset[TensorView]().union(*(readers for old, readers in crossed if old is tv))
    return extent.elements(tv) if all(e.output in others and not isinstance(e, Assemble) for e in storage_uses(fusion, tv)) else 0.0


def is_short(fusion: Fusion, expr: MathExpr, extent: Sizes, stored: AbstractSet[TensorView] = frozenset(), share: float = 1.0, most: int = MOST_AGAIN) -> bool:
    """True if at most ``most`` functions compute an element of an elementwise tensor, and none chooses, or gathers of what is computed. Those that
    many elements have in common, as the scales of rows are computed, count in proportion.

    Args:
        share: how many elements are computed again, relative to all.
    """
    found = behind(fusion, expr, stored)
    if any(isinstance(e, FirstValid) for e in found.values()) or not all(_is_of_input(fusion, e) for e in (expr, *found.values())):
        return False
    again = sum(extent.elements(tv) for tv, e in found.items() if _is_step(e) and tv not in stored)
    return again * share < most * extent.elements(expr.output)


def behind(fusion: Fusion, expr: MathExpr, stored: AbstractSet[TensorView] = frozenset()) -> dict[TensorView, MathExpr | None]:
    """What an elementwise tensor is computed of, up to inputs, results of other functions and what is stored, with the definitions."""
    stack, found = [expr], dict[TensorView, MathExpr | None]()
    while stack:
        for read in storage_reads(fusion, stack.pop()):
            if read.tensor not in found:
                definition = found[read.tensor] = fusion.definition(read.tensor)
                if definition is not None and _is_step(definition) and read.tensor not in stored:
                    stack.append(definition)
    return found


def _is_step(expr: MathExpr | None) -> TypeGuard[Pointwise | Gather]:
    """True for what computes, or gathers, element by element."""
    return isinstance(expr, Pointwise | Gather)


def _is_of_input(fusion: Fusion, expr: MathExpr | None) -> bool:
    """False for a gather of what is computed: any of its elements may be needed."""
    source = table(fusion, expr) if isinstance(expr, Gather) else None
    return source is None or source.is_input
