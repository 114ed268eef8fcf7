"""Executables: a fusion or kernel as a function on arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, get_args

import numpy as np

from taskfuse.dump import dump
from taskfuse.errors import InputError, LaunchError, UnsupportedError
from taskfuse.ir.fusion import Fusion
from taskfuse.kir import Kernel
from taskfuse.kir.arguments import bind_symbols, check_count, check_rank, wanted
from taskfuse.kir.nodes import ScalarParam, TensorParam
from taskfuse.location import caller
from taskfuse.lowering import LoweringOptions, lower
from taskfuse.lowering.trace import dumper
from taskfuse.options import Backend, read_options
from taskfuse.sim import simulate

if TYPE_CHECKING:
    from taskfuse.check import Certificate
    from taskfuse.cuda.launch import Launcher
    from taskfuse.cuda.nvrtc import Binary
    from taskfuse.cuda.signature import Source
    from taskfuse.proving import Proof
    from taskfuse.schedulers.schedule import Schedule
    from taskfuse.specialization import Specialization

BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)


class Executable:
    """A compiled kernel: a function on arrays. It can be called from several threads at once, and pickled.

    Attributes:
        backend: ``"auto"``, ``"cuda"`` or ``"sim"``.
        schedule: the automatic schedule: its ``code`` and ``explain()``; ``None`` if the caller scheduled the fusion.

    Raises:
        ProofError: see :func:`taskfuse.compile`.
    """

    __slots__ = ("_arch", "_debug", "_fast_math", "_kernel", "_launcher", "_proof", "_unsafe", "backend", "schedule")

    def __init__(
        self,
        kernel: Kernel,
        backend: Backend,
        arch: str | None = None,
        fast_math: bool = False,
        debug: bool = False,
        unsafe: bool = False,
        schedule: Schedule | None = None,
    ) -> None:
        self._kernel = kernel
        self.schedule = schedule
        self.backend: Backend = backend
        self._arch = arch
        self._fast_math = fast_math
        self._debug = debug
        self._unsafe = unsafe
        self._launcher: Launcher | None = None
        self._proof = self._prove()

    def _prove(self) -> Proof | None:
        settings = read_options()
        if self._unsafe or not settings.verify:
            return None
        from taskfuse.proving import Proof  # only who asks for a proof pays for its import

        return Proof(self.kernel, settings)

    @property
    def kernel(self) -> Kernel:
        """The kernel. Raises :class:`LaunchError` if there are several."""
        return self._kernel

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels of a call, in the order in which they run."""
        return (self.kernel,)

    @property
    def certificate(self) -> Certificate:
        """What was proved of the kernel for all extents, and what was not; made when it is asked for."""
        return self.kernel.verify() if self._proof is None else self._proof.certificate

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """What was proved of each of ``kernels``."""
        return (self.certificate,)

    @property
    def specializations(self) -> tuple[Specialization, ...]:
        """What was made so far for calls of certain extents (docs/automatic.md)."""
        return ()

    def at(self, sizes: Mapping[str, int]) -> Executable:
        """What runs calls of given extents: this executable, unless it is specialized for them (docs/automatic.md).

        Args:
            sizes: the value of every dimension of the fusion.

        Raises:
            UnsupportedError: sizes that the fusion does not have.
        """
        return self

    def __call__(self, *args: Any, out: Any = None, stream: Any = None, seed: int = 0) -> tuple[Any, ...]:
        """Run it.

        Arrays on a GPU (torch, CuPy, anything with DLPack or ``__cuda_array_interface__``) run there. NumPy arrays run in the simulator; with
        ``backend="cuda"`` they are copied to the GPU and back. See docs/calling.md.

        Args:
            args: the inputs, of any strides, then the run-time scalars.
            out: arrays for the outputs, of any strides; one array, or a tuple. They must not overlap an input or one another.
            stream: the stream to launch in: a handle, or an object of a framework; by default the framework's current one.
            seed: picks the interleaving in the simulator.

        Returns:
            The outputs as arrays of the first argument's framework, or ``out``.

        Raises:
            InputError, OutputError: arguments that do not fit.
            LaunchError: the GPU cannot run the kernel so.
            CudaUnavailableError: no driver, no GPU, or no NVRTC.
            RegisterError: the compiled kernel does not have the registers that it counts on; see docs/cuda.md.
            CudaError: a call of the driver failed.
            HangError: a wait of a debug build took too long.
            ProofError: the kernel is not proved for all extents, and for those of this call it is not either.
            SimulationError: in the simulator, the kernel did something that a GPU would not forgive.
        """
        launcher = self._launcher
        if launcher is not None and args and type(args[0]) in launcher.probes:
            return launcher(args, out, stream)
        if self.backend == "sim" or (self.backend == "auto" and self._is_for_host(args, out)):
            return self._simulate(args, out, stream, seed)
        if launcher is None:
            launcher = self._launcher = self._load()
        return launcher(args, out, stream)

    def _is_for_host(self, args: tuple[Any, ...], out: Any) -> bool:
        from taskfuse.cuda.arrays import is_on_host
        from taskfuse.cuda.outputs import outputs_given

        given = () if out is None else outputs_given(self.kernel, out)
        return all(is_on_host(a) for a in (*args, *given))

    def _simulate(self, args: tuple[Any, ...], out: Any, stream: Any, seed: int) -> tuple[Any, ...]:
        if stream is not None:
            raise LaunchError(kernel=self.kernel.name, reason="the simulator has no streams", help='leave out stream=, or use backend="cuda"')
        check_count(self.kernel, len(args))
        params = wanted(self.kernel)
        taken = [self._to_numpy(k, p, a) if isinstance(p, TensorParam) else a for k, (p, a) in enumerate(zip(params, args, strict=True))]
        if self._proof is not None and self._proof.is_open:
            self._proof.admit(self._extents(params, taken))
        if out is None:
            return simulate(self.kernel, taken, seed=seed)
        from taskfuse.cuda.outputs import check_host_outputs, outputs_given, store

        given = outputs_given(self.kernel, out)
        check_host_outputs(self.kernel, [a for p, a in zip(params, taken, strict=True) if isinstance(p, TensorParam)], given)
        store(self.kernel, simulate(self.kernel, taken, seed=seed), given)
        return given

    def _extents(self, params: tuple[TensorParam | ScalarParam, ...], args: list[Any]) -> dict[str, int]:
        """Values of the extents. Raises :class:`InputError` for arguments that do not fit."""
        shapes: dict[str, tuple[int, ...]] = {}
        for index, (param, arg) in enumerate(zip(params, args, strict=True)):
            if isinstance(param, TensorParam):
                check_rank(self.kernel, index, param, arg.ndim)
                shapes[param.name] = arg.shape
        try:
            return bind_symbols(self.kernel, shapes, {})
        except (ZeroDivisionError, IndexError) as error:
            raise LaunchError(kernel=self.kernel.name, reason=f"an extent or a host parameter has no value: {error}") from None

    def _to_numpy(self, index: int, param: TensorParam, array: Any) -> Any:
        try:
            return np.asarray(array)
        except (TypeError, ValueError, RuntimeError) as error:  # of the framework: it is on a GPU, it requires gradients, ...
            reason = f"'{param.name}' does not become a NumPy array: {error}"
            raise InputError(index=index, fusion=self.kernel.name, reason=reason, help="pass a NumPy array to the simulator") from error

    def _load(self) -> Launcher:
        from taskfuse.cuda.arrays import kinds
        from taskfuse.cuda.launch import Launcher

        admit = None if self._proof is None else self._proof.admit
        return Launcher(
            self.kernel,
            kinds(),
            arch=self._arch,
            fast_math=self._fast_math,
            debug=self._debug,
            lenient=self._debug or self._unsafe or self.schedule is not None,
            on_compile=self._dump,
            admit=admit,
        )

    def _dump(self, source: Source, binary: Binary, arch: str) -> None:
        from taskfuse.cuda.disassembly import sass
        from taskfuse.cuda.nvrtc import CompileOptions, compile_ptx
        from taskfuse.cuda.source import emit

        options = read_options()
        chaos = options.chaos if self._debug else None
        dump("cuda", source.name, lambda: emit(source.kernel, source.variant, self._fast_math, self._debug, chaos, locations=True).text, options)
        dump("ptx", source.name, lambda: compile_ptx(source.text, source.name, CompileOptions(arch=arch, fast_math=self._fast_math)), options)
        dump("sass", source.name, lambda: sass(binary.code), options)

    def __reduce__(self) -> tuple[Any, ...]:
        return Executable, (self.kernel, self.backend, self._arch, self._fast_math, self._debug, self._unsafe, self.schedule)

    def __repr__(self) -> str:
        return f"Executable({self.kernel.name!r}, backend={self.backend!r})"


def one_kernel(
    fusion: Fusion | Kernel,
    backend: Backend = "auto",
    *,
    arch: str | None = None,
    fast_math: bool = False,
    debug: bool = False,
    unsafe: bool = False,
    options: LoweringOptions | None = None,
    schedule: Schedule | None = None,
) -> Executable:
    """:func:`taskfuse.compile` of a kernel, or of a fusion as it is scheduled. ``schedule``: what scheduled it."""
    if backend not in BACKENDS:
        help = f"use one of {', '.join(BACKENDS)}"
        raise UnsupportedError(what=f"backend '{backend}'", reason="there is no such backend", help=help, location=caller())
    settings = read_options()
    if isinstance(fusion, Kernel):
        kernel = fusion
        kernel.check_ir()
    else:
        dump("fusion", fusion.name, lambda: str(fusion), settings)
        kernel = lower(fusion, options or LoweringOptions(), dumper(settings) if settings.dump_steps else None)
    dump("kernel", kernel.name, lambda: str(kernel), settings)
    return Executable(kernel, settings.backend if backend == "auto" else backend, arch, fast_math, debug, unsafe, schedule)
