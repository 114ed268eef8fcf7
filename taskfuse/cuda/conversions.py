"""Conversions between dtypes, as ``taskfuse.ir.values`` defines them: to nearest even into floats, truncated and clamped into integers.

The small floats convert through ``float``, as in ml_dtypes; float64 to float16 alone is rounded once. NaN stays NaN.
"""

from __future__ import annotations

from taskfuse.cuda.c_types import c_type
from taskfuse.cuda.device_library import Library
from taskfuse.cuda.text import Fragment
from taskfuse.dtypes import DType, bfloat16, float8_e4m3, float8_e5m2, float16, float32, float64

_FLOAT16 = """
__device__ __forceinline__ float from_float16(unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}

__device__ __forceinline__ unsigned short to_float16(float x) {
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

__device__ __forceinline__ unsigned short to_bfloat16(float x) {
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

// NaN above 464, the middle between the greatest number and the next
__device__ __forceinline__ unsigned char to_float8_e4m3(float x) {
  const unsigned bits = __float_as_uint(x), magnitude = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
  if (magnitude > 0x43e80000) return sign | 0x7f;
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return pair;
#else
  return sign | round_to_float8<3, 7>(magnitude);
#endif
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
  const unsigned magnitude = bits & 0x7f, sign = bits & 0x80;
  return magnitude == 0x7f ? __int_as_float(0x7fffffff) : from_float16(sign << 8 | magnitude << 7) * 256;
}

// the upper half of a float16
__device__ __forceinline__ float from_float8_e5m2(unsigned char bits) {
  return from_float16((unsigned)bits << 8);
}
"""

# the instructions clamp; what they make of NaN depends on the types
_INTEGERS = "\n\n".join(
    f"""
__device__ __forceinline__ {target} {source}_to_{short}({source} x) {{
  return x != x ? 0 : __{source}2{short}_rz(x);
}}"""
    for source in ("float", "double")
    for short, target in (("int", "int"), ("uint", "unsigned"), ("ll", "long long"), ("ull", "unsigned long long"))
)

CONVERSIONS = Library(_FLOAT16, _FLOAT8, _INTEGERS)

_SMALL_FLOATS = (float16, bfloat16, float8_e4m3, float8_e5m2)
_SHORT_NAMES = {"int": "int", "unsigned": "uint", "long long": "ll", "unsigned long long": "ull"}


def convert(text: str, source: DType, target: DType) -> Fragment:
    """The value of ``text``, an operand of ``c_type(source)``, as one of ``c_type(target)``; ``text`` is evaluated once."""
    converted = _convert(text, source, target)
    return Fragment(converted, CONVERSIONS.called(converted))


def _convert(text: str, source: DType, target: DType) -> str:
    if source is target:
        return text
    if target.is_bool:
        # a small float without its sign: zero or not
        return f"(({text} & 0x{2 ** (source.bits - 1) - 1:x}) != 0)" if source in _SMALL_FLOATS else f"({text} != 0)"
    if source in _SMALL_FLOATS:
        return _convert(f"from_{source}({text})", float32, target)
    if source is float64 and target is float16:
        return f"double_to_float16({text})"
    if target in _SMALL_FLOATS:
        return f"to_{target}({_convert(text, source, float32)})"
    if source.is_float and target.is_integer:
        return _truncate(text, c_type(source), target)
    return f"(({c_type(target)}){text})"


def _truncate(text: str, source: str, target: DType) -> str:
    if target.bits < 32:
        # by way of int: clamped, then clamped again
        return f"(({c_type(target)})min(max({source}_to_int({text}), {target.min_value}), {target.max_value}))"
    return f"{source}_to_{_SHORT_NAMES[c_type(target)]}({text})"
