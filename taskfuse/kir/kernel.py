"""The kernel: declarations, launch shape and body. The readers of kernel IR plug their methods in through :class:`KernelMethods`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from taskfuse.dtypes import uint64
from taskfuse.ir.dims import Dim
from taskfuse.ir.scalar import Const, const
from taskfuse.ir.signatures import checked_first
from taskfuse.kir.channel_table import ChannelTable
from taskfuse.kir.declarations import Buffer, Counter, Dim3, Mbarrier, Param, Semaphore, TensorParam, WorkQueue
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.variant import Variant
from taskfuse.kir.witness import Definition
from taskfuse.location import shown_path
from taskfuse.reports.certificate import Certificate
from taskfuse.reports.exploration import Exploration
from taskfuse.reports.resources import KernelResources, LaunchShape
from taskfuse.reports.timeline import Timeline
from taskfuse.target import launch_registers

if TYPE_CHECKING:
    import networkx as nx

ONE: Dim3 = (const(1), const(1), const(1))


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel in kernel IR. Equality ignores source locations, notes and definitions.

    Attributes:
        extents: symbols of the tensors' shapes.
        params: arguments in order: inputs, scalars, outputs, derived.
        grid, block, cluster: launch shape (x, y, z), integer expressions over extents.
        residents: resident blocks of a multiprocessor that the registers of a thread must allow.
        buffers: Local, Shared and workspace storage.
        definitions: the math that it computes, if it has a witness (:mod:`taskfuse.kir.witness`).
        written: the definitions as the fusion was written, if scheduling calls replaced some that the outputs need.
        keeps_rules: the verifier has accepted this object.
        walked: all statements in the order of the text, once :func:`taskfuse.kir.walk.walk` has been asked for them.
    """

    name: str
    extents: tuple[Dim, ...]
    params: tuple[Param, ...]
    grid: Dim3
    block: Dim3
    buffers: tuple[Buffer, ...]
    mbarriers: tuple[Mbarrier, ...]
    counters: tuple[Counter, ...]
    body: tuple[Stmt, ...]
    cluster: Dim3 = ONE
    semaphores: tuple[Semaphore, ...] = ()
    queues: tuple[WorkQueue, ...] = ()
    residents: int = 1
    definitions: tuple[Definition, ...] = field(default=(), compare=False)
    written: tuple[Definition, ...] = field(default=(), compare=False)
    keeps_rules: bool = field(default=False, init=False, compare=False, repr=False)
    walked: tuple[Stmt, ...] | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def is_cooperative(self) -> bool:
        """True if threads wait for threads of other blocks of the grid: all blocks must then be resident at once."""
        return bool(self.counters or self.semaphores)

    @property
    def is_deterministic(self) -> bool:
        """True if the results depend only on the arguments, not on timing: no update uses a function whose rounding depends on the order of its terms."""
        return readers().is_deterministic(self)

    @property
    def launch_registers(self) -> int | None:
        """Registers that a launch gives each thread of a kernel with register budgets; ``None`` if the shape of a block is not constant."""
        threads = 1
        for e in self.block:
            if not isinstance(e, Const):
                return None
            threads *= e.value
        return launch_registers(threads * self.residents)

    @property
    def inputs(self) -> tuple[TensorParam, ...]:
        """The tensor arguments that are read."""
        return tuple(p for p in self.params if isinstance(p, TensorParam) and not p.is_output)

    @property
    def outputs(self) -> tuple[TensorParam, ...]:
        """The tensor arguments that are written."""
        return tuple(p for p in self.params if isinstance(p, TensorParam) and p.is_output)

    @property
    def tables(self) -> tuple[TensorParam, ...]:
        """The tensors whose elements may occur in expressions: :attr:`table_inputs`, and the offsets of lengths."""
        given = self.table_inputs
        return (*given, *(offsets for p in given if (offsets := p.offsets) is not None))

    @property
    def table_inputs(self) -> tuple[TensorParam, ...]:
        """The inputs whose elements may occur in expressions: one-dimensional integer inputs that the kernel does not write."""
        overwritten = self.in_place.values()
        return tuple(p for p in self.inputs if len(p.shape) == 1 and p.dtype.is_integer and p.dtype is not uint64 and p.name not in overwritten)

    @property
    def in_place(self) -> dict[str, str]:
        """The outputs that are written into the array of an input, each with this input."""
        return {p.name: p.into for p in self.params if isinstance(p, TensorParam) and p.into is not None}

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the full text: rows of the tables of dtypes and functions are compared by identity."""
        return parsed, (readers().text(self, True, str),)

    def __str__(self) -> str:
        return self.text()

    @checked_first
    def text(self, *, witness: bool = False, locations: bool = False) -> str:
        """The text, which :func:`taskfuse.kir.parse_kernel` parses.

        Args:
            witness: include the math that the kernel computes, and the content of each statement's results (docs/kernel-ir.md, "The witness").
            locations: include the user's line of each statement, with the file relative to the working directory if that is shorter.
        """
        return readers().text(self, witness, shown_path if locations else None)

    def check_ir(self) -> None:
        """Check the rules of kernel IR. Raises :class:`VerifyError` with the whole kernel printed and the message under the offending statement."""
        readers().check_ir(self)

    @checked_first
    def simulate(self, *args: NDArray[Any] | float | int, seed: int = 0, **options: Any) -> tuple[NDArray[Any], ...]:
        """Run the kernel on NumPy arrays; see :func:`taskfuse.sim.simulate`."""
        return readers().simulate(self, args, seed, options)

    @checked_first
    def explore(self, *args: NDArray[Any] | float | int, limit: int = 50_000, **options: Any) -> Exploration:
        """Run the kernel in every interleaving, ``limit`` states at most; see :func:`taskfuse.sim.explore`."""
        return readers().explore(self, args, limit, options)

    @checked_first
    def timeline(self, *args: NDArray[Any] | float | int, seed: int = 0, **options: Any) -> Timeline:
        """Run the kernel and record its steps over time; see :func:`taskfuse.sim.timeline`."""
        return readers().timeline(self, args, seed, options)

    @checked_first
    def verify(self, extents: Mapping[str, int] | None = None) -> Certificate:
        """Prove the kernel in every interleaving, for all extents or for given ones; see :func:`taskfuse.check.verify`.

        Raises:
            LaunchError: ``extents`` names an extent that the kernel lacks, or gives it no integer; so do the methods that simulate.
        """
        return readers().verify(self, extents)

    def channels(self) -> ChannelTable:
        """The channels between roles: slots, bytes, arrival counts, producers and consumers; see :func:`taskfuse.kir.channels.channels`."""
        return readers().channels(self)

    def graph(self) -> nx.DiGraph[str | int]:
        """Storage and statements as a networkx graph of reads, writes, signals and waits; see :func:`taskfuse.kir.graph.kernel_graph`."""
        return readers().graph(self)

    @checked_first
    def cuda_source(self, variant: Variant | None = None, fast_math: bool = False, debug: bool = False, locations: bool = False) -> str:
        """CUDA C++.

        Args:
            variant: the assumptions about the arguments; ``None``: they are row-major without gaps and aligned, and 32-bit integers suffice.
            fast_math: approximate functions.
            debug: waits are bounded and report timeouts.
            locations: comments with the user's source line of each statement.
        """
        return readers().cuda().source(self, variant, fast_math, debug, locations).text

    @checked_first
    def ptx(self, arch: str = "sm_90a", variant: Variant | None = None, fast_math: bool = False, debug: bool = False) -> str:
        """PTX for ``arch``, from NVRTC; the rest as for :meth:`cuda_source`. Needs no GPU.

        Raises:
            UnsupportedError: the kernel has instructions that ``arch`` lacks, or NVRTC does not know ``arch``.
            CudaUnavailableError: NVRTC is not installed.
        """
        return readers().cuda().ptx(self, arch, variant, fast_math, debug)

    @checked_first
    def cubin(self, arch: str = "sm_90a", variant: Variant | None = None, fast_math: bool = False, debug: bool = False) -> bytes:
        """Machine code for ``arch``, an ELF file, through the cache; the rest as for :meth:`ptx`."""
        return readers().cuda().cubin(self, arch, variant, fast_math, debug)

    @checked_first
    def sass(self, arch: str = "sm_90a", variant: Variant | None = None, fast_math: bool = False, debug: bool = False) -> str:
        """The instructions of :meth:`cubin`. Raises :class:`CudaUnavailableError` also if ``nvdisasm`` is missing."""
        return readers().cuda().sass(self, arch, variant, fast_math, debug)

    @checked_first
    def resources(
        self,
        arch: str = "sm_90a",
        extents: Mapping[str, int] | None = None,
        variant: Variant | None = None,
        fast_math: bool = False,
        debug: bool = False,
    ) -> KernelResources:
        """Registers, spills, barriers, Shared memory and occupancy on ``arch``; ``extents``: needed if they depend on extents. The rest as for :meth:`ptx`."""
        return readers().cuda().resources(self, arch, extents, variant, fast_math, debug)

    @checked_first
    def launch_shape(self, /, **extents: int) -> LaunchShape:
        """Grid, block, cluster and dynamic Shared memory for given extents.

        Raises:
            LaunchError: an extent on which they depend is missing, or breaks its declared facts.
        """
        return readers().cuda().launch_shape(self, extents)


class KernelMethods(Protocol):
    """The methods of kernels that upper layers implement."""

    def text(self, kernel: Kernel, witness: bool, path: Callable[[str], str] | None) -> str: ...
    def parse(self, text: str) -> Kernel: ...
    def check_ir(self, kernel: Kernel) -> None: ...
    def simulate(self, kernel: Kernel, args: tuple[NDArray[Any] | float | int, ...], seed: int, options: dict[str, Any]) -> tuple[np.ndarray, ...]: ...
    def explore(self, kernel: Kernel, args: tuple[NDArray[Any] | float | int, ...], limit: int, options: dict[str, Any]) -> Exploration: ...
    def timeline(self, kernel: Kernel, args: tuple[NDArray[Any] | float | int, ...], seed: int, options: dict[str, Any]) -> Timeline: ...
    def verify(self, kernel: Kernel, extents: Mapping[str, int] | None) -> Certificate: ...
    def is_deterministic(self, kernel: Kernel) -> bool: ...
    def channels(self, kernel: Kernel) -> ChannelTable: ...
    def graph(self, kernel: Kernel) -> nx.DiGraph[str | int]: ...
    def cuda(self) -> CudaReader: ...


class CudaText(Protocol):
    """CUDA C++ of a kernel."""

    @property
    def text(self) -> str: ...


class CudaReader(Protocol):
    """The methods of the CUDA backend that need no launch."""

    def source(self, kernel: Kernel, variant: Variant | None, fast_math: bool, debug: bool, locations: bool) -> CudaText: ...
    def ptx(self, kernel: Kernel, arch: str, variant: Variant | None, fast_math: bool, debug: bool) -> str: ...
    def cubin(self, kernel: Kernel, arch: str, variant: Variant | None, fast_math: bool, debug: bool) -> bytes: ...
    def sass(self, kernel: Kernel, arch: str, variant: Variant | None, fast_math: bool, debug: bool) -> str: ...
    def resources(
        self, kernel: Kernel, arch: str, extents: Mapping[str, int] | None, variant: Variant | None, fast_math: bool, debug: bool
    ) -> KernelResources: ...
    def launch_shape(self, kernel: Kernel, extents: Mapping[str, int]) -> LaunchShape: ...


_readers: list[KernelMethods] = []


def bind_readers(readers: KernelMethods) -> None:
    """Plug in the readers; called once, by the package itself."""
    _readers[:] = [readers]


def readers() -> KernelMethods:
    """The readers."""
    return _readers[0]


def parsed(text: str) -> Kernel:
    """The kernel in a text; unpickling calls it."""
    return readers().parse(text)
