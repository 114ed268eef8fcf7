"""Identifying the GPU without a CUDA context, so that a process may fork after ``tf.compile``.

The calls go through ``ctypes`` to NVML, the library of the driver that ``nvidia-smi`` uses, since importing ``cuda.bindings.nvml`` takes longer
than most compilations (NVML API Reference Guide, "Device Queries").
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

from taskfuse.errors import UnsupportedError
from taskfuse.options import read_options
from taskfuse.target import DEFAULT, Target, target_of

_NAME_BYTES = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE


def present() -> Target:
    """The target for the first visible GPU; the default without a GPU, or for an unknown one."""
    return found() or DEFAULT


@cache
def found() -> Target | None:
    """The target for the first visible GPU; ``None`` without one whose limits are known.

    NVML counts GPUs in the order of the PCI bus and CUDA, unless ``CUDA_DEVICE_ORDER=PCI_BUS_ID``, the fastest first; ``target`` of
    :func:`taskfuse.compile` is for machines with GPUs of several kinds.
    """
    visible = read_options().visible_devices.split(",")[0].strip()
    try:
        library = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
        return _asked(library, visible)
    except (OSError, ValueError, AttributeError, UnsupportedError):  # no driver; no such GPU; none whose limits are known
        return None


def _asked(library: ctypes.CDLL, visible: str) -> Target:
    """The target of a GPU according to NVML; the GPU is given by its UUID or its number."""
    device = ctypes.c_void_p()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    major, minor = ctypes.c_int(), ctypes.c_int()
    find = library.nvmlDeviceGetHandleByUUID if visible.startswith("GPU-") else library.nvmlDeviceGetHandleByIndex_v2
    what = ctypes.c_char_p(visible.encode()) if visible.startswith("GPU-") else ctypes.c_uint(int(visible or 0))
    statuses = (
        library.nvmlInit_v2(),
        find(what, ctypes.byref(device)),
        library.nvmlDeviceGetName(device, name, ctypes.c_uint(_NAME_BYTES)),
        library.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor)),
    )
    if any(statuses):
        raise OSError(f"NVML says {statuses}")
    return target_of(name.value.decode(errors="replace"), f"sm_{major.value}{minor.value}")
