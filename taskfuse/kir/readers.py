"""The readers in kernel IR's own package: text, verifier, channels. A subclass of the package root adds the simulator and CUDA."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.errors import UnsupportedError
from taskfuse.kir.channel_table import ChannelTable
from taskfuse.kir.channels import channels
from taskfuse.kir.graph import kernel_graph
from taskfuse.kir.kernel import CudaReader, Kernel
from taskfuse.kir.parser import parse_kernel
from taskfuse.kir.printer import to_text
from taskfuse.kir.verify import verify_kernel
from taskfuse.kir.walk import is_deterministic
from taskfuse.reports.certificate import Certificate
from taskfuse.reports.exploration import Exploration
from taskfuse.reports.timeline import Timeline

if TYPE_CHECKING:
    import networkx as nx


class KirReaders:
    """Text, verifier and channels; no simulator, no CUDA."""

    def text(self, kernel: Kernel, witness: bool, path: Callable[[str], str] | None) -> str:
        """:func:`taskfuse.kir.to_text`."""
        return to_text(kernel, witness=witness, path=path)

    def parse(self, text: str) -> Kernel:
        """:func:`taskfuse.kir.parse_kernel`."""
        return parse_kernel(text)

    def check_ir(self, kernel: Kernel) -> None:
        """:func:`taskfuse.kir.verify_kernel`."""
        verify_kernel(kernel)

    def simulate(self, kernel: Kernel, args: tuple[NDArray[Any] | float | int, ...], seed: int, options: dict[str, Any]) -> tuple[np.ndarray, ...]:
        """Raises :class:`UnsupportedError`: the simulator is not part of this package."""
        raise UnsupportedError(what="simulating with kernel IR alone", reason="the simulator is not loaded", help="import taskfuse")

    def explore(self, kernel: Kernel, args: tuple[NDArray[Any] | float | int, ...], limit: int, options: dict[str, Any]) -> Exploration:
        """Raises :class:`UnsupportedError`: the simulator is not part of this package."""
        raise UnsupportedError(what="exploring with kernel IR alone", reason="the simulator is not loaded", help="import taskfuse")

    def timeline(self, kernel: Kernel, args: tuple[NDArray[Any] | float | int, ...], seed: int, options: dict[str, Any]) -> Timeline:
        """Raises :class:`UnsupportedError`: the simulator is not part of this package."""
        raise UnsupportedError(what="a timeline with kernel IR alone", reason="the simulator is not loaded", help="import taskfuse")

    def verify(self, kernel: Kernel, extents: Mapping[str, int] | None) -> Certificate:
        """Raises :class:`UnsupportedError`: the static proof is not part of this package."""
        raise UnsupportedError(what="a proof with kernel IR alone", reason="the checker is not loaded", help="import taskfuse")

    def is_deterministic(self, kernel: Kernel) -> bool:
        """:func:`taskfuse.kir.walk.is_deterministic`."""
        return is_deterministic(kernel)

    def channels(self, kernel: Kernel) -> ChannelTable:
        """:func:`taskfuse.kir.channels.channels`."""
        return channels(kernel)

    def graph(self, kernel: Kernel) -> nx.DiGraph[str | int]:
        """:func:`taskfuse.kir.graph.kernel_graph`."""
        return kernel_graph(kernel)

    def cuda(self) -> CudaReader:
        """Raises :class:`UnsupportedError`: the CUDA backend is not part of this package."""
        raise UnsupportedError(what="CUDA with kernel IR alone", reason="the backend is not loaded", help="import taskfuse")
