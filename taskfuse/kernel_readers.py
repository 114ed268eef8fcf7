"""The readers of kernel IR, plugged into the methods of :class:`~taskfuse.kir.Kernel`."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from taskfuse.kir import Kernel, KirReaders, bind_readers
from taskfuse.kir.kernel import CudaReader
from taskfuse.sim import simulate


class KernelReaders(KirReaders):
    """Text, verifier, channels, simulator and CUDA."""

    def simulate(self, kernel: Kernel, args: tuple[NDArray[Any] | float | int, ...], seed: int, options: dict[str, Any]) -> tuple[NDArray[Any], ...]:
        """:func:`taskfuse.sim.simulate`."""
        return simulate(kernel, args, seed=seed, **options)

    def cuda(self) -> CudaReader:
        """:mod:`taskfuse.cuda.stages`."""
        from taskfuse.cuda import stages  # only who asks for CUDA pays for its import

        return stages


bind_readers(KernelReaders())
