"""Choosing the kernels of a fusion: one, if a scheduler takes the whole fusion and its kernel is fast; otherwise several, with cuts that move the least data.

The search starts with a segment for each computed tensor, those together that are steps of one elementwise result, and merges two segments while the
cost models say that this takes no longer, starting with those that save the most bytes. Segments stay convex: a path that leaves one and comes
back would have to run before and after it.

Then the kernels of the segments are lowered and proved. If one is refused, its segment is scheduled in the next best way; it is taken apart and merged
again if that is faster, or if no way is left. A budget of work bounds the search; at its end the best segments so
far are taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from taskfuse.deadline import DeadlineError
from taskfuse.errors import UnsupportedError
from taskfuse.ir.connectivity import components
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import needed, producers
from taskfuse.location import OneCall, caller
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.alpha_equivalence import CountsByForm
from taskfuse.schedulers.auto import candidates
from taskfuse.schedulers.budget import Budget, Ended
from taskfuse.schedulers.candidates import Candidate, Trial, Tried, result, tried
from taskfuse.schedulers.forms import Forms
from taskfuse.schedulers.long_scans import chunk_long_scans
from taskfuse.schedulers.roofline import bytes_of, instructions, roofline
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.segment_ways import SLACK
from taskfuse.schedulers.segmentation import Segmentation, SegmentStep
from taskfuse.target import DEFAULT, Target

MARGIN = 0.25
"""One kernel is preferred to several that are expected to gain less than this part of a launch by each further one: models of short kernels err by more."""


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
    with OneCall():
        return _chosen(fusion, sizes, target, trial, budget or Budget())


def _chosen(fusion: Fusion, sizes: Mapping[str, int] | None, target: Target, trial: Trial | None, budget: Budget) -> Segmentation:
    extent = Sizes(fusion, sizes, target)
    if not fusion.outputs:
        raise UnsupportedError(
            what=f"an automatic schedule of fusion '{fusion.name}'", reason="it has no outputs", help="fusion.add_output(tensor)", location=caller()
        )
    faults: list[str] = []
    whole, chunked = result(lambda: _chunked(fusion, extent), (copy_fusion(fusion)[0], ()), "no chunks of long scans", faults)
    if chunked:
        fusion, _ = copy_fusion(whole)
    counts = CountsByForm()  # a segment may be all of it
    found = candidates(whole, sizes=sizes, target=target, budget=budget, lowers=trial is None, counts=counts)
    bound = result(lambda: roofline(fusion, extent), 0.0, "no roofline", faults)
    least = SLACK * result(lambda: _least(fusion, extent), 0.0, "no bound", faults)
    several: Segmentation | UnsupportedError | None = None
    is_aside = result(lambda: not found.is_led and _has_unlike_parts(fusion, extent), False, "no parts", faults)
    while True:
        one = found.best
        if one is None or one.schedule.us > least or one.schedule.option.is_cooperative or is_aside:
            if several is None:
                reason = "no scheduler takes it whole" if one is None else f"as one kernel {one.schedule.us:.1f} us ({one.schedule.scheduler})"
                try:
                    forms = Forms(fusion, extent, sizes, trial, budget, faults, counts)
                    several = replace(forms.segmentation(reason), chunked=chunked, bound=bound, launch_us=target.launch_us)
                except UnsupportedError as error:
                    several = error
            if isinstance(several, UnsupportedError):
                if one is None:
                    raise several
            elif one is None or _at_least(several, target) < one.schedule.us:
                # what was counted is compared with what is counted: the model of the whole may say more than the count of the same kernel in a segment
                aside = found.least_aside
                if aside is not None and aside.schedule.us <= several.counted_us:
                    return _whole(fusion, aside, faults, budget.ended)
                came = None if one is None or not several.is_far else _alternative(trial, one, bound, budget)
                if one is None or came is None or came.refused or came.schedule.us >= _at_least(several, target):
                    return several
                return _whole(fusion, one._replace(schedule=came.schedule), faults, budget.ended)
        came = tried(trial, one.fusion, one.schedule, bound)
        if came.refused:
            found.drop(came.refused)
        elif came.schedule.is_far and not found.is_last and not budget.is_spent:
            found.put_aside(came.schedule)
            is_aside = True
        elif isinstance(several, Segmentation) and _at_least(several, target) < came.schedule.us:  # it counts worse than what several kernels lost to
            return several
        else:
            return _whole(fusion, one._replace(schedule=came.schedule), faults, budget.ended)


def _has_unlike_parts(fusion: Fusion, extent: Sizes) -> bool:
    """Whether outputs of several shapes have nothing in common but numbers: one kernel of them has a nest for each, one after another in every thread, and
    kernels of each part may run side by side, on blocks of their own."""
    computed = [e.output for e in needed(fusion)]
    edges = [(read, tv) for tv in computed for read in producers(fusion, tv) if not read.is_input or extent.elements(read) > 1]
    parts = components(dict.fromkeys([*(tv for pair in edges for tv in pair), *computed]), edges)
    return sum(any(tv.is_output for tv in part) for part in parts) > 1 and len({tuple(tv.shape) for tv in fusion.outputs}) > 1


def _at_least(several: Segmentation, target: Target) -> float:
    """The microseconds from which on one kernel takes longer than several (:data:`MARGIN`)."""
    return several.us + MARGIN * target.launch_us * (len(several.steps) - 1)


def _alternative(trial: Trial | None, one: Candidate, bound: float, budget: Budget) -> Tried | None:
    """The result of a trial of a candidate that can be done without; ``None`` where the budget does not allow it."""
    try:
        with budget.limit():
            return tried(trial, one.fusion, one.schedule, bound)
    except DeadlineError:
        return None


def _chunked(fusion: Fusion, extent: Sizes) -> tuple[Fusion, tuple[tuple[str, int], ...]]:
    """A copy with long scans in chunks, and which these are."""
    copy, _ = copy_fusion(fusion)
    return copy, chunk_long_scans(copy, extent)


def _whole(fusion: Fusion, found: Candidate, faults: list[str], ended: Ended | None) -> Segmentation:
    """The segmentation of one kernel."""
    step = SegmentStep(found.fusion, found.schedule, tuple(e.output.name for e in needed(fusion)), found.scheduler)
    return Segmentation(fusion.name, (step,), dropped=tuple(faults), ended=ended)


def _least(fusion: Fusion, extent: Sizes) -> float:
    """Microseconds that no cut takes less than: one launch, and the bytes of inputs and outputs, or each tensor computed once.

    What sums products of two tensors is not counted: tensor cores may do it, in a small part of the time.
    """
    target = extent.target
    return target.kernel_us(target.dram_us(bytes_of(fusion, extent)), target.issue_us(instructions(fusion, extent)))
