"""The kernels that a segment may be: its *ways*, found once for all segments that are equal up to names.

A way computes the tensors of the segment behind its views, or takes the views as arrays of other strides.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

from taskfuse.errors import UnsupportedError
from taskfuse.ir.axes import iteration_position
from taskfuse.ir.expr import MathExpr, Pointwise, Read, Reduction, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import ONE
from taskfuse.ir.storage import Strided, made_from, resolve, strided
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.parts import Parts
from taskfuse.schedule.through_view import is_whole, own_index
from taskfuse.schedulers.alpha_equivalence import in_other_names
from taskfuse.schedulers.auto import candidates
from taskfuse.schedulers.budget import Budget
from taskfuse.schedulers.candidates import Candidate, Candidates, Counts
from taskfuse.schedulers.roofline import bytes_of, roofline
from taskfuse.schedulers.schedule import Chosen, Sizes
from taskfuse.schedulers.segmentation import SegmentStep
from taskfuse.target import VECTOR_BYTES, Target

SLACK = 1.5
"""A kernel that takes at most this many times as long as its bytes, or its arithmetic, is not segmented."""


class RowViews:
    """The views that kernels of a fusion, which does not change, may take as arrays of rows."""

    def __init__(self, fusion: Fusion) -> None:
        self._fusion = fusion
        self._known: dict[TensorView, tuple[tuple[bool, tuple[Strided, ...]], ...]] = {}
        self._views: dict[Strided, TensorView] = {}

    def of(self, tensors: Sequence[TensorView]) -> tuple[TensorView, ...]:
        """The views that reductions of several tensors read, as far as they have rows that a kernel may take as those of an array: one that is there before
        the kernel runs, so none of ``tensors``; and those that elementwise functions beside them do not read at their own axes. Without such reductions, the
        views that have another one tensor's elements along other axes, as those of the second element of every pair: as an array, each has axes of its own;
        and those without the last axes of one element of a tensor, whose neighbors lie along an axis before."""
        found: dict[TensorView, None] = {}
        exprs = [e for tv in tensors if (e := self._fusion.definition(tv)) is not None]
        products = [e for e in exprs if isinstance(e, Reduction) and len(e.operands) > 1]
        if not products:
            pairs = self._of_pairs(exprs, tensors) if any(isinstance(e, Reduction) for e in exprs) else ()
            return tuple(dict.fromkeys((*pairs, *self._of_units(exprs, tensors))))
        beside = [e for e in exprs if isinstance(e, Pointwise)]
        for expr in (*products, *beside):
            for is_plain, places in self._places(expr):
                place = next((p for p in places if self._is_before(p, tensors)), None)
                if place is not None and not (is_plain and isinstance(expr, Pointwise)):
                    found[self._views[place]] = None
        return tuple(found)

    def _of_pairs(self, exprs: Sequence[MathExpr], tensors: Sequence[TensorView]) -> tuple[TensorView, ...]:
        """The views of tensors whose elements another expression, or operand, reads along other axes, counted from the last one."""
        found: dict[TensorView, None] = {}
        first: dict[TensorView, tuple[int, ...]] = {}
        for expr in exprs:
            for operand in (o for o in expr.operands if isinstance(o, Read)):
                read = resolve(self._fusion, operand)
                if not any(n is not ONE for n in read.tensor.shape) or among(read.tensor, tensors) or not _is_plain(self._fusion, expr, operand):
                    continue
                rank = len(expr.output.root)
                along = tuple(p - rank for e in own_index(self._fusion, expr, read) if (p := iteration_position(e)) is not None)
                if first.setdefault(read.tensor, along) != along and (place := next(self._behind(operand.tensor), None)) is not None:
                    found[self._views[place]] = None
        return tuple(found)

    def _of_units(self, exprs: Sequence[MathExpr], tensors: Sequence[TensorView]) -> tuple[TensorView, ...]:
        """The views with a last axis of several elements of tensors whose last axis has one."""
        places = [p for e in exprs for _, behind in self._places(e) if (p := next(iter(behind), None)) is not None]
        units = [p for p in places if p.tensor.shape[-1:] == (ONE,) and p.shape[-1:] not in ((), (ONE,)) and self._is_before(p, tensors)]
        return tuple(dict.fromkeys(self._views[p] for p in units))

    def _is_before(self, place: Strided, tensors: Sequence[TensorView]) -> bool:
        """True if none of ``tensors`` is what a view is of, or a part of that."""
        return not any(among(t, tensors) for t in (place.tensor, *made_from(self._fusion, place.tensor)))

    def _places(self, expr: MathExpr) -> tuple[tuple[bool, tuple[Strided, ...]], ...]:
        """Of each tensor that an expression reads: whether at its own axes, and the views with rows between the two, the nearest first."""
        known = self._known.get(expr.output)
        if known is None:
            reads = [o for o in expr.operands if isinstance(o, Read)]
            known = self._known[expr.output] = tuple((_is_plain(self._fusion, expr, read), tuple(self._behind(read.tensor))) for read in reads)
        return known

    def _behind(self, view: TensorView) -> Iterator[Strided]:
        while self._fusion.is_view(view):
            place = strided(self._fusion, view)
            if place is not None and place.has_rows(VECTOR_BYTES, self._fusion.facts()):
                self._views[place] = view
                yield place
            inner = self._fusion.definition(view)
            assert isinstance(inner, View)
            view = inner.operand.tensor


def _is_plain(fusion: Fusion, expr: MathExpr, operand: Read) -> bool:
    """True if an operand is read at the axes of its reader, whatever views lie between."""
    read = resolve(fusion, operand)
    return is_whole(expr, read, own_index(fusion, expr, read))


class Alike:
    """Segments that are equal up to names: the results for the first hold for all.

    Args:
        part: the first.
        names: of its tensors and scalars.
        sizes: values of its dimensions.
        budget: what counts the work.
        lowers, counts: see :func:`taskfuse.schedulers.auto.candidates`.
    """

    def __init__(
        self, part: Fusion, names: tuple[str, ...], sizes: Mapping[str, int], target: Target, budget: Budget, lowers: bool, counts: Counts | None
    ) -> None:
        self.names = names
        self._part = part
        self._sizes = sizes
        self._target = target
        self._budget = budget
        self._lowers = lowers
        self._counts = counts

    @cached_property
    def candidates(self) -> Candidates:
        """The schedules."""
        return candidates(self._part, sizes=self._sizes, target=self._target, budget=self._budget, lowers=self._lowers, counts=self._counts)

    @property
    def has_products(self) -> bool:
        """Whether a scheduler of products takes it, or offers to."""
        return self.candidates.is_led

    @cached_property
    def bytes(self) -> float:
        """Of inputs and outputs."""
        return bytes_of(self._part, Sizes(self._part, self._sizes, self._target))

    @cached_property
    def bound(self) -> float:
        """A lower bound on the time of any kernel of it, in microseconds."""
        return roofline(self._part, Sizes(self._part, self._sizes, self._target))


class Piece(NamedTuple):
    """A segment, as one of those that are equal to it.

    Attributes:
        alike: what they share.
        names: of the tensors and scalars of this one.
    """

    alike: Alike
    names: tuple[str, ...]

    @property
    def candidates(self) -> Candidates:
        """The schedules, in the names of the first."""
        return self.alike.candidates


class KnownCandidates:
    """Segments by the math that they compute. Equal ones, also of several forms of a fusion, are scheduled once.

    Args:
        sizes: values of the fusion's dimensions.
        budget: what counts the work.
        lowers, counts: see :func:`taskfuse.schedulers.auto.candidates`.
    """

    def __init__(self, sizes: Mapping[str, int] | None, target: Target, budget: Budget, lowers: bool = True, counts: Counts | None = None) -> None:
        self.target = target
        self._sizes = sizes or {}
        self._budget = budget
        self._lowers = lowers
        self._counts = counts
        self._found: dict[Hashable, Alike] = {}

    def piece(self, parts: Parts, tensors: Sequence[TensorView], views: Sequence[TensorView] = ()) -> Piece:
        """The segment that computes ``tensors``, and takes ``views`` as inputs."""
        key, names = parts.form(tensors, views)
        found = self._found.get(key)
        if found is None:
            part = parts.extract(tensors, parts.fusion.name, views)
            own = {name: size for name, size in self._sizes.items() if name in part.dims}
            found = self._found[key] = Alike(part, names, own, self.target, self._budget, self._lowers, self._counts)
        return Piece(found, names)


class Ways:
    """The kernels that a segment may be: of the tensors behind its views, or of the views themselves as arrays of other strides.

    Attributes:
        tensors: of the segment, producers first.
    """

    def __init__(self, known: KnownCandidates, parts: Parts, rows: RowViews, tensors: Sequence[TensorView]) -> None:
        self.tensors = tensors
        self._known = known
        self._parts = parts
        self._names = tuple(tv.name for tv in tensors)
        self._plain = known.piece(parts, tensors)
        self._rows = rows
        self._viewed: Piece | None = None
        self._chosen: tuple[Piece, Candidate] | None = None
        self._step: SegmentStep | None = None
        self._is_known = False

    @cached_property
    def _views(self) -> tuple[TensorView, ...]:
        return self._rows.of(self.tensors)

    @property
    def bound(self) -> float:
        """Microseconds that no kernel of it takes less than."""
        return self._plain.alike.bound

    @property
    def us(self) -> float:
        """Microseconds of the fastest, which need not be scheduled for that; infinite if all were dropped."""
        return self.scheduled_us if self._is_known else self._fastest().candidates.us

    @property
    def scheduled_us(self) -> float:
        """Microseconds of :attr:`step`; infinite without one."""
        chosen = self._choose()
        return inf if chosen is None else chosen[1].schedule.us

    @property
    def is_exact(self) -> bool:
        """Whether :attr:`us` is that of a schedule that is made, or offered for certain."""
        return self._is_known or self._fastest().candidates.is_exact

    @property
    def candidate(self) -> Candidate | None:
        """:attr:`step` in the names of the first segment of its kind, which need no copy."""
        chosen = self._choose()
        return None if chosen is None else chosen[1]

    @property
    def step(self) -> SegmentStep | None:
        """The fastest that was not dropped; ``None`` if all were."""
        chosen = self._choose()
        if chosen is not None and self._step is None:
            piece, best = chosen
            own = in_other_names(best, piece.alike.names, piece.names)
            views = tuple(tv.name for tv in self._views) if piece is self._viewed else ()
            self._step = SegmentStep(own.fusion, own.schedule, self._names, own.scheduler, views)
        return self._step

    def drop(self, reason: str) -> None:
        """Go on to the next way: :attr:`step` has no proved kernel."""
        found = self._of_step()
        assert found is not None
        if self._is_best(found):  # else it was dropped for an equal segment, or by the search of another form
            found.drop(reason)
        self._is_known = False

    def put_aside(self, schedule: Chosen[Any]) -> bool:
        """Go on to the next way, and come back if none is better: :attr:`step` is far from its roofline. False if it has come back already."""
        found = self._of_step()
        if found is None or found.best is None:
            return False
        if self._is_best(found):
            if found.is_last:
                return False
            found.put_aside(replace(found.best.schedule, count=schedule.count, bound=schedule.bound))
        self._is_known = False  # it was put aside for an equal segment otherwise
        return True

    @property
    def is_last(self) -> bool:
        """Whether :attr:`step` has come back: all ways are far from the roofline, and it is the fastest of them."""
        found = self._of_step()
        return found is not None and found.is_last

    def error(self) -> UnsupportedError:
        """The error if no way is left."""
        return (self._viewed or self._plain).candidates.error()

    def _of_step(self) -> Candidates | None:
        """The candidates that :attr:`step` is one of."""
        chosen = self._choose()
        return None if chosen is None else chosen[0].candidates

    def _is_best(self, found: Candidates) -> bool:
        return self._chosen is not None and found.best is not None and found.best.schedule is self._chosen[1].schedule

    def _fastest(self) -> Piece:
        target = self._known.target
        if self._viewed is None and self._plain.candidates.us > SLACK * target.kernel_us(target.dram_us(self._plain.alike.bytes)) and self._views:
            self._viewed = self._of_views()
        return self._viewed if self._viewed is not None and self._viewed.candidates.us < self._plain.candidates.us else self._plain

    def _of_views(self) -> Piece:
        return self._known.piece(self._parts, self.tensors, self._views)

    @property
    def has_products(self) -> bool:
        """Whether a scheduler of products takes it, in one of the ways."""
        return self._plain.alike.has_products or (bool(self._views) and self._of_views().alike.has_products)

    def _choose(self) -> tuple[Piece, Candidate] | None:
        """The fastest, scheduled, in the names of the first of its kind: a candidate that has only a price may turn out to be impossible."""
        if not self._is_known:
            self._is_known = True
            self._step = None
            while True:
                found = self._fastest()
                best = found.candidates.best
                if self._fastest() is found:
                    break
            self._chosen = None if best is None else (found, best)
        return self._chosen
