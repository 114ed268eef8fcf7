"""Quotients and square roots of float that round correctly without the branch that CUDA's own have for zeros, infinities, huge and subnormal numbers.

CUDA's division takes some multiplications and additions for most operands, as exponents do not matter where no step is subnormal or overflows, and a function
call for others. Here are these steps with a scale that keeps them normal and a choice at their end, so that zeros, infinities and NaN take them, too; a
variable tells where they might not be exact. Of a divisor that is a constant the reciprocal is a sum of two numbers, and two steps are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from math import frexp, isfinite
from typing import NamedTuple

SIGNIFICANT = 24
"""Bits of the significand of float32."""
LEAST_DIVISOR, GREATEST_DIVISOR, GREATEST_QUOTIENT = -40, 60, 60
"""Exponents of the magnitudes between which :data:`SPECULATED` divides."""
DIVIDEND_SCALE = 64
"""Exponent by which a dividend is scaled, so that no step is subnormal."""
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

# the steps by which CUDA's division and square root round correctly where no step is subnormal or overflows (as compiled for sm_90): exponents do not matter
# there. A scaled quotient has 24 bits; if it is subnormal without the scale, the second rounding is that of the exact quotient but where it is in the middle
# of two numbers. The first guess is the quotient of 0, with its sign, and of infinity
SPECULATED = f"""
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

// a / b, or false in is_exact
__device__ __forceinline__ float speculated_quotient(float a, float b, bool& is_exact) {{
  float r = approximate_reciprocal(b);
  r = fmaf(r, fmaf(-b, r, 1.0f), r);
  const float x = a * {2.0**DIVIDEND_SCALE}f, guess = x * r, scaled = fmaf(fmaf(-b, guess, x), r, guess), quotient = scaled * {2.0**-DIVIDEND_SCALE}f;
  const float rest = fmaf(-quotient, {2.0**DIVIDEND_SCALE}f, scaled);
  const bool is_great = fabsf(guess) > {2.0 ** (GREATEST_QUOTIENT + DIVIDEND_SCALE)}f;
  is_exact &= !(fabsf(b) < {2.0**LEAST_DIVISOR}f) & !(fabsf(b) > {2.0**GREATEST_DIVISOR}f);
  is_exact &= !(is_great & fabsf(a) <= 3.40282347e+38f) & fabsf(rest) != {2.0 ** (DIVIDEND_SCALE - 150)}f;
  return is_great | guess == 0 ? guess : quotient;
}}

// x; a compiler does not know that, and so computes again of it what else it would keep in registers from the loop before
__device__ __forceinline__ float computed_again(float x) {{
  asm volatile("" : "+f"(x));
  return x;
}}

// a / b in the loop that is executed again: CUDA's division for those elements alone for which that was false
__device__ __forceinline__ float repeated_quotient(float a, float b) {{
  a = computed_again(a);
  bool is_exact = true;
  float quotient = speculated_quotient(a, b, is_exact);
  if (!is_exact) quotient = a / b;
  return quotient;
}}

// the square root of x, or false in is_exact
__device__ __forceinline__ float speculated_sqrt(float x, bool& is_exact) {{
  const float r = approximate_rsqrt(x), guess = x * r, root = fmaf(fmaf(-guess, guess, x), 0.5f * r, guess);
  is_exact &= (x >= {2.0**LEAST_RADICAND}f & x <= 3.40282347e+38f) | x == 0;
  return x == 0 ? x : root;
}}
"""

# `high` and `low` are the two parts of a reciprocal (:func:`reciprocal_parts`), of one sign, so that no sum of infinities is NaN. Twice the bits of a number
# are those of its magnitude; less one, those of 0 are the greatest
BY_CONSTANT = f"""
// x by a constant; where it is not exact, the quotient is less than 2^{LEAST_BY_CONSTANT}, and so is this
__device__ __forceinline__ float constant_quotient(float x, float high, float low) {{
  return fmaf(x, high, x * low);
}}

// the same, or false in is_exact
__device__ __forceinline__ float speculated_constant_quotient(float x, float high, float low, bool& is_exact) {{
  is_exact &= (__float_as_uint(x) << 1) - 1 >= (__float_as_uint({2.0 ** (LEAST_BY_CONSTANT + 1)}f / fabsf(high)) << 1) - 1;
  return constant_quotient(x, high, low);
}}

// x / b in the loop that is executed again
__device__ __forceinline__ float repeated_constant_quotient(float x, float high, float low, float b) {{
  x = computed_again(x);
  bool is_exact = true;
  float quotient = speculated_constant_quotient(x, high, low, is_exact);
  if (!is_exact) quotient = x / b;
  return quotient;
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
