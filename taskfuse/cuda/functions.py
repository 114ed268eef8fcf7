"""Elementwise functions in CUDA C++: the column ``cpp`` of :data:`taskfuse.ir.elementwise.ELEMENTWISE`, instantiated for operands and a dtype.

Semantics are those of the NumPy implementations in ``ELEMENTWISE``. docs/math.md has the errors of the float functions.

Rows of the table also call device functions, for operations without a CUDA operator or function. In these ``T`` is the type of the operands, ``U`` the type in
which it wraps (:func:`taskfuse.cuda.c_types.wrapping_type`). A row uses each operand once; a formula that uses one more often is a device function.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from taskfuse.cuda.c_types import CONVERSIONS, c_type, convert, literal, wrapping_type
from taskfuse.cuda.quotients import BFLOAT16, BY_CONSTANT, NARROW, SCALED, USUAL, reciprocal_parts
from taskfuse.cuda.special_functions import SPECIAL
from taskfuse.cuda.text import Helper, Library, Snippet
from taskfuse.dtypes import DType, DTypeKind, bfloat16, float16, float32
from taskfuse.errors import UnsupportedError
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.spelling import Spelling

_INTEGERS = """
template <typename T, typename U>
__device__ __forceinline__ T absolute(T x) {
  return x < 0 ? (T)(0 - (U)x) : x;
}

template <typename T>
__device__ __forceinline__ T greater(T a, T b) {
  return a > b ? a : b;
}

template <typename T>
__device__ __forceinline__ T lesser(T a, T b) {
  return a < b ? a : b;
}

// a / b rounded to minus infinity; 0 by zero; the least integer by -1 wraps
template <typename T, typename U>
__device__ __forceinline__ T signed_floored_quotient(T a, T b) {
  if (b == 0) return 0;
  if (b == -1) return (T)(0 - (U)a);
  const T quotient = a / b;
  return (a < 0) != (b < 0) && quotient * b != a ? quotient - 1 : quotient;
}

// 0 by zero
template <typename T>
__device__ __forceinline__ T unsigned_quotient(T a, T b) {
  return b == 0 ? 0 : a / b;
}

// the remainder of C, of the sign of a; 0 by zero
template <typename T>
__device__ __forceinline__ T signed_remainder(T a, T b) {
  return b == 0 || b == -1 ? 0 : a % b;
}

