"""The CUDA driver: the calls that launching needs, with our errors.

``cuda.bindings`` makes all calls but four. Those stand on the path of every launch, where its conversion of arguments costs more than the
call: they go through ``ctypes`` on the addresses that the driver itself gives, with addresses of structures that were filled in before.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

from taskfuse.errors import CudaError, CudaUnavailableError

LaunchCall = Callable[[int, int, int, None], int]
"""cuLaunchKernelEx(CUlaunchConfig*, CUfunction, void** parameters, NULL) -> CUresult"""

FIRST_TYPED_DRIVER = 12000  # cuGetProcAddress: the interface as of CUDA 12.0, the first with tensor maps and clusters


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU and its limits.

    Attributes:
        ordinal: its number.
        context: handle of its primary context, retained.
        arch: compute capability, times ten.
        max_threads: threads of a block.
        max_block, max_grid: launch dimensions (x, y, z).
        max_shared: bytes of Shared memory of a block, after opting in.
        multiprocessors: their number.
        cooperative: true if a launch can make all its blocks resident at once.
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


@dataclass(frozen=True, slots=True)
class Function:
    """A loaded kernel.

    Attributes:
        handle: its ``CUfunction`` in the primary context of its device.
        max_threads: threads of a block that its registers allow.
        static_shared: bytes of Shared memory that it takes beside the dynamic ones.
    """

    handle: int
    name: str
    max_threads: int
    static_shared: int


class MapType(Enum):
    """Element types of tensor maps, by their names in ``CUtensorMapDataType``."""

    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    INT32 = "INT32"
    UINT64 = "UINT64"
    INT64 = "INT64"
    FLOAT16 = "FLOAT16"
    FLOAT32 = "FLOAT32"
    FLOAT64 = "FLOAT64"
    BFLOAT16 = "BFLOAT16"


class Driver:
    """The driver of this process. Methods raise :class:`CudaError`; those that take a stream take its handle as an integer.

    Attributes:
        launch: cuLaunchKernelEx; the result is not checked.
        get_context: cuCtxGetCurrent(CUcontext*); the result is not checked.
        replace_address: cuTensorMapReplaceAddress(CUtensorMap*, void*); the result is not checked.
        fill: cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream); the result is not checked.
    """

    launch: LaunchCall
    get_context: Callable[[int], int]
    replace_address: Callable[[int, int], int]
    fill: Callable[[int, int, int, int], int]

    def __init__(self) -> None:
        self._api = _load()
        self._lock = threading.Lock()
        self._devices: dict[int, Device] = {}
        self._streams: dict[int, int] = {}
        self._shared: dict[int, int] = {}
        self._functions: dict[tuple[int, str, bytes], Function] = {}
        pointer, result = ctypes.c_void_p, ctypes.c_int
        # CFUNCTYPE lets other threads run during the call; a launch may wait for room in the stream
        self.launch = ctypes.CFUNCTYPE(result, pointer, pointer, pointer, pointer)(self._address("cuLaunchKernelEx"))
        self.get_context = ctypes.PYFUNCTYPE(result, pointer)(self._address("cuCtxGetCurrent"))
        self.replace_address = ctypes.PYFUNCTYPE(result, pointer, pointer)(self._address("cuTensorMapReplaceAddress"))
        self.fill = ctypes.CFUNCTYPE(result, pointer, ctypes.c_ubyte, ctypes.c_size_t, pointer)(self._address("cuMemsetD8Async"))

    # -- devices and code ---------------------------------------------------------------------------------------------------------------

    def version(self) -> tuple[int, int]:
        """The newest CUDA version that the driver supports: (13, 0)."""
        number = int(self._call("cuDriverGetVersion"))
        return number // 1000, number % 1000 // 10

    def device_count(self) -> int:
        """How many GPUs there are."""
        return int(self._call("cuDeviceGetCount"))

    def current_device(self) -> int:
        """The device of this thread's current context; 0 if there is none."""
        context = int(self._call("cuCtxGetCurrent"))
        return int(self._call("cuCtxGetDevice")) if context else 0

    def device(self, ordinal: int) -> Device:
        """The GPU with number ``ordinal``; its primary context is retained for good."""
        with self._lock:
            found = self._devices.get(ordinal)
            if found is None:
                found = self._devices[ordinal] = self._describe(ordinal)
        return found

    def _describe(self, ordinal: int) -> Device:
        handle = self._call("cuDeviceGet", ordinal)
        attributes = self._api.CUdevice_attribute

        def attribute(name: str) -> int:
            return int(self._call("cuDeviceGetAttribute", getattr(attributes, f"CU_DEVICE_ATTRIBUTE_{name}"), handle))

        def three(name: str) -> tuple[int, int, int]:
            return attribute(f"{name}_X"), attribute(f"{name}_Y"), attribute(f"{name}_Z")

        return Device(
            ordinal=ordinal,
            name=self._call("cuDeviceGetName", 128, handle).split(b"\0")[0].decode(),
            context=int(self._call("cuDevicePrimaryCtxRetain", handle)),
            arch=10 * attribute("COMPUTE_CAPABILITY_MAJOR") + attribute("COMPUTE_CAPABILITY_MINOR"),
            max_threads=attribute("MAX_THREADS_PER_BLOCK"),
            max_block=three("MAX_BLOCK_DIM"),
            max_grid=three("MAX_GRID_DIM"),
            max_shared=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            multiprocessors=attribute("MULTIPROCESSOR_COUNT"),
            cooperative=bool(attribute("COOPERATIVE_LAUNCH")),
        )

    @contextmanager
    def current(self, device: Device) -> Generator[None]:
        """Make the primary context of ``device`` the current one, and the one before it again at the end."""
        self.push(device)
        try:
            yield
        finally:
            self.pop()

    def push(self, device: Device) -> None:
        """Make the primary context of ``device`` the current one until :meth:`pop`."""
        self._call("cuCtxPushCurrent", self._api.CUcontext(device.context))

    def pop(self) -> None:
        """Make the context before the last :meth:`push` the current one."""
        self._call("cuCtxPopCurrent")

    def function(self, device: Device, code: bytes, name: str) -> Function:
        """The kernel ``name`` of the cubin ``code`` on ``device``, loaded once per process; it is never unloaded."""
        key = (device.ordinal, name, code)
        with self._lock:
            found = self._functions.get(key)
            if found is None:
                with self.current(device):
                    module = self._call("cuModuleLoadData", code)
                    handle = self._call("cuModuleGetFunction", module, name.encode())
                    threads = self._attribute(handle, "MAX_THREADS_PER_BLOCK")
                    found = Function(int(handle), name, threads, self._attribute(handle, "SHARED_SIZE_BYTES"))
                self._functions[key] = found
        return found

    def _attribute(self, handle: Any, name: str) -> int:
        return int(self._call("cuFuncGetAttribute", getattr(self._api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}"), handle))

    def allow_shared(self, function: Function, size: int) -> None:
        """Let launches of ``function`` take ``size`` bytes of dynamic Shared memory, or more: needed above 48 KB. Its context must be current."""
        with self._lock:
            if size > self._shared.get(function.handle, 0):
                self._set(function, "MAX_DYNAMIC_SHARED_SIZE_BYTES", size)
                self._shared[function.handle] = size

    def allow_large_clusters(self, function: Function) -> None:
        """Let launches of ``function`` have clusters of more than 8 blocks. Its context must be current."""
        self._set(function, "NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)

    def _set(self, function: Function, name: str, value: int) -> None:
        attribute = getattr(self._api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        self._call("cuFuncSetAttribute", self._api.CUfunction(function.handle), attribute, value)

    def resident_blocks(self, function: Function, threads: int, shared: int) -> int:
        """Blocks of ``function`` that a multiprocessor holds at once. Its context must be current."""
        return int(self._call("cuOccupancyMaxActiveBlocksPerMultiprocessor", self._api.CUfunction(function.handle), threads, shared))

    def resident_clusters(self, function: Function, grid: Sequence[int], block: Sequence[int], cluster: Sequence[int], shared: int) -> int:
        """Clusters of ``function`` that the GPU holds at once. Its context must be current."""
        config = self._api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes = shared
        attribute = self._api.CUlaunchAttribute()
        attribute.id = self._api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = cluster
        config.attrs = [attribute]
        config.numAttrs = 1
        return int(self._call("cuOccupancyMaxActiveClusters", self._api.CUfunction(function.handle), config))

    def tensor_map(self, dtype: MapType, address: int, shape: Sequence[int], strides: Sequence[int], box: Sequence[int], swizzle: int) -> bytes:
        """An encoded tensor map: tiled, not interleaved, elements outside read 0, 128 bytes promoted to L2.

        Args:
            shape, box: innermost axis first.
            strides: in bytes, of all axes but the innermost, in the same order.
            swizzle: 0, 32, 64 or 128 bytes.
        """
        api = self._api
        found = self._call(
            "cuTensorMapEncodeTiled",
            getattr(api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{dtype.value}"),
            len(shape),
            address,
            [api.cuuint64_t(n) for n in shape],
            [api.cuuint64_t(n) for n in strides or (16,)],  # no null pointer where there are none
            [api.cuuint32_t(n) for n in box],
            [api.cuuint32_t(1) for _ in box],
            api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(api.CUtensorMapSwizzle, "CU_TENSOR_MAP_SWIZZLE_" + (f"{swizzle}B" if swizzle else "NONE")),
            api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        return ctypes.string_at(int(found.getPtr()), 128)

    # -- memory and streams -------------------------------------------------------------------------------------------------------------

    def allocate(self, size: int, stream: int) -> int:
        """Address of ``size`` bytes of the current device, usable by what ``stream`` does from here on. Zero bytes: address 0."""
        return int(self._call("cuMemAllocAsync", size, self._stream(stream))) if size else 0

    def free(self, address: int, stream: int) -> None:
        """Give memory back once ``stream`` has done what it was given."""
        if address:
            self._call("cuMemFreeAsync", self._api.CUdeviceptr(address), self._stream(stream))

    def copy_to_device(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy ``size`` bytes from the host's address ``source`` in ``stream``."""
        if size:
            self._call("cuMemcpyHtoDAsync", self._api.CUdeviceptr(target), source, size, self._stream(stream))

    def copy_to_host(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy ``size`` bytes to the host's address ``target`` in ``stream``."""
        if size:
            self._call("cuMemcpyDtoHAsync", target, self._api.CUdeviceptr(source), size, self._stream(stream))

    def host_buffer(self, size: int) -> int:
        """Address of ``size`` bytes of host memory that the current device can write, at the same address."""
        flags = self._api.CU_MEMHOSTALLOC_DEVICEMAP | self._api.CU_MEMHOSTALLOC_PORTABLE
        return int(self._call("cuMemHostAlloc", size, flags))

    def device_of(self, address: int) -> int:
        """The device that an address belongs to."""
        attribute = self._api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(self._call("cuPointerGetAttribute", attribute, self._api.CUdeviceptr(address)))

    def own_stream(self, device: Device) -> int:
        """A stream of taskfuse's own on ``device``, ordered with the legacy default stream there."""
        with self._lock:
            found = self._streams.get(device.ordinal)
            if found is None:
                with self.current(device):
                    found = self._streams[device.ordinal] = int(self._call("cuStreamCreate", self._api.CUstream_flags.CU_STREAM_DEFAULT.value))
        return found

    def order(self, before: int, after: int) -> None:
        """Let what stream ``after`` is given from here on wait for what stream ``before`` was given. Both are of the current device."""
        if before == after:
            return
        event = self._call("cuEventCreate", self._api.CUevent_flags.CU_EVENT_DISABLE_TIMING.value)
        try:
            self._call("cuEventRecord", event, self._stream(before))
            self._call("cuStreamWaitEvent", self._stream(after), event, 0)
        finally:
            self._call("cuEventDestroy", event)

    def synchronize(self, stream: int) -> None:
        """Wait until ``stream`` has done what it was given."""
        self._call("cuStreamSynchronize", self._stream(stream))

    def is_capturing(self, stream: int) -> bool:
        """True while ``stream`` records a CUDA graph."""
        status = self._call("cuStreamIsCapturing", self._stream(stream))
        return status != self._api.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE

    # -- errors -------------------------------------------------------------------------------------------------------------------------

    def error(self, code: int, what: str, notes: tuple[str, ...] = (), help: str | None = None) -> CudaError:
        """The error that stands for the driver's result ``code``."""
        try:
            result = self._api.CUresult(code)
        except ValueError:  # the driver is newer than the bindings
            return CudaError(what=what, name=f"CUresult {code}", reason="unknown error", notes=notes, help=help)
        failed, text = self._api.cuGetErrorString(result)
        return CudaError(what=what, name=result.name, reason="unknown error" if int(failed) else text.decode(), notes=notes, help=help)

    def _stream(self, handle: int) -> Any:
        return self._api.CUstream(handle)

    def _address(self, name: str) -> int:
        flags = self._api.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_LEGACY_STREAM.value
        address, _ = self._call("cuGetProcAddress", name.encode(), FIRST_TYPED_DRIVER, flags)
        if not address:
            reason = f"it has no {name}"
            raise CudaUnavailableError(what="a CUDA driver of version 12.0 or newer", reason=reason, help='update it, or use backend="sim"')
        return int(address)

    def _call(self, name: str, *args: object) -> Any:
        """Call the driver; the results without the status: nothing, one value, or a tuple."""
        status, *values = getattr(self._api, name)(*args)
        if int(status):
            raise self.error(int(status), name)
        return values[0] if len(values) == 1 else tuple(values) or None


@cache
def driver() -> Driver:
    """The driver, loaded and initialized by the first call.

    Raises:
        CudaUnavailableError: there is no driver, no GPU, or no ``cuda.bindings``.
    """
    return Driver()


def _load() -> Any:
    help = 'use backend="sim", or run on a machine with an NVIDIA GPU'
    try:
        from cuda.bindings import driver as api
    except ImportError as error:
        reason = "the Python package cuda-python is not installed"
        raise CudaUnavailableError(what="the CUDA driver", reason=reason, help="pip install taskfuse[cuda]") from error
    bindings: Any = api
    try:
        (status,) = bindings.cuInit(0)
    except RuntimeError as error:  # the library is loaded by the first call
        raise CudaUnavailableError(what="the CUDA driver", reason="libcuda is not on this machine", help=help) from error
    if int(status):
        _, name = bindings.cuGetErrorName(status)
        raise CudaUnavailableError(what="a GPU", reason=f"the driver does not start: {name.decode()}", help=help)
    status, count = bindings.cuDeviceGetCount()
    if int(status) or not count:
        raise CudaUnavailableError(what="a GPU", reason="the driver finds none", help=help)
    return bindings
