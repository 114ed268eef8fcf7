"""Elementwise functions. Made from the rows of :mod:`taskfuse.ir.elementwise` by `make golden`: change a row, not this module.

Operands are tensors, run-time scalars and Python numbers. They broadcast and promote as in NumPy 2 (see
:func:`taskfuse.dtypes.result_type`). Functions with float results turn bool and integers into floats. Every function raises
:class:`~taskfuse.errors.DTypeError`, :class:`~taskfuse.errors.ShapeError` or :class:`~taskfuse.errors.FusionError` at the call.
"""

from __future__ import annotations

from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.tensor import TensorView, Value
from taskfuse.ops.build import pointwise
from taskfuse.ops.registry import elementwise

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "ceil",
    "copy",
    "copysign",
    "cos",
    "cosh",
    "digamma",
    "div",
    "eq",
    "erf",
    "erfc",
    "erfcinv",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "float_bits",
    "float_of_bits",
    "floor",
    "floor_divide",
    "fma",
    "fmax",
    "fmin",
    "fmod",
    "gcd",
    "ge",
    "gelu",
    "gelu_tanh",
    "gt",
    "hypot",
    "isfinite",
    "isinf",
    "isnan",
    "le",
    "left_shift",
    "lerp",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "lt",
    "maximum",
    "minimum",
    "mul",
    "ne",
    "neg",
    "philox",
    "pow",
    "reciprocal",
    "relu",
    "remainder",
    "right_shift",
    "rsqrt",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "sub",
    "tan",
    "tanh",
    "trunc",
    "where",
    "zeta",
]


@elementwise
def copy(x: Value) -> TensorView:
    """A copy of ``x`` in its own storage."""
    return pointwise(ELEMENTWISE["copy"], (x,))


@elementwise
def neg(x: Value) -> TensorView:
    """-x. Not for bool."""
    return pointwise(ELEMENTWISE["neg"], (x,))


@elementwise
def abs(x: Value) -> TensorView:
    """The absolute value."""
    return pointwise(ELEMENTWISE["abs"], (x,))


@elementwise
def sign(x: Value) -> TensorView:
    """-1, 0 or 1; NaN stays. Not for bool."""
    return pointwise(ELEMENTWISE["sign"], (x,))


@elementwise
def floor(x: Value) -> TensorView:
    """The greatest integer not above, in the dtype of ``x``. Not for bool."""
    return pointwise(ELEMENTWISE["floor"], (x,))


@elementwise
def ceil(x: Value) -> TensorView:
    """The least integer not below, in the dtype of ``x``. Not for bool."""
    return pointwise(ELEMENTWISE["ceil"], (x,))


@elementwise
def trunc(x: Value) -> TensorView:
    """The integer part, in the dtype of ``x``. Not for bool."""
    return pointwise(ELEMENTWISE["trunc"], (x,))


@elementwise
def square(x: Value) -> TensorView:
    """x * x. Not for bool."""
    return pointwise(ELEMENTWISE["square"], (x,))


@elementwise
def sqrt(x: Value) -> TensorView:
    """The square root."""
    return pointwise(ELEMENTWISE["sqrt"], (x,))


@elementwise
def rsqrt(x: Value) -> TensorView:
    """1 / sqrt(x)."""
    return pointwise(ELEMENTWISE["rsqrt"], (x,))


@elementwise
def reciprocal(x: Value) -> TensorView:
    """1 / x, a float."""
    return pointwise(ELEMENTWISE["reciprocal"], (x,))


@elementwise
def exp(x: Value) -> TensorView:
    """e to the power x."""
    return pointwise(ELEMENTWISE["exp"], (x,))


@elementwise
def exp2(x: Value) -> TensorView:
    """2 to the power x."""
    return pointwise(ELEMENTWISE["exp2"], (x,))


@elementwise
def expm1(x: Value) -> TensorView:
    """exp(x) - 1, exact near 0."""
    return pointwise(ELEMENTWISE["expm1"], (x,))


@elementwise
def log(x: Value) -> TensorView:
    """The natural logarithm."""
    return pointwise(ELEMENTWISE["log"], (x,))


@elementwise
def log2(x: Value) -> TensorView:
    """The logarithm to base 2."""
    return pointwise(ELEMENTWISE["log2"], (x,))


@elementwise
def log10(x: Value) -> TensorView:
    """The logarithm to base 10."""
    return pointwise(ELEMENTWISE["log10"], (x,))


