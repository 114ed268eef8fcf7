"""One kernel as a function on arrays, on the GPU or in the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from taskfuse.cuda.present import found
from taskfuse.dump import dump
from taskfuse.errors import InputError, LaunchError, OutputError, UnsupportedError, VerifyError, shown
from taskfuse.ir.fusion import Fusion
from taskfuse.kir import Kernel
from taskfuse.kir.arguments import bind_symbols, check_count, check_rank, integer, wanted
from taskfuse.kir.declarations import Argument, IntegerParam, TensorParam
from taskfuse.kir.promises import check_promises, promised
from taskfuse.location import caller
from taskfuse.lowering import LoweringOptions, lower
from taskfuse.lowering.plan_text import dumper
from taskfuse.options import Backend, read_options
from taskfuse.passes.early_reads import ReadEarly
from taskfuse.runtime.executable import BACKENDS, Executable
from taskfuse.sim import simulate

if TYPE_CHECKING:
    from taskfuse.check import Certificate
    from taskfuse.cuda.kernel_interface import KernelInterface
    from taskfuse.cuda.launch import Launcher
    from taskfuse.cuda.nvrtc import Binary
    from taskfuse.cuda.signature import Source
    from taskfuse.runtime.proof import Proof, Standing
    from taskfuse.schedulers.schedule import Schedule
    from taskfuse.target import Target


SHARE_ALONE: Final = 8
"""The parts of the outputs of a kernel that are tried to be written in place alone, where not all of them can be: each takes a proof."""


class CompiledKernel(Executable):
    """A kernel, as a function on arrays.

    Raises:
        ProofError: see :func:`taskfuse.compile`.
    """

    __slots__ = ("_arch", "_debug", "_fast_math", "_interface", "_is_in_place", "_kernel", "_launcher", "_proof", "_unsafe")

    def __init__(
        self,
        kernel: Kernel | KernelInterface,
        backend: Backend,
        arch: str | None = None,
        fast_math: bool = False,
        debug: bool = False,
        unsafe: bool = False,
        schedule: Schedule | None = None,
        standing: Standing | None = None,
    ) -> None:
        super().__init__(backend, schedule)
        self._kernel = kernel if isinstance(kernel, Kernel) else kernel.head
        self._interface = None if isinstance(kernel, Kernel) else kernel
        self._is_in_place = bool(self._kernel.in_place)
        self._arch = arch
        self._fast_math = fast_math
        self._debug = debug
        self._unsafe = unsafe
        self._launcher: Launcher | None = None
        self._proof = self._prove(standing)

    def _prove(self, standing: Standing | None) -> Proof | None:
        settings = read_options()
        if self._unsafe or not settings.verify:
            return None
        from taskfuse.runtime.proof import Proof  # only who asks for a proof pays for its import

        return Proof(self.interface, settings, searches=self.schedule is None, standing=standing)

    @property
    def kernel(self) -> Kernel:
        return self._kernel if self._interface is None else self._interface.whole()

    @property
    def interface(self) -> KernelInterface:
        """The part of the kernel that a launch needs."""
        if self._interface is None:
            from taskfuse.cuda.kernel_interface import interface_of  # only who launches or proves pays for its import

            self._interface = interface_of(self._kernel)
        return self._interface

    @property
    def standing(self) -> Standing | None:
        """The state of its proof; ``None``: not yet determined."""
        return None if self._proof is None else self._proof.standing

    @property
    def is_open(self) -> bool:
        return self._proof is not None and self._proof.is_open

    def check_open(self, extents: Mapping[str, int]) -> None:
        if self._proof is not None and self._proof.is_open:
            self._proof.admit(extents)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return (self.kernel,)

    @property
    def certificate(self) -> Certificate:
        return self.kernel.verify() if self._proof is None else self._proof.certificate

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        return (self.certificate,)

    @property
    def in_place(self) -> Mapping[int, int]:
        """The numbers of the outputs that are written into the array of an input, each with that of this input."""
        inputs = [p.name for p in self._kernel.inputs]
        return {k: inputs.index(p.into) for k, p in enumerate(self._kernel.outputs) if p.into is not None}

    @property
    def name(self) -> str:
        return self._kernel.name

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(p.name for p in wanted(self._kernel))  # declarations suffice

    def __call__(self, *args: Any, out: Any = None, stream: Any = None, seed: int = 0, **named: Any) -> tuple[Any, ...]:
        """See :meth:`Executable.__call__`. An output that is written into the array of an input is that array."""
        if named:
            args = self.in_order(args, named)
        if self._is_in_place:
            out = self._with_inputs(args, out, stream)
        launcher = self._launcher
        if launcher is not None and args and type(args[0]) in launcher.probes:
            return launcher(args, out, stream)
        if self.backend == "sim" or (self.backend == "auto" and self._is_for_host(args, out)):
            return self._simulate(args, out, stream, seed)
        if launcher is None:
            launcher = self._launcher = self._load()
        return launcher(args, out, stream)

    def of(self, kernel: Kernel) -> CompiledKernel:
        """An executable of another kernel with the same settings."""
        return CompiledKernel(kernel, self.backend, self._arch, self._fast_math, self._debug, self._unsafe, self.schedule)

    @property
    def is_for_gpu(self) -> bool:
        """Whether calls may run on a GPU, as far as known before there are arrays."""
        return self.backend == "cuda" or (self.backend == "auto" and found() is not None)

    def check_code(self, target: Target) -> None:
        """Raise the errors of the compiler or the GPU at once.

        Raises:
            LaunchError, CudaCompileError, UnsupportedError: see :func:`taskfuse.cuda.fit.check_code`.
        """
        from taskfuse.cuda.fit import check_code  # only who has a GPU pays for its import

        check_code(self.interface, target, self._arch, self._fast_math)

    def lost_registers(self, target: Target) -> float:
        """The bytes that registers spill in its machine code, and of arrays in local memory; infinite if products wait for their registers, or budgets of
        registers are ignored. Nothing is warned of.

        Raises:
            CudaCompileError, CudaUnavailableError, UnsupportedError: see :func:`taskfuse.cuda.fit.lost_registers`.
        """
        from taskfuse.cuda.fit import lost_registers  # only who has a GPU pays for its import

        return lost_registers(self.interface, target, self._arch, self._fast_math)

    def packed_code(self, target: Target) -> dict[str, Any] | None:
        """Its machine code in JSON, for :func:`taskfuse.cuda.carried_code.take`; ``None`` if none was made yet, or the compiler complained."""
        if not self.is_for_gpu:
            return None
        from taskfuse.cuda.fit import packed_code  # only who has a GPU pays for its import

        return packed_code(self.interface, target, self._arch, self._fast_math)

    def _with_inputs(self, args: tuple[Any, ...], out: Any, stream: Any) -> tuple[Any, ...]:
        """Arrays for all outputs: for some the arrays of inputs. Raises :class:`OutputError` if ``out`` has others for these."""
        from taskfuse.cuda.outputs import outputs_given
        from taskfuse.runtime.arrays import empty

        kernel, params = self._kernel, wanted(self._kernel)
        check_count(kernel, len(args))
        arrays = {p.name: a for p, a in zip(params, args, strict=True) if isinstance(p, TensorParam)}
        given = (None,) * len(kernel.outputs) if out is None else outputs_given(kernel, out)
        symbols = self._extents(params, list(args)) if out is None else {}
        made: list[Any] = []
        for index, (p, array) in enumerate(zip(kernel.outputs, given, strict=True)):
            if p.into is not None and array is not None and array is not arrays[p.into]:
                reason, help = f"'{p.name}' is written into the array of '{p.into}'", "leave out out=, or give that array"
                raise OutputError(index=index, fusion=kernel.name, reason=reason, help=help)
            if array is None and p.into is None:
                array = empty(next(iter(arrays.values())), [integer(e, symbols) for e in p.shape], p.dtype, None, stream)
            made.append(array if p.into is None else arrays[p.into])
        return tuple(made)

    @property
    def launcher(self) -> Launcher | None:
        """The launcher for GPUs; ``None`` before the first call on one."""
        return self._launcher

    def _is_for_host(self, args: tuple[Any, ...], out: Any) -> bool:
        from taskfuse.cuda.arrays import is_on_host
        from taskfuse.cuda.outputs import outputs_given

        given = () if out is None else outputs_given(self._kernel, out)
        return all(is_on_host(a) for a in (*args, *given))

    def _simulate(self, args: tuple[Any, ...], out: Any, stream: Any, seed: int) -> tuple[Any, ...]:
        if stream is not None:
            raise LaunchError(kernel=self.kernel.name, reason="the simulator has no streams", help='leave out stream=, or use backend="cuda"')
        check_count(self.kernel, len(args))
        params = wanted(self.kernel)
        taken = [self._to_numpy(k, p, a) if isinstance(p, TensorParam) else a for k, (p, a) in enumerate(zip(params, args, strict=True))]
        symbols = self._extents(params, taken)
        if self._proof is not None and self._proof.is_open:
            self._proof.admit(symbols)
        if tables := promised(self.kernel):
            check_promises(self.kernel, ((index, table, taken[index]) for index, table in tables), symbols)
        if out is None:
            return simulate(self.kernel, taken, seed=seed)
        from taskfuse.cuda.outputs import check_host_outputs, outputs_given, store

        given = outputs_given(self.kernel, out)
        check_host_outputs(self.kernel, [a for p, a in zip(params, taken, strict=True) if isinstance(p, TensorParam)], given, self.interface.touched)
        store(self.kernel, simulate(self.kernel, taken, seed=seed), given)
        return given

    def _extents(self, params: tuple[Argument, ...], args: list[Any]) -> dict[str, int]:
        """Values of the extents. Raises :class:`InputError` for arguments that do not fit."""
        shapes: dict[str, tuple[int, ...]] = {}
        integers: dict[str, object] = {}
        for index, (param, arg) in enumerate(zip(params, args, strict=True)):
            if isinstance(param, TensorParam):
                check_rank(self.kernel, index, param, arg.ndim)
                shapes[param.name] = arg.shape
            elif isinstance(param, IntegerParam):
                integers[param.name] = arg
        try:
            return bind_symbols(self.kernel, shapes, integers=integers)
        except (ZeroDivisionError, IndexError) as error:
            raise LaunchError(kernel=self.kernel.name, reason=f"an extent has no value: {error}") from None

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
            self.interface,
            kinds(),
            arch=self._arch,
            fast_math=self._fast_math,
            debug=self._debug,
            lenient=self._debug or self._unsafe or self.schedule is not None,
            on_compile=self.dumped,
            admit=admit,
        )

    def dumped(self, source: Source, binary: Binary, arch: str) -> None:
        """Dump the stages of machine code that ``TASKFUSE_DUMP`` names."""
        from taskfuse.cuda.disassembly import sass
        from taskfuse.cuda.nvrtc import CompileOptions, compile_ptx
        from taskfuse.cuda.source import emit

        options = read_options()
        chaos = options.chaos if self._debug else None
        dump("cuda", source.name, lambda: emit(self.kernel, source.variant, self._fast_math, self._debug, chaos, locations=True).text, options)
        dump("ptx", source.name, lambda: compile_ptx(source.text, source.name, CompileOptions(arch=arch, fast_math=self._fast_math)), options)
        dump("sass", source.name, lambda: sass(binary.code), options)

    def __reduce__(self) -> tuple[Any, ...]:
        standing, settings = self.standing, (self.backend, self._arch, self._fast_math)
        if standing is None or self._debug:
            return CompiledKernel, (self.kernel, *settings, self._debug, self._unsafe, self.schedule)
        from taskfuse.runtime.proof import identity

        own = self.interface
        content = own.text, own.accessed, dict(own.vectors), own.small
        return _from_text, (content, settings, self.schedule, standing, identity(own.text, read_options()))

    def __repr__(self) -> str:
        return f"CompiledKernel({self._kernel.name!r}, backend={self.backend!r})"


def _from_text(
    content: tuple[str, frozenset[str], dict[str, int], int | None],
    settings: tuple[Backend, str | None, bool],
    schedule: Schedule | None,
    standing: Standing,
    of: str,
) -> CompiledKernel:
    """A pickled kernel, whose body is parsed on demand; it is proved again if its proof is that of other files."""
    from taskfuse.cuda.kernel_interface import interface_from_text  # only who launches or proves pays for its import
    from taskfuse.runtime.proof import identity

    known = standing if identity(content[0], read_options()) == of else None
    return CompiledKernel(interface_from_text(*content), *settings, schedule=schedule, standing=known)


@dataclass(frozen=True, slots=True)
class Maker:
    """The settings of one ``tf.compile``, for :func:`one_kernel`.

    Attributes:
        into: outputs that may be written into the array of an input, with that input: an executable of a single kernel does so if this is proved right.
    """

    backend: Backend = "auto"
    arch: str | None = None
    fast_math: bool = False
    debug: bool = False
    unsafe: bool = False
    cache: bool = True
    options: LoweringOptions = field(default_factory=LoweringOptions)
    into: tuple[tuple[str, str], ...] = ()

    def __call__(self, fusion: Fusion | Kernel, schedule: Schedule | None = None) -> Executable:
        """The executable of a fusion as it is scheduled, or of a kernel."""
        return one_kernel(
            fusion,
            self.backend,
            arch=self.arch,
            fast_math=self.fast_math,
            debug=self.debug,
            unsafe=self.unsafe,
            options=self.options,
            schedule=schedule,
        )

    def in_place(self, run: Executable, into: Sequence[tuple[int, int]], least: int | None = None) -> Executable:
        """The executable of one kernel that writes outputs into the arrays of inputs, as many as are proved right, where inputs are read as soon as may be.

        Args:
            into: numbers of outputs, each with that of an input.
            least: how many are tried alone, where not all are at once: by default so many that there are few proofs.
        """
        if not isinstance(run, CompiledKernel) or not into:
            return run
        inputs, outputs = run.kernel.inputs, run.kernel.outputs
        sources = {outputs[k].name: inputs[source].name for k, source in into}
        kernel = replace(
            run.kernel, params=tuple(replace(p, into=sources[p.name]) if isinstance(p, TensorParam) and p.name in sources else p for p in run.kernel.params)
        )
        for form in (kernel, ReadEarly(frozenset(sources.values())).run(kernel)):
            if _is_proved(form):
                return run.of(form)
        least, half = max(len(into) // SHARE_ALONE, 1) if least is None else least, len(into) // 2
        return run if half < least else self.in_place(self.in_place(run, into[:half], least), into[half:], least)

    def remembered(self, interface: KernelInterface, schedule: Schedule | None, standing: Standing) -> CompiledKernel:
        """The executable of a kernel that another process has lowered and proved."""
        backend = read_options().backend if self.backend == "auto" else self.backend
        return CompiledKernel(interface, backend, self.arch, self.fast_math, schedule=schedule, standing=standing)

    @property
    def remembers(self) -> bool:
        """Whether its executables may come from disk: debug builds contain locations, and unsafe ones have no proof."""
        return self.cache and not (self.debug or self.unsafe)

    @property
    def asked(self) -> tuple[object, ...]:
        """The inputs of its kernels besides the fusion."""
        return self.backend, self.arch, self.fast_math, self.options, self.into


def _is_proved(kernel: Kernel) -> bool:
    """Whether a kernel that a pass made is one, and proved."""
    try:
        return kernel.verify().is_proved
    except VerifyError:
        return False


def check_backend(backend: str) -> None:
    """Raise :class:`UnsupportedError` if the backend does not exist."""
    if backend not in BACKENDS:
        help = f"use one of {', '.join(BACKENDS)}"
        raise UnsupportedError(what=f"backend {shown(backend)}", reason="there is no such backend", help=help, location=caller())


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
    """:func:`taskfuse.compile` of a kernel, or of a fusion as it is scheduled.

    Args:
        schedule: what scheduled it.
    """
    check_backend(backend)
    settings = read_options()
    if isinstance(fusion, Kernel):
        kernel = fusion
        kernel.check_ir()
    else:
        dump("fusion", fusion.name, lambda: str(fusion), settings)
        kernel = lower(fusion, options or LoweringOptions(), dumper(settings) if settings.dump_steps else None)
    dump("kernel", kernel.name, lambda: str(kernel), settings)
    return CompiledKernel(kernel, settings.backend if backend == "auto" else backend, arch, fast_math, debug, unsafe, schedule)