// the remainder of the sign of b; 0 by zero
template <typename T>
__device__ __forceinline__ T signed_floored_remainder(T a, T b) {
  const T remainder = signed_remainder<T>(a, b);
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

// 0 by zero
template <typename T>
__device__ __forceinline__ T unsigned_remainder(T a, T b) {
  return b == 0 ? 0 : a % b;
}

// by squaring
template <typename T, typename U>
__device__ __forceinline__ T unsigned_power(T a, T b) {
  U power = 1;
  for (U base = a; b != 0; b >>= 1) {
    if (b & 1) power *= base;
    base *= base;
  }
  return (T)power;
}

// negative powers are the reciprocal rounded to zero, and 0 of 0
template <typename T, typename U>
__device__ __forceinline__ T signed_power(T a, T b) {
  if (b < 0) return a == 1 ? 1 : a != -1 ? 0 : b & 1 ? -1 : 1;
  return unsigned_power<T, U>(a, b);
}

// by Euclid's algorithm
template <typename T>
__device__ __forceinline__ T common_divisor(T a, T b) {
  while (b != 0) {
    const T rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// of the magnitudes: that of the least integer wraps
template <typename T, typename U>
__device__ __forceinline__ T signed_divisor(T a, T b) {
  return (T)common_divisor<U>(a < 0 ? 0 - (U)a : (U)a, b < 0 ? 0 - (U)b : (U)b);
}

// 0 for shifts by the width and more, and by less than 0
template <typename T, typename U>
__device__ __forceinline__ T shifted_left(T a, T b) {
  return (U)b < sizeof(T) * 8 ? (T)((U)a << b) : 0;
}

// the sign alone (0 or -1) for shifts by the width and more, and by less than 0
template <typename T, typename U>
__device__ __forceinline__ T signed_shifted_right(T a, T b) {
  return (U)b < sizeof(T) * 8 ? a >> b : a < 0 ? -1 : 0;
}

// Philox 4x32 of ten rounds (Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011)
__device__ __forceinline__ unsigned philox(unsigned long long key, unsigned long long counter, unsigned long long place) {
  unsigned left = (unsigned)key, right = (unsigned)(key >> 32);
  unsigned a = (unsigned)counter, b = (unsigned)(counter >> 32), c = (unsigned)(place >> 2), d = (unsigned)(place >> 34);
  for (int round = 0; round < 10; ++round) {
    const unsigned long long first = (unsigned long long)a * 0xd2511f53u, second = (unsigned long long)c * 0xcd9e8d57u;
    a = (unsigned)(second >> 32) ^ b ^ left, b = (unsigned)second, c = (unsigned)(first >> 32) ^ d ^ right, d = (unsigned)first;
    left += 0x9e3779b9u, right += 0xbb67ae85u;
  }
  const unsigned word = (unsigned)place & 3;
  return word == 0 ? a : word == 1 ? b : word == 2 ? c : d;
}

// 0 for shifts by the width and more
template <typename T>
__device__ __forceinline__ T unsigned_shifted_right(T a, T b) {
  return b < sizeof(T) * 8 ? a >> b : 0;
}
"""

_NUMBERS = """
template <typename T, typename U>
__device__ __forceinline__ T square(T x) {
  return (T)((U)x * (U)x);
}

// NaN of NaN
template <typename T>
__device__ __forceinline__ T sign(T x) {
  return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x;
}
"""

_FLOATS = """
__device__ __forceinline__ float maximum_or_nan(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

__device__ __forceinline__ float minimum_or_nan(float a, float b) {
  float c;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

// as max.NaN: -0 is less than +0 and NaN is one NaN, so that the order of the operands leaves no trace in the bits
__device__ __forceinline__ double double_maximum_or_nan(double a, double b) {
  if (a != a || b != b) return __longlong_as_double(0x7fffffffffffffff);
  return a > b || (a == b && !signbit(a)) ? a : b;
}

__device__ __forceinline__ double double_minimum_or_nan(double a, double b) {
  if (a != a || b != b) return __longlong_as_double(0x7fffffffffffffff);
  return a < b || (a == b && signbit(a)) ? a : b;
}

// fmod, moved to the sign of b
template <typename T>
__device__ __forceinline__ T float_floored_remainder(T a, T b) {
  const T remainder = fmod(a, b);
  if (remainder == 0) return copysign((T)0, b);
  return (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

// (a - fmod(a, b)) / b is an integer but for rounding: the nearest one, less 1 where the remainder moves to the sign of b
template <typename T>
__device__ __forceinline__ T float_floored_quotient(T a, T b) {
  if (b == 0) return a / b;
  const T remainder = fmod(a, b);
  T quotient = (a - remainder) / b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return copysign((T)0, a / b);
  const T whole = floor(quotient);
  return quotient - whole > (T)0.5 ? whole + 1 : whole;
}

// of any NaN those of one
__device__ __forceinline__ unsigned bits_of_float(float x) {
  return x == x ? __float_as_uint(x) : 0x7fc00000u;
}

__device__ __forceinline__ unsigned long long bits_of_double(double x) {
  return x == x ? (unsigned long long)__double_as_longlong(x) : 0x7ff8000000000000ull;
}

__device__ __forceinline__ float float_of_bits(unsigned x) {
  return __uint_as_float(x);
}
__device__ __forceinline__ double float_of_bits(unsigned long long x) {
  return __longlong_as_double((long long)x);
}

template <typename T>
__device__ __forceinline__ T lerp(T a, T b, T t) {
  return a + t * (b - a);
}

// powf, but for the powers that take a product or two, or a root: of a constant power one of these is left
__device__ __forceinline__ float power(float a, float b) {
  if (b == 1) return a;
  if (b == 2) return a * a;
  if (b == 3) return a * a * a;
  if (b == 4) return a * a * (a * a);
  if (b == -1) return 1 / a;
  if (b == 0.5f) return a == -__int_as_float(0x7f800000) ? -a : sqrtf(a) + 0.0f;
  return powf(a, b);
}

// 1 / d for 1 <= d <= 2, where rcp.approx is off by 1 ulp at most (PTX ISA, "rcp"): one step of Newton leaves little more than a half,
// without the branch that a division takes for subnormal and huge numbers
__device__ __forceinline__ float reciprocal_from_1_to_2(float d) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  return fmaf(r, fmaf(-d, r, 1), r);
}

// 1 / (1 + exp(-x)), by an exponential that does not overflow
__device__ __forceinline__ float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0 ? e : 1.0f) * reciprocal_from_1_to_2(1 + e);
}

__device__ __forceinline__ double double_sigmoid(double x) {
  const double e = exp(-fabs(x));
  return (x < 0 ? e : 1.0) / (1 + e);
}

__device__ __forceinline__ float silu(float x) {
  return x * sigmoid(x);
}

__device__ __forceinline__ double double_silu(double x) {
  return x * double_sigmoid(x);
}

// normcdf(x) is (1 + erf(x / sqrt(2))) / 2, without the cancellation for negative x
__device__ __forceinline__ float gelu(float x) {
  return x * normcdff(x);
}

__device__ __forceinline__ double double_gelu(double x) {
  return x * normcdf(x);
}

// sigmoid(2 u) is (1 + tanh(u)) / 2, without the cancellation for negative u
__device__ __forceinline__ float gelu_tanh(float x) {
  const float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return x * sigmoid(2 * u);
}

__device__ __forceinline__ double double_gelu_tanh(double x) {
  const double u = 0.7978845608028654 * (x + 0.044715 * x * x * x);
  return x * double_sigmoid(2 * u);
}
"""

NORMAL_TAIL_SHIFT = 2.5
NORMAL_TAIL = (0.399088591, 0.989070654, 2.28653002, 0.870891035, 18.6513863, -76.2577667, 101.642593, -48.3536034)
"""Coefficients, lowest first, of a polynomial p in y = 1 / (t + :data:`NORMAL_TAIL_SHIFT`): y * p(y) * exp(-t * t / 2) is the upper tail of the normal
distribution at t, with a relative error of 2^-21 for t from 0 to 14.5. Fitted for the least relative error.
"""

SIGMOID_EXPONENT = -0.72134752
"""sigmoid(x) is 1 / (1 + 2^(2 * c * x)) with c = -log2(e) / 2."""
GELU_EXPONENT = (-1.15110409, -0.0514716208)
"""The tanh form of gelu is x / (1 + 2^(2 * x * (c0 + c1 * x * x))): c times 2 * sqrt(2 / pi), and 0.044715 of that."""


def _tail() -> str:
    """The polynomial by Horner's rule."""
    text = f"{NORMAL_TAIL[-1]}f"
    for c in reversed(NORMAL_TAIL[:-1]):
        text = f"fmaf({text}, y, {c}f)"
    return text


RECIPROCAL_MAGIC = 0x7EF31000
"""Less the bits of a positive float, the bits of about its reciprocal: off by 5.06% at most (for 1 <= d < 2, and so for any exponent)."""
RECIPROCAL_CENTER = 1 + 3.26e-6
"""With the relative error e of that, its product with (1 + e) * (1 + e * e) is off by e^4, from 0 to 6.5e-6: this is the middle."""
GREATEST_ROOT = 63.0
"""Exponent of a root from which on 2^-24 divided by its square is 0 in float32, so that 1 + its square has a reciprocal."""

# float32 for results that are rounded to 16 bits: without the last bits, one instruction of the special function units is an exponential or a reciprocal. It
# makes subnormal numbers 0 (forms that do not are three instructions more), so an exponential is the square of its root, and of a sum 2^-24 is inverted:
# its reciprocal is no subnormal number where the result in 16 bits is not 0. Products of exponents round: of the result, 2^-16.5 where it is 2^-126,
# 2^-19 where it is 2^-24
_ROUNDED = f"""
__device__ __forceinline__ float rounded_exp2(float x) {{
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}}

__device__ __forceinline__ float rounded_reciprocal(float x) {{
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}}

// 1 / (1 + 2^(2 * x + 24))
__device__ __forceinline__ float rounded_logistic(float x) {{
  const float root = rounded_exp2(x);
  return {2.0**-24}f * rounded_reciprocal(fmaf(root, root, {2.0**-24}f));
}}

// the same with a reciprocal of five other instructions
__device__ __forceinline__ float balanced_logistic(float x) {{
  const float root = rounded_exp2(minimum_or_nan(x, {GREATEST_ROOT}f));
  const float d = fmaf(root, root, {2.0**-24}f);
  const float r = __uint_as_float({RECIPROCAL_MAGIC:#x}u - __float_as_uint(d)), e = fmaf(-d, r, 1.0f);
  return {2.0**-24 * RECIPROCAL_CENTER}f * (fmaf(r, e, r) * fmaf(e, e, 1.0f));
}}

__device__ __forceinline__ float exponent_of_sigmoid(float x) {{
  return fmaf(x, {SIGMOID_EXPONENT}f, -12.0f);
}}

__device__ __forceinline__ float exponent_of_gelu(float x) {{
  return fmaf(x, fmaf({GELU_EXPONENT[1]}f, x * x, {GELU_EXPONENT[0]}f), -12.0f);
}}

__device__ __forceinline__ float rounded_sigmoid(float x) {{
  return rounded_logistic(exponent_of_sigmoid(x));
}}

__device__ __forceinline__ float balanced_sigmoid(float x) {{
  return balanced_logistic(exponent_of_sigmoid(x));
}}

__device__ __forceinline__ float rounded_silu(float x) {{
  return x * rounded_sigmoid(x);
}}

__device__ __forceinline__ float balanced_silu(float x) {{
  return x * balanced_sigmoid(x);
}}

__device__ __forceinline__ float rounded_gelu_tanh(float x) {{
  return x * rounded_logistic(exponent_of_gelu(x));
}}

__device__ __forceinline__ float balanced_gelu_tanh(float x) {{
  return x * balanced_logistic(exponent_of_gelu(x));
}}

// x times the share of a normal distribution below x
__device__ __forceinline__ float rounded_gelu(float x) {{
  const float y = rounded_reciprocal(fabsf(x) + {NORMAL_TAIL_SHIFT}f);
  const float root = rounded_exp2(-0.36067376f * x * x);
  const float tail = {_tail()} * y * root * root;
  return x * (x < 0 ? tail : 1 - tail);
}}
"""

# float32 by the special function units
_FAST = """
__device__ __forceinline__ float fast_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// __powf, which has no negative bases, of the absolute value
__device__ __forceinline__ float fast_power(float a, float b) {
  if (b == 0) return 1;
  const float power = __powf(fabsf(a), b);
  if (a >= 0 || a != a) return power;
  if (truncf(b) != b) return __int_as_float(0x7fffffff);
  return fmodf(b, 2) == 0 ? power : -power;
}

__device__ __forceinline__ float fast_sigmoid(float x) {
  return __fdividef(1, 1 + __expf(-x));
}

__device__ __forceinline__ float fast_silu(float x) {
  return x * fast_sigmoid(x);
}

__device__ __forceinline__ float fast_gelu_tanh(float x) {
  const float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return x * fast_sigmoid(2 * u);
}
"""

# two 16-bit floats in one word. A sum or a product in float32 that is then rounded is the exact one rounded once, as 24 bits are at least 2 * 11 + 2
# (Figueroa, "When is double rounding innocuous?", 1995), and so is that of fma. -0 and +0 are in order, and NaN is one NaN, as for float32
_PAIRS = """
__device__ __forceinline__ unsigned {P}_maximum(unsigned a, unsigned b) {{
  unsigned c;
  asm("max.NaN.{P} %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
  return c;
}}

__device__ __forceinline__ unsigned {P}_minimum(unsigned a, unsigned b) {{
  unsigned c;
  asm("min.NaN.{P} %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
  return c;
}}

__device__ __forceinline__ unsigned {P}_sum(unsigned a, unsigned b) {{
  unsigned c;
  asm("fma.rn.{P} %0, %1, %2, %3;" : "=r"(c) : "r"(a), "r"({one}), "r"(b));
  return c;
}}

__device__ __forceinline__ unsigned {P}_difference(unsigned a, unsigned b) {{
  return {P}_sum(a, b ^ 0x80008000u);
}}

// plus -0: that leaves the sign of 0 as it is
__device__ __forceinline__ unsigned {P}_product(unsigned a, unsigned b) {{
  unsigned c;
  asm("fma.rn.{P} %0, %1, %2, %3;" : "=r"(c) : "r"(a), "r"(b), "r"(0x80008000u));
  return c;
}}
"""
_PAIR_TYPES = {bfloat16: ("bf16x2", "0x3f803f80u"), float16: ("f16x2", "0x3c003c00u")}

DEVICE_FUNCTIONS = Library(
    _INTEGERS,
    _NUMBERS,
    _FLOATS,
    SPECIAL,
    BFLOAT16,
    USUAL,
    SCALED,
    BY_CONSTANT,
    NARROW,
    _ROUNDED,
    _FAST,
    *(_PAIRS.format(P=name, one=one) for name, one in _PAIR_TYPES.values()),
)


def call(
    op: Elementwise,
    operands: Sequence[str],
    dtype: DType,
    fast_math: bool = False,
    *,
    is_bfloat16: bool = False,
    is_rounded: bool = False,
    is_narrow: bool = False,
    turn: str | None = None,
    is_usual: bool | None = None,
    divisor: float | None = None,
) -> Snippet:
    """``op`` on operands of ``dtype`` (a selector is a bool), as C++ of type ``c_type(op.result_dtype(dtype))``.

    Args:
        operands: texts that are valid operands; each is evaluated at most once.
        dtype: the compute dtype. Floats below 32 bits are computed in float and rounded once.
        fast_math: use the faster and less accurate forms of float.
        is_bfloat16: the operands are bfloat16 that were converted to float, and the result will be rounded to it.
        is_rounded: the result will be rounded to 16 bits.
        is_narrow: the result will be converted to other numbers of at most 16 bits than bfloat16, and neighbors have the same second operand.
        turn: an integer that is constant where this is compiled, and one more for the next element: of two neighbors one takes the form that leaves the
            special function units to the other.
        is_usual: for a loop of which the text has two versions: true where :func:`usual_condition` holds of all its elements; false in the other one.
        divisor: the last operand, if that is a number of float32.

    Raises :class:`UnsupportedError` if the function does not accept the dtype.
    """
    if dtype.compute is not dtype and not op.cpp.moves:
        return _in_float(op, operands, dtype, fast_math, turn)
    text = _form(op.cpp, dtype, fast_math)
    if is_bfloat16 and not fast_math and dtype is float32 and op.cpp.bfloat16 is not None:
        text = op.cpp.bfloat16
    elif is_rounded and dtype is float32 and op.cpp.rounded is not None and (not fast_math or op.cpp.fast is None):
        text = op.cpp.rounded
        if turn is not None and op.cpp.balanced is not None:
            text = f"({turn} % 2 == 0 ? {op.cpp.rounded} : {op.cpp.balanced})"
    elif is_narrow and dtype is float32 and op.cpp.narrow is not None and not fast_math:
        text = _by_constant(op.cpp, divisor, "{F}({0}, {H}, {L})") or op.cpp.narrow
    elif is_usual is True and dtype is float32 and op.cpp.usual is not None and not fast_math:
        text = _by_constant(op.cpp, divisor, "{F}({0}, {H}, {L})") or op.cpp.usual
    elif is_usual is False and dtype is float32 and op.cpp.for_any is not None and not fast_math:
        text = _by_constant(op.cpp, divisor, "any_{F}({0}, {H}, {L}, {1})") or op.cpp.for_any
    if text is None:
        raise UnsupportedError(what=f"{op.name} of {dtype}", reason="the CUDA backend has no form of it")
    return _filled(text, operands, dtype)


def usual_condition(op: Elementwise, operands: Sequence[str], divisor: float | None) -> Snippet:
    """Whether operands of float32 are such that ``op`` has a form with ``is_usual`` for them, as C++ of type bool. Arguments are those of :func:`call`."""
    assert op.cpp.usual_condition is not None
    return _filled(_by_constant(op.cpp, divisor, "is_usual_{F}({0}, {H})") or op.cpp.usual_condition, operands, float32)


def _filled(text: str, operands: Sequence[str], dtype: DType) -> Snippet:
    apart = [f"({operand})" if operand.startswith("-") else operand for operand in operands]  # no minus sign after another one
    return Snippet(text.format(*apart, T=c_type(dtype), U=wrapping_type(dtype)), DEVICE_FUNCTIONS.called(text))


def _by_constant(row: Spelling, divisor: float | None, form: str) -> str | None:
    """The form for a divisor that is a number, if it has one."""
    parts = reciprocal_parts(divisor) if row.by_constant is not None and divisor is not None else None
    if parts is None or row.by_constant is None:
        return None
    return form.replace("{F}", row.by_constant).replace("{H}", literal(parts.high, float32)).replace("{L}", literal(parts.low, float32))


def call_of_pair(op: Elementwise, operands: Sequence[str], dtype: DType) -> Snippet:
    """``op`` on words of two floats of 16 bits, as a word. It has a form for them (:attr:`~taskfuse.ir.spelling.Spelling.pair`).

    Args:
        operands: texts that are valid operands; each is evaluated once.
        dtype: float16 or bfloat16.
    """
    assert op.cpp.pair is not None
    text = op.cpp.pair.format(*operands, P=_PAIR_TYPES[dtype][0])
    return Snippet(text, DEVICE_FUNCTIONS.called(text))


def _in_float(op: Elementwise, operands: Sequence[str], dtype: DType, fast_math: bool, turn: str | None) -> Snippet:
    converted = [convert(operand, dtype, dtype.compute) for operand in operands]
    value = call(
        op,
        [operand.text for operand in converted],
        dtype.compute,
        fast_math,
        is_bfloat16=dtype is bfloat16,
        is_rounded=dtype.is_float and dtype.bits == 16,
        turn=turn,
    )
    result = op.result_dtype(dtype)
    rounded = convert(value.text, op.result_dtype(dtype.compute), result)
    return Snippet(rounded.text, frozenset[Helper]().union(value.helpers, rounded.helpers, *(operand.helpers for operand in converted)))


def _form(row: Spelling, dtype: DType, fast_math: bool) -> str | None:
    match dtype.kind:
        case DTypeKind.INT:
            return row.signed
        case DTypeKind.UINT:
            return row.unsigned
        case DTypeKind.BOOL:
            return row.boolean
        case DTypeKind.FLOAT if dtype.bits == 64:
            return row.f64
        case DTypeKind.FLOAT:
            return row.fast if fast_math and row.fast is not None else row.f32


_ROWS = tuple(op.cpp for op in ELEMENTWISE.values())
_FORMS = [
    form
    for row in _ROWS
    for form in (
        row.f32,
        row.f64,
        row.signed,
        row.unsigned,
        row.fast,
        row.bfloat16,
        row.rounded,
        row.balanced,
        row.usual,
        row.usual_condition,
        row.for_any,
        row.by_constant,
    )
    if form is not None
]
# what the texts of this module and of conversions call: no variable may have such a name where they stand
_OF_PAIRS = [row.pair.replace("{P}", name) for row in _ROWS for name, _ in _PAIR_TYPES.values() if row.pair is not None]
IDENTIFIERS: frozenset[str] = frozenset(re.findall(r"[a-zA-Z_]\w+", " ".join((*_FORMS, *_OF_PAIRS)))) | CONVERSIONS.helpers.keys()
