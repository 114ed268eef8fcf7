"""DLPack: tensors handed from one framework to another in memory, as C structures inside a Python capsule.

The structures are those of dlpack.h, versions 0.x (capsule ``dltensor``) and 1.x (capsule ``dltensor_versioned``). A consumer renames the
capsule and calls its deleter when it is done; see the Python specification of DLPack.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from taskfuse.dtypes import (
    DType,
    bfloat16,
    bool_,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

CUDA, CUDA_MANAGED = 2, 13  # DLDeviceType
MAX_VERSION = (1, 1)
_READ_ONLY = 1
_PLAIN, _VERSIONED, _USED, _USED_VERSIONED = b"dltensor", b"dltensor_versioned", b"used_dltensor", b"used_dltensor_versioned"

# DLDataTypeCode and bits
_CODES: dict[tuple[int, int], DType] = {
    **{(0, d.bits): d for d in (int8, int16, int32, int64)},
    **{(1, d.bits): d for d in (uint8, uint16, uint32, uint64)},
    **{(2, d.bits): d for d in (float16, float32, float64)},
    (4, 16): bfloat16,
    (6, 8): bool_,
    (10, 8): float8_e4m3,
    (12, 8): float8_e5m2,
}
_CODE_OF = {dtype: code for code, dtype in _CODES.items()}


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_uint32), ("minor", ctypes.c_uint32))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (("version", _Version), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor))


_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", _api))
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", _api))
# a destructor gets an object that is being freed: it must not be counted again, so these take its address
_address_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_address_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))


class Lease:
    """The right to use a producer's tensor; returned when the object is deleted."""

    def __init__(self, address: int, deleter: int | None) -> None:
        self._address = address
        self._deleter = deleter

    def __del__(self) -> None:
        if self._deleter:
            _Deleter(self._deleter)(self._address)


class Imported(NamedTuple):
    """A producer's tensor.

    Attributes:
        pointer: address of element [0, ..., 0].
        dtype: its dtype; ``None``: a dtype that taskfuse lacks.
        shape, strides: strides in elements; ``None``: row-major.
        device_type, device: DLDeviceType and number.
        read_only: true if it must not be written.
        lease: keeps it alive.
    """

    pointer: int
    dtype: DType | None
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    device_type: int
    device: int
    read_only: bool
    lease: Lease


def import_capsule(capsule: object) -> Imported:
    """Take the result of a ``__dlpack__``. Raises :class:`ValueError` unless it is a DLPack capsule that was not consumed before."""
    name = _get_name(capsule)
    if name == _VERSIONED:
        address = _get_pointer(capsule, _VERSIONED)
        versioned = _ManagedVersioned.from_address(address)
        if versioned.version.major > MAX_VERSION[0]:
            raise ValueError(f"DLPack version {versioned.version.major}")
        _set_name(capsule, _USED_VERSIONED)
        return _imported(versioned.tensor, bool(versioned.flags & _READ_ONLY), Lease(address, versioned.deleter))
    if name == _PLAIN:
        address = _get_pointer(capsule, _PLAIN)
        managed = _Managed.from_address(address)
        _set_name(capsule, _USED)
        return _imported(managed.tensor, False, Lease(address, managed.deleter))
    raise ValueError(f"a capsule with the name {name!r}")


def _imported(tensor: Any, read_only: bool, lease: Lease) -> Imported:
    n = tensor.ndim
    return Imported(
        pointer=(tensor.data or 0) + tensor.byte_offset,
        dtype=_CODES.get((tensor.dtype.code, tensor.dtype.bits)) if tensor.dtype.lanes == 1 else None,
        shape=tuple(tensor.shape[:n]) if n else (),
        strides=(tuple(tensor.strides[:n]) if n else ()) if tensor.strides else None,
        device_type=tensor.device.type,
        device=tensor.device.id,
        read_only=read_only,
        lease=lease,
    )


# what consumers hold: the structure, what it points to, and the owner of the memory, by the structure's address
_exported: dict[int, tuple[object, ...]] = {}


@_Deleter
def _delete(address: int | None) -> None:
    _exported.pop(address or 0, None)


@_Destructor
def _destroy(capsule: int | None) -> None:
    """Free the tensor of a capsule that no consumer took."""
    for name in (_PLAIN, _VERSIONED):
        if _address_is_valid(capsule, name):
            _exported.pop(_address_pointer(capsule, name), None)


def export_capsule(owner: object, pointer: int, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], device: int, *, versioned: bool) -> object:
    """A capsule for ``__dlpack__`` to return; ``owner`` lives until the consumer is done."""
    n = max(len(shape), 1)
    extents, steps = (ctypes.c_int64 * n)(*shape), (ctypes.c_int64 * n)(*strides)
    code, bits = _CODE_OF[dtype]
    tensor = _Tensor(
        pointer or None,
        _Device(CUDA, device),
        len(shape),
        _DataType(code, bits, 1),
        ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64)),
        ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64)),
        0,
    )
    deleter = ctypes.cast(_delete, ctypes.c_void_p)
    managed = _ManagedVersioned(_Version(*MAX_VERSION), None, deleter, 0, tensor) if versioned else _Managed(tensor, None, deleter)
    address = ctypes.addressof(managed)
    _exported[address] = (managed, extents, steps, owner)
    return _new(address, _VERSIONED if versioned else _PLAIN, ctypes.cast(_destroy, ctypes.c_void_p))
