"""Kinds of array arguments: the properties of arrays, and of their framework, that a launch needs.

A *probe* is the only work of a repeated call per argument: it returns the address, and a key of everything else that a launch depends on. Torch
and CuPy arrays, and arrays on loan (:class:`~taskfuse.cuda.device_array.Borrowed`), have a probe. Every other array is turned into one on loan by
:func:`adopt`. This module imports no framework: a caller that passes a framework's array has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from taskfuse.cuda.device_array import LEGACY_STREAM, Borrowed, DeviceArray
from taskfuse.cuda.dlpack import CUDA, CUDA_MANAGED, MAX_VERSION, import_capsule
from taskfuse.cuda.driver import Driver, driver
from taskfuse.cuda.layout import Layout, row_major
from taskfuse.dtypes import DTYPES, DType, as_dtype
from taskfuse.errors import CudaError, DTypeError, shown

Probe = Callable[[Any], tuple[int, Hashable]]
Maker = Callable[[int], Any]
"""Makes an array for use in a stream. A framework makes arrays for its current stream, whatever the argument."""


class Unfit(Exception):
    """An array that cannot be an argument of a launch. The caller adds which argument it is."""

    def __init__(self, reason: str, help: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.help = help


class ArrayView(NamedTuple):
    """The properties of an array that a launch needs.

    Attributes:
        pointer: address of element [0, ..., 0].
        dtype: its dtype.
        layout: shape and strides.
        device: number of the GPU that it is on.
    """

    pointer: int
    dtype: DType
    layout: Layout
    device: int


class Framework(Protocol):
    """A framework."""

    name: str
    knows_devices: bool
    """True if its makers bring their arrays to the device asked for, whatever the current context is."""

    def view(self, array: Any) -> ArrayView:
        """The array's view. Raises :class:`Unfit` unless it is on a GPU and has a dtype of taskfuse."""
        ...

    def pointer(self, array: Any, /) -> int:
        """Address of element [0, ..., 0]."""
        ...

    def maker(self, shape: tuple[int, ...], dtype: DType, device: int) -> Maker:
        """A function that makes row-major arrays of undefined content.

        Raises :class:`Unfit` if the framework lacks the dtype."""
        ...

    def stream_of(self, device: int, /) -> int:
        """Handle of the framework's current stream on a device."""
        ...

    def using(self, stream: int, device: int) -> AbstractContextManager[object]:
        """A context in which ``stream`` is the framework's current stream."""
        ...


def quick_empty(torch: Any, kind: str) -> Any | None:
    """Torch's fastest function that makes tensors of a shape, strides and dtype on a kind of device, as its own compiled graphs do; ``None`` if it has none.

    It makes them on the current GPU, so with several GPUs there is none.
    """
    found = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), f"_empty_strided_{kind}", None)
    return None if found is None or (kind == "cuda" and torch.cuda.device_count() > 1) else found


