"""The interface of executables: a fusion or a kernel as a function on arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import log2, prod
from typing import TYPE_CHECKING, Any, Final, get_args

from taskfuse.errors import InputError
from taskfuse.ir.dims import Dim
from taskfuse.ir.fusion import Fusion
from taskfuse.kir import Kernel
from taskfuse.options import Backend

if TYPE_CHECKING:
    from taskfuse.check import Certificate
    from taskfuse.schedulers.schedule import Schedule

BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)
Facts = tuple[Dim, ...]


class Executable(ABC):
    """A function on arrays. It can be called from several threads at once, and pickled.

    Attributes:
        backend: ``"auto"``, ``"cuda"`` or ``"sim"``.
        schedule: the automatic schedule: its ``code`` and ``explain()``; ``None`` if the caller scheduled the fusion.
    """

    __slots__ = ("backend", "schedule")

    def __init__(self, backend: Backend, schedule: Schedule | None) -> None:
        self.backend: Backend = backend
        self.schedule = schedule

    @property
    @abstractmethod
    def kernel(self) -> Kernel:
        """The kernel. Raises :class:`LaunchError` if there are several."""

    @property
    @abstractmethod
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels of a call, in the order in which they run."""

    @property
    @abstractmethod
    def certificate(self) -> Certificate:
        """The obligations of the kernel for all extents, proved and open; computed on demand. Raises :class:`LaunchError` if there are several kernels."""

    @property
    @abstractmethod
    def certificates(self) -> tuple[Certificate, ...]:
        """The certificate of each of ``kernels``."""

    @property
    def is_deterministic(self) -> bool:
        """True if the results depend only on the arguments: no kernel adds floats in an order that depends on timing."""
        return all(kernel.is_deterministic for kernel in self.kernels)

    @property
    def specializations(self) -> tuple[Specialization, ...]:
        """The specializations made so far (docs/automatic.md)."""
        return ()

    def at(self, sizes: Mapping[str, int]) -> Executable:
        """The executable for calls of given extents: this one, unless it is specialized for them (docs/automatic.md).

        Args:
            sizes: the value of every dimension of the fusion.

        Raises:
            UnsupportedError: the fusion does not allow these sizes.
        """
        return self

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether it has kernels that are proved for the extents of each call, not for all."""

    @abstractmethod
    def check_open(self, extents: Mapping[str, int]) -> None:
        """Raise :class:`ProofError` if the proof of a kernel is open for all extents and fails for these."""

    @property
    @abstractmethod
    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments of a call, in their order: the inputs, then the run-time scalars, then the run-time integers."""

    def check_count(self, given: int) -> None:
        """Raise :class:`InputError` unless a call passes the right number of arguments."""
        names = self.arguments
        if given != len(names):
            help = f"the arguments are: {', '.join(names) or 'none'}"
            raise InputError(index=min(given, len(names)), fusion=self.name, reason=f"{given} arguments given, {len(names)} expected", help=help)

    def in_order(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments of a call, in order. Raises :class:`InputError` for a name that is unknown, given twice, or missing."""
        wanted = self.arguments
        what = ", ".join(wanted) or "none"
        for name in named:
            if name not in wanted or wanted.index(name) < len(args):
                reason = f"'{name}' is given twice" if name in wanted else f"there is no argument '{name}'"
                index = wanted.index(name) if name in wanted else len(args)
                raise InputError(index=index, fusion=self.name, reason=reason, help=f"the arguments are: {what}; out, stream and seed are accepted, too")
        for index, name in enumerate(wanted[len(args) :], len(args)):
            if name not in named:
                raise InputError(index=index, fusion=self.name, reason=f"'{name}' is not given", help=f"the arguments are: {what}")
        return (*args, *(named[name] for name in wanted[len(args) :]))

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the fusion, or of the kernel."""

    @abstractmethod
    def __call__(self, *args: Any, out: Any = None, stream: Any = None, seed: int = 0, **named: Any) -> tuple[Any, ...]:
        """Run it.

        Arrays on a GPU (torch, CuPy, anything with DLPack or ``__cuda_array_interface__``) run there. NumPy arrays run in the simulator; with
        ``backend="cuda"`` they are copied to the GPU and back. See docs/calling.md.

        Args:
            args: the inputs, of any strides, then the run-time scalars and integers.
            named: the arguments that ``args`` omits, by name.
            out: arrays for the outputs, of any strides; one array, or a tuple. They must not overlap one another, or an input
                that the kernel reads.
            stream: the stream to launch in: a handle, or an object of a framework; by default the framework's current one.
            seed: picks the interleaving in the simulator.

        Returns:
            The outputs as arrays of the first argument's framework, or ``out``.

        Raises:
            InputError, OutputError: arguments that do not fit.
            LaunchError: the GPU cannot run the kernel with these arguments.
            CudaUnavailableError: no driver, no GPU, or no NVRTC.
            RegisterError: the machine code breaks the register budget of the kernel; see docs/cuda.md.
            CudaError: a call of the driver failed.
            HangError: a wait of a debug build took too long.
            ProofError: the kernel is proved neither for all extents nor for those of this call.
            SimulationError: in the simulator, the kernel has undefined behavior.
        """


class ResultAdapter(Executable):
    """An executable that makes its results from those of another one, whose kernels it runs.

    Args:
        fusion: its computation.
        run: the inner executable.

    Attributes:
        inner: the inner executable.
    """

    __slots__ = ("_fusion", "inner")

    def __init__(self, fusion: Fusion, run: Executable) -> None:
        super().__init__(run.backend, run.schedule)
        self._fusion = fusion
        self.inner = run

    @property
    def kernel(self) -> Kernel:
        return self.inner.kernel

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return self.inner.kernels

    @property
    def certificate(self) -> Certificate:
        return self.inner.certificate

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        return self.inner.certificates

    @property
    def specializations(self) -> tuple[Specialization, ...]:
        return self.inner.specializations

    @property
    def name(self) -> str:
        return self._fusion.name

    @property
    def arguments(self) -> tuple[str, ...]:
        return self._fusion.arguments

    @property
    def is_open(self) -> bool:
        return self.inner.is_open

    def check_open(self, extents: Mapping[str, int]) -> None:
        self.inner.check_open(extents)

    def at(self, sizes: Mapping[str, int]) -> Executable:
        return self.inner.at(sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Specialization:
    """A schedule of a fusion for some of its extents, and the executable.

    Attributes:
        facts: the facts that it assumes about each dimension.
        sizes: extents for which its schedule was chosen; it runs with all extents that the facts allow.
        run: the executable, with the ``schedule`` for these facts.
    """

    facts: Facts
    sizes: Mapping[str, int]
    run: Executable

    def holds(self, extents: Mapping[str, int]) -> bool:
        """True if the facts hold."""
        return all(d.admits(extents[d.name], extents) for d in self.facts)

    def suits(self, extents: Mapping[str, int]) -> tuple[int, int, float]:
        """A key that is greater for stronger facts, constants before divisors; then for sizes closer to ``extents``."""
        distance = sum(abs(log2(max(size, 1) / max(extents[name], 1))) for name, size in self.sizes.items())
        return sum(d.min == d.max for d in self.facts), prod(d.multiple_of for d in self.facts), -distance

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.facts))}; chosen for {', '.join(f'{name}={size}' for name, size in self.sizes.items())}"
