"""Quotients and square roots of float that round correctly without the branch that CUDA's own have for zeros, infinities, huge and subnormal numbers.

CUDA's division takes some multiplications and additions for most operands, as exponents do not matter where no step is subnormal or overflows, and a function
call for others. Here are these steps alone, with the condition on operands under which they are exact; and these steps with a scale that keeps them normal and
with the second rounding of results that are subnormal, for all dividends. Of a divisor that is a constant the reciprocal is a sum of two numbers, and two steps
are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from math import frexp, isfinite
from typing import NamedTuple

SIGNIFICANT = 24
"""Bits of the significand of float32."""
LEAST_USUAL_DIVIDEND, GREATEST_USUAL_DIVIDEND, GREATEST_USUAL_DIVISOR = -100, 60, 24
"""Exponents of the magnitudes between which no step of a quotient is subnormal or overflows; the least divisor is that of the scaled steps."""
LEAST_DIVISOR, GREATEST_DIVISOR = -40, 60
"""Exponents of the magnitudes of divisors for which the scaled steps are exact."""
SCALE = 64
"""Exponent by which a dividend is scaled, up or down, so that no step is subnormal or overflows."""
LEAST_RADICAND = -100
"""Exponent of the least number of which it takes a root."""
LEAST_BY_CONSTANT = -97
"""Exponent from which on quotients by a constant are exact: where the lesser product is subnormal, its error of 2^-150 is 2^-30 of a unit in the last place."""

# of operands that are bfloat16, for results that are rounded to bfloat16: with 8 significant bits each, a quotient is not nearer to the middle of two
# bfloat16 than by 2^-17 of it unless it is the middle, which takes a subnormal result, and a root never
BFLOAT16 = """
// at most 2 ulp off, for all operands (PTX ISA, "div"): a / b in bfloat16
__device__ __forceinline__ float bfloat16_quotient(float a, float b) {
  float quotient;
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
}

__device__ __forceinline__ float bfloat16_sqrt(float x) {
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}
"""

# the steps by which CUDA's division and square root round correctly where no step is subnormal or overflows (as compiled for sm_90). Twice the bits of a number
# are those of its magnitude; less one, those of 0 are the greatest. The first guess is the quotient of 0, with its sign
USUAL = f"""
__device__ __forceinline__ float approximate_reciprocal(float x) {{
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}}

__device__ __forceinline__ float approximate_rsqrt(float x) {{
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}}

// 0, NaN, or a magnitude of at least `least`
__device__ __forceinline__ bool is_zero_or_from(float x, float least) {{
  return (__float_as_uint(x) << 1) - 1 >= (__float_as_uint(least) << 1) - 1;
}}

__device__ __forceinline__ bool is_usual_quotient(float a, float b) {{
  const float divisor = fabsf(b);
  return divisor >= {2.0**LEAST_DIVISOR}f & divisor <= {2.0**GREATEST_USUAL_DIVISOR}f
         & is_zero_or_from(a, {2.0**LEAST_USUAL_DIVIDEND}f) & !(fabsf(a) > {2.0**GREATEST_USUAL_DIVIDEND}f);
}}

// a / b where is_usual_quotient(a, b)
__device__ __forceinline__ float usual_quotient(float a, float b) {{
  float r = approximate_reciprocal(b);
  r = fmaf(r, fmaf(-b, r, 1.0f), r);
  const float guess = a * r, quotient = fmaf(fmaf(-b, guess, a), r, guess);
  return guess == 0 ? guess : quotient;
}}

__device__ __forceinline__ bool is_usual_radicand(float x) {{
  return (x >= {2.0**LEAST_RADICAND}f & x <= 3.40282347e+38f) | x == 0;
}}