class Torch:
    """PyTorch."""

    name = "torch"
    knows_devices = True

    def __init__(self) -> None:
        torch = self._torch = sys.modules["torch"]
        names = {"bool": "bool", "float8_e4m3": "float8_e4m3fn"}
        self._dtypes: dict[DType, Any] = {d: getattr(torch, names.get(d.name, d.name), None) for d in DTYPES.values()}
        self._by_torch: dict[Any, DType] = {t: d for d, t in self._dtypes.items() if t is not None}
        self.pointer: Callable[[Any], int] = torch.Tensor.data_ptr
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self.stream_of: Callable[[int], int] = raw or (lambda device: torch.cuda.current_stream(device).cuda_stream)

    def probe(self) -> Probe:
        """The probe of its tensors.

        The key includes properties with which no launch can use a tensor although its memory fits: a lazy negation, another kind of device, required gradients.
        """
        grad_enabled: Callable[[], bool] = self._torch.is_grad_enabled

        def probe(tensor: Any) -> tuple[int, Hashable]:
            pointer = tensor.data_ptr()
            unfit = tensor.is_neg() or not tensor.is_cuda or (tensor.requires_grad and grad_enabled())
            strides = tensor.is_contiguous() or tensor.stride()
            return pointer, (tensor.shape, strides, tensor.dtype, tensor.get_device(), pointer & 15, unfit)

        return probe

    def view(self, array: Any) -> ArrayView:
        if array.layout is not self._torch.strided:
            raise Unfit(f"the tensor's layout is {array.layout}, not dense", "pass x.to_dense()")
        if array.device.type != "cuda":
            help = "pass x.cuda(), or x.numpy() for the simulator" if array.device.type == "cpu" else "pass x.cuda()"
            raise Unfit(f"the tensor is on {array.device}, not on a GPU", help)
        if array.is_neg():
            raise Unfit("the tensor is a lazy negation", "pass x.resolve_neg()")
        if array.requires_grad and self._torch.is_grad_enabled():
            raise Unfit("the tensor requires gradients, which a kernel does not compute", "pass x.detach(), or call within torch.no_grad()")
        dtype = self._by_torch.get(array.dtype)
        if dtype is None:
            raise Unfit(f"taskfuse has no dtype {array.dtype}")
        return ArrayView(array.data_ptr(), dtype, Layout.of(array.shape, array.stride(), dtype.itemsize), array.device.index)

    def maker(self, shape: tuple[int, ...], dtype: DType, device: int) -> Maker:
        found = self._dtypes[dtype]
        if found is None:
            raise Unfit(f"this torch has no dtype {dtype}")
        strides, quick = row_major(shape), quick_empty(self._torch, "cuda")
        if quick is not None:
            return lambda stream: quick(shape, strides, found)
        # a tensor that has dtype and device gives them on for less than it costs to parse them
        new = self._torch.empty(0, dtype=found, device=self._torch.device("cuda", device)).new_empty_strided
        return lambda stream: new(shape, strides)

    def using(self, stream: int, device: int) -> AbstractContextManager[object]:
        if stream == self.stream_of(device):
            return nullcontext()
        cuda = self._torch.cuda
        # torch does not take handle 0 for an external stream: it would use another one
        return cuda.stream(cuda.ExternalStream(stream, device=device) if stream else cuda.default_stream(device))


class CuPy:
    """CuPy. Its dtypes are those of NumPy."""

    name = "cupy"
    knows_devices = True

    def __init__(self) -> None:
        self._cupy = sys.modules["cupy"]

    def probe(self) -> Probe:
        """The probe of its arrays."""

        def probe(array: Any) -> tuple[int, Hashable]:
            data = array.data
            pointer = data.ptr
            return pointer, (array.shape, array.strides, array.dtype, data.device_id, pointer & 15)

        return probe

    def pointer(self, array: Any) -> int:
        return array.data.ptr

    def view(self, array: Any) -> ArrayView:
        dtype = numpy_dtype(array.dtype)
        return ArrayView(array.data.ptr, dtype, from_byte_strides(array.shape, array.strides, dtype), array.data.device_id)

    def maker(self, shape: tuple[int, ...], dtype: DType, device: int) -> Maker:
        cupy = self._cupy
        place, found = cupy.cuda.Device(device), dtype.numpy
        try:
            with place:
                cupy.empty(0, found)
        except (TypeError, ValueError):
            raise Unfit(f"this cupy has no dtype {dtype}", "pass arrays of another framework") from None

        def make(stream: int) -> Any:
            with place:
                return cupy.empty(shape, found)

        return make

    def stream_of(self, device: int) -> int:
        return self._cupy.cuda.get_current_stream(device).ptr

    def using(self, stream: int, device: int) -> AbstractContextManager[object]:
        return self._cupy.cuda.ExternalStream(stream, device)


