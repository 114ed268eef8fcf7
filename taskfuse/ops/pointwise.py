"""Elementwise functions: one name per row of :data:`taskfuse.ir.elementwise.ELEMENTWISE`.

Operands are tensors, run-time scalars and Python numbers. They broadcast and promote as in NumPy 2 (see
:func:`taskfuse.dtypes.result_type`). Functions with float results turn bool and integers into floats. Every function raises
:class:`~taskfuse.errors.DTypeError`, :class:`~taskfuse.errors.ShapeError` or :class:`~taskfuse.errors.FusionError` at the call.
"""

from __future__ import annotations

from typing import Protocol

from taskfuse.dtypes import DType, DTypeLike, as_dtype
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.tensor import TensorView, Value
from taskfuse.ops.build import broadcast_read, check_tensor, define_pointwise, pointwise


class Unary(Protocol):
    """An elementwise function of one operand."""

    __name__: str

    def __call__(self, x: Value) -> TensorView: ...


class Binary(Protocol):
    """An elementwise function of two operands."""

    __name__: str

    def __call__(self, a: Value, b: Value) -> TensorView: ...


def _unary(name: str, doc: str) -> Unary:
    op = ELEMENTWISE[name]

    def function(x: Value) -> TensorView:
        return pointwise(op, (x,))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _binary(name: str, doc: str) -> Binary:
    op = ELEMENTWISE[name]

    def function(a: Value, b: Value) -> TensorView:
        return pointwise(op, (a, b))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


neg = _unary("neg", "-x. Not for bool.")
abs = _unary("abs", "The absolute value.")
sign = _unary("sign", "-1, 0 or 1; NaN stays. Not for bool.")
floor = _unary("floor", "The greatest integer not above, in the dtype of ``x``. Not for bool.")
ceil = _unary("ceil", "The least integer not below, in the dtype of ``x``. Not for bool.")
round = _unary("round", "The nearest integer, halves to even, in the dtype of ``x``. Not for bool.")
trunc = _unary("trunc", "The integer part, in the dtype of ``x``. Not for bool.")
square = _unary("square", "x * x. Not for bool.")
sqrt = _unary("sqrt", "The square root.")
rsqrt = _unary("rsqrt", "1 / sqrt(x).")
reciprocal = _unary("reciprocal", "1 / x, a float.")
exp = _unary("exp", "e to the power x.")
exp2 = _unary("exp2", "2 to the power x.")
expm1 = _unary("expm1", "exp(x) - 1, exact near 0.")
log = _unary("log", "The natural logarithm.")
log2 = _unary("log2", "The logarithm to base 2.")
log10 = _unary("log10", "The logarithm to base 10.")
log1p = _unary("log1p", "log(1 + x), exact near 0.")
sin = _unary("sin", "The sine, in radians.")
cos = _unary("cos", "The cosine, in radians.")
tan = _unary("tan", "The tangent, in radians.")
asin = _unary("asin", "The inverse sine, in [-pi/2, pi/2].")
acos = _unary("acos", "The inverse cosine, in [0, pi].")
atan = _unary("atan", "The inverse tangent, in [-pi/2, pi/2].")
sinh = _unary("sinh", "The hyperbolic sine.")
cosh = _unary("cosh", "The hyperbolic cosine.")
tanh = _unary("tanh", "The hyperbolic tangent.")
asinh = _unary("asinh", "The inverse hyperbolic sine.")
acosh = _unary("acosh", "The inverse hyperbolic cosine, nonnegative.")
atanh = _unary("atanh", "The inverse hyperbolic tangent.")
erf = _unary("erf", "The error function.")
erfc = _unary("erfc", "1 - erf(x), exact for large x.")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).")
relu = _unary("relu", "max(x, 0); NaN stays. Not for bool.")
gelu = _unary("gelu", 'x * Phi(x) with the normal distribution function Phi (Hendrycks and Gimpel, "Gaussian Error Linear Units").')
gelu_tanh = _unary("gelu_tanh", "The tanh approximation of gelu: 0.5x(1 + tanh(sqrt(2/pi)(x + 0.044715x^3))).")
silu = _unary("silu", "x * sigmoid(x).")
isnan = _unary("isnan", "True where x is NaN.")
isinf = _unary("isinf", "True where x is infinite.")
isfinite = _unary("isfinite", "True where x is neither infinite nor NaN.")
logical_not = _unary("logical_not", "True where x is 0.")
bitwise_not = _unary("bitwise_not", "Every bit flipped; for bool the negation. For bool and integers.")