// the square root of x where is_usual_radicand(x)
__device__ __forceinline__ float usual_sqrt(float x) {{
  const float r = approximate_rsqrt(x), guess = x * r, root = fmaf(fmaf(-guess, guess, x), 0.5f * r, guess);
  return x == 0 ? x : root;
}}
"""

# A scaled quotient has 24 bits. If it is subnormal without the scale, it is rounded again, to a multiple of 2^-149, and that is the exact quotient rounded once
# unless the scaled one is in the middle of two such numbers and the exact one is not. Then what is left of the dividend, which float32 has, is more than half
# of what such a multiple takes of it, and the next number is the right one. The first guess is the quotient of 0, with its sign, and of infinity
SCALED = f"""
// the number next to a subnormal quotient of a dividend that was scaled by 2^{SCALE}, where that is nearer; else the quotient
__device__ __forceinline__ float rounded_once(float quotient, float scaled_dividend, float b) {{
  const float rest = fmaf(-b, quotient * {2.0**SCALE}f, scaled_dividend);
  const bool is_beyond = fabsf(rest) > fabsf(b) * {2.0 ** (SCALE - 150)}f & fabsf(quotient) <= {2.0**-126}f;
  const float unit = __uint_as_float((__float_as_uint(rest) ^ __float_as_uint(b)) & 0x80000000u | 1u);
  return is_beyond ? quotient + unit : quotient;
}}

// a / b, for all numbers
__device__ __forceinline__ float any_quotient(float a, float b) {{
  float r = approximate_reciprocal(b);
  r = fmaf(r, fmaf(-b, r, 1.0f), r);
  const bool is_great = fabsf(a) > 1.0f;
  const float x = a * (is_great ? {2.0**-SCALE}f : {2.0**SCALE}f), guess = x * r, scaled = fmaf(fmaf(-b, guess, x), r, guess);
  const float quotient = scaled * (is_great ? {2.0**SCALE}f : {2.0**-SCALE}f);
  float found = guess == 0 | fabsf(guess) > 3.40282347e+38f ? guess : is_great ? quotient : rounded_once(quotient, x, b);
  if (fabsf(b) < {2.0**LEAST_DIVISOR}f | fabsf(b) > {2.0**GREATEST_DIVISOR}f) found = a / b;
  return found;
}}
"""

# `high` and `low` are the two parts of a reciprocal (:func:`reciprocal_parts`), of one sign, so that no sum of infinities is NaN
BY_CONSTANT = f"""
// x by a constant; where it is not exact, the quotient is less than 2^{LEAST_BY_CONSTANT}, and so is this
__device__ __forceinline__ float constant_quotient(float x, float high, float low) {{
  return fmaf(x, high, x * low);
}}

__device__ __forceinline__ bool is_usual_constant_quotient(float x, float high) {{
  return is_zero_or_from(x, {2.0 ** (LEAST_BY_CONSTANT + 1)}f / fabsf(high));
}}