class Loan:
    """Arrays without a framework. They are ordered with the stream of the call before it, and new ones belong to that stream."""

    name = "DLPack"
    knows_devices = False

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def probe(self) -> Probe:
        """The probe of arrays on loan."""

        def probe(array: Borrowed) -> tuple[int, Hashable]:
            return array.pointer, (array.layout, array.dtype, array.device.ordinal, array.pointer & 15)

        return probe

    def pointer(self, array: Any) -> int:
        return array.pointer

    def view(self, array: Any) -> ArrayView:
        return ArrayView(array.pointer, array.dtype, array.layout, array.device.ordinal)

    def maker(self, shape: tuple[int, ...], dtype: DType, device: int) -> Maker:
        driver, place = self._driver, self._driver.device(device)
        return lambda stream: DeviceArray.empty(driver, shape, dtype, place, stream)

    def stream_of(self, device: int) -> int:
        return self._driver.own_stream(self._driver.device(device))

    def using(self, stream: int, device: int) -> AbstractContextManager[object]:
        return nullcontext()


class Kinds:
    """The kinds of arrays of this process.

    Attributes:
        driver: the driver.
        loan: the kind of arrays on loan.
        probes: the probe of each type of array seen that needs no adoption.
    """

    def __init__(self, driver: Driver) -> None:
        self.loan = Loan(driver)
        self.probes: dict[type, Probe] = {Borrowed: self.loan.probe()}
        self._kinds: dict[type, Framework] = {Borrowed: self.loan}
        self.driver = driver

    def find(self, array: object) -> Framework | None:
        """The framework of ``array``; ``None`` if it must be adopted first."""
        found = self._kinds.get(type(array))
        if found is None:
            made = Torch() if _is_of(array, "torch", "Tensor") else CuPy() if _is_of(array, "cupy", "ndarray") else None
            if made is not None:
                found = self._kinds[type(array)] = made
                self.probes[type(array)] = made.probe()
        return found

    def of(self, array: object) -> Framework:
        """The framework of an array that has a probe."""
        return self._kinds[type(array)]

    def device_of(self, array: Any) -> int:
        """The GPU of an array to be adopted. Raises :class:`Unfit` if it is not on a GPU."""
        if isinstance(array, DeviceArray):
            return array.device.ordinal
        if hasattr(array, "__dlpack_device__"):
            kind, device = array.__dlpack_device__()
            if int(kind) not in (CUDA, CUDA_MANAGED):
                raise Unfit("the array is in host memory", "move it to the GPU, or pass a NumPy array")
            return device
        pointer, _ = array.__cuda_array_interface__["data"]
        if not pointer:
            return self.driver.current_device()
        try:
            return self.driver.device_of(pointer)
        except CudaError as error:
            raise Unfit("its __cuda_array_interface__ has an address that no GPU knows") from error

    def stream_of(self, array: Any) -> int | None:
        """The stream in whose order an array to be adopted is ready, if the array names one."""
        if isinstance(array, DeviceArray):
            return array.stream
        if hasattr(array, "__dlpack__"):
            return None
        return array.__cuda_array_interface__.get("stream")

    def adopt(self, array: Any, stream: int, device: int, *, written: bool) -> Borrowed:
        """``array`` for use in ``stream``, which waits for the array's producer. The context of ``device`` is current.

        Raises :class:`Unfit` if the array cannot be adopted.
        """
        if isinstance(array, DeviceArray):
            self.driver.order(array.stream, stream)
            return Borrowed(self.driver, array.pointer, array.dtype, array.layout, array.device, stream, array)
        if hasattr(array, "__dlpack__"):
            return self._from_dlpack(array, stream, device, written)
        return self._from_interface(array, stream, device, written)

    def _from_dlpack(self, array: Any, stream: int, device: int, written: bool) -> Borrowed:
        named = stream or LEGACY_STREAM  # DLPack does not take 0, which could mean either default stream
        try:
            try:
                capsule = array.__dlpack__(stream=named, max_version=MAX_VERSION)
            except TypeError:  # a producer of DLPack 0.x
                capsule = array.__dlpack__(stream=named)
            found = import_capsule(capsule)
        except (BufferError, ValueError, RuntimeError) as error:
            raise Unfit(f"it does not hand out its memory: {error}") from error
        if found.dtype is None:
            raise Unfit("taskfuse has no dtype like its own")
        if written and found.read_only:
            raise Unfit("it is read-only")
        strides = row_major(found.shape) if found.strides is None else found.strides
        layout = Layout.of(found.shape, strides, found.dtype.itemsize)
        return Borrowed(self.driver, found.pointer, found.dtype, layout, self.driver.device(device), stream, (array, found.lease))

    def _from_interface(self, array: Any, stream: int, device: int, written: bool) -> Borrowed:
        interface: dict[str, Any] = array.__cuda_array_interface__
        pointer, read_only = interface["data"]
        if written and read_only:
            raise Unfit("it is read-only")
        dtype = numpy_dtype(interface["typestr"])
        shape = tuple(interface["shape"])
        steps = interface.get("strides")
        layout = Layout.of(shape, row_major(shape), dtype.itemsize) if steps is None else from_byte_strides(shape, steps, dtype)
        ready = interface.get("stream")
        if ready:
            self.driver.order(ready, stream)
        return Borrowed(self.driver, pointer or 0, dtype, layout, self.driver.device(device), stream, array)


