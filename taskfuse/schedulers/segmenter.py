"""Choosing the kernels of a fusion: one, if a scheduler takes the whole fusion and its kernel is fast; otherwise several, with cuts that move the least data.

The search starts with a segment for each computed tensor, and merges two segments while the cost models say that this takes no longer,
starting with those between which the most bytes go. Segments stay convex: a path that leaves one and comes back would have to run before and after it.

Then the kernels of the segments are lowered and proved. If one is refused, its segment is scheduled in the next best way; it is taken apart and merged
again if that is faster, or if no way is left. A budget of work bounds the search; at its end the best segments so
far are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from taskfuse.errors import UnsupportedError
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Assemble, Pointwise
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import needed, storage_reads, storage_uses
from taskfuse.location import caller
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.auto import candidates
from taskfuse.schedulers.budget import Budget, Ended
from taskfuse.schedulers.candidates import Candidate, Trial, failure, tried
from taskfuse.schedulers.canonical import canonical
from taskfuse.schedulers.elementwise import is_aligned
from taskfuse.schedulers.long_products import chunk_long_products
from taskfuse.schedulers.long_scans import chunk_long_scans
from taskfuse.schedulers.ragged_tiles import as_rows
from taskfuse.schedulers.roofline import bytes_of, instructions, roofline
from taskfuse.schedulers.scatter import is_updated
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.segment_search import Search
from taskfuse.schedulers.segment_ways import SLACK, KnownCandidates
from taskfuse.schedulers.segmentation import Segmentation, SegmentStep
from taskfuse.target import DEFAULT, Target

WIDE_SHARE = 0.5
"""The least bytes of a tensor that is worth a search of its own, relative to those of inputs and outputs."""


def choose_segments(
    fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT, trial: Trial | None = None, budget: Budget | None = None
) -> Segmentation:
    """The scheduled kernels of an unscheduled fusion.

    Args:
        fusion: it is not changed.
        sizes: values of its dimensions for cost models; by default 4096, clamped to the known bounds.
        target: the GPU.
        trial: makes the kernel of a candidate and proves it; ``None``: candidates are taken as they are.
        budget: of the search for segments.

    Raises:
        UnsupportedError: no outputs; an op that no scheduler takes even alone; or ``sizes`` names an unknown dimension.
    """
    budget = budget or Budget()
    extent = Sizes(fusion, sizes, target)
    if not fusion.outputs:
        raise UnsupportedError(
            what=f"an automatic schedule of fusion '{fusion.name}'", reason="it has no outputs", help="fusion.add_output(tensor)", location=caller()
        )
    whole, _ = copy_fusion(fusion)
    chunked = chunk_long_scans(whole, Sizes(whole, sizes, target))
    if chunked:
        fusion, _ = copy_fusion(whole)
    found = candidates(whole, sizes=sizes, target=target, budget=budget, lowers=trial is None)
    least = SLACK * _least(fusion, extent)
    several: Segmentation | UnsupportedError | None = None
    while True:
        one = found.best
        if one is None or one.schedule.us > least:
            if several is None:
                reason = "no scheduler takes it whole" if one is None else f"as one kernel {one.schedule.us:.1f} us ({one.schedule.scheduler})"
                try:
                    several = _several(fusion, extent, sizes, trial, budget, reason)
                    several = replace(several, chunked=chunked, bound=roofline(fusion, extent), launch_us=target.launch_us)
                except UnsupportedError as error:
                    several = error
            if isinstance(several, UnsupportedError):
                if one is None:
                    raise several
            elif one is None or several.us < one.schedule.us:
                # what was counted is compared with what is counted: the model of the whole may say more than the count of the same kernel in a segment
                came = None if one is None or not several.is_far else tried(trial, one.fusion, one.schedule, roofline(fusion, extent))
                if one is None or came is None or came.refused or came.schedule.us >= several.us:
                    return several
                return _whole(fusion, one._replace(schedule=came.schedule), budget.ended)
        came = tried(trial, one.fusion, one.schedule, roofline(fusion, extent))
        if came.refused:
            found.drop(came.refused)
        elif came.schedule.is_far and not found.is_last and not budget.is_spent:
            found.put_aside(came.schedule)
        else:
            return _whole(fusion, one._replace(schedule=came.schedule), budget.ended)


def _several(fusion: Fusion, extent: Sizes, sizes: Mapping[str, int] | None, trial: Trial | None, budget: Budget, reason: str) -> Segmentation:
    """The fastest segmentation: of the fusion as it is, with views moved out of the way of products, and of the better of these with long sums in chunks,
    and with cuts through narrow tensors."""
    known = KnownCandidates(sizes, extent.target, budget, lowers=trial is None)
    rows = as_rows(fusion)
    moves = () if rows is None else tuple(rows.lines)
    fusion = fusion if rows is None else rows.fusion
    searches = [Search(fusion, sizes, extent.target, trial, budget, known, moves)]
    dropped: list[str] = []

    def search(form: Script | None, before: Sequence[str] = moves) -> None:
        if form is not None:
            searches.append(Search(form.fusion, sizes, extent.target, trial, budget, known, (*before, *form.lines)))

    def attempt(what: str, call: Callable[[], None]) -> None:
        """Search a form of the fusion; one that cannot be made is dropped with its reason."""
        fault = None if budget.is_spent else failure(call)
        if fault is not None:
            dropped.append(f"no form {what}: {fault}")

    def gather() -> None:
        form = _gathered(fusion)
        if form is not None and roofline(form.fusion, extent) < best_form.us:
            search(form)

    attempt("with views before products", lambda: search(canonical(fusion, extent)))
    best_form = min(searches, key=lambda search: search.us)
    attempt("with long sums in chunks", lambda: search(chunk_long_products(best_form.fusion, extent), best_form.moves))
    attempt("with cuts through narrow tensors", lambda: search(_narrowed(best_form.fusion, extent), best_form.moves))
    attempt("in which elements look at what is sent to them", gather)
    try:
        best = _best(searches, reason)
    except UnsupportedError:
        form = _unscattered(fusion)
        if form is None:
            raise
        searches.clear()
        search(form)
        best = _best(searches, reason)
    return replace(best, dropped=(*best.dropped, *dropped))


def _best(searches: Sequence[Search], reason: str) -> Segmentation:
    """The fastest segmentation of those that searches end with. Raises :class:`UnsupportedError` if none ends with one."""
    best: Segmentation | None = None
    refused: UnsupportedError | None = None
    for search in sorted(searches, key=lambda search: search.us):
        if best is None or search.us < best.us:
            try:
                found = search.segmentation(reason)
            except UnsupportedError as error:
                refused = refused or error
                continue
            best = found if best is None else min(best, found, key=lambda s: s.us)
    if best is None:
        assert refused is not None
        raise refused
    return best


def _narrowed(fusion: Fusion, extent: Sizes) -> Script | None:
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
                script.recompute(tv, [use.output])
    return script if script.lines else None


def _unscattered(fusion: Fusion) -> Script | None:
    """A copy in which nothing is assembled of parts; ``None`` if nothing is."""
    script = Script(copy_fusion(fusion)[0])
    for expr in script.fusion.exprs():
        if isinstance(expr, Assemble):
            script.unscatter(expr.output)
    return script if script.lines else None


def _gathered(fusion: Fusion) -> Script | None:
    """A copy in which every element looks at what is sent to it; ``None`` if nothing is sent."""
    script = Script(copy_fusion(fusion)[0])
    for expr in script.fusion.exprs():
        if is_updated(script.fusion, expr.output):
            script.unscatter(expr.output)
    return script if script.lines else None


def _whole(fusion: Fusion, found: Candidate, ended: Ended | None) -> Segmentation:
    """The segmentation of one kernel."""
    return Segmentation(fusion.name, (SegmentStep(found.fusion, found.schedule, tuple(e.output.name for e in needed(fusion))),), ended=ended)


def _least(fusion: Fusion, extent: Sizes) -> float:
    """Microseconds that no cut takes less than: one launch, and the bytes of inputs and outputs, or each tensor computed once.

    What sums products of two tensors is not counted: tensor cores may do it, in a small part of the time.
    """
    target = extent.target
    return target.kernel_us(target.dram_us(bytes_of(fusion, extent)), target.issue_us(instructions(fusion, extent)))
