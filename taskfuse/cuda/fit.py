"""Checking that a GPU can run a kernel: its launch shape against the limits of the target, of the device and of the loaded kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from taskfuse.cuda.cache import compile_quietly, compiled
from taskfuse.cuda.carried_code import carried, packed
from taskfuse.cuda.driver import Device, Driver, Function
from taskfuse.cuda.emitted import emitted
from taskfuse.cuda.kernel_interface import KernelInterface
from taskfuse.cuda.nvrtc import CompileOptions
from taskfuse.cuda.resources import occupancy
from taskfuse.cuda.signature import Source
from taskfuse.errors import CudaUnavailableError, LaunchError, TaskfuseError, UnsupportedError
from taskfuse.free_cores import free_cores
from taskfuse.ir.scalar import Expr
from taskfuse.kir import Kernel
from taskfuse.kir.arguments import integer
from taskfuse.options import read_options
from taskfuse.reports.resources import LaunchShape
from taskfuse.target import MAX_GRID, PLAIN_SHARED, PORTABLE_CLUSTER, Target

BESIDE = 2
"""Kernels that are compiled at once beside a search."""


def refused(kernel: Kernel, reason: str, help: str | None = None) -> LaunchError:
    """The error for a launch that a GPU cannot run."""
    return LaunchError(kernel=kernel.name, reason=reason, help=help)


def check_code(interface: KernelInterface, target: Target, arch: str | None, fast_math: bool) -> None:
    """Check that a GPU can run a kernel, as far as this is known before there are arrays: it is compiled, and if its launch shape is constant, a multiprocessor
    can hold a block, and all multiprocessors all blocks that wait for each other.

    Args:
        arch: architecture to compile for; ``None``: that of ``target``.

    Raises:
        LaunchError: the GPU cannot run it.
        CudaCompileError, UnsupportedError: its text cannot be emitted or compiled.
    """
    settings, kernel = read_options(), interface.head
    source, options = _emitted(interface, target, arch, fast_math)
    with suppress(CudaUnavailableError):  # nobody is there to ask
        resources = (carried(interface, source, options, settings) or compiled(source.text, source.name, options, settings)).resources
        if resources is None or any(e.free for e in (*kernel.grid, *kernel.block, source.shared_bytes)):
            return
        shape = launch_shape(kernel, source, {})
        for axis, blocks, most in zip("xyz", shape.grid, MAX_GRID, strict=True):
            if blocks > most:
                raise refused(kernel, f"{blocks} blocks in {axis}; a grid has at most {most}")
        held = target.sms * occupancy(resources, shape.threads, shape.shared_bytes, target.arch)
        if shape.threads and not held:
            taken = f"{resources.registers} registers of each of {shape.threads} threads, {shape.shared_bytes} bytes of Shared memory"
            raise refused(kernel, f"no multiprocessor holds a block: {taken}")
        if kernel.is_cooperative and math.prod(shape.grid) > held:
            raise refused(kernel, f"its {math.prod(shape.grid)} blocks wait for each other, and {target.name} holds {held} of them at once")


def lost_registers(interface: KernelInterface, target: Target, arch: str | None, fast_math: bool) -> float:
    """How far the machine code of a kernel breaks its register budget: the bytes that a thread stores and loads because registers spill, and those of arrays
    that are in local memory instead of registers; infinite if ``wgmma`` waits for its registers, or ``setmaxnreg`` is ignored.

    Args:
        arch: what to compile for; ``None``: for ``target``.

    Raises:
        CudaCompileError, CudaUnavailableError, UnsupportedError: there is no machine code.
    """
    settings = read_options()
    source, options = _emitted(interface, target, arch, fast_math)
    binary = carried(interface, source, options, settings) or compile_quietly(source.text, source.name, options, settings)
    if any(d.of_registers and not d.of_spills for d in binary.diagnostics):
        return math.inf
    found = binary.resources
    return 0.0 if found is None else float(found.spill_stores + found.spill_loads + found.local_arrays)


def packed_code(interface: KernelInterface, target: Target, arch: str | None, fast_math: bool) -> dict[str, Any] | None:
    """The machine code of a kernel, as :func:`taskfuse.cuda.carried_code.packed` gives it; ``None`` if none was made yet, or there is none."""
    if not any(known == fast_math for _, known in interface.texts):
        return None
    return packed(*_emitted(interface, target, arch, fast_math))


class Ahead:
    """Kernels that are compiled on other threads, with the arguments that :func:`check_code` will use, which waits for them and reports their errors.

    Args:
        arch: architecture to compile for; ``None``: that of ``target``.
    """

    def __init__(self, target: Target, arch: str | None, fast_math: bool) -> None:
        self._arguments = target, arch, fast_math
        self._settings = read_options()
        self._pool: ThreadPoolExecutor | None = None

    def begin(self, kernel: KernelInterface) -> None:
        """Have a kernel compiled beside what this thread does, if another core is free. Half of what searches make is not taken: at most :data:`BESIDE` are
        compiled at once, and the others wait."""
        count = self._cores()
        if count > 1:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(min(BESIDE, count - 1), thread_name_prefix="taskfuse compiles")
            self._submit(self._pool, kernel)

    def keep(self, kernels: Sequence[KernelInterface]) -> None:
        """Compile these, if they are several, on all free cores, and wait for them. No other is begun any more."""
        self.end()
        count = self._cores()
        if len(kernels) > 1 and count > 1:
            with ThreadPoolExecutor(min(len(kernels), count)) as pool:
                for kernel in kernels:
                    self._submit(pool, kernel)

    def end(self) -> None:
        """Compile no more kernels than those that are being compiled."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _cores(self) -> int:
        return 1 if self._settings.always_compile else free_cores()

    def _submit(self, pool: ThreadPoolExecutor, kernel: KernelInterface) -> None:
        with suppress(UnsupportedError):
            pool.submit(self._compile, *_emitted(kernel, *self._arguments))

    def _compile(self, source: Source, options: CompileOptions) -> None:
        with suppress(TaskfuseError):
            compile_quietly(source.text, source.name, options, self._settings)


