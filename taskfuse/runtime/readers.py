"""The readers of kernel IR, plugged into the methods of :class:`~taskfuse.kir.Kernel`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from numpy.typing import NDArray

from taskfuse.kir import Kernel, KirReaders, bind_readers
from taskfuse.kir.arguments import check_names
from taskfuse.kir.kernel import CudaReader
from taskfuse.reports.certificate import Certificate
from taskfuse.reports.exploration import Exploration
from taskfuse.reports.timeline import Timeline
from taskfuse.sim import explore, simulate, timeline


class KernelReaders(KirReaders):
    """Text, verifier, channels, simulator, static proof and CUDA."""

    def simulate(self, kernel: Kernel, args: tuple[NDArray[Any] | float | int, ...], seed: int, options: dict[str, Any]) -> tuple[NDArray[Any], ...]:
        """:func:`taskfuse.sim.simulate`."""
        _check(kernel, options)
        return simulate(kernel, args, seed=seed, **options)

    def explore(self, kernel: Kernel, args: tuple[NDArray[Any] | float | int, ...], limit: int, options: dict[str, Any]) -> Exploration:
        """:func:`taskfuse.sim.explore`."""
        _check(kernel, options)
        return explore(kernel, args, limit=limit, **options)

    def timeline(self, kernel: Kernel, args: tuple[NDArray[Any] | float | int, ...], seed: int, options: dict[str, Any]) -> Timeline:
        """:func:`taskfuse.sim.timeline`."""
        _check(kernel, options)
        return timeline(kernel, args, seed=seed, **options)

    def verify(self, kernel: Kernel, extents: Mapping[str, int] | None) -> Certificate:
        """:func:`taskfuse.check.verify`."""
        from taskfuse.check import verify  # only who asks for a proof pays for its import

        check_names(kernel, extents or {})
        return verify(kernel, extents)

    def cuda(self) -> CudaReader:
        """:mod:`taskfuse.cuda.stages`."""
        from taskfuse.cuda import stages  # only who asks for CUDA pays for its import

        return stages


def _check(kernel: Kernel, options: Mapping[str, object]) -> None:
    """Raises :class:`LaunchError` for extents that the kernel lacks: functions take those of other kernels of a fusion, too."""
    extents = options.get("extents")
    if isinstance(extents, Mapping):
        check_names(kernel, cast("Mapping[str, int]", extents))


bind_readers(KernelReaders())
