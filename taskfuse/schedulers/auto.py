"""``tf.schedulers.auto``: the first scheduler that takes a fusion, and ``SCHEDULERS``, the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from taskfuse.errors import UnsupportedError
from taskfuse.ir.fusion import Fusion
from taskfuse.schedulers.fallback import fallback
from taskfuse.schedulers.matmul import matmul
from taskfuse.schedulers.pointwise import pointwise
from taskfuse.schedulers.schedule import Schedule, Sizes

Scheduler = Callable[..., Schedule]
"""``scheduler(fusion, config=None, *, sizes=None)``: see :mod:`taskfuse.schedulers.schedule`."""

SCHEDULERS: Final[tuple[Scheduler, ...]] = (matmul, pointwise, fallback)
"""Those that know most of a fusion first; the last takes what the others refuse."""


@dataclass(frozen=True, slots=True)
class AutoSchedule:
    """What :func:`auto` did.

    Attributes:
        chosen: what the scheduler says that took the fusion.
        refused: those asked before it, and why they refused.
    """

    chosen: Schedule
    refused: tuple[tuple[str, UnsupportedError], ...]

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
        return "\n".join([self.chosen.explain(), *(f"not {name}: {error.fields['reason']}" for name, error in self.refused)])


def auto(fusion: Fusion, *, sizes: Mapping[str, int] | None = None) -> AutoSchedule:
    """Schedule a fusion by the first of :data:`SCHEDULERS` that takes it.

    Args:
        fusion: it is changed.
        sizes: values of the fusion's dimensions for cost models; 4096, within what is known, where there is none.

    Raises:
        UnsupportedError: no single kernel computes the fusion well: :func:`taskfuse.compile` makes several. The notes have every reason.
    """
    Sizes(fusion, sizes)
    refused: list[tuple[str, UnsupportedError]] = []
    for scheduler in SCHEDULERS:
        try:
            return AutoSchedule(scheduler(fusion, sizes=sizes), tuple(refused))
        except UnsupportedError as error:
            refused.append((getattr(scheduler, "__name__", "scheduler"), error))
    raise UnsupportedError(
        what=f"one kernel for fusion '{fusion.name}'",
        reason="no scheduler takes it",
        notes=tuple(f"{name}: {error.fields['reason']}" for name, error in refused),
        help="tf.compile cuts it into several; or schedule it by hand",
        location=refused[0][1].location,
    )