@elementwise
def log1p(x: Value) -> TensorView:
    """log(1 + x), exact near 0."""
    return pointwise(ELEMENTWISE["log1p"], (x,))


@elementwise
def sin(x: Value) -> TensorView:
    """The sine, in radians."""
    return pointwise(ELEMENTWISE["sin"], (x,))


@elementwise
def cos(x: Value) -> TensorView:
    """The cosine, in radians."""
    return pointwise(ELEMENTWISE["cos"], (x,))


@elementwise
def tan(x: Value) -> TensorView:
    """The tangent, in radians."""
    return pointwise(ELEMENTWISE["tan"], (x,))


@elementwise
def asin(x: Value) -> TensorView:
    """The inverse sine, in [-pi/2, pi/2]."""
    return pointwise(ELEMENTWISE["asin"], (x,))


@elementwise
def acos(x: Value) -> TensorView:
    """The inverse cosine, in [0, pi]."""
    return pointwise(ELEMENTWISE["acos"], (x,))


@elementwise
def atan(x: Value) -> TensorView:
    """The inverse tangent, in [-pi/2, pi/2]."""
    return pointwise(ELEMENTWISE["atan"], (x,))


@elementwise
def sinh(x: Value) -> TensorView:
    """The hyperbolic sine."""
    return pointwise(ELEMENTWISE["sinh"], (x,))


@elementwise
def cosh(x: Value) -> TensorView:
    """The hyperbolic cosine."""
    return pointwise(ELEMENTWISE["cosh"], (x,))


@elementwise
def tanh(x: Value) -> TensorView:
    """The hyperbolic tangent."""
    return pointwise(ELEMENTWISE["tanh"], (x,))


@elementwise
def asinh(x: Value) -> TensorView:
    """The inverse hyperbolic sine."""
    return pointwise(ELEMENTWISE["asinh"], (x,))


@elementwise
def acosh(x: Value) -> TensorView:
    """The inverse hyperbolic cosine, nonnegative."""
    return pointwise(ELEMENTWISE["acosh"], (x,))


@elementwise
def atanh(x: Value) -> TensorView:
    """The inverse hyperbolic tangent."""
    return pointwise(ELEMENTWISE["atanh"], (x,))


@elementwise
def erf(x: Value) -> TensorView:
    """The error function."""
    return pointwise(ELEMENTWISE["erf"], (x,))


@elementwise
def erfc(x: Value) -> TensorView:
    """1 - erf(x), exact for large x."""
    return pointwise(ELEMENTWISE["erfc"], (x,))


@elementwise
def erfinv(x: Value) -> TensorView:
    """The inverse of the error function, for x in [-1, 1]."""
    return pointwise(ELEMENTWISE["erfinv"], (x,))


@elementwise
def erfcinv(x: Value) -> TensorView:
    """The inverse of ``erfc``, for x in [0, 2]."""
    return pointwise(ELEMENTWISE["erfcinv"], (x,))


@elementwise
def lgamma(x: Value) -> TensorView:
    """The logarithm of the absolute value of the gamma function; infinite at 0, -1, -2, ..."""
    return pointwise(ELEMENTWISE["lgamma"], (x,))


@elementwise
def digamma(x: Value) -> TensorView:
    """The derivative of the logarithm of the gamma function; NaN at -1, -2, ..."""
    return pointwise(ELEMENTWISE["digamma"], (x,))


@elementwise
def sigmoid(x: Value) -> TensorView:
    """1 / (1 + exp(-x))."""
    return pointwise(ELEMENTWISE["sigmoid"], (x,))


@elementwise
def relu(x: Value) -> TensorView:
    """max(x, 0); NaN stays. Not for bool."""
    return pointwise(ELEMENTWISE["relu"], (x,))


@elementwise
def gelu(x: Value) -> TensorView:
    """x * Phi(x) with the normal distribution function Phi (Hendrycks and Gimpel, "Gaussian Error Linear Units")."""
    return pointwise(ELEMENTWISE["gelu"], (x,))


@elementwise
def gelu_tanh(x: Value) -> TensorView:
    """The tanh approximation of gelu: 0.5x(1 + tanh(sqrt(2/pi)(x + 0.044715x^3)))."""
    return pointwise(ELEMENTWISE["gelu_tanh"], (x,))


@elementwise
def silu(x: Value) -> TensorView:
    """x * sigmoid(x)."""
    return pointwise(ELEMENTWISE["silu"], (x,))