@cache
def kinds() -> Kinds:
    """The kinds of arrays of this process. Raises :class:`CudaUnavailableError` without a driver or a GPU."""
    return Kinds(driver())


def is_on_host(array: object) -> bool:
    """True for arguments that NumPy converts: its arrays, numbers, lists."""
    if isinstance(array, np.ndarray | np.generic | int | float | list | tuple):
        return True
    if _is_of(array, "torch", "Tensor"):
        return False  # on the CPU, too: the error says what to do
    if hasattr(array, "__cuda_array_interface__"):
        return False
    return not hasattr(array, "__dlpack_device__")


def stream_handle(stream: Any) -> int:
    """The handle of a caller's ``stream=``: a handle, or an object of a framework.

    Raises :class:`Unfit` if it is neither.
    """
    if isinstance(stream, int):
        if stream >= 0:
            return stream
        raise Unfit(f"{stream} is not a CUDA stream", "pass a handle, or an object with __cuda_stream__")
    if hasattr(stream, "__cuda_stream__"):
        _, handle = stream.__cuda_stream__()
        return int(handle)
    for attribute in ("cuda_stream", "ptr", "handle"):
        handle = getattr(stream, attribute, None)
        if handle is not None:
            return int(handle)
    raise Unfit(f"{shown(stream)} is not a CUDA stream", "pass a handle, or an object with __cuda_stream__")


def numpy_dtype(dtype: Any) -> DType:
    """The dtype of taskfuse for a NumPy dtype. Raises :class:`Unfit` if none exists, as for foreign byte order."""
    try:
        return as_dtype(np.dtype(dtype))
    except (DTypeError, TypeError):
        raise Unfit(f"taskfuse has no dtype {dtype}") from None


def from_byte_strides(shape: Sequence[int], strides: Sequence[int], dtype: DType) -> Layout:
    """The layout with strides in bytes. Raises :class:`Unfit` if one is not a multiple of the element size."""
    matter = [s for s, n in zip(strides, shape, strict=True) if n > 1]
    if 0 not in shape and any(s % dtype.itemsize for s in matter):
        raise Unfit(f"its strides {tuple(strides)} are not multiples of the {dtype.itemsize} bytes of an element")
    return Layout.of(shape, [s // dtype.itemsize for s in strides], dtype.itemsize)


def _is_of(array: object, module: str, name: str) -> bool:
    """True if ``array`` is an instance of a class of a module, if that was imported."""
    found = sys.modules.get(module)
    return found is not None and isinstance(array, getattr(found, name))
