"""NumPy arrays to the GPU and back, with their strides; arrays that only the interface protocols describe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

import taskfuse as tf
from taskfuse.dtypes import as_dtype

Array = npt.NDArray[Any]

_BITS = {1: (np.uint8, torch.uint8), 2: (np.int16, torch.int16), 4: (np.int32, torch.int32), 8: (np.int64, torch.int64)}
_TORCH = {"float8_e4m3": torch.float8_e4m3fn, "bool": torch.bool}
_NUMPY = {torch.bfloat16: ml_dtypes.bfloat16, torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn, torch.float8_e5m2: ml_dtypes.float8_e5m2}


class InterfaceArray:
    """A device array that has nothing but ``__cuda_array_interface__``: any strides, negative ones too."""

    def __init__(self, array: Array) -> None:
        low, _ = _span(array)
        self._memory = torch.empty(max(_length(array), 1), dtype=torch.uint8, device="cuda")
        host = np.zeros(self._memory.shape[0], np.uint8)
        np.ndarray(array.shape, array.dtype, host, -low, array.strides)[...] = array
        self._memory.copy_(torch.from_numpy(host))
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "strides": array.strides,
            "typestr": array.dtype.str,
            "data": (self._memory.data_ptr() - low, True),
            "version": 3,
            "stream": None,
        }


def _span(array: Array) -> tuple[int, int]:
    """First and last byte offset of an element, from element [0, ..., 0]."""
    ends = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)] if array.size else []
    return sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends)


def _length(array: Array) -> int:
    low, high = _span(array)
    return high - low + array.dtype.itemsize if array.size else 0


def torch_dtype(dtype: tf.DType) -> torch.dtype:
    """torch's name of a dtype."""
    return _TORCH.get(dtype.name) or getattr(torch, dtype.name)


def to_torch(array: Array) -> torch.Tensor:
    """A tensor on the GPU with the elements and, where none is negative, the strides of ``array``."""
    numpy_bits, torch_bits = _BITS[array.dtype.itemsize]
    contiguous = torch.from_numpy(array.copy(order="C").view(numpy_bits).reshape(array.shape))
    tensor = torch.empty_strided(array.shape, _strides(array), dtype=torch_bits, device="cuda")
    tensor.copy_(contiguous)
    return tensor.view(torch_dtype(as_dtype(array.dtype)))


def _strides(array: Array) -> tuple[int, ...]:
    size = array.dtype.itemsize
    if array.size == 0 or any(s < 0 or s % size or (s == 0 and n > 1) for s, n in zip(array.strides, array.shape, strict=True)):
        return tuple(s // size for s in np.empty(array.shape, array.dtype).strides)
    return tuple(s // size for s in array.strides)


def to_device(array: Array) -> torch.Tensor | InterfaceArray:
    """As :func:`to_torch`; negative strides are kept, too, where the dtype has a name in the interface."""
    if any(s < 0 for s in array.strides) and array.dtype.isbuiltin == 1:
        return InterfaceArray(array)
    return to_torch(array)


def to_numpy(found: Any) -> Array:
    """A device array of any kind as a NumPy array; waits for the GPU."""
    torch.cuda.synchronize()
    tensor = found if isinstance(found, torch.Tensor) else torch.from_dlpack(found)
    _, torch_bits = _BITS[tensor.element_size()]
    bits = tensor.detach().contiguous().view(torch_bits).cpu().numpy()
    return bits.view(_NUMPY.get(tensor.dtype) or np.dtype(str(tensor.dtype).removeprefix("torch.")))


def poisoned(shape: Sequence[int], dtype: tf.DType, step: int = 1) -> torch.Tensor:
    """A tensor whose every byte is 0xFF; the elements of its last axis lie ``step`` apart."""
    wide = (*shape[:-1], shape[-1] * step) if shape else (step,)
    _, torch_bits = _BITS[dtype.itemsize]
    tensor = torch.full(wide, -1 if dtype.itemsize > 1 else 255, dtype=torch_bits, device="cuda")
    return (tensor[..., ::step] if shape else tensor[0]).view(torch_dtype(dtype))


def gaps(tensor: torch.Tensor, step: int) -> torch.Tensor:
    """The bits between the elements of ``poisoned(..., step)``."""
    _, torch_bits = _BITS[tensor.element_size()]
    bits = tensor.view(torch_bits)
    shape, strides = (*bits.shape, step), (*bits.stride(), 1)
    return torch.as_strided(bits, shape, strides)[..., 1:]


def same(a: Array, b: Array) -> bool:
    """True if shapes, dtypes and elements are equal; a NaN equals a NaN."""
    return a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | ((a != a) & (b != b))).all())
