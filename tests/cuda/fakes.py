"""A driver without a GPU: it records what it is asked, reads launches out of the memory that they point to, and keeps arrays in host memory."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from taskfuse.cuda.abi import ATTRIBUTE, CONFIG, MapType
from taskfuse.cuda.dlpack import export_capsule
from taskfuse.cuda.driver import Device, Driver, Function
from taskfuse.cuda.layout import row_major
from taskfuse.dtypes import DType
from taskfuse.errors import CudaError
from tests.calls import always


@dataclass(frozen=True)
class Launch:
    """A launch as the driver sees it. ``parameters``: the bytes at each parameter's address, as many as asked for."""

    function: int
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    stream: int
    attributes: tuple[tuple[int, int, int, int], ...]
    addresses: tuple[int, ...]
    context: int

    def parameter(self, index: int, form: str = "<Q") -> Any:
        (value,) = struct.unpack(form, self.raw[index][: struct.calcsize(form)])
        return value

    raw: tuple[bytes, ...] = ()


GPU = Device(
    ordinal=0,
    name="fake GPU",
    context=0xC0,
    arch=90,
    max_threads=1024,
    max_block=(1024, 1024, 64),
    max_grid=(2**31 - 1, 65535, 65535),
    max_shared=227 * 1024,
    multiprocessors=132,
    cooperative=True,
)


