"""C types and literals of dtypes.

The emitted text includes no header (NVRTC takes about 100 ms to read those of the small floats): a float below 32 bits is stored as its
bits in an unsigned integer, and arithmetic never sees it (:mod:`taskfuse.cuda.conversions` makes it a ``float`` first).
"""

from __future__ import annotations

import math

import numpy as np

from taskfuse.dtypes import DType, DTypeKind, PythonScalar
from taskfuse.ir.values import NATIVE

_SIGNED = {8: "signed char", 16: "short", 32: "int", 64: "long long"}
_UNSIGNED = {8: "unsigned char", 16: "unsigned short", 32: "unsigned", 64: "unsigned long long"}
_FLOAT = {8: "unsigned char", 16: "unsigned short", 32: "float", 64: "double"}


def c_type(dtype: DType) -> str:
    """The type of an element in memory and in registers."""
    match dtype.kind:
        case DTypeKind.FLOAT:
            return _FLOAT[dtype.bits]
        case DTypeKind.INT:
            return _SIGNED[dtype.bits]
        case DTypeKind.UINT:
            return _UNSIGNED[dtype.bits]
        case DTypeKind.BOOL:
            return "bool"


def wrapping_type(dtype: DType) -> str:
    """The type in which sums and products of ``c_type(dtype)`` wrap modulo a power of two: unsigned, and not promoted to ``int``.

    Overflow of signed integers is undefined in C++, and so is that of ``unsigned short``, whose products are of type ``int``. Floats stay
    as they are.
    """
    return _UNSIGNED[max(dtype.bits, 32)] if dtype.is_integer else c_type(dtype)


def literal(value: PythonScalar, dtype: DType) -> str:
    """``value`` rounded to ``dtype``, exactly: ``0.1f``, ``-3``, ``5ll``, the bits of floats below 32 bits and of what is not finite."""
    stored = NATIVE.literal(value, dtype)
    match dtype.kind:
        case DTypeKind.BOOL:
            return "true" if stored else "false"
        case DTypeKind.INT | DTypeKind.UINT:
            return _integer(int(stored), dtype)
        case DTypeKind.FLOAT if dtype.bits < 32:
            bits = int(stored.view(f"u{dtype.itemsize}"))
            return f"({c_type(dtype)})0x{bits:0{dtype.bits // 4}x}"
        case DTypeKind.FLOAT:
            return _float(np.float32(stored) if dtype.bits == 32 else np.float64(stored), dtype)


def _integer(value: int, dtype: DType) -> str:
    suffix = ("u" if dtype.kind is DTypeKind.UINT and dtype.bits >= 32 else "") + ("ll" if dtype.bits == 64 else "")
    if value == dtype.min_value < 0 and dtype.bits >= 32:
        # the digits of the least integer alone are too great for its type
        return f"({value + 1}{suffix} - 1)"
    return f"{value}{suffix}"


def _float(value: np.float32 | np.float64, dtype: DType) -> str:
    if not math.isfinite(value):
        sign, nan = "-" if value < 0 else "", math.isnan(value)
        if dtype.bits == 32:
            return f"{sign}__int_as_float({'0x7fffffff' if nan else '0x7f800000'})"
        return f"{sign}__longlong_as_double({'0x7fffffffffffffff' if nan else '0x7ff0000000000000'})"
    # the fewest digits that read back as the same number
    if value == 0 or 1e-4 <= abs(value) < 1e16:
        digits = np.format_float_positional(value, unique=True, trim="0")
    else:
        digits = np.format_float_scientific(value, unique=True, trim="-", exp_digits=2)
    return digits + ("f" if dtype.bits == 32 else "")