def _emitted(interface: KernelInterface, target: Target, arch: str | None, fast_math: bool) -> tuple[Source, CompileOptions]:
    source = emitted(interface, interface.dense, fast_math, False, read_options())
    wanted = arch or f"sm_{target.capability}{'a' if source.feature_arch else ''}"
    return source, CompileOptions(arch=wanted, fast_math=fast_math)


def launch_shape(kernel: Kernel, source: Source, symbols: Mapping[str, int]) -> LaunchShape:
    """The launch shape for given extents. Raises :class:`LaunchError` if it has no value."""

    def three(exprs: tuple[Expr, Expr, Expr]) -> tuple[int, int, int]:
        x, y, z = (max(integer(e, symbols), 0) for e in exprs)
        return x, y, z

    try:
        return LaunchShape(three(kernel.grid), three(kernel.block), three(kernel.cluster), integer(source.shared_bytes, symbols))
    except (ZeroDivisionError, IndexError) as error:
        raise refused(kernel, f"its launch shape has no value: {error}") from None


def check_limits(kernel: Kernel, device: Device, shape: LaunchShape) -> None:
    """Check that a launch of this shape is within the limits of a device, whatever the kernel. Raises :class:`LaunchError`."""
    if shape.threads > device.max_threads:
        raise refused(kernel, f"{shape.threads} threads per block; a block of {device.name} has at most {device.max_threads}")
    for axis, found, most in zip("xyz", shape.block, device.max_block, strict=True):
        if found > most:
            raise refused(kernel, f"{found} threads per block in {axis}; {device.name} has at most {most}")
    for axis, found, most in zip("xyz", shape.grid, device.max_grid, strict=True):
        if found > most:
            help = "parallelize the longest axis with BIDx, or split it" if axis != "x" else None
            raise refused(kernel, f"{found} blocks in {axis}; {device.name} has at most {most}", help)
    for axis, found, size in zip("xyz", shape.grid, shape.cluster, strict=True):
        if size < 1 or found % size:
            raise refused(kernel, f"{found} blocks in {axis} are not whole clusters of {size}")


def prepare(driver: Driver, kernel: Kernel, device: Device, function: Function, source: Source, shape: LaunchShape) -> None:
    """Checks that need the loaded kernel, and the kernel's settings for launches of this shape. Raises :class:`LaunchError`."""
    shared = shape.shared_bytes
    if shape.threads > function.max_threads:
        reason = f"{shape.threads} threads per block; its registers allow {function.max_threads}"
        raise refused(kernel, reason, "give it fewer threads, or fewer values in registers")
    if shared + function.static_shared > device.max_shared:
        reason = f"{shared + function.static_shared} bytes of Shared memory per block; {device.name} has {device.max_shared}"
        raise refused(kernel, reason, "use smaller tiles or fewer stages")
    with driver.current(device):
        if shared + function.static_shared > PLAIN_SHARED:
            driver.allow_shared(function, shared)
        blocks = math.prod(shape.cluster)
        if blocks > 1:
            if blocks > PORTABLE_CLUSTER:
                driver.allow_large_clusters(function)
            if not driver.resident_clusters(function, shape.grid, shape.block, shape.cluster, shared):
                raise refused(kernel, f"{device.name} holds no cluster of {blocks} such blocks", "use smaller clusters, or blocks with less Shared memory")
        if source.cooperative:
            _check_resident(driver, kernel, device, function, shape)


def _check_resident(driver: Driver, kernel: Kernel, device: Device, function: Function, shape: LaunchShape) -> None:
    """Blocks that wait for each other are all resident at once."""
    blocks = math.prod(shape.grid)
    if not device.cooperative:
        raise refused(kernel, f"its blocks wait for each other, and {device.name} does not launch cooperatively")
    fitting = device.multiprocessors * driver.resident_blocks(function, shape.threads, shape.shared_bytes)
    if blocks > fitting:
        reason = f"its {blocks} blocks wait for each other, and {device.name} holds {fitting} of them at once"
        raise refused(kernel, reason, "use fewer blocks, each with more work, or blocks with fewer threads or less Shared memory")
