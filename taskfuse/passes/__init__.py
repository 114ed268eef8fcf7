"""Kernel-to-kernel passes: small pure functions with a name, each in its own module; :data:`PIPELINE` has them in order, the last steps of lowering."""

from __future__ import annotations

from typing import ClassVar, Protocol

from taskfuse.kir import Kernel
from taskfuse.passes.guards import SimplifyGuards
from taskfuse.passes.read_places import ReadPlaces
from taskfuse.passes.sinking import SinkIntoCases
from taskfuse.passes.trips import DropSingleTrips
from taskfuse.passes.unswitch import Unswitch
from taskfuse.passes.waits import JoinWaits

__all__ = ["PIPELINE", "KernelPass"]


class KernelPass(Protocol):
    """A small pure function of kernel -> kernel. Its docstring says what it requires and ensures, that of its module why it exists."""

    name: ClassVar[str]

    def run(self, kernel: Kernel) -> Kernel:
        """The kernel after the pass."""
        ...


PIPELINE: tuple[KernelPass, ...] = (DropSingleTrips(), SimplifyGuards(), Unswitch(), SinkIntoCases(), ReadPlaces(), JoinWaits())
