"""C types and literals of dtypes, and the conversions between them.

The emitted text includes no header (NVRTC takes about 100 ms to read those of the small floats): a float below 32 bits is stored as its
bits in an unsigned integer, and :func:`convert` turns it into a ``float`` before any arithmetic. A bfloat16 that stays in registers may be the ``float`` that
it is rounded to (:func:`taskfuse.cuda.rounded.float_registers`).

Conversions are those of ``taskfuse.ir.values``: to nearest even into floats, truncated and clamped into integers. The small floats
convert through ``float``, as in ml_dtypes; only float64 to float16 is rounded once. NaN stays NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from taskfuse.cuda.text import Library, Snippet
from taskfuse.dtypes import DType, DTypeKind, PythonScalar, bfloat16, float8_e4m3, float8_e5m2, float16, float32, float64
from taskfuse.ir.values import NATIVE

BFLOAT16_BITS = 8
"""Significant bits of bfloat16. All integers of as many bits are bfloat16 numbers; so are all floats of 8 bits, which have fewer, and smaller exponents."""
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

    Overflow of signed integers is undefined in C++, and so is that of ``unsigned short``, whose products have type ``int``. Floats keep their type.
    """
    return _UNSIGNED[max(dtype.bits, 32)] if dtype.is_integer else c_type(dtype)


def literal(value: PythonScalar, dtype: DType) -> str:
    """``value`` rounded to ``dtype``, exactly: ``0.1f``, ``-3``, ``5ll``, or its bits for floats below 32 bits, infinities and NaN."""
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


_FLOAT16 = """
__device__ __forceinline__ float from_float16(unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}

// by the instruction that rounds two: on sm_90 that of one takes the units of exponentials, four times as long
__device__ __forceinline__ unsigned short to_float16(float x) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(x));
  return (unsigned short)pair;
}

// one of several that lie side by side in registers: ptxas rounds two of them by one instruction, and packs them thereby
__device__ __forceinline__ unsigned short to_packed_float16(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

__device__ __forceinline__ unsigned short double_to_float16(double x) {
  unsigned short bits;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x));
  return bits;
}

__device__ __forceinline__ float from_bfloat16(unsigned short bits) {
  return __uint_as_float((unsigned)bits << 16);
}

// as to_float16; the upper half of the pair, so that the pair is the rounded float
__device__ __forceinline__ float rounded_to_bfloat16(float x) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x), "f"(0.0f));
  return __uint_as_float(pair);
}

// of a float that is rounded
__device__ __forceinline__ unsigned short bits_of_bfloat16(float x) {
  return (unsigned short)(__float_as_uint(x) >> 16);
}

__device__ __forceinline__ unsigned short to_bfloat16(float x) {
  return bits_of_bfloat16(rounded_to_bfloat16(x));
}

// as to_packed_float16
__device__ __forceinline__ unsigned short to_packed_bfloat16(float x) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
"""