@elementwise
def isnan(x: Value) -> TensorView:
    """True where x is NaN."""
    return pointwise(ELEMENTWISE["isnan"], (x,))


@elementwise
def isinf(x: Value) -> TensorView:
    """True where x is infinite."""
    return pointwise(ELEMENTWISE["isinf"], (x,))


@elementwise
def isfinite(x: Value) -> TensorView:
    """True where x is neither infinite nor NaN."""
    return pointwise(ELEMENTWISE["isfinite"], (x,))


@elementwise
def logical_not(x: Value) -> TensorView:
    """True where x is 0."""
    return pointwise(ELEMENTWISE["logical_not"], (x,))


@elementwise
def bitwise_not(x: Value) -> TensorView:
    """Every bit flipped; for bool the negation. For bool and integers."""
    return pointwise(ELEMENTWISE["bitwise_not"], (x,))


@elementwise
def add(a: Value, b: Value) -> TensorView:
    """a + b; for bool the disjunction."""
    return pointwise(ELEMENTWISE["add"], (a, b))


@elementwise
def sub(a: Value, b: Value) -> TensorView:
    """a - b. Not for bool."""
    return pointwise(ELEMENTWISE["sub"], (a, b))


@elementwise
def mul(a: Value, b: Value) -> TensorView:
    """a * b; for bool the conjunction."""
    return pointwise(ELEMENTWISE["mul"], (a, b))


@elementwise
def div(a: Value, b: Value) -> TensorView:
    """a / b, a float; integers become float64."""
    return pointwise(ELEMENTWISE["div"], (a, b))


@elementwise
def floor_divide(a: Value, b: Value) -> TensorView:
    """floor(a / b), in the promoted dtype; an integer divided by 0 is 0. Not for bool."""
    return pointwise(ELEMENTWISE["floor_divide"], (a, b))


@elementwise
def remainder(a: Value, b: Value) -> TensorView:
    """a - floor(a / b) * b: the sign of ``b``. Not for bool."""
    return pointwise(ELEMENTWISE["remainder"], (a, b))


@elementwise
def fmod(a: Value, b: Value) -> TensorView:
    """a - trunc(a / b) * b: the sign of ``a``. Not for bool."""
    return pointwise(ELEMENTWISE["fmod"], (a, b))


@elementwise
def pow(a: Value, b: Value) -> TensorView:
    """a to the power b; negative powers of integers are truncated. Not for bool."""
    return pointwise(ELEMENTWISE["pow"], (a, b))


@elementwise
def maximum(a: Value, b: Value) -> TensorView:
    """The greater; NaN if either is."""
    return pointwise(ELEMENTWISE["maximum"], (a, b))


@elementwise
def minimum(a: Value, b: Value) -> TensorView:
    """The less; NaN if either is."""
    return pointwise(ELEMENTWISE["minimum"], (a, b))


@elementwise
def fmax(a: Value, b: Value) -> TensorView:
    """The greater; the other if one is NaN."""
    return pointwise(ELEMENTWISE["fmax"], (a, b))


@elementwise
def fmin(a: Value, b: Value) -> TensorView:
    """The less; the other if one is NaN."""
    return pointwise(ELEMENTWISE["fmin"], (a, b))


@elementwise
def atan2(a: Value, b: Value) -> TensorView:
    """The angle of the point (b, a), in radians, in [-pi, pi]."""
    return pointwise(ELEMENTWISE["atan2"], (a, b))


@elementwise
def hypot(a: Value, b: Value) -> TensorView:
    """sqrt(a*a + b*b) without intermediate overflow."""
    return pointwise(ELEMENTWISE["hypot"], (a, b))


@elementwise
def copysign(a: Value, b: Value) -> TensorView:
    """The magnitude of ``a`` with the sign of ``b``."""
    return pointwise(ELEMENTWISE["copysign"], (a, b))


@elementwise
def logaddexp(a: Value, b: Value) -> TensorView:
    """log(exp(a) + exp(b)) without intermediate overflow."""
    return pointwise(ELEMENTWISE["logaddexp"], (a, b))


@elementwise
def zeta(a: Value, b: Value) -> TensorView:
    """The sum of (b + k)^-a over all integers k from 0 on (the zeta function of Hurwitz); NaN for a < 1."""
    return pointwise(ELEMENTWISE["zeta"], (a, b))


