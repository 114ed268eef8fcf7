"""The CUDA driver: the calls that launches need, with the errors of taskfuse.

The calls go through ``ctypes`` to libcuda itself: a first call need not import the 5 MB of ``cuda.bindings.driver``, and a launch with
prepared arguments costs less than through any binding.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NamedTuple

from taskfuse.cuda.abi import (
    ATTRIBUTE,
    CAPTURE_RELAXED,
    CLUSTER_DIMENSION,
    CONFIG,
    EVENT_DEFAULT,
    EVENT_DISABLE_TIMING,
    L2_PROMOTION_128B,
    MEMHOSTALLOC_DEVICEMAP,
    MEMHOSTALLOC_PORTABLE,
    POINTER_DEVICE_ORDINAL,
    PROTOTYPES,
    SWIZZLES,
    DeviceAttribute,
    FunctionAttribute,
    MapType,
)
from taskfuse.errors import CudaError, CudaUnavailableError

Launch = Callable[[], int]
"""A launch with prepared arguments. Returns the unchecked result of cuLaunchKernelEx."""


class Device(NamedTuple):
    """A GPU and its limits.

    Attributes:
        ordinal: its number.
        context: handle of its primary context, retained.
        arch: compute capability, times ten.
        max_threads: the most threads of a block.
        max_block, max_grid: launch dimensions (x, y, z).
        max_shared: the most bytes of Shared memory of a block, after opting in.
        multiprocessors: their number.
        cooperative: true if it supports cooperative launches, whose blocks are all resident at once.
    """

    ordinal: int
    name: str
    context: int
    arch: int
    max_threads: int
    max_block: tuple[int, int, int]
    max_grid: tuple[int, int, int]
    max_shared: int
    multiprocessors: int
    cooperative: bool


class Function(NamedTuple):
    """A loaded kernel.

    Attributes:
        handle: its ``CUfunction`` in the primary context of its device.
        max_threads: threads of a block that its registers allow.
        static_shared: its bytes of static Shared memory.
        arch: the virtual architecture that it was compiled for, times ten: 90.
    """

    handle: int
    name: str
    max_threads: int
    static_shared: int
    arch: int


class Driver:
    """The driver of this process. Methods raise :class:`CudaError`; those that take a stream take its handle.

    Args:
        library: libcuda, initialized; its functions take what :data:`~taskfuse.cuda.abi.PROTOTYPES` says.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._devices: dict[int, Device] = {}
        self._streams: dict[int, int] = {}
        self._shared: dict[int, int] = {}
        self._functions: dict[tuple[int, str, bytes], Function] = {}
        # without types of parameters: for prepared arguments, which need no conversion
        self._prepared_launch: Any = ctypes.CFUNCTYPE(ctypes.c_int)(("cuLaunchKernelEx", library))
        self._prepared_get_context: Any = ctypes.PYFUNCTYPE(ctypes.c_int)(("cuCtxGetCurrent", library))

    # -- the path of every launch ---------------------------------------------------------------------------------------------------------

    def launch(self, function: int, config: int, parameters: int) -> Launch:
        """A launch of the kernel ``function``, to be called as often as wanted. Other threads run meanwhile: it may wait for room in the stream.

        Args:
            config: address of a CUlaunchConfig.
            parameters: address of the array of the parameters' addresses. All is read during the call.
        """
        return partial(self._prepared_launch, _at(config), _at(function), _at(parameters), None)

    def get_context(self, address: int) -> Launch:
        """A call that stores the handle of the calling thread's current context, or 0, at ``address``."""
        return partial(self._prepared_get_context, _at(address))

    def replace_address(self, tensor_map: int, address: int) -> int:
        """Set the address of the array in the tensor map at ``tensor_map``; returns the driver's unchecked result."""
        return self._library.cuTensorMapReplaceAddress(tensor_map, address)

    def fill(self, address: int, value: int, size: int, stream: int) -> int:
        """Set ``size`` bytes on the GPU to ``value`` in ``stream``; returns the driver's unchecked result."""
        return self._library.cuMemsetD8Async(address, value, size, stream)

    # -- devices and code -----------------------------------------------------------------------------------------------------------------

    def version(self) -> tuple[int, int]:
        """The newest CUDA version that the driver supports: (13, 0)."""
        number = self._integer("cuDriverGetVersion")
        return number // 1000, number % 1000 // 10

    def device_count(self) -> int:
        """The number of GPUs."""
        return self._integer("cuDeviceGetCount")

    def current_device(self) -> int:
        """The device of this thread's current context; 0 without a context."""
        return self._integer("cuCtxGetDevice") if self._handle("cuCtxGetCurrent") else 0

    def device(self, ordinal: int) -> Device:
        """The GPU with number ``ordinal``; its primary context is retained for good."""
        with self._lock:
            found = self._devices.get(ordinal)
            if found is None:
                found = self._devices[ordinal] = self._describe(ordinal)
        return found

    def _describe(self, ordinal: int) -> Device:
        handle = self._integer("cuDeviceGet", ordinal)
        name = ctypes.create_string_buffer(128)
        self._call("cuDeviceGetName", name, len(name), handle)
        attributes = {a: self._integer("cuDeviceGetAttribute", a.value, handle) for a in DeviceAttribute}
        of = DeviceAttribute
        return Device(
            ordinal=ordinal,
            name=name.value.decode(),
            context=self._handle("cuDevicePrimaryCtxRetain", handle),
            arch=10 * attributes[of.COMPUTE_CAPABILITY_MAJOR] + attributes[of.COMPUTE_CAPABILITY_MINOR],
            max_threads=attributes[of.MAX_THREADS_PER_BLOCK],
            max_block=(attributes[of.MAX_BLOCK_DIM_X], attributes[of.MAX_BLOCK_DIM_Y], attributes[of.MAX_BLOCK_DIM_Z]),
            max_grid=(attributes[of.MAX_GRID_DIM_X], attributes[of.MAX_GRID_DIM_Y], attributes[of.MAX_GRID_DIM_Z]),
            max_shared=attributes[of.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN],
            multiprocessors=attributes[of.MULTIPROCESSOR_COUNT],
            cooperative=bool(attributes[of.COOPERATIVE_LAUNCH]),
        )

    @contextmanager
    def current(self, device: Device) -> Generator[None]:
        """A context manager that makes the primary context of ``device`` current, and restores the previous one."""
        self._call("cuCtxPushCurrent_v2", device.context)
        try:
            yield
        finally:
            self._handle("cuCtxPopCurrent_v2")

    def is_current(self, device: Device) -> bool:
        """True if the primary context of ``device`` is this thread's current one."""
        return self._handle("cuCtxGetCurrent") == device.context

    def function(self, device: Device, code: bytes, name: str) -> Function:
        """The kernel ``name`` of the cubin ``code`` on ``device``, loaded once per process; it is never unloaded."""
        key = (device.ordinal, name, code)
        with self._lock:
            found = self._functions.get(key)
            if found is None:
                with self.current(device):
                    module = self._handle("cuModuleLoadData", code)
                    handle = self._handle("cuModuleGetFunction", module, name.encode())
                    threads, static, arch = (
                        self._integer("cuFuncGetAttribute", a.value, handle)
                        for a in (FunctionAttribute.MAX_THREADS_PER_BLOCK, FunctionAttribute.SHARED_SIZE_BYTES, FunctionAttribute.PTX_VERSION)
                    )
                    found = self._functions[key] = Function(handle, name, threads, static, arch)
        return found

    def allow_shared(self, function: Function, size: int) -> None:
        """Let launches of ``function`` take ``size`` bytes of dynamic Shared memory, or more: needed above 48 KB. Its context must be current."""
        with self._lock:
            if size > self._shared.get(function.handle, 0):
                self._call("cuFuncSetAttribute", function.handle, FunctionAttribute.MAX_DYNAMIC_SHARED_SIZE_BYTES.value, size)
                self._shared[function.handle] = size

    def allow_large_clusters(self, function: Function) -> None:
        """Let launches of ``function`` have clusters of more than 8 blocks. Its context must be current."""
        self._call("cuFuncSetAttribute", function.handle, FunctionAttribute.NON_PORTABLE_CLUSTER_SIZE_ALLOWED.value, 1)

    def resident_blocks(self, function: Function, threads: int, shared: int) -> int:
        """Blocks of ``function`` that a multiprocessor holds at once. Its context must be current."""
        return self._integer("cuOccupancyMaxActiveBlocksPerMultiprocessor", function.handle, threads, shared)

    def resident_clusters(self, function: Function, grid: Sequence[int], block: Sequence[int], cluster: Sequence[int], shared: int) -> int:
        """Clusters of ``function`` that the GPU holds at once. Its context must be current."""
        attribute = ctypes.create_string_buffer(ATTRIBUTE.pack(CLUSTER_DIMENSION, *cluster), ATTRIBUTE.size)
        config = CONFIG.pack(*grid, *block, shared, 0, ctypes.addressof(attribute), 1)
        return self._integer("cuOccupancyMaxActiveClusters", function.handle, ctypes.create_string_buffer(config, CONFIG.size))

    def tensor_map(
        self, dtype: MapType, address: int, shape: Sequence[int], strides: Sequence[int], box: Sequence[int], swizzle: int, element_steps: Sequence[int]
    ) -> bytes:
        """An encoded tensor map: tiled, not interleaved, elements outside read 0, 128 bytes promoted to L2.

        Args:
            shape, box, element_steps: innermost axis first. ``box``: elements of a transfer; ``element_steps``: their distance in elements of the tensor.
            strides: in bytes, of all axes but the innermost, in the same order.
            swizzle: 0, 32, 64 or 128 bytes.
        """
        place = ctypes.create_string_buffer(128 + 64)
        begin = -(-ctypes.addressof(place) // 64) * 64  # the driver wants it aligned
        extents = (ctypes.c_uint64 * len(shape))(*shape)
        steps = (ctypes.c_uint64 * len(shape))(*strides)
        boxes = (ctypes.c_uint32 * len(shape))(*(n * step for n, step in zip(box, element_steps, strict=True)))  # the driver divides, rounding up
        arrays = extents, steps, boxes, (ctypes.c_uint32 * len(shape))(*element_steps)
        self._call("cuTensorMapEncodeTiled", begin, dtype.value, len(shape), address, *arrays, 0, SWIZZLES[swizzle], L2_PROMOTION_128B, 0)
        return ctypes.string_at(begin, 128)

    # -- memory and streams ---------------------------------------------------------------------------------------------------------------

    def allocate(self, size: int, stream: int) -> int:
        """Address of ``size`` bytes of the current device, usable by later work of ``stream``. Zero bytes: address 0."""
        return self._handle("cuMemAllocAsync", size, stream) if size else 0

    def free(self, address: int, stream: int) -> None:
        """Free memory after all previous work of ``stream``."""
        if address:
            self._call("cuMemFreeAsync", address, stream)

    def copy_to_device(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy ``size`` bytes from the host's address ``source`` in ``stream``."""
        if size:
            self._call("cuMemcpyHtoDAsync_v2", target, source, size, stream)

    def copy_to_host(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy ``size`` bytes to the host's address ``target`` in ``stream``."""
        if size:
            self._call("cuMemcpyDtoHAsync_v2", target, source, size, stream)

    def host_buffer(self, size: int) -> int:
        """Address of ``size`` bytes of host memory that the current device can write, at the same address."""
        return self._handle("cuMemHostAlloc", size, MEMHOSTALLOC_DEVICEMAP | MEMHOSTALLOC_PORTABLE)

    def device_of(self, address: int) -> int:
        """The device that an address belongs to."""
        return self._integer("cuPointerGetAttribute", POINTER_DEVICE_ORDINAL, address)

    def own_stream(self, device: Device) -> int:
        """A stream of taskfuse on ``device``, ordered with the legacy default stream there."""
        with self._lock:
            found = self._streams.get(device.ordinal)
            if found is None:
                with self.current(device):
                    found = self._streams[device.ordinal] = self._handle("cuStreamCreate", 0)
        return found

    def order(self, before: int, after: int) -> None:
        """Let later work of stream ``after`` wait for previous work of stream ``before``. Both belong to the current device."""
        if before == after:
            return
        event = self._handle("cuEventCreate", EVENT_DISABLE_TIMING)
        try:
            self._call("cuEventRecord", event, before)
            self._call("cuStreamWaitEvent", after, event, 0)
        finally:
            self._call("cuEventDestroy_v2", event)

    def synchronize(self, stream: int) -> None:
        """Wait until all work of ``stream`` is done."""
        self._call("cuStreamSynchronize", stream)

    def is_capturing(self, stream: int) -> bool:
        """True while ``stream`` records a CUDA graph."""
        found = ctypes.c_int()
        self._call("cuStreamIsCapturing", stream, ctypes.byref(found))
        return found.value != 0

    # -- graphs and time ------------------------------------------------------------------------------------------------------------------

    @contextmanager
    def captured(self, stream: int, record: Callable[[], object]) -> Generator[int]:
        """An instantiated CUDA graph of the work that ``record`` submits to ``stream``, which is not a default stream."""
        self._call("cuStreamBeginCapture_v2", stream, CAPTURE_RELAXED)
        try:
            record()
        finally:
            graph = self._handle_behind("cuStreamEndCapture", stream)
        try:
            ready = self._handle("cuGraphInstantiateWithFlags", graph, 0)
        finally:
            self._call("cuGraphDestroy", graph)
        try:
            yield ready
        finally:
            self._call("cuGraphExecDestroy", ready)

    def replay(self, graph: int, stream: int) -> float:
        """Run ``graph`` in ``stream``, wait for it, and return its time in microseconds."""
        start = self._handle("cuEventCreate", EVENT_DEFAULT)
        end = self._handle("cuEventCreate", EVENT_DEFAULT)
        try:
            self._call("cuEventRecord", start, stream)
            self._call("cuGraphLaunch", graph, stream)
            self._call("cuEventRecord", end, stream)
            self._call("cuEventSynchronize", end)
            found = ctypes.c_float()
            self._call("cuEventElapsedTime", ctypes.byref(found), start, end)
        finally:
            self._call("cuEventDestroy_v2", start)
            self._call("cuEventDestroy_v2", end)
        return found.value * 1e3

    # -- errors ---------------------------------------------------------------------------------------------------------------------------

    def error(self, code: int, what: str, notes: tuple[str, ...] = (), help: str | None = None) -> CudaError:
        """The error for the driver's result ``code``."""
        name = _said(self._library, "cuGetErrorName", code) or f"CUresult {code}"
        return CudaError(what=what, name=name, reason=_said(self._library, "cuGetErrorString", code) or "unknown error", notes=notes, help=help)

    def _call(self, name: str, *args: object) -> None:
        status = getattr(self._library, name)(*args)
        if status:
            raise self.error(status, name.partition("_")[0])

    def _integer(self, name: str, *args: object) -> int:
        """The 32-bit integer that a call stores where its first parameter says."""
        found = ctypes.c_int()
        self._call(name, ctypes.byref(found), *args)
        return found.value

    def _handle_behind(self, name: str, *args: object) -> int:
        """The handle that a call stores where its last parameter says."""
        found = ctypes.c_void_p()
        self._call(name, *args, ctypes.byref(found))
        return found.value or 0

    def _handle(self, name: str, *args: object) -> int:
        """The handle or address that a call stores where its first parameter says; 0: none."""
        found = ctypes.c_void_p()
        self._call(name, ctypes.byref(found), *args)
        return found.value or 0


@cache
def driver() -> Driver:
    """The driver, loaded and initialized by the first call.

    Raises:
        CudaUnavailableError: no driver is installed, or it finds no GPU.
    """
    return Driver(load_library())


def load_library() -> ctypes.CDLL:
    """The driver's library, with the types of its functions. Raises :class:`CudaUnavailableError` as :func:`driver` does."""
    help = 'use backend="sim", or run on a machine with an NVIDIA GPU'
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError as error:
        raise CudaUnavailableError(what="the CUDA driver", reason="libcuda is not on this machine", help=help) from error
    for name, types in PROTOTYPES.items():
        try:
            getattr(library, name).argtypes = types
        except AttributeError as error:
            reason = f"it has no {name}"
            raise CudaUnavailableError(what="a CUDA driver of version 12.0 or newer", reason=reason, help='update it, or use backend="sim"') from error
    status = library.cuInit(0)
    if status:
        said = _said(library, "cuGetErrorName", status) or f"CUresult {status}"
        raise CudaUnavailableError(what="a GPU", reason=f"the driver does not start: {said}", help=help)
    count = ctypes.c_int()
    if library.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        raise CudaUnavailableError(what="a GPU", reason="the driver finds none", help=help)
    return library


def _said(library: ctypes.CDLL, name: str, code: int) -> str:
    """The driver's text for a result; empty for an unknown one."""
    found = ctypes.c_char_p()
    getattr(library, name)(code, ctypes.byref(found))
    return (found.value or b"").decode()


def _at(address: int) -> object:
    """``address`` as an argument that needs no conversion. It is not read."""
    return ctypes.byref(ctypes.c_char.from_address(address))
