"""Arrays on a GPU without a framework: results for callers without one, and other libraries' arrays on loan."""

from __future__ import annotations

import weakref
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from taskfuse.cuda.dlpack import CUDA, export_capsule
from taskfuse.cuda.driver import Device, Driver
from taskfuse.cuda.layout import Layout, row_major
from taskfuse.dtypes import DType
from taskfuse.errors import CudaError

LEGACY_STREAM = 1  # the legacy default stream: the number of DLPack and __cuda_array_interface__, and a handle of the driver


class DeviceArray:
    """A row-major array in the memory of a GPU, for other libraries to take by DLPack or ``__cuda_array_interface__``.

    Attributes:
        pointer: address of element [0, ..., 0].
        dtype: element type.
        layout: shape and strides.
        device: the GPU.
        stream: handle of the stream in whose order its content is ready.
    """

    def __init__(self, driver: Driver, pointer: int, dtype: DType, layout: Layout, device: Device, stream: int, owner: object = None) -> None:
        self._driver = driver
        self._owner = owner
        self.pointer = pointer
        self.dtype = dtype
        self.layout = layout
        self.device = device
        self.stream = stream

    @classmethod
    def empty(cls, driver: Driver, shape: tuple[int, ...], dtype: DType, device: Device, stream: int) -> Self:
        """A row-major array of undefined content, for use in the order of ``stream``. The device's context must be current."""
        layout = Layout.of(shape, row_major(shape), dtype.itemsize)
        pointer = driver.allocate(layout.byte_range[1], stream)
        array = cls(driver, pointer, dtype, layout, device, stream)
        weakref.finalize(array, _free, driver, device, pointer, stream).atexit = False
        return array

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return self.layout.shape

    def numpy(self) -> npt.NDArray[Any]:
        """A copy in host memory. Waits for the array's stream."""
        found = np.empty(self.shape, self.dtype.numpy)
        with self._driver.current(self.device):
            self._driver.copy_to_host(found.ctypes.data, self.pointer, found.nbytes, self.stream)
            self._driver.synchronize(self.stream)
        return found

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.numpy.str,
            "data": (self.pointer, False),
            "strides": tuple(s * self.dtype.itemsize for s in self.layout.strides),
            "stream": self.stream or LEGACY_STREAM,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device.ordinal

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("a DeviceArray is handed out where it is, without a copy")
        if stream != -1:  # the consumer will order the streams itself
            with self._driver.current(self.device):
                self._driver.order(self.stream, LEGACY_STREAM if stream is None else stream)
        versioned = max_version is not None and max_version[0] >= 1
        return export_capsule(self, self.pointer, self.dtype, self.shape, self.layout.strides, self.device.ordinal, versioned=versioned)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)} on GPU {self.device.ordinal})"


class Borrowed(DeviceArray):
    """Another library's array during one call, ordered with the stream of the call; of any strides."""


def host_copy(driver: Driver, pointer: int, layout: Layout, dtype: DType, stream: int) -> npt.NDArray[Any]:
    """A copy in host memory of an array of any strides. Waits for the stream; the device's context must be current."""
    low, high = layout.byte_range
    held = np.empty((high - low) // dtype.itemsize, dtype.numpy)
    driver.copy_to_host(held.ctypes.data, pointer + low, held.nbytes, stream)
    driver.synchronize(stream)
    strides = [s * dtype.itemsize for s in layout.strides]
    return np.ndarray(layout.shape, dtype.numpy, held, -low, strides)


def _free(driver: Driver, device: Device, pointer: int, stream: int) -> None:
    try:
        with driver.current(device):
            driver.free(pointer, stream)
    except CudaError:
        pass  # the stream, or the context, went before the array: its memory went with the context or stays until the process ends
