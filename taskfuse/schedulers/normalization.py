"""``tf.schedulers.normalization``: fusions that read rows again after a reduction of them."""

from __future__ import annotations

from collections.abc import Mapping

from taskfuse.ir.fusion import Fusion
from taskfuse.schedulers.reduction import plan, row_offer, schedule
from taskfuse.schedulers.rows import RowConfig
from taskfuse.schedulers.schedule import Chosen, Memo, Offer, tries_parameters
from taskfuse.target import DEFAULT, Target


@tries_parameters
def normalization(fusion: Fusion, config: RowConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Chosen[RowConfig]:
    """Schedule a fusion whose reductions all reduce the same axes: softmax, layer_norm, rms_norm, a norm of a sum, several norms, mean and variance.

    A row is loaded once and kept in registers if it fits, else in Shared memory; a row that fits neither, or of unknown length, is read again by
    each phase, usually from the L2 cache. If there are too few rows to fill the device, blocks share a row.

    Args:
        fusion: it is changed: tensors and schedule are added.
        config: the parameters; ``None``: the fastest by the cost model.
        sizes: values of the fusion's dimensions for the cost model; by default 4096, clamped to the known bounds.
        target: the GPU.

    Returns:
        The parameters, why they were chosen, and the schedule as code.

    Raises:
        UnsupportedError: the fusion or the parameters do not fit this scheduler.
    """
    return schedule(plan("normalization", fusion, config, sizes, target), fusion)


def offer(fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT, memo: Memo | None = None, lowers: bool = True) -> Offer:
    """The offer of ``normalization``. Raises :class:`UnsupportedError`."""
    return row_offer("normalization", fusion, sizes, target, memo or Memo(), lowers)
