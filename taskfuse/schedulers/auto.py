"""``tf.schedulers.auto``: the first scheduler that takes a fusion; ``SCHEDULERS`` is their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from taskfuse.errors import UnsupportedError
from taskfuse.ir.fusion import Fusion, as_fusion
from taskfuse.location import caller
from taskfuse.schedulers.budget import Budget
from taskfuse.schedulers.candidates import Candidates, Offering
from taskfuse.schedulers.cat import cat
from taskfuse.schedulers.fallback import fallback
from taskfuse.schedulers.fallback import offer as fallback_offer
from taskfuse.schedulers.matmul import matmul
from taskfuse.schedulers.normalization import normalization
from taskfuse.schedulers.normalization import offer as normalization_offer
from taskfuse.schedulers.pointwise import pointwise
from taskfuse.schedulers.products import products
from taskfuse.schedulers.reduction import offer as reduction_offer
from taskfuse.schedulers.reduction import reduction
from taskfuse.schedulers.scan import scan
from taskfuse.schedulers.scatter import scatter
from taskfuse.schedulers.schedule import Chosen, Scheduler, Sizes
from taskfuse.schedulers.simt_gemm import simt_gemm
from taskfuse.schedulers.transpose import transpose
from taskfuse.target import DEFAULT, Target

SCHEDULERS: Final[tuple[Scheduler, ...]] = (matmul, products, simt_gemm, reduction, normalization, scan, cat, transpose, pointwise, scatter, fallback)
"""The most specialized first; the last takes what the others refuse."""

OFFERS: Final[Mapping[Scheduler, Offering]] = {reduction: reduction_offer, normalization: normalization_offer, fallback: fallback_offer}
"""Functions that estimate the time of a schedule without making it."""

PRODUCTS: Final[tuple[Scheduler, ...]] = (matmul, products, simt_gemm)
"""Schedulers of matrix products."""


def auto(fusion: Fusion, config: Any = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Chosen[Any]:
    """Schedule a fusion by the first of :data:`SCHEDULERS` that takes it.

    Args:
        fusion: it is changed.
        config: the parameters of one scheduler, which is then used; ``None``: chosen by the scheduler's cost model.
        sizes: values of the fusion's dimensions for cost models; by default 4096, clamped to the known bounds.
        target: the GPU.

    Raises:
        UnsupportedError: the fusion has a schedule or no outputs, or no single kernel computes it well: :func:`taskfuse.compile` makes several. The
            notes have every reason.
    """
    Sizes(as_fusion(fusion, "tf.schedulers.auto"), sizes, target)
    if fusion.has_schedule:
        raise _refuse(fusion, "it has a schedule already", "give it a fusion without scheduling calls")
    if not fusion.outputs:
        raise _refuse(fusion, "it has no outputs", "fusion.add_output(tensor)")
    found = candidates(fusion, config, sizes=sizes, target=target)
    if found.best is None:
        raise found.error()
    return found.best.scheduler(fusion, config, sizes=sizes, target=target).after(found.best.schedule.refused)


def candidates(
    fusion: Fusion, config: object = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT, budget: Budget | None = None
) -> Candidates:
    """The schedules of ``fusion``, which is not changed, by all of :data:`SCHEDULERS`."""
    return Candidates(fusion, SCHEDULERS, config, sizes, target, OFFERS, budget)


def _refuse(fusion: Fusion, reason: str, help: str) -> UnsupportedError:
    return UnsupportedError(what=f"an automatic schedule of fusion '{fusion.name}'", reason=reason, help=help, location=caller())
