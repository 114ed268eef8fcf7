"""``tf.schedulers.auto``: the first scheduler that takes a fusion, and ``SCHEDULERS``, the order in which they are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from taskfuse.errors import UnsupportedError
from taskfuse.ir.fusion import Fusion
from taskfuse.location import caller
from taskfuse.schedulers.cat import cat
from taskfuse.schedulers.fallback import fallback
from taskfuse.schedulers.matmul import matmul
from taskfuse.schedulers.normalization import normalization
from taskfuse.schedulers.pointwise import pointwise
from taskfuse.schedulers.reduction import reduction
from taskfuse.schedulers.schedule import Candidate, Schedule, Sizes
from taskfuse.schedulers.tiled import tiled
from taskfuse.schedulers.transpose import transpose


class Scheduler(Protocol):
    """See :mod:`taskfuse.schedulers.schedule`."""

    __name__: str

    def __call__(self, fusion: Fusion, *, sizes: Mapping[str, int] | None = None) -> Schedule: ...


SCHEDULERS: Final[tuple[Scheduler, ...]] = (matmul, tiled, reduction, normalization, cat, transpose, pointwise, fallback)
"""Those that know most of a fusion first; the last takes what the others refuse."""


@dataclass(frozen=True, slots=True)
class AutoSchedule:
    """What :func:`auto` did.

    Attributes:
        chosen: what the scheduler says that took the fusion.
        refused: those asked before it, and why they refused.
    """

    chosen: Schedule
    refused: tuple[tuple[str, str], ...]

    @property
    def config(self) -> object:
        """The parameters of that scheduler."""
        return self.chosen.config

    @property
    def alternatives(self) -> Sequence[Candidate]:
        """What that scheduler chose from."""
        return self.chosen.alternatives

    @property
    def scheduler(self) -> str:
        """Name of the scheduler that took the fusion."""
        return self.chosen.scheduler

    @property
    def us(self) -> float:
        """Microseconds that its cost model expects."""
        return self.chosen.us

    @property
    def code(self) -> str:
        """The scheduling calls, as Python that takes the unscheduled fusion as ``fusion``."""
        return self.chosen.code

    def explain(self) -> str:
        """Why this schedule, and why not those of other schedulers."""
        return "\n".join([self.chosen.explain(), *(f"not {name}: {reason}" for name, reason in self.refused)])


def auto(fusion: Fusion, *, sizes: Mapping[str, int] | None = None) -> AutoSchedule:
    """Schedule a fusion by the first of :data:`SCHEDULERS` that takes it.

    Args:
        fusion: it is changed.
        sizes: values of the fusion's dimensions for cost models; 4096, within what is known, where there is none.

    Raises:
        UnsupportedError: no single kernel computes the fusion well: :func:`taskfuse.compile` makes several. The notes have every reason.
    """
    Sizes(fusion, sizes)
    refused: list[tuple[str, str]] = []
    for scheduler in SCHEDULERS:
        try:
            return AutoSchedule(scheduler(fusion, sizes=sizes), tuple(refused))
        except UnsupportedError as error:
            refused.append((scheduler.__name__, str(error.fields["reason"])))
    raise UnsupportedError(
        what=f"one kernel for fusion '{fusion.name}'",
        reason="no scheduler takes it",
        notes=tuple(f"{name}: {reason}" for name, reason in refused),
        help="tf.compile makes several; or schedule it by hand",
        location=caller(),
    )
