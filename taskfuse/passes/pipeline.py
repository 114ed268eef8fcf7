"""The kernel -> kernel pipeline: one list."""

from __future__ import annotations

from typing import ClassVar, Protocol

from taskfuse.kir import Kernel, verify_kernel
from taskfuse.passes.guards import SimplifyGuards
from taskfuse.passes.trips import DropSingleTrips


class KernelPass(Protocol):
    """A small pure function of kernel -> kernel. Its module says what it requires, what it ensures and why it exists."""

    name: ClassVar[str]

    def run(self, kernel: Kernel) -> Kernel:
        """The kernel after the pass."""
        ...


PIPELINE: tuple[KernelPass, ...] = (DropSingleTrips(), SimplifyGuards())


def run_pipeline(kernel: Kernel, verify: bool) -> Kernel:
    """Run every pass in order; with ``verify``, the kernel is verified before the first and after each."""
    if verify:
        verify_kernel(kernel)
    for step in PIPELINE:
        kernel = step.run(kernel)
        if verify:
            verify_kernel(kernel)
    return kernel