# Micikevicius et al., "FP8 Formats for Deep Learning" (2022), table 1. Compute capability 8.9 has instructions that clamp what is too
# great; ml_dtypes makes it infinity (e5m2) or NaN (e4m3, which has no infinity).
_FLOAT8 = """
// the bits of a magnitude rounded to a float of 8 bits. Normal: half a last place is added, less one bit if the place is even.
// Subnormal: a sum rounds to the last place of its greater operand, which is the least subnormal.
template <int mantissa, int bias>
__device__ __forceinline__ unsigned round_to_float8(unsigned magnitude) {
  if (magnitude >= (unsigned)(128 - bias) << 23) {
    const unsigned rounded = magnitude + (1u << (22 - mantissa)) - 1 + (magnitude >> (23 - mantissa) & 1);
    return (rounded >> (23 - mantissa)) - ((127 - bias) << mantissa);
  }
  const unsigned place = (unsigned)(128 - bias - mantissa + 23) << 23;
  return __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(place)) - place;
}

// what is too great becomes the greatest number
__device__ __forceinline__ unsigned char to_saturated_float8_e4m3(float x) {
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return pair;
#else
  const unsigned bits = __float_as_uint(x), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
  return magnitude > 0x7f800000 ? sign | 0x7f : sign | round_to_float8<3, 7>(min(magnitude, 0x43e00000u));
#endif
}

// NaN above 464, the middle between the greatest number and the next
__device__ __forceinline__ unsigned char to_float8_e4m3(float x) {
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(fabsf(x) > 464.0f ? __int_as_float(0x7fffffff) : x));
  return pair;
#else
  const unsigned bits = __float_as_uint(x), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
  return magnitude > 0x43e80000 ? sign | 0x7f : sign | round_to_float8<3, 7>(magnitude);
#endif
}

__device__ __forceinline__ void to_saturated_float8_e4m3x2(unsigned char* out, float a, float b) {
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
  memcpy(out, &pair, 2);
#else
  out[0] = to_saturated_float8_e4m3(a);
  out[1] = to_saturated_float8_e4m3(b);
#endif
}

__device__ __forceinline__ void to_float8_e4m3x2(unsigned char* out, float a, float b) {
  const float nan = __int_as_float(0x7fffffff);
  to_saturated_float8_e4m3x2(out, fabsf(a) > 464.0f ? nan : a, fabsf(b) > 464.0f ? nan : b);
}

// infinity from 61440 on, the middle between the greatest number and the next
__device__ __forceinline__ unsigned char to_float8_e5m2(float x) {
  const unsigned bits = __float_as_uint(x), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
  if (magnitude > 0x7f800000) return sign | 0x7f;
  if (magnitude >= 0x47700000) return sign | 0x7c;
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return pair;
#else
  return sign | round_to_float8<2, 15>(magnitude);
#endif
}

// its fields at the places of those of float16; the biases of the exponents are 7 and 15
__device__ __forceinline__ float from_float8_e4m3(unsigned char bits) {
#if __CUDA_ARCH__ >= 890
  unsigned pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)bits));
  return from_float16((unsigned short)pair);
#else
  const unsigned magnitude = bits & 0x7f, sign = bits & 0x80;
  return magnitude == 0x7f ? __int_as_float(0x7fffffff) : from_float16(sign << 8 | magnitude << 7) * 256;
#endif
}

// the upper half of a float16
__device__ __forceinline__ float from_float8_e5m2(unsigned char bits) {
  return from_float16((unsigned)bits << 8);
}
"""

# the instructions clamp, and make 0 of NaN if no type has 64 bits (PTX ISA, "cvt"); from double there are none to fewer than 32 bits
_INTEGERS = "\n\n".join(
    f"""
__device__ __forceinline__ {target} {source}_to_{short}({source} x) {{
  return {"x != x ? 0 : " if source == "double" or target.endswith("long long") else ""}__{source}2{short}_rz(x);
}}"""
    for source in ("float", "double")
    for short, target in (("int", "int"), ("uint", "unsigned"), ("ll", "long long"), ("ull", "unsigned long long"))
)

# a conversion of a number that is rounded to an integer before is one instruction with that
_SHORT_INTEGERS = "\n\n".join(
    f"""
__device__ __forceinline__ {target} float_to_{short}(float x) {{
  int n;
  asm("cvt.rzi.{kind}.f32 %0, %1;" : "=r"(n) : "f"(x));
  return ({target})n;
}}"""
    for short, target, kind in (("char", "signed char", "s8"), ("uchar", "unsigned char", "u8"), ("short", "short", "s16"), ("ushort", "unsigned short", "u16"))
)