// x / b, for all numbers
__device__ __forceinline__ float any_constant_quotient(float x, float high, float low, float b) {{
  const bool is_small = fabsf(x) < 1.0f & x != 0;
  const float y = is_small ? x * {2.0**SCALE}f : x, quotient = constant_quotient(y, high, low);
  return is_small ? rounded_once(quotient * {2.0**-SCALE}f, y, b) : quotient;
}}
"""

LEAST_NARROW, GREATEST_NARROW = -100, 24
"""Exponents of the magnitudes between which :data:`NARROW` divides: below are no numbers of 16 bits but 0, from 2^24 on is none that is finite."""

# of operands scaled so that the divisor is near 1, which leaves the quotient as it is, its steps neither overflow nor, unless it is less than 2^-100, are
# subnormal. The scale and the reciprocal are those of all elements that share the divisor. The first guess is the quotient of 0, with its sign, by 0 and by
# infinity, and too great where that is
NARROW = f"""
// a / b where only numbers of at most 16 bits but no bfloat16 are made of it: less than 2^{LEAST_NARROW}, and 2^{GREATEST_NARROW} and more, it is not exact
__device__ __forceinline__ float narrow_quotient(float a, float b) {{
  const unsigned exponent = __float_as_uint(b) >> 23 & 255;
  const float scale = __uint_as_float((254 - (exponent < 253 ? exponent : 253)) << 23);
  const float x = a * scale, d = b * scale, first = approximate_reciprocal(d), second = fmaf(first, fmaf(-d, first, 1.0f), first);
  const float r = second == second ? second : first;
  const float guess = x * r;
  return fabsf(guess) < {2.0**GREATEST_NARROW}f & guess != 0 ? fmaf(fmaf(-d, guess, x), r, guess) : guess;
}}
"""


class ReciprocalParts(NamedTuple):
    """A reciprocal as the sum of two numbers of float32, the greater one first, of one sign."""

    high: float
    low: float


@cache
def reciprocal_parts(divisor: float) -> ReciprocalParts | None:
    """The reciprocal of a constant such that ``fma(x, high, x * low)`` is ``x / divisor``, correctly rounded, for all x of float32 unless the quotient is
    less than 2^-97 in magnitude (after Brisebarre and Muller, "Correctly rounded multiplication by arbitrary precision constants", 2008).

    ``high`` is the reciprocal, truncated, and ``low`` the rest, rounded. In units of the last place of the quotient, the errors of ``low`` and of the product
    with it are less than 2^-22 together, and 2^-30 more where that is subnormal. A quotient by a number with the odd significand d is no middle of two
    numbers, and a multiple of 1 / 2d away from it: only those that are less than 2^-22 away need a look, and these are few (:func:`_near_middles`).

    Args:
        divisor: a number of float32.

    Returns:
        ``None`` for a power of two, whose quotients are products; for 0, infinity, NaN, numbers outside of 2^-40 to 2^60, and those that float32 lacks; and
        if some quotient would not be correctly rounded.
    """
    if not isfinite(divisor) or not 2.0**LEAST_DIVISOR <= abs(divisor) <= 2.0**GREATEST_DIVISOR or abs(frexp(divisor)[0]) == 0.5:
        return None
    if divisor * 2.0 ** (SIGNIFICANT - frexp(divisor)[1]) % 1:
        return None
    exact = 1 / Fraction(divisor)
    high = _truncated(exact)
    low = _rounded(exact - high)
    for x in _near_middles(Fraction(divisor)):
        least = _unit(x * exact) / 2**30 if abs(low) < abs(high) / 2**28 else 0  # a lesser product is subnormal only then
        if any(_rounded(x * high + _rounded(x * low) + off) != _rounded(x * exact) for off in (-least, 0, least)):
            return None
    return ReciprocalParts(float(high), float(low))


def _near_middles(divisor: Fraction) -> Iterator[int]:
    """The dividends of 24 bits whose quotients are less than 2^-22 of a unit in their last place away from the middle of two numbers."""
    odd = abs(divisor.numerator)
    odd //= odd & -odd
    most = odd >> (SIGNIFICANT - 3)  # the multiples of 1 / 2d that are less than 2^-22 away
    for shift in (odd.bit_length() - 1, odd.bit_length()):  # a quotient has 24 bits after a shift by one of these
        inverse = pow(2, -(shift + 1), odd)
        for away in range(-most | 1, most + 1, 2):
            first = away * inverse % odd
            yield from range(first + -(-((1 << SIGNIFICANT - 1) - first) // odd) * odd, 1 << SIGNIFICANT, odd)


def _truncated(x: Fraction) -> Fraction:
    """The number of 24 bits that is next to x towards 0."""
    unit = _unit(x)
    return (abs(x) // unit) * unit * (1 if x > 0 else -1)


def _rounded(x: Fraction) -> Fraction:
    """The number of 24 bits that is next to x, of any exponent; of two that of an even last bit."""
    return Fraction(0) if x == 0 else round(x / _unit(x)) * _unit(x)


def _unit(x: Fraction) -> Fraction:
    """A unit in the last of 24 bits of x."""
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    exponent += abs(x) >= Fraction(2) ** exponent  # the magnitude is less than 2^exponent now
    return Fraction(2) ** (exponent - SIGNIFICANT)