add = _binary("add", "a + b; for bool the disjunction.")
sub = _binary("sub", "a - b. Not for bool.")
mul = _binary("mul", "a * b; for bool the conjunction.")
div = _binary("div", "a / b, a float; integers become float64.")
floor_divide = _binary("floor_divide", "floor(a / b), in the promoted dtype; an integer divided by 0 is 0. Not for bool.")
remainder = _binary("remainder", "a - floor(a / b) * b: the sign of ``b``. Not for bool.")
fmod = _binary("fmod", "a - trunc(a / b) * b: the sign of ``a``. Not for bool.")
pow = _binary("pow", "a to the power b; negative powers of integers are truncated. Not for bool.")
maximum = _binary("maximum", "The greater; NaN if either is.")
minimum = _binary("minimum", "The less; NaN if either is.")
fmax = _binary("fmax", "The greater; the other if one is NaN.")
fmin = _binary("fmin", "The less; the other if one is NaN.")
atan2 = _binary("atan2", "The angle of the point (b, a), in radians, in [-pi, pi].")
hypot = _binary("hypot", "sqrt(a*a + b*b) without overflow on the way.")
copysign = _binary("copysign", "The magnitude of ``a`` with the sign of ``b``.")
eq = _binary("eq", "a == b, bool.")
ne = _binary("ne", "a != b, bool.")
lt = _binary("lt", "a < b, bool.")
le = _binary("le", "a <= b, bool.")
gt = _binary("gt", "a > b, bool.")
ge = _binary("ge", "a >= b, bool.")
logical_and = _binary("logical_and", "True where both are not 0.")
logical_or = _binary("logical_or", "True where one is not 0.")
logical_xor = _binary("logical_xor", "True where exactly one is not 0.")
bitwise_and = _binary("bitwise_and", "The bits set in both. For bool and integers.")
bitwise_or = _binary("bitwise_or", "The bits set in either. For bool and integers.")
bitwise_xor = _binary("bitwise_xor", "The bits set in exactly one. For bool and integers.")
left_shift = _binary("left_shift", "a * 2^b modulo the range. For integers; ``b`` in [0, bits).")
right_shift = _binary("right_shift", "floor(a / 2^b). For integers; ``b`` in [0, bits).")


def copy(x: Value) -> TensorView:
    """``x`` in storage of its own."""
    return pointwise(ELEMENTWISE["copy"], (x,))


def cast(x: TensorView, dtype: DTypeLike) -> TensorView:
    """``x`` converted to ``dtype``: floats round to nearest even, floats to integers truncate and clamp (NaN is 0), bool is ``x != 0``.

    Makes a tensor even if ``x`` has that dtype already.
    """
    wanted: DType = as_dtype(dtype)
    check_tensor("cast", x)
    return define_pointwise(x.fusion, ELEMENTWISE["cast"], x.shape, (broadcast_read(x, x.shape),), wanted)


def where(condition: Value, a: Value, b: Value) -> TensorView:
    """``a`` where ``condition`` is not 0, else ``b``."""
    return pointwise(ELEMENTWISE["where"], (condition, a, b))


def clamp(x: Value, min: Value | None = None, max: Value | None = None) -> TensorView:
    """``minimum(maximum(x, min), max)``; a bound that is ``None`` is left out."""
    if min is None:
        return copy(x) if max is None else pointwise(ELEMENTWISE["minimum"], (x, max))
    if max is None:
        return pointwise(ELEMENTWISE["maximum"], (x, min))
    return pointwise(ELEMENTWISE["clamp"], (x, min, max))


def lerp(a: Value, b: Value, t: Value) -> TensorView:
    """``a + t * (b - a)``, a float."""
    return pointwise(ELEMENTWISE["lerp"], (a, b, t))


def fma(a: Value, b: Value, c: Value) -> TensorView:
    """``a * b + c`` with one rounding where the dtype's instruction has it. Not for bool."""
    return pointwise(ELEMENTWISE["fma"], (a, b, c))
