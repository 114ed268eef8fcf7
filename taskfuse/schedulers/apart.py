"""The last resort of a search for kernels: a kernel for each tensor of a fusion, by the first scheduler whose kernel is proved.

It merges nothing, compares nothing and shares nothing between equal pieces, so no mistake of a search reaches it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from taskfuse.ir.connectivity import producers_first
from taskfuse.ir.expr import Assemble
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import made_from, needed, producers
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.parts import Parts
from taskfuse.schedulers.auto import candidates
from taskfuse.schedulers.candidates import Trial, tried
from taskfuse.schedulers.segmentation import SegmentStep
from taskfuse.target import Target


def atoms(fusion: Fusion, tensors: Collection[TensorView]) -> list[frozenset[TensorView]]:
    """The smallest segments that compute ``tensors``, which are given producers first: single tensors, and the parts of one assembly."""
    found = {tv: frozenset([tv]) for tv in tensors}
    for expr in fusion.exprs():
        parts = [tv for tv in made_from(fusion, expr.output) if tv in found] if isinstance(expr, Assemble) else []
        together = frozenset[TensorView]().union(*(found[tv] for tv in parts))
        found.update((tv, together) for tv in together)
    return list(dict.fromkeys(found[tv] for tv in tensors))


def apart(fusion: Fusion, sizes: Mapping[str, int] | None, target: Target, trial: Trial | None) -> tuple[SegmentStep, ...]:
    """The kernels of all tensors of a fusion, one after another.

    Args:
        sizes: values of its dimensions for cost models.
        trial: makes the kernel of a candidate and proves it.

    Raises:
        UnsupportedError: no scheduler has a kernel for one of the tensors.
    """
    parts = Parts(fusion)
    tensors = [e.output for e in needed(fusion)]
    own = {tv: p for p in atoms(fusion, tensors) for tv in p}
    read = {tv: [own[t] for near in producers(fusion, tv) for t in made_from(fusion, near) if t in own] for tv in tensors}
    reads = {p: [other for tv in p for other in read[tv] if other is not p] for p in own.values()}
    return tuple(
        _kernel(parts, [tv for tv in tensors if tv in p], f"{fusion.name}_{k}", sizes or {}, target, trial)
        for k, p in enumerate(producers_first(reads, reads.__getitem__))
    )


def _kernel(parts: Parts, tensors: list[TensorView], name: str, sizes: Mapping[str, int], target: Target, trial: Trial | None) -> SegmentStep:
    part = parts.extract(tensors, name)
    found = candidates(part, sizes={dim: size for dim, size in sizes.items() if dim in part.dims}, target=target, lowers=trial is None)
    while (best := found.best) is not None:
        came = tried(trial, best.fusion, best.schedule)
        if not came.refused:
            return SegmentStep(best.fusion, came.schedule, tuple(tv.name for tv in tensors), best.scheduler)
        found.drop(came.refused)
    raise found.error()
