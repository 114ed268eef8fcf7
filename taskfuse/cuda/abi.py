"""The part of ``cuda.h`` that calls of the CUDA driver need: constants, the structures of a launch, the types of the calls."""

from __future__ import annotations

import ctypes
import struct
from enum import Enum
from typing import Any, Final

CONFIG: Final = struct.Struct("<7I4xQQI4x")
"""CUlaunchConfig: grid[3], block[3], bytes of Shared memory, stream, address of the attributes, their number."""
ATTRIBUTE: Final = struct.Struct("<I4x3I52x")
"""CUlaunchAttribute: id, value."""
COOPERATIVE, CLUSTER_DIMENSION, PROGRAMMATIC_STREAM_SERIALIZATION = 2, 4, 6  # CUlaunchAttributeID
OVERLAP_ARCH: Final = 90
"""The first architecture, times ten, whose launches can overlap with the end of their predecessor."""


class DeviceAttribute(Enum):
    """CUdevice_attribute: the attributes in use."""

    MAX_THREADS_PER_BLOCK = 1
    MAX_BLOCK_DIM_X = 2
    MAX_BLOCK_DIM_Y = 3
    MAX_BLOCK_DIM_Z = 4
    MAX_GRID_DIM_X = 5
    MAX_GRID_DIM_Y = 6
    MAX_GRID_DIM_Z = 7
    MULTIPROCESSOR_COUNT = 16
    COMPUTE_CAPABILITY_MAJOR = 75
    COMPUTE_CAPABILITY_MINOR = 76
    COOPERATIVE_LAUNCH = 95
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97


class FunctionAttribute(Enum):
    """CUfunction_attribute: the attributes in use."""

    MAX_THREADS_PER_BLOCK = 0
    SHARED_SIZE_BYTES = 1
    PTX_VERSION = 5
    MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
    NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14


class MapType(Enum):
    """CUtensorMapDataType: element types of tensor maps."""

    UINT8 = 0
    UINT16 = 1
    UINT32 = 2
    INT32 = 3
    UINT64 = 4
    INT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9


SWIZZLES: Final = {0: 0, 32: 1, 64: 2, 128: 3}
"""CUtensorMapSwizzle by bytes."""
L2_PROMOTION_128B: Final = 2  # CUtensorMapL2promotion
POINTER_DEVICE_ORDINAL: Final = 9  # CUpointer_attribute
EVENT_DEFAULT, EVENT_DISABLE_TIMING = 0, 2  # CUevent_flags
CAPTURE_RELAXED: Final = 2  # CUstreamCaptureMode: what other threads and streams do does not matter
MEMHOSTALLOC_PORTABLE, MEMHOSTALLOC_DEVICEMAP = 1, 2

_int, _uint, _size, _pointer, _text = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
PROTOTYPES: Final[dict[str, tuple[type[Any], ...]]] = {
    "cuInit": (_uint,),
    "cuDriverGetVersion": (_pointer,),
    "cuGetErrorName": (_int, _pointer),
    "cuGetErrorString": (_int, _pointer),
    "cuDeviceGetCount": (_pointer,),
    "cuDeviceGet": (_pointer, _int),
    "cuDeviceGetName": (_pointer, _int, _int),
    "cuDeviceGetAttribute": (_pointer, _int, _int),
    "cuDevicePrimaryCtxRetain": (_pointer, _int),
    "cuCtxGetCurrent": (_pointer,),
    "cuCtxGetDevice": (_pointer,),
    "cuCtxPushCurrent_v2": (_pointer,),
    "cuCtxPopCurrent_v2": (_pointer,),
    "cuModuleLoadData": (_pointer, _text),
    "cuModuleGetFunction": (_pointer, _pointer, _text),
    "cuFuncGetAttribute": (_pointer, _int, _pointer),
    "cuFuncSetAttribute": (_pointer, _int, _int),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (_pointer, _pointer, _int, _size),
    "cuOccupancyMaxActiveClusters": (_pointer, _pointer, _pointer),
    "cuLaunchKernelEx": (_pointer, _pointer, _pointer, _pointer),
    "cuTensorMapEncodeTiled": (_pointer, _int, _uint, _pointer, *(_pointer,) * 4, _int, _int, _int, _int),
    "cuTensorMapReplaceAddress": (_pointer, _pointer),
    "cuMemsetD8Async": (_pointer, ctypes.c_ubyte, _size, _pointer),
    "cuMemAllocAsync": (_pointer, _size, _pointer),
    "cuMemFreeAsync": (_pointer, _pointer),
    "cuMemHostAlloc": (_pointer, _size, _uint),
    "cuMemcpyHtoDAsync_v2": (_pointer, _pointer, _size, _pointer),
    "cuMemcpyDtoHAsync_v2": (_pointer, _pointer, _size, _pointer),
    "cuPointerGetAttribute": (_pointer, _int, _pointer),
    "cuStreamCreate": (_pointer, _uint),
    "cuStreamSynchronize": (_pointer,),
    "cuStreamWaitEvent": (_pointer, _pointer, _uint),
    "cuStreamIsCapturing": (_pointer, _pointer),
    "cuEventCreate": (_pointer, _uint),
    "cuEventRecord": (_pointer, _pointer),
    "cuEventSynchronize": (_pointer,),
    "cuEventElapsedTime": (_pointer, _pointer, _pointer),
    "cuEventDestroy_v2": (_pointer,),
    "cuStreamBeginCapture_v2": (_pointer, _int),
    "cuStreamEndCapture": (_pointer, _pointer),
    "cuGraphInstantiateWithFlags": (_pointer, _pointer, ctypes.c_ulonglong),
    "cuGraphDestroy": (_pointer,),
    "cuGraphLaunch": (_pointer, _pointer),
    "cuGraphExecDestroy": (_pointer,),
}
"""The parameter types of the calls, all of which return a CUresult. Handles, and addresses on the GPU, are pointers."""
