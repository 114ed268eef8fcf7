"""The forms of a fusion that are searched for segments: as it is, and rewritten so that other cuts are possible.

A form computes what the fusion computes. It is a proposal like a schedule: a call that refuses it, or a search of it that fails, drops the form with its
reason, and the other forms remain. If none is left, the fusion is computed tensor by tensor (:mod:`taskfuse.schedulers.apart`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Final

from taskfuse.errors import UnsupportedError
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Assemble, Pointwise, Read, Reduction, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import TRUE
from taskfuse.ir.storage import needed, storage_reads, storage_uses, table
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.drop_axes import free_axes
from taskfuse.schedulers.again import CROSSING_SHARE, FEW_AGAIN, MOST_AGAIN, again, behind, bytes_behind, is_short
from taskfuse.schedulers.apart import apart
from taskfuse.schedulers.budget import Budget
from taskfuse.schedulers.candidates import Counts, Trial, result
from taskfuse.schedulers.canonical import canonical
from taskfuse.schedulers.computed_factors import compute_where_multiplied
from taskfuse.schedulers.elementwise import is_aligned, is_permuted, recompute_all, reduce_where_read
from taskfuse.schedulers.long_cascades import chunk_long_cascades
from taskfuse.schedulers.long_products import chunk_long_products
from taskfuse.schedulers.long_sums import chunk_long_sums
from taskfuse.schedulers.packed_products import pack_products
from taskfuse.schedulers.product_cascades import chunk_product_cascades
from taskfuse.schedulers.ragged_tiles import as_rows
from taskfuse.schedulers.roofline import bytes_of, roofline
from taskfuse.schedulers.scatter import is_updated
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.segment_search import Search
from taskfuse.schedulers.segment_ways import KnownCandidates
from taskfuse.schedulers.segmentation import Segmentation
from taskfuse.schedulers.short_runs import sum_short_runs_last
from taskfuse.schedulers.short_sums import unroll_short_sums
from taskfuse.schedulers.unit_axes import without_unit_axes
from taskfuse.schedulers.walks import walks_apart

WIDE_SHARE: Final = 0.5
"""The least bytes of a tensor that is worth a search of its own, relative to those of inputs and outputs."""

SHARE: Final = 1 / 3
"""What the search of a form may spend, after the first, of what is left: the last form may be the one that matters."""
NEAR: Final = 1.05
"""Forms with kernels side by side are ended where their bound is at most so many times the fastest: joint kernels are counted, and gain more than a launch
where models expect more of their members."""
MOST_PASSES: Final = 3
"""How often tensors are computed on both sides of cuts, while that gains: the cuts are others then."""


class Forms:
    """The forms of a fusion, each with the search of it.

    Args:
        extent: numbers for extents.
        sizes: values of its dimensions for cost models.
        trial: makes the kernel of a candidate and proves it.
        faults: takes the forms that are dropped, and why.
        counts: see :class:`~taskfuse.schedulers.candidates.Candidates`.
    """

    def __init__(
        self,
        fusion: Fusion,
        extent: Sizes,
        sizes: Mapping[str, int] | None,
        trial: Trial | None,
        budget: Budget,
        faults: list[str],
        counts: Counts | None = None,
    ) -> None:
        self._faults = faults
        self._extent = extent
        self._sizes = sizes
        self._trial = trial
        self._budget = budget
        self._known = KnownCandidates(sizes, extent.target, budget, lowers=trial is None, counts=counts)
        rows = self._form("with ragged rows as a tensor", lambda: as_rows(fusion))
        self._fusion = fusion if rows is None else rows.fusion
        self._moves = () if rows is None else tuple(rows.lines)
        self._searches: list[Search] = []
        self._search()

    def _search(self) -> None:
        """Search the fusion as it is, with views moved out of the way of products, with nothing in common between walks; then, one after another and each of
        the fastest form so far, with long sums of products in chunks, with computed factors at the points of their products, with factors packed, with other
        long sums in chunks, short ones element by element, and cuts through narrow tensors; and what is sent to elements in gather form."""
        fusion, extent = self._fusion, self._extent
        self._add("as it is", lambda: Script(fusion))
        self._add("with views before products", lambda: canonical(fusion, extent))
        self._add("with factors of products copied", lambda: self._unlike(canonical(fusion, extent, is_copied=True)) if self._has_products_beside() else None)
        self._add("with reductions where they are read", lambda: where_read(fusion, extent))
        self._add("with what does not depend on an axis computed once", lambda: narrow(fusion))
        self._add("with short runs of rows summed last", lambda: sum_short_runs_last(fusion, extent))
        best = min(self._searches, key=lambda search: search.us, default=None)
        self._add("with walks apart", lambda: walks_apart(fusion, extent.target))
        self._add("with rows of products in chunks", lambda: chunk_product_cascades(fusion, extent))
        self._add("with long walks in chunks", lambda: chunk_long_cascades(fusion, extent))
        if best is not None:
            self._add_to(self._searches[0], "with products where copies of them are", lambda last: canonical(last.fusion, extent, copied(last)))
            self._add_to(best, "with long sums of products in chunks", lambda last: chunk_long_products(last.fusion, extent), anew=True)
            self._add_to(best, "with factors computed where they are multiplied", lambda last: compute_where_multiplied(last.fusion))
            self._add_to(best, "with packed factors of products", lambda last: pack_products(last.fusion, extent), anew=True)
            self._add_to(best, "with long sums in chunks", lambda last: chunk_long_sums(last.fusion, extent), anew=True)
            self._add_to(best, "with short sums element by element", lambda last: unroll_short_sums(last.fusion, extent))
            self._add_to(best, "with widened tensors at each reader", lambda last: narrowed(last.fusion, extent))
            self._add_to(best, "with narrow copies at cuts", lambda last: copied_narrow(last, extent))
            self._add_to(best, "with wide tensors at each reader", lambda last: repeated(last.fusion, extent))
            for _ in range(MOST_PASSES):
                us = min(search.us for search in self._searches)
                for most in (MOST_AGAIN, FEW_AGAIN):
                    self._add_to(best, "with tensors computed on both sides of cuts", lambda last, most=most: self._unlike(again(last, extent, most), last))
                    if min(search.us for search in self._searches) < us:
                        break
                else:
                    break
            self._add_to(best, "without axes of one element", lambda last: without_unit_axes(last.fusion))
            self._add_to(best, "with positions where they are read", lambda last: positions_where_read(last.fusion, extent))

        def gather() -> Script | None:
            form = gathered(fusion)
            return form if form is not None and (best is None or roofline(form.fusion, extent) < best.us) else None

        self._add("in gather form", gather)

    def segmentation(self, reason: str) -> Segmentation:
        """The fastest segmentation that the searches end with.

        Args:
            reason: why one kernel does not compute the whole.

        Raises:
            UnsupportedError: no scheduler has a kernel for one of the tensors.
        """
        best = self._best(reason)
        if best is None:
            self._searches.clear()
            self._add("without assemblies", lambda: unscattered(self._fusion))
            best = self._best(reason)
        if best is None:
            best = self._apart(reason)
        return replace(best, dropped=(*best.dropped, *self._faults))

    def _best(self, reason: str) -> Segmentation | None:
        """The fastest segmentation of those that the searches end with."""
        best: Segmentation | None = None
        least = {search: result(lambda search=search: search.least, search.us, "no bound with kernels side by side", self._faults) for search in self._searches}
        for search in sorted(self._searches, key=lambda search: least[search]):
            near = NEAR if least[search] < search.us else 1.0
            if best is None or least[search] < near * best.us:
                with nullcontext() if best is None else self._budget.limit():
                    what = f"no kernels of the form after {len(search.moves)} calls"
                    found = result(lambda search=search: search.segmentation(reason), None, what, self._faults)
                best = min((s for s in (best, found) if s is not None), key=lambda s: s.us, default=None)
        return best

    def _apart(self, reason: str) -> Segmentation:
        """The kernels of all tensors, one after another: without assemblies, which anything can compute; else of the fusion as it is."""
        plain = Script(self._fusion)
        form = self._form("without assemblies", lambda: unscattered(self._fusion)) or plain
        try:
            return self._of_all(form, reason)
        except UnsupportedError:
            if form is plain:
                raise
            return self._of_all(plain, reason)

    def _of_all(self, form: Script, reason: str) -> Segmentation:
        fusion = form.fusion
        steps = apart(fusion, self._sizes, self._extent.target, self._trial)
        made = {name for step in steps for name in step.outputs}
        read = {name for step in steps for name in step.arguments} & made
        crossing = tuple((tv.name, float(self._extent.elements(tv) * tv.dtype.itemsize)) for tv in fusion.tensors() if tv.name in read)
        moves = (*self._moves, *form.lines)
        return Segmentation(fusion.name, steps, crossing, reason, moved=moves, whole_fusion=fusion, ended=self._budget.why_spent)

    def _form(self, what: str, make: Callable[[], Script | None]) -> Script | None:
        """A form, if there is one."""
        return result(make, None, f"no form {what}", self._faults)

    def _has_products_beside(self) -> bool:
        """Whether the fastest form has small products that could share a list of tiles."""
        return bool(self._searches) and min(self._searches, key=lambda search: search.us).has_products_beside

    def _unlike(self, form: Script | None, last: Search | None = None) -> Script | None:
        """A form of the fusion, or of that which a search has, unless another search has it."""
        known = {search.moves for search in self._searches}
        return form if form is not None and (*(self._moves if last is None else last.moves), *form.lines) not in known else None

    def _add_to(self, first: Search, what: str, make: Callable[[Search], Script | None], *, anew: bool = False) -> None:
        """Search a form of the form that is the fastest so far, so that forms add up; if that is no faster, of the form with which this began: an earlier one
        may have been in its way.

        Args:
            anew: begin with a segment per tensor, not with the segments of that one.
        """
        last = min(self._searches, key=lambda search: search.us)
        for start in dict.fromkeys((last, first)):
            self._add(what, partial(make, start), start.moves[len(self._moves) :], None if anew else start)
            if min(search.us for search in self._searches) < last.us:
                break

    def _add(self, what: str, make: Callable[[], Script | None], moves: tuple[str, ...] = (), begun: Search | None = None) -> None:
        """Search a form, if there is one.

        Args:
            moves: the calls before those of the form.
            begun: the search of another form, whose segments are those to begin with.
        """
        form = self._form(what, make) if not self._searches or not self._budget.is_spent else None
        if form is None:
            return
        calls = (*self._moves, *moves, *form.lines)

        def search() -> list[Search]:
            made = Search(form.fusion, self._sizes, self._extent.target, self._trial, self._budget, self._known, calls, begun)
            return [made] if made.us >= 0 else []  # it is estimated here, where a fault of it drops the form alone

        with self._budget.share(SHARE) if self._searches else nullcontext():
            self._searches += result(search, [], f"no search of the form {what}", self._faults)


def copied(search: Search) -> set[str]:
    """The elementwise tensors of segments without reductions that read what other segments compute: as the heads of a product side by side."""
    segments = {tv: p for p in search.segments for tv in p}
    plain = {p for p in search.segments if all(isinstance(search.fusion.definition(tv), Pointwise) for tv in p)}
    return {r.name for _, readers in search.crossed() for r in readers if segments[r] in plain}


def where_read(fusion: Fusion, extent: Sizes) -> Script | None:
    """A copy whose reductions reduce at the points of their readers, such as the channels of all groups side by side; ``None`` if all are read in place."""
    script = Script(copy_fusion(fusion)[0])
    recompute_all(script, script.fusion, lambda read, reader: not isinstance(script.fusion.definition(read.tensor), Pointwise) or is_permuted(read, reader))
    return script if reduce_where_read(script, extent) else None


def positions_where_read(fusion: Fusion, extent: Sizes) -> Script | None:
    """A copy whose readers compute at their own points what few functions compute of positions alone, such as distances and masks: no kernel stores it for
    another one. ``None`` if all of it is read in place."""
    script = Script(copy_fusion(fusion)[0])
    made = script.fusion

    def stays(read: Read, reader: TensorView) -> bool:
        return is_aligned(read, reader) or not _is_of_positions(made, read.tensor, extent)

    if all(stays(read, e.output) for e in needed(made) for read in storage_reads(made, e)):
        return None
    recompute_all(script, made, stays)
    return script


def _is_of_positions(fusion: Fusion, tv: TensorView, extent: Sizes) -> bool:
    """True if few functions compute several elements one by one, and no tensor is read for them."""
    expr = fusion.definition(tv)
    if not isinstance(expr, Pointwise) or extent.elements(tv) == 1 or not all(isinstance(e, Pointwise) for e in behind(fusion, expr).values()):
        return False
    return is_short(fusion, expr, extent)


def narrow(fusion: Fusion) -> Script | None:
    """A copy whose reductions have only the axes that their terms depend on; ``None`` if they have no others."""
    found = [e.output.name for e in needed(fusion) if isinstance(e, Reduction) and free_axes(fusion, e) and e.rescaled is None and e.is_whole]
    if not found:
        return None
    script = Script(copy_fusion(fusion)[0])
    for name in found:
        script.new(script.fusion.tensor(name), "drop_axes")
    return script


def narrowed(fusion: Fusion, extent: Sizes) -> Script | None:
    """A copy in which several readers that read a widened tensor through views each widen it for themselves, at their own points: a cut then goes through the
    narrow one. ``None`` if there is no such tensor among those that move most bytes."""
    script = Script(copy_fusion(fusion)[0])
    least = WIDE_SHARE * bytes_of(fusion, extent)
    for expr in needed(script.fusion):
        tv, reads = expr.output, storage_reads(script.fusion, expr)
        if tv.is_output or not isinstance(expr, Pointwise) or expr.op is not ELEMENTWISE["cast"] or not reads:
            continue
        uses = storage_uses(script.fusion, tv)
        is_wide = reads[0].tensor.dtype.itemsize < tv.dtype.itemsize and extent.elements(tv) * tv.dtype.itemsize > least
        if is_wide and len(uses) > 1 and any(r.tensor is tv and not is_aligned(r, use.output) for use in uses for r in storage_reads(script.fusion, use)):
            for use in uses:
                if not isinstance(use, Assemble) and table(script.fusion, use) is not tv:
                    script.recompute(tv, [use.output])
    return script if script.lines else None


def copied_narrow(search: Search, extent: Sizes) -> Script | None:
    """A copy in which what one segment widens and another one reads is widened there, where the first reads it through a view, as an image whose channels are
    last for a norm: the first segment copies the narrow elements. ``None`` if there is no such tensor among those that move most bytes."""
    script = Script(copy_fusion(search.fusion)[0])
    fusion = script.fusion
    least = CROSSING_SHARE * bytes_of(fusion, extent)
    for tv in dict.fromkeys(fusion.tensor(old.name) for old, _ in search.crossed()):
        expr = fusion.definition(tv)
        if tv.is_output or not isinstance(expr, Pointwise) or expr.op is not ELEMENTWISE["cast"] or extent.elements(tv) * tv.dtype.itemsize <= least:
            continue
        (read,) = storage_reads(fusion, expr)
        is_narrow = read.tensor.dtype.itemsize < tv.dtype.itemsize and read.valid is TRUE and not is_aligned(read, tv)
        if is_narrow and (read.tensor.is_input or isinstance(fusion.definition(read.tensor), Pointwise)):
            script.recompute(read.tensor, [tv])
    return script if script.lines else None


def repeated(fusion: Fusion, extent: Sizes) -> Script | None:
    """A copy in which each reader computes wide elementwise tensors of fewer bytes for itself, where something is read through a view: a kernel of what stands
    before the view and one of what comes after it then read what these are computed of, such as differences from the means of groups of channels.
    ``None`` if there is no such tensor among those that move most bytes."""
    script = Script(copy_fusion(fusion)[0])
    least = WIDE_SHARE * bytes_of(fusion, extent)
    exprs = needed(script.fusion)
    if not any(
        not r.tensor.is_input and not is_aligned(r, e.output) and extent.elements(r.tensor) * r.tensor.dtype.itemsize > least / 2
        for e in exprs
        if isinstance(e, Pointwise | View)
        for r in storage_reads(script.fusion, e)
    ):
        return None
    for expr in exprs:
        tv, uses = expr.output, storage_uses(script.fusion, expr.output)
        size = extent.elements(tv) * tv.dtype.itemsize
        if tv.is_output or not isinstance(expr, Pointwise) or len(uses) < 2 or size <= least or not 0 < bytes_behind(script.fusion, expr, extent) < size:
            continue
        for use in uses:
            if isinstance(use, Pointwise) and table(script.fusion, use) is not tv:
                script.recompute(tv, [use.output])
    return script if script.lines else None


def unscattered(fusion: Fusion) -> Script | None:
    """A copy in which nothing is assembled of parts; ``None`` if nothing is."""
    script = Script(copy_fusion(fusion)[0])
    for expr in script.fusion.exprs():
        if isinstance(expr, Assemble):
            script.unscatter(expr.output)
    return script if script.lines else None


def gathered(fusion: Fusion) -> Script | None:
    """A copy in which every element looks at what is sent to it; ``None`` if nothing is sent."""
    script = Script(copy_fusion(fusion)[0])
    for expr in script.fusion.exprs():
        if is_updated(script.fusion, expr.output):
            script.unscatter(expr.output)
    return script if script.lines else None