# the bits of 2^23 + n are those of 2^23 with n in their place; two instructions of the fast pipelines, where the conversion of a byte has a quarter of the
# rate of others (H200: a product by 14336 x 4096 bytes took 26.6 us by it, now 23.2)
_FLOATS_OF_SHORT = "\n\n".join(
    f"""
__device__ __forceinline__ float float_of_{short}({source} x) {{
  return __uint_as_float((unsigned)({unsigned})x ^ {0x4B000000 | offset:#x}u) - {2**23 + offset}.0f;
}}"""
    for short, source, unsigned, offset in (
        ("char", "signed char", "unsigned char", 2**7),
        ("uchar", "unsigned char", "unsigned char", 0),
        ("short", "short", "unsigned short", 2**15),
        ("ushort", "unsigned short", "unsigned short", 0),
    )
)

CONVERSIONS = Library(_FLOAT16, _FLOAT8, _INTEGERS, _SHORT_INTEGERS, _FLOATS_OF_SHORT)

_SMALL_FLOATS = (float16, bfloat16, float8_e4m3, float8_e5m2)
_SHORT_NAMES = {
    "signed char": "char",
    "unsigned char": "uchar",
    "short": "short",
    "unsigned short": "ushort",
    "int": "int",
    "unsigned": "uint",
    "long long": "ll",
    "unsigned long long": "ull",
}


def convert(text: str, source: DType, target: DType, packed: bool = False) -> Snippet:
    """The value of ``text``, an operand of ``c_type(source)``, converted to ``c_type(target)``; ``text`` is evaluated once.

    Args:
        packed: its neighbors are converted with it, into one register.
    """
    return _called(_convert(text, source, target, packed))


def convert_pair(address: str, values: Sequence[str], *, saturates: bool) -> Snippet:
    """A call that stores two floats as neighbors of ``float8_e4m3`` at an address in registers.

    Args:
        saturates: what is too great becomes the greatest number.
    """
    return _called(f"to_{'saturated_' * saturates}float8_e4m3x2({address}, {', '.join(values)})")


def saturated(text: str) -> Snippet:
    """A ``float`` in ``float8_e4m3``, where what is too great becomes the greatest number."""
    return _called(f"to_saturated_float8_e4m3({text})")


def rounded(text: str, source: DType) -> Snippet:
    """The ``float`` that the value of ``text``, an operand of ``c_type(source)``, is rounded to in bfloat16."""
    converted = _convert(text, source, float32)
    is_exact = source is bfloat16 or source.bits <= BFLOAT16_BITS
    return _called(converted if is_exact else f"rounded_to_bfloat16({converted})")


def bits(text: str) -> Snippet:
    """The bits of a rounded ``float`` in bfloat16."""
    return _called(f"bits_of_bfloat16({text})")


def _called(text: str) -> Snippet:
    return Snippet(text, CONVERSIONS.called(text))


def _convert(text: str, source: DType, target: DType, packed: bool = False) -> str:
    if source is target:
        return text
    if target.is_bool:
        # a small float without its sign: zero or not
        return f"(({text} & 0x{2 ** (source.bits - 1) - 1:x}) != 0)" if source in _SMALL_FLOATS else f"({text} != 0)"
    if source in _SMALL_FLOATS:
        return _convert(f"from_{source}({text})", float32, target, packed)
    if source is float64 and target is float16:
        return f"double_to_float16({text})"
    if target in _SMALL_FLOATS:
        return f"to_{'packed_' * (packed and target.bits == 16)}{target}({_convert(text, source, float32)})"
    if source.is_float and target.is_integer:
        return _truncate(text, c_type(source), target)
    if source.is_integer and source.bits <= 16 and target is float32:
        return f"float_of_{_SHORT_NAMES[c_type(source)]}({text})"
    return f"(({c_type(target)}){text})"


def _truncate(text: str, source: str, target: DType) -> str:
    if target.bits < 32 and source == "double":
        # by way of int: clamped, then clamped again
        return f"(({c_type(target)})min(max({source}_to_int({text}), {target.min_value}), {target.max_value}))"
    return f"{source}_to_{_SHORT_NAMES[c_type(target)]}({text})"