@elementwise
def gcd(a: Value, b: Value) -> TensorView:
    """The greatest common divisor, not negative; gcd(a, 0) is abs(a). For integers."""
    return pointwise(ELEMENTWISE["gcd"], (a, b))


@elementwise
def eq(a: Value, b: Value) -> TensorView:
    """a == b, bool."""
    return pointwise(ELEMENTWISE["eq"], (a, b))


@elementwise
def ne(a: Value, b: Value) -> TensorView:
    """a != b, bool."""
    return pointwise(ELEMENTWISE["ne"], (a, b))


@elementwise
def lt(a: Value, b: Value) -> TensorView:
    """a < b, bool."""
    return pointwise(ELEMENTWISE["lt"], (a, b))


@elementwise
def le(a: Value, b: Value) -> TensorView:
    """a <= b, bool."""
    return pointwise(ELEMENTWISE["le"], (a, b))


@elementwise
def gt(a: Value, b: Value) -> TensorView:
    """a > b, bool."""
    return pointwise(ELEMENTWISE["gt"], (a, b))


@elementwise
def ge(a: Value, b: Value) -> TensorView:
    """a >= b, bool."""
    return pointwise(ELEMENTWISE["ge"], (a, b))


@elementwise
def logical_and(a: Value, b: Value) -> TensorView:
    """True where both are not 0."""
    return pointwise(ELEMENTWISE["logical_and"], (a, b))


@elementwise
def logical_or(a: Value, b: Value) -> TensorView:
    """True where one is not 0."""
    return pointwise(ELEMENTWISE["logical_or"], (a, b))


@elementwise
def logical_xor(a: Value, b: Value) -> TensorView:
    """True where exactly one is not 0."""
    return pointwise(ELEMENTWISE["logical_xor"], (a, b))


@elementwise
def bitwise_and(a: Value, b: Value) -> TensorView:
    """The bits set in both. For bool and integers."""
    return pointwise(ELEMENTWISE["bitwise_and"], (a, b))


@elementwise
def bitwise_or(a: Value, b: Value) -> TensorView:
    """The bits set in either. For bool and integers."""
    return pointwise(ELEMENTWISE["bitwise_or"], (a, b))


@elementwise
def bitwise_xor(a: Value, b: Value) -> TensorView:
    """The bits set in exactly one. For bool and integers."""
    return pointwise(ELEMENTWISE["bitwise_xor"], (a, b))


@elementwise
def left_shift(a: Value, b: Value) -> TensorView:
    """a * 2^b modulo the range. For integers; ``b`` in [0, bits)."""
    return pointwise(ELEMENTWISE["left_shift"], (a, b))


@elementwise
def right_shift(a: Value, b: Value) -> TensorView:
    """floor(a / 2^b). For integers; ``b`` in [0, bits)."""
    return pointwise(ELEMENTWISE["right_shift"], (a, b))


@elementwise
def float_bits(x: Value) -> TensorView:
    """The IEEE 754 bits of ``x``: uint64 for float64, uint32 for narrower floats, which are converted to float32 first; all NaNs have the same bits."""
    return pointwise(ELEMENTWISE["float_bits"], (x,))


@elementwise
def float_of_bits(x: Value) -> TensorView:
    """The float32 with the bits of a uint32, or the float64 with those of a uint64: the inverse of ``float_bits``."""
    return pointwise(ELEMENTWISE["float_of_bits"], (x,))


@elementwise
def philox(key: Value, counter: Value, place: Value) -> TensorView:
    """Word ``place % 4`` of Philox 4x32-10 for a 64-bit key and a counter with the halves ``counter`` and ``place // 4``. For integers."""
    return pointwise(ELEMENTWISE["philox"], (key, counter, place))


@elementwise
def where(condition: Value, a: Value, b: Value) -> TensorView:
    """``a`` where ``condition`` is not 0, else ``b``."""
    return pointwise(ELEMENTWISE["where"], (condition, a, b))


@elementwise
def lerp(a: Value, b: Value, t: Value) -> TensorView:
    """``a + t * (b - a)``, a float."""
    return pointwise(ELEMENTWISE["lerp"], (a, b, t))


@elementwise
def fma(a: Value, b: Value, c: Value) -> TensorView:
    """``a * b + c`` with one rounding if the dtype has such an instruction. Not for bool."""
    return pointwise(ELEMENTWISE["fma"], (a, b, c))
