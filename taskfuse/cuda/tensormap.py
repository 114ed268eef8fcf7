"""Tensor maps: the descriptors by which TMA finds the elements of a tensor (CUDA driver API, ``cuTensorMapEncodeTiled``)."""

from __future__ import annotations

from taskfuse.cuda.abi import MapType
from taskfuse.cuda.arrays import ArrayView
from taskfuse.cuda.driver import Driver
from taskfuse.dtypes import DType, bfloat16, float16, float32, float64, int32, int64
from taskfuse.errors import LaunchError
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import TensorMapParam
from taskfuse.target import TMA_AXES, TMA_BOX, TMA_BYTES, TMA_STRIDE

MAP_BYTES = 128
MAP_ALIGNMENT = 64

_FLOATS = {
    float16: MapType.FLOAT16,
    bfloat16: MapType.BFLOAT16,
    float32: MapType.FLOAT32,
    float64: MapType.FLOAT64,
    int32: MapType.INT32,
    int64: MapType.INT64,
}
_BITS = {8: MapType.UINT8, 16: MapType.UINT16, 32: MapType.UINT32, 64: MapType.UINT64}


def map_type(dtype: DType) -> MapType:
    """The element type of a map for ``dtype``: copies move bits, so a dtype without a type of its own uses one of the same size."""
    return _FLOATS.get(dtype) or _BITS[dtype.bits]


def encode(driver: Driver, kernel: Kernel, param: TensorMapParam, view: ArrayView) -> bytes:
    """The 128 bytes of the map ``param`` for the array ``view``. The map of an empty array is zero, and no transfer may use it.

    Raises:
        LaunchError: TMA does not support the array's address, its strides, or the box.
    """
    layout = view.layout
    if layout.is_empty:
        return bytes(MAP_BYTES)
    _check(kernel, param, view)
    size = layout.itemsize
    strides: list[int] = []
    reach = layout.shape[-1] * size
    for extent, stride in zip(layout.shape[-2::-1], layout.strides[-2::-1], strict=True):
        # an axis of extent 1 is never stepped along: any stride of the right form does
        step = stride * size if extent > 1 else -(-reach // TMA_BYTES) * TMA_BYTES
        strides.append(step)
        reach = max(reach, step * extent)
    return driver.tensor_map(map_type(view.dtype), view.pointer, layout.shape[::-1], strides, param.box[::-1], param.swizzle, param.step[::-1])


def _check(kernel: Kernel, param: TensorMapParam, view: ArrayView) -> None:
    layout, tensor = view.layout, param.tensor

    def refuse(reason: str, help: str | None = None) -> LaunchError:
        return LaunchError(kernel=kernel.name, reason=f"TMA cannot read or write '{tensor}': {reason}", help=help)

    row = param.box[-1] * layout.itemsize
    if not 1 <= len(layout.shape) <= TMA_AXES:
        raise refuse(f"it has {len(layout.shape)} axes; a tensor map has 1 to {TMA_AXES}")
    if any(not 1 <= n * step <= TMA_BOX for n, step in zip(param.box, param.step, strict=True)):
        raise refuse(f"a box of {list(param.box)} elements; an axis of a box has 1 to {TMA_BOX}")
    if row % TMA_BYTES or (param.swizzle and row > param.swizzle):
        most = f", at most the {param.swizzle} of its swizzle" if param.swizzle else ""
        raise refuse(f"a row of the box has {row} bytes; it must have a multiple of {TMA_BYTES}{most}")
    if view.pointer % TMA_BYTES:
        raise refuse(f"its address is not a multiple of {TMA_BYTES}", f"pass an array whose first element is aligned to {TMA_BYTES} bytes, such as a copy")
    if layout.shape[-1] > 1 and layout.strides[-1] != 1:
        raise refuse(f"its last axis has stride {layout.strides[-1]}, not 1", "pass a contiguous copy")
    for axis, (extent, stride) in enumerate(zip(layout.shape[:-1], layout.strides[:-1], strict=True)):
        if extent > 1 and (stride < 0 or stride * layout.itemsize % TMA_BYTES or stride * layout.itemsize >= TMA_STRIDE):
            reason = f"axis {axis} has a stride of {stride * layout.itemsize} bytes; it must be a multiple of {TMA_BYTES}, not negative, below 2^40"
            raise refuse(reason, "pad its rows, or pass a contiguous copy of such a shape")