@dataclass
class FakeDriver(Driver):
    """The attributes after ``log`` are what it answers."""

    launches: list[Launch] = field(default_factory=list[Launch])
    log: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    devices: tuple[Device, ...] = (GPU,)
    function_threads: int = 1024
    function_arch: int = 90
    static_shared: int = 0
    resident: int = 4
    clusters: int = 16
    status: int = 0
    parameter_sizes: Sequence[int] = ()
    current_context: int = GPU.context
    stack: list[int] = field(default_factory=list[int])
    memory: dict[int, Any] = field(default_factory=dict[int, Any])
    loaded: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    maps: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    capturing: bool = False
    sync_error: bool = False
    addresses: dict[int, int] = field(default_factory=dict[int, int])
    strict: list[bool] = field(default_factory=list[bool])
    on_launch: Callable[[int, int, int], int] | None = None

    def launch(self, function: int, config: int, parameters: int) -> Callable[[], int]:
        return lambda: (self.on_launch or self.launched)(function, config, parameters)

    def launched(self, function: int, config: int, parameters: int) -> int:
        if self.current_context == 0:
            return 201
        *dims, shared, stream, attributes, count = CONFIG.unpack(ctypes.string_at(config, CONFIG.size))
        found = tuple(ATTRIBUTE.unpack(ctypes.string_at(attributes + k * ATTRIBUTE.size, ATTRIBUTE.size)) for k in range(count))
        addresses = struct.unpack(f"<{len(self.parameter_sizes)}Q", ctypes.string_at(parameters, 8 * len(self.parameter_sizes)))
        raw = tuple(ctypes.string_at(a, n) for a, n in zip(addresses, self.parameter_sizes, strict=True))
        self.launches.append(Launch(function, tuple(dims[:3]), tuple(dims[3:]), shared, stream, found, addresses, self.current_context, raw))
        self.log.append(("launch", stream))
        return self.status

    def get_context(self, address: int) -> Callable[[], int]:
        def store() -> int:
            ctypes.c_void_p.from_address(address).value = self.current_context or None
            return 0

        return store

    def is_current(self, device: Device) -> bool:
        return self.current_context == device.context

    def replace_address(self, tensor_map: int, address: int) -> int:
        assert tensor_map % 64 == 0
        ctypes.memmove(tensor_map, struct.pack("<Q", address), 8)
        self.log.append(("replace", address))
        return 0

    def fill(self, address: int, value: int, size: int, stream: int) -> int:
        self.log.append(("fill", address, value, size, stream))
        return 0

    def device_count(self) -> int:
        return len(self.devices)

    def current_device(self) -> int:
        return 0

    def device(self, ordinal: int) -> Device:
        return self.devices[ordinal]

    @contextmanager
    def current(self, device: Device) -> Generator[None]:
        self.stack.append(self.current_context)
        self.current_context = device.context
        try:
            yield
        finally:
            self.current_context = self.stack.pop()

    def function(self, device: Device, code: bytes, name: str) -> Function:
        self.loaded.append((device.ordinal, name))
        return Function(0xF000 + len(self.loaded), name, self.function_threads, self.static_shared, self.function_arch)

    def allow_shared(self, function: Function, size: int) -> None:
        self.log.append(("allow_shared", size))

    def allow_large_clusters(self, function: Function) -> None:
        self.log.append(("allow_large_clusters",))

    def resident_blocks(self, function: Function, threads: int, shared: int) -> int:
        return self.resident

    def resident_clusters(self, function: Function, grid: Sequence[int], block: Sequence[int], cluster: Sequence[int], shared: int) -> int:
        return self.clusters

    def tensor_map(
        self, dtype: MapType, address: int, shape: Sequence[int], strides: Sequence[int], box: Sequence[int], swizzle: int, element_steps: Sequence[int]
    ) -> bytes:
        steps = () if set(element_steps) == {1} else (tuple(element_steps),)
        self.maps.append((dtype, address, tuple(shape), tuple(strides), tuple(box), swizzle, *steps))
        return struct.pack("<Q", address) + bytes(120)

    def allocate(self, size: int, stream: int) -> int:
        if not size:
            return 0
        block = np.zeros(size + 256, np.uint8)
        address = -(-block.ctypes.data // 256) * 256
        self.memory[address] = block
        self.log.append(("allocate", size, stream))
        return address

    def free(self, address: int, stream: int) -> None:
        if address:
            del self.memory[address]
            self.log.append(("free", stream))

    def copy_to_device(self, target: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(target, source, size)

    def copy_to_host(self, target: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(target, source, size)

    def host_buffer(self, size: int) -> int:
        return self.allocate(size, -1)

    def device_of(self, address: int) -> int:
        if address not in self.addresses:
            raise self.error(1, "cuPointerGetAttribute")
        return self.addresses[address]

    def own_stream(self, device: Device) -> int:
        return 0x0517 + device.ordinal

    def order(self, before: int, after: int) -> None:
        if before != after:
            self.log.append(("order", before, after))

    def synchronize(self, stream: int) -> None:
        self.log.append(("synchronize", stream))
        if self.sync_error:
            raise self.error(719, "cuStreamSynchronize")

    def is_capturing(self, stream: int) -> bool:
        return self.capturing

    def error(self, code: int, what: str, notes: tuple[str, ...] = (), help: str | None = None) -> CudaError:
        return CudaError(what=what, name=f"CUDA_ERROR_{code}", reason="as the test wants", notes=notes, help=help)


class FakeTensor:
    """A torch tensor on a GPU, in host memory."""

    def __init__(
        self, array: np.ndarray[Any, Any], device: FakeTorchDevice | None = None, dtype: str | None = None, made: list[FakeTensor] | None = None
    ) -> None:
        self.array = array
        self.made = [] if made is None else made  # where it notes what is made of it
        self.shape = array.shape
        self.device = device or FakeTorchDevice("cuda", 0)
        self.dtype = dtype or str(array.dtype)
        self.layout = "strided"
        self.requires_grad = False
        self.negative = False

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.array.itemsize for s in self.array.strides)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def get_device(self) -> int:
        return self.device.index if self.is_cuda else -1

    def is_contiguous(self) -> bool:
        return self.array.flags.c_contiguous

    def new_empty_strided(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> FakeTensor:
        array = aligned(shape, {"bfloat16": "uint16", "float8_e4m3fn": "uint8"}.get(self.dtype, self.dtype))
        assert strides == row_major(shape)
        self.made.append(FakeTensor(array, self.device, self.dtype, self.made))
        return self.made[-1]

    def data_ptr(self) -> int:
        return self.array.ctypes.data if self.array.size else 0

    def is_neg(self) -> bool:
        return self.negative


@dataclass(frozen=True)
class FakeTorchDevice:
    type: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.type}:{self.index}" if self.type == "cuda" else self.type


def _stream(handle: int, device: int) -> tuple[int, int]:
    return handle, device


class FakeTorch(ModuleType):
    """The part of torch that launching uses. Dtypes are names; its current streams are 11 on device 0, 12 on device 1."""

    Tensor = FakeTensor
    strided = "strided"
    float32, float64, float16, bfloat16, int32, int64, uint8, bool = "float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool"
    float8_e4m3fn, complex64 = "float8_e4m3fn", "complex64"

    def __init__(self) -> None:
        super().__init__("torch")
        self.grad = True
        self.streams = {0: 11, 1: 12}
        self.made: list[FakeTensor] = []
        self.used: list[tuple[int, int]] = []
        self.device = FakeTorchDevice
        self._C = SimpleNamespace(_cuda_getCurrentRawStream=self.streams.__getitem__)
        self.cuda = SimpleNamespace(ExternalStream=_stream, stream=self._using, default_stream=partial(_stream, 0))

    def is_grad_enabled(self) -> bool:
        return self.grad

    def empty(self, shape: int | tuple[int, ...], dtype: str, device: FakeTorchDevice) -> FakeTensor:
        return FakeTensor(aligned(shape, {"bfloat16": "uint16", "float8_e4m3fn": "uint8"}.get(dtype, dtype)), device, dtype, self.made)

    @contextmanager
    def _using(self, stream: tuple[int, int]) -> Generator[None]:
        handle, device = stream
        before, self.streams[device] = self.streams[device], handle
        self.used.append(stream)
        yield
        self.streams[device] = before


def aligned(shape: int | tuple[int, ...], dtype: Any, offset: int = 0) -> np.ndarray[Any, Any]:
    """A row-major array of zeros ``offset`` bytes behind a multiple of 256."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    block = np.zeros(size + 512, np.uint8)
    begin = -block.ctypes.data % 256 + offset
    return block[begin : begin + size].view(dtype).reshape(shape)


class Interface:
    """An array with ``__cuda_array_interface__`` alone."""

    def __init__(self, driver: FakeDriver, array: np.ndarray[Any, Any], stream: int | None = None, device: int = 0, read_only: bool = False) -> None:
        self.array = array
        entries = array.__array_interface__
        data = (entries["data"][0], read_only)
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": entries["typestr"],
            "data": data,
            "strides": array.strides,
            "version": 3,
            "stream": stream,
        }
        driver.addresses[data[0]] = device


class Dlpack:
    """An array with DLPack alone; records the streams that consumers name."""

    def __init__(self, array: np.ndarray[Any, Any], dtype: DType, device: tuple[int, int] = (2, 0), versioned: bool = True) -> None:
        self.array, self.dtype, self.where, self.versioned = array, dtype, device, versioned
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.where

    def __dlpack__(self, *, stream: int | None = None, **options: object) -> object:
        if options and not self.versioned:
            raise TypeError("max_version")
        self.streams.append(stream)
        strides = tuple(s // self.array.itemsize for s in self.array.strides)
        return export_capsule(self, self.array.ctypes.data, self.dtype, self.array.shape, strides, self.where[1], versioned=self.versioned)


class FakeCuPyArray:
    """A CuPy array on device 0, in host memory."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype
        self.data = SimpleNamespace(ptr=array.ctypes.data, device_id=0)


class FakeCuPy(ModuleType):
    """The part of CuPy that launching uses. Its current stream is 21; it has no bfloat16."""

    ndarray = FakeCuPyArray

    def __init__(self) -> None:
        super().__init__("cupy")
        self.stream = 21
        self.cuda = SimpleNamespace(
            Device=always(nullcontext()),
            get_current_stream=self._current,
            ExternalStream=self._using,
        )

    def empty(self, shape: tuple[int, ...] | int, dtype: np.dtype[Any]) -> FakeCuPyArray:
        if dtype.isbuiltin != 1:
            raise TypeError(f"unsupported dtype {dtype}")
        return FakeCuPyArray(aligned(shape if isinstance(shape, tuple) else (shape,), dtype))

    def _current(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(ptr=self.stream)

    @contextmanager
    def _using(self, stream: int, device: int) -> Generator[None]:
        before, self.stream = self.stream, stream
        yield
        self.stream = before
