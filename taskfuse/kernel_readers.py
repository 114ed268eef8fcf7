"""The readers of kernel IR, plugged into the methods of :class:`~taskfuse.kir.Kernel`."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from taskfuse.kir import Kernel, KirReaders, bind_readers
from taskfuse.sim import simulate


class KernelReaders(KirReaders):
    """Text, verifier and simulator."""

    def simulate(self, kernel: Kernel, args: tuple[NDArray[Any] | float | int, ...], seed: int, options: dict[str, Any]) -> tuple[NDArray[Any], ...]:
        """:func:`taskfuse.sim.simulate`."""
        return simulate(kernel, args, seed=seed, **options)


bind_readers(KernelReaders())
