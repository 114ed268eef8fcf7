"""The kernel: declarations, launch shape and body. The readers of kernel IR plug their methods in through :class:`KernelReaders`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from taskfuse.ir.scalar import const
from taskfuse.kir.nodes import Buffer, Counter, Dim3, Extent, Mbarrier, Param, Stmt, TensorParam

ONE: Dim3 = (const(1), const(1), const(1))


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel in kernel IR. Equality is of everything but source locations and notes.

    Attributes:
        extents: symbols of the tensors' shapes.
        params: arguments in order: inputs, scalars, outputs, derived.
        grid, block, cluster: launch shape (x, y, z), integer expressions over extents and host parameters.
        buffers: Local, Shared and workspace storage.
    """

    name: str
    extents: tuple[Extent, ...]
    params: tuple[Param, ...]
    grid: Dim3
    block: Dim3
    buffers: tuple[Buffer, ...]
    mbarriers: tuple[Mbarrier, ...]
    counters: tuple[Counter, ...]
    body: tuple[Stmt, ...]
    cluster: Dim3 = ONE

    @property
    def inputs(self) -> tuple[TensorParam, ...]:
        """The tensor arguments that are read."""
        return tuple(p for p in self.params if isinstance(p, TensorParam) and not p.is_output)

    @property
    def outputs(self) -> tuple[TensorParam, ...]:
        """The tensor arguments that are written."""
        return tuple(p for p in self.params if isinstance(p, TensorParam) and p.is_output)

    def __str__(self) -> str:
        return readers().text(self)

    def check_ir(self) -> None:
        """Verify the IR's rules. Raises :class:`VerifyError` with the whole kernel printed and the message under the offending statement."""
        readers().check_ir(self)

    def simulate(self, *args: NDArray[Any] | float | int, seed: int = 0, **options: Any) -> tuple[NDArray[Any], ...]:
        """Run the kernel on NumPy arrays; see :func:`taskfuse.sim.simulate`."""
        return readers().simulate(self, args, seed, options)


class KernelReaders(Protocol):
    """What the layers above kernel IR do with a kernel."""

    def text(self, kernel: Kernel) -> str: ...
    def check_ir(self, kernel: Kernel) -> None: ...
    def simulate(self, kernel: Kernel, args: tuple[NDArray[Any] | float | int, ...], seed: int, options: dict[str, Any]) -> tuple[np.ndarray, ...]: ...


_readers: list[KernelReaders] = []


def bind_readers(readers: KernelReaders) -> None:
    """Plug in the readers; called once, by the package itself."""
    _readers[:] = [readers]


def readers() -> KernelReaders:
    """The readers."""
    return _readers[0]
