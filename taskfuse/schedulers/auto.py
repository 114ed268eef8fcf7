"""``tf.schedulers.auto``: the first scheduler that takes a fusion; ``SCHEDULERS`` is their order."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from taskfuse.errors import UnsupportedError
from taskfuse.ir.fusion import Fusion, as_fusion
from taskfuse.location import caller
from taskfuse.schedulers.attention import attention
from taskfuse.schedulers.attention import offer as attention_offer
from taskfuse.schedulers.back_to_back import back_to_back
from taskfuse.schedulers.back_to_back import offer as back_to_back_offer
from taskfuse.schedulers.budget import Budget
from taskfuse.schedulers.candidates import Candidates, Counts, Offering
from taskfuse.schedulers.cat import cat
from taskfuse.schedulers.fallback import fallback
from taskfuse.schedulers.fallback import offer as fallback_offer
from taskfuse.schedulers.matmul import matmul
from taskfuse.schedulers.matmul import offer as matmul_offer
from taskfuse.schedulers.mixed_gemm import mixed_gemm
from taskfuse.schedulers.mixed_gemm import offer as mixed_gemm_offer
from taskfuse.schedulers.mma_gemm import mma_gemm
from taskfuse.schedulers.mma_gemm import offer as mma_gemm_offer
from taskfuse.schedulers.nested_sums import nested_sums
from taskfuse.schedulers.nested_sums import offer as nested_sums_offer
from taskfuse.schedulers.normalization import normalization
from taskfuse.schedulers.normalization import offer as normalization_offer
from taskfuse.schedulers.online import offer as online_offer
from taskfuse.schedulers.online import online
from taskfuse.schedulers.pointwise import offer as pointwise_offer
from taskfuse.schedulers.pointwise import pointwise
from taskfuse.schedulers.products import offer as products_offer
from taskfuse.schedulers.products import products
from taskfuse.schedulers.reduction import offer as reduction_offer
from taskfuse.schedulers.reduction import reduction
from taskfuse.schedulers.scan import scan
from taskfuse.schedulers.scatter import scatter
from taskfuse.schedulers.schedule import Chosen, Memo, Schedule, Scheduler, Sizes
from taskfuse.schedulers.simt_gemm import offer as simt_gemm_offer
from taskfuse.schedulers.simt_gemm import simt_gemm
from taskfuse.schedulers.transpose import transpose
from taskfuse.schedulers.windows import offer as windows_offer
from taskfuse.schedulers.windows import windows
from taskfuse.target import DEFAULT, Target

PRODUCTS: Final[tuple[Scheduler, ...]] = (attention, back_to_back, mixed_gemm, matmul, products, mma_gemm, simt_gemm)
"""Schedulers of matrix products."""

_NAMES_OF_PRODUCTS: Final = frozenset(s.__name__ for s in PRODUCTS)

ROWS: Final[tuple[Scheduler, ...]] = (nested_sums, reduction, online, normalization, scan)
"""Schedulers of reductions and scans along rows."""

SCHEDULERS: Final[tuple[Scheduler, ...]] = (*PRODUCTS, windows, *ROWS, cat, transpose, pointwise, scatter, fallback)
"""The most specialized first; the last takes what the others refuse."""


def multiplies(schedule: Schedule) -> bool:
    """True if a scheduler of matrix products made the schedule."""
    return schedule.scheduler in _NAMES_OF_PRODUCTS


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
    while (best := found.best) is not None:
        try:
            return best.scheduler(fusion, config, sizes=sizes, target=target).after(best.schedule.refused)
        except UnsupportedError as error:  # no kernel comes of its calls
            found.drop(str(error.fields["reason"]))
    raise found.error()


def candidates(
    fusion: Fusion,
    config: object = None,
    *,
    sizes: Mapping[str, int] | None = None,
    target: Target = DEFAULT,
    budget: Budget | None = None,
    lowers: bool = True,
    counts: Counts | None = None,
) -> Candidates:
    """The schedules of ``fusion``, which is not changed, by all of :data:`SCHEDULERS`; those of products lead.

    Args:
        lowers: schedulers see themselves whether a kernel comes of their calls; false where a trial of each candidate follows.
        counts: see :class:`~taskfuse.schedulers.candidates.Candidates`.
    """
    return Candidates(fusion, SCHEDULERS, config, sizes, target, _offers(lowers), budget, len(PRODUCTS), counts)


def _offers(lowers: bool) -> Mapping[Scheduler, Offering]:
    """Functions that estimate the time of a schedule of one fusion without making it. Those of rows look for them once."""
    memo = Memo()
    return {
        attention: attention_offer,
        back_to_back: back_to_back_offer,
        mixed_gemm: mixed_gemm_offer,
        matmul: matmul_offer,
        products: products_offer,
        mma_gemm: mma_gemm_offer,
        simt_gemm: simt_gemm_offer,
        reduction: partial(reduction_offer, memo=memo, lowers=lowers),
        online: partial(online_offer, memo=memo, lowers=lowers),
        normalization: partial(normalization_offer, memo=memo, lowers=lowers),
        windows: windows_offer,
        nested_sums: nested_sums_offer,
        pointwise: pointwise_offer,
        fallback: fallback_offer,
    }


def _refuse(fusion: Fusion, reason: str, help: str) -> UnsupportedError:
    return UnsupportedError(what=f"an automatic schedule of fusion '{fusion.name}'", reason=reason, help=help, location=caller())
