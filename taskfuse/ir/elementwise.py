"""The table of elementwise functions.

A function of taskfuse is a row here (:class:`~taskfuse.ir.elementwise_function.Elementwise`): its operands, dtypes, implementation in NumPy and C++,
documentation, and other properties. Readers look rows up and do not match on names; the public functions (:mod:`taskfuse.ops.elementwise`), the page
docs/ops.md and the lists of the random tests are generated from the rows, so a new function is a new row.

Floats below 32 bits are computed in float32 and rounded once to the result's dtype (:attr:`DType.compute`).
"""

from __future__ import annotations

import math
from typing import TypedDict, Unpack

import numpy as np

from taskfuse.ir import function_ranges as ranges
from taskfuse.ir import numpy_functions as by_numpy
from taskfuse.ir import special_functions
from taskfuse.ir.elementwise_function import DTypeRule, Elementwise, Function, RangeRule
from taskfuse.ir.modular import inverse
from taskfuse.ir.spelling import (
    AND,
    OR,
    XOR,
    Spelling,
    anywhere,
    arithmetic,
    bitwise,
    extremum,
    floats,
    infix,
    library,
    numbers,
    rounding,
)


class _Facts(TypedDict, total=False):
    """The columns that most rows leave out."""

    modular: Function | None
    commutative: bool
    ulps: tuple[float, float] | None
    torch: str | None
    numpy: str | None
    slots: int
    short_slots: int | None
    bound: float | None
    ranges: RangeRule | None


# -- the tables -----------------------------------------------------------------------------------------------------------------------

_SAME, _NUMERIC, _FLOAT, _DIVIDE, _BOOL = DTypeRule.SAME, DTypeRule.NUMERIC, DTypeRule.FLOAT, DTypeRule.DIVIDE, DTypeRule.BOOL
_LOGICAL, _BITWISE, _SHIFT = DTypeRule.LOGICAL, DTypeRule.BITWISE, DTypeRule.SHIFT


def _unary(name: str, rule: DTypeRule, function: Function, cpp: Spelling, doc: str, **facts: Unpack[_Facts]) -> Elementwise:
    return Elementwise(name, ("x",), rule, function, cpp, doc, **facts)


def _binary(name: str, rule: DTypeRule, function: Function, cpp: Spelling, doc: str, **facts: Unpack[_Facts]) -> Elementwise:
    return Elementwise(name, ("a", "b"), rule, function, cpp, doc, **facts)


_CLAMP = numbers(
    "minimum_or_nan(maximum_or_nan({0}, {1}), {2})",
    "double_minimum_or_nan(double_maximum_or_nan({0}, {1}), {2})",
    "lesser<{T}>(greater<{T}>({0}, {1}), {2})",
    boolean="((bool)(({0} | {1}) & {2}))",
    pair="{P}_minimum({P}_maximum({0}, {1}), {2})",
)

_ROWS = (
    # moving values
    _unary(
        "copy",
        _SAME,
        by_numpy.same,
        anywhere("{0}", moves=True),
        "A copy of ``x`` in its own storage.",
        modular=by_numpy.same,
        torch="clone",
        numpy="copy",
        ranges=ranges.same,
    ),
    _unary(
        "cast",
        DTypeRule.CAST,
        by_numpy.same,
        anywhere("{0}", moves=True),
        "``x`` converted to ``dtype``.",
        modular=by_numpy.same,
        torch="to _to_copy type convert_element_type",
        numpy="astype",
        ranges=ranges.same,
    ),
    # sign and rounding
    _unary(
        "neg",
        _NUMERIC,
        np.negative,
        numbers("(-{0})", "(-{0})", "(({T})(0 - ({U}){0}))", pair="({0} ^ 0x80008000u)"),
        "-x. Not for bool.",
        modular=np.negative,
        torch="neg negative",
        ranges=ranges.corners(lambda x: -x),
    ),
    _unary(
        "abs",
        _SAME,
        np.absolute,
        numbers("fabsf({0})", "fabs({0})", "absolute<{T}, {U}>({0})", "{0}", "{0}", pair="({0} & 0x7fff7fffu)"),
        "The absolute value.",
        torch="abs absolute",
        ranges=ranges.magnitude,
    ),
    _unary(
        "sign",
        _NUMERIC,
        np.sign,
        numbers("sign<{T}>({0})", "sign<{T}>({0})", "sign<{T}>({0})", "(({T})({0} != 0))"),
        "-1, 0 or 1; NaN stays. Not for bool.",
        torch="sign sgn",
        bound=1,
        ranges=ranges.corners(lambda x: (x > 0) - (x < 0)),
    ),
    _unary(
        "floor",
        _NUMERIC,
        by_numpy.floor,
        rounding("floor"),
        "The greatest integer not above, in the dtype of ``x``. Not for bool.",
        numpy="floor",
        ranges=ranges.same,
    ),
    _unary(
        "ceil", _NUMERIC, by_numpy.ceil, rounding("ceil"), "The least integer not below, in the dtype of ``x``. Not for bool.", numpy="ceil", ranges=ranges.same
    ),
    _unary(
        "round",
        _NUMERIC,
        by_numpy.nearest,
        rounding("rint", rounds=True),
        "The nearest integer, halves to even, in the dtype of ``x``. Not for bool.",
        torch="round special_round",
        numpy="round",
        ranges=ranges.same,
    ),
    _unary(
        "trunc",
        _NUMERIC,
        by_numpy.trunc,
        rounding("trunc", rounds=True),
        "The integer part, in the dtype of ``x``. Not for bool.",
        torch="trunc fix",
        numpy="trunc",
        ranges=ranges.same,
    ),
    # powers, exponentials, logarithms
    _unary(
        "square",
        _NUMERIC,
        np.square,
        numbers("square<{T}, {U}>({0})", "square<{T}, {U}>({0})", "square<{T}, {U}>({0})"),
        "x * x. Not for bool.",
        modular=np.square,
        ranges=ranges.square,
    ),
    _unary(
        "sqrt",
        _FLOAT,
        np.sqrt,
        library("sqrt", bfloat16="bfloat16_sqrt({0})", speculated="speculated_sqrt({0}, {E})"),
        "The square root.",
        slots=12,
        short_slots=4,
    ),
    _unary("rsqrt", _FLOAT, by_numpy.rsqrt, library("rsqrt"), "1 / sqrt(x).", ulps=(2, 1), slots=4),
    _unary(
        "reciprocal",
        _FLOAT,
        np.reciprocal,
        floats("(1.0f / {0})", "(1.0 / {0})", "__fdividef(1.0f, {0})", "bfloat16_quotient(1.0f, {0})", speculated="speculated_quotient(1.0f, {0}, {E})"),
        "1 / x, a float.",
        modular=inverse,
        slots=12,
        short_slots=9,
    ),
    _unary("exp", _FLOAT, np.exp, library("exp", fast="__expf({0})"), "e to the power x.", ulps=(2, 1), modular=by_numpy.modular_exp, slots=9),
    _unary("exp2", _FLOAT, np.exp2, library("exp2"), "2 to the power x.", ulps=(2, 1), modular=by_numpy.modular_exp2, torch="exp2 special_exp2", slots=4),
    _unary("expm1", _FLOAT, np.expm1, library("expm1"), "exp(x) - 1, exact near 0.", ulps=(1, 1), torch="expm1 special_expm1", slots=20),
    _unary("log", _FLOAT, np.log, library("log", fast="__logf({0})"), "The natural logarithm.", ulps=(1, 1), slots=22),
    _unary("log2", _FLOAT, np.log2, library("log2", fast="__log2f({0})"), "The logarithm to base 2.", ulps=(1, 1), slots=24),
    _unary("log10", _FLOAT, np.log10, library("log10", fast="__log10f({0})"), "The logarithm to base 10.", ulps=(2, 1), slots=24),
    _unary("log1p", _FLOAT, np.log1p, library("log1p"), "log(1 + x), exact near 0.", ulps=(1, 1), torch="log1p special_log1p", slots=28),
    # trigonometric and hyperbolic functions (radians)
    _unary("sin", _FLOAT, np.sin, library("sin", fast="__sinf({0})"), "The sine, in radians.", ulps=(2, 2), slots=32, bound=1),
    _unary("cos", _FLOAT, np.cos, library("cos", fast="__cosf({0})"), "The cosine, in radians.", ulps=(2, 2), slots=32, bound=1),
    _unary("tan", _FLOAT, np.tan, library("tan", fast="__tanf({0})"), "The tangent, in radians.", ulps=(4, 2), slots=36),
    _unary("asin", _FLOAT, np.arcsin, library("asin"), "The inverse sine, in [-pi/2, pi/2].", ulps=(2, 2), torch="asin arcsin", slots=24, bound=math.pi / 2),
    _unary("acos", _FLOAT, np.arccos, library("acos"), "The inverse cosine, in [0, pi].", ulps=(2, 2), torch="acos arccos", slots=24, bound=math.pi),
    _unary("atan", _FLOAT, np.arctan, library("atan"), "The inverse tangent, in [-pi/2, pi/2].", ulps=(2, 2), torch="atan arctan", slots=20, bound=math.pi / 2),
    _unary("sinh", _FLOAT, np.sinh, library("sinh"), "The hyperbolic sine.", ulps=(3, 2), slots=24),
    _unary("cosh", _FLOAT, np.cosh, library("cosh"), "The hyperbolic cosine.", ulps=(2, 1), slots=16),
    _unary("tanh", _FLOAT, np.tanh, library("tanh", fast="fast_tanh({0})"), "The hyperbolic tangent.", ulps=(2, 1), slots=17, bound=1),
    _unary("asinh", _FLOAT, np.arcsinh, library("asinh"), "The inverse hyperbolic sine.", ulps=(3, 3), torch="asinh arcsinh", slots=44),
    _unary("acosh", _FLOAT, np.arccosh, library("acosh"), "The inverse hyperbolic cosine, nonnegative.", ulps=(4, 3), torch="acosh arccosh", slots=44),
    _unary("atanh", _FLOAT, np.arctanh, library("atanh"), "The inverse hyperbolic tangent.", ulps=(3, 2), torch="atanh arctanh", slots=40),
    # error function and activations
    _unary("erf", _FLOAT, by_numpy.erf, library("erf"), "The error function.", ulps=(2, 2), torch="erf special_erf", slots=28, bound=1),
    _unary("erfc", _FLOAT, by_numpy.erfc, library("erfc"), "1 - erf(x), exact for large x.", ulps=(4, 5), torch="erfc special_erfc", slots=46, bound=2),
    _unary(
        "erfinv",
        _FLOAT,
        special_functions.erfinv,
        library("erfinv"),
        "The inverse of the error function, for x in [-1, 1].",
        ulps=(2, 5),
        torch="erfinv special_erfinv",
        slots=28,
    ),
    _unary("erfcinv", _FLOAT, special_functions.erfcinv, library("erfcinv"), "The inverse of ``erfc``, for x in [0, 2].", ulps=(4, 6), torch="", slots=36),
    _unary(
        "lgamma",
        _FLOAT,
        special_functions.lgamma,
        library("lgamma"),
        "The logarithm of the absolute value of the gamma function; infinite at 0, -1, -2, ...",
        ulps=(6, 4),
        torch="lgamma special_gammaln",
        slots=90,
    ),
    _unary(
        "digamma",
        _FLOAT,
        special_functions.digamma,
        floats("digamma<float>({0})", "digamma<double>({0})"),
        "The derivative of the logarithm of the gamma function; NaN at -1, -2, ...",
        ulps=(8, 10),
        torch="digamma special_digamma special_psi",
        slots=100,
    ),
    _unary(
        "sigmoid",
        _FLOAT,
        by_numpy.sigmoid,
        floats("sigmoid({0})", "double_sigmoid({0})", "fast_sigmoid({0})", rounded="rounded_sigmoid({0})", balanced="balanced_sigmoid({0})"),
        "1 / (1 + exp(-x)).",
        ulps=(5, 4),
        torch="sigmoid special_expit expit",
        slots=16,
        short_slots=9,
        bound=1,
    ),
    _unary(
        "relu",
        _NUMERIC,
        by_numpy.relu,
        numbers("maximum_or_nan({0}, 0.0f)", "double_maximum_or_nan({0}, 0.0)", "greater<{T}>({0}, 0)", "{0}", pair="{P}_maximum({0}, 0u)"),
        "max(x, 0); NaN stays. Not for bool.",
        ranges=ranges.corners(lambda x: max(x, 0)),
    ),
    _unary(
        "gelu",
        _FLOAT,
        by_numpy.gelu,
        floats("gelu({0})", "double_gelu({0})", rounded="rounded_gelu({0})"),
        'x * Phi(x) with the normal distribution function Phi (Hendrycks and Gimpel, "Gaussian Error Linear Units").',
        ulps=(80, 200),
        slots=60,
        short_slots=20,
    ),
    _unary(
        "gelu_tanh",
        _FLOAT,
        by_numpy.gelu_tanh,
        floats("gelu_tanh({0})", "double_gelu_tanh({0})", "fast_gelu_tanh({0})", rounded="rounded_gelu_tanh({0})", balanced="balanced_gelu_tanh({0})"),
        "The tanh approximation of gelu: 0.5x(1 + tanh(sqrt(2/pi)(x + 0.044715x^3))).",
        ulps=(512, 4096),
        torch="",
        slots=24,
        short_slots=12,
    ),
    _unary(
        "silu",
        _FLOAT,
        by_numpy.silu,
        floats("silu({0})", "double_silu({0})", "fast_silu({0})", rounded="rounded_silu({0})", balanced="balanced_silu({0})"),
        "x * sigmoid(x).",
        ulps=(64, 400),
        slots=17,
        short_slots=10,
    ),
    # predicates
    _unary("isnan", _BOOL, np.isnan, numbers("isnan({0})", "isnan({0})", "false", "false", "false"), "True where x is NaN.", modular=by_numpy.modular_false),
    _unary(
        "isinf", _BOOL, np.isinf, numbers("isinf({0})", "isinf({0})", "false", "false", "false"), "True where x is infinite.", modular=by_numpy.modular_false
    ),
    _unary(
        "isfinite",
        _BOOL,
        np.isfinite,
        numbers("isfinite({0})", "isfinite({0})", "true", "true", "true"),
        "True where x is neither infinite nor NaN.",
        modular=by_numpy.modular_true,
    ),
    _unary("logical_not", _LOGICAL, np.logical_not, anywhere("(!{0})"), "True where x is 0."),
    _unary(
        "bitwise_not",
        _BITWISE,
        np.bitwise_not,
        Spelling(signed="(({T})~{0})", unsigned="(({T})~{0})", boolean="(!{0})"),
        "Every bit flipped; for bool the negation. For bool and integers.",
    ),
    # arithmetic
    _binary(
        "add",
        _SAME,
        np.add,
        arithmetic("+", OR, "sum"),
        "a + b; for bool the disjunction.",
        modular=np.add,
        commutative=True,
        ranges=ranges.corners(lambda x, y: x + y),
    ),
    _binary(
        "sub",
        _NUMERIC,
        np.subtract,
        arithmetic("-", None, "difference"),
        "a - b. Not for bool.",
        modular=np.subtract,
        torch="sub subtract",
        ranges=ranges.corners(lambda x, y: x - y),
    ),
    _binary(
        "mul",
        _SAME,
        np.multiply,
        arithmetic("*", AND, "product"),
        "a * b; for bool the conjunction.",
        modular=np.multiply,
        commutative=True,
        torch="mul multiply",
        ranges=ranges.corners(lambda x, y: x * y),
    ),
    _binary(
        "div",
        _DIVIDE,
        np.true_divide,
        floats(
            "({0} / {1})",
            "({0} / {1})",
            "__fdividef({0}, {1})",
            "bfloat16_quotient({0}, {1})",
            whole="whole_quotient({0}, {1})",
            speculated="speculated_quotient({0}, {1}, {E})",
        ),
        "a / b, a float; integers become float64.",
        modular=by_numpy.modular_div,
        torch="div divide true_divide",
        slots=12,
        short_slots=8,
    ),
    _binary(
        "floor_divide",
        _NUMERIC,
        np.floor_divide,
        numbers(
            "float_floored_quotient<{T}>({0}, {1})",
            "float_floored_quotient<{T}>({0}, {1})",
            "signed_floored_quotient<{T}, {U}>({0}, {1})",
            "unsigned_quotient<{T}>({0}, {1})",
        ),
        "floor(a / b), in the promoted dtype; an integer divided by 0 is 0. Not for bool.",
        slots=50,
        ranges=ranges.divided,
    ),
    _binary(
        "remainder",
        _NUMERIC,
        np.remainder,
        numbers(
            "float_floored_remainder<{T}>({0}, {1})",
            "float_floored_remainder<{T}>({0}, {1})",
            "signed_floored_remainder<{T}>({0}, {1})",
            "unsigned_remainder<{T}>({0}, {1})",
        ),
        "a - floor(a / b) * b: the sign of ``b``. Not for bool.",
        slots=44,
        ranges=ranges.remaining,
    ),
    _binary(
        "fmod",
        _NUMERIC,
        np.fmod,
        numbers("fmodf({0}, {1})", "fmod({0}, {1})", "signed_remainder<{T}>({0}, {1})", "unsigned_remainder<{T}>({0}, {1})"),
        "a - trunc(a / b) * b: the sign of ``a``. Not for bool.",
        slots=40,
        ranges=ranges.remaining_of,
    ),
    _binary(
        "pow",
        _NUMERIC,
        by_numpy.power_of,
        numbers("power({0}, {1})", "pow({0}, {1})", "signed_power<{T}, {U}>({0}, {1})", "unsigned_power<{T}, {U}>({0}, {1})", fast="fast_power({0}, {1})"),
        "a to the power b; negative powers of integers are truncated. Not for bool.",
        ulps=(4, 2),
        numpy="power",
        slots=70,
    ),
    _binary(
        "maximum",
        _SAME,
        np.maximum,
        extremum("maximum_or_nan", "double_maximum_or_nan", "greater", OR, "maximum"),
        "The greater; NaN if either is.",
        modular=np.maximum,
        commutative=True,
        ranges=ranges.corners(max),
    ),
    _binary(
        "minimum",
        _SAME,
        np.minimum,
        extremum("minimum_or_nan", "double_minimum_or_nan", "lesser", AND, "minimum"),
        "The less; NaN if either is.",
        modular=np.minimum,
        commutative=True,
        ranges=ranges.corners(min),
    ),
    _binary(
        "fmax",
        _SAME,
        np.fmax,
        extremum("fmaxf", "fmax", "greater", OR),
        "The greater; the other if one is NaN.",
        modular=np.maximum,
        commutative=True,
        ranges=ranges.corners(max),
    ),
    _binary(
        "fmin",
        _SAME,
        np.fmin,
        extremum("fminf", "fmin", "lesser", AND),
        "The less; the other if one is NaN.",
        modular=np.minimum,
        commutative=True,
        ranges=ranges.corners(min),
    ),
    _binary(
        "atan2",
        _FLOAT,
        np.arctan2,
        library("atan2", 2),
        "The angle of the point (b, a), in radians, in [-pi, pi].",
        ulps=(3, 2),
        torch="atan2 arctan2",
        slots=40,
        bound=math.pi,
    ),
    _binary("hypot", _FLOAT, np.hypot, library("hypot", 2), "sqrt(a*a + b*b) without intermediate overflow.", ulps=(3, 2), slots=24),
    _binary("copysign", _FLOAT, np.copysign, library("copysign", 2), "The magnitude of ``a`` with the sign of ``b``."),
    _binary(
        "logaddexp",
        _FLOAT,
        np.logaddexp,
        floats("log_of_sum<float>({0}, {1})", "log_of_sum<double>({0}, {1})"),
        "log(exp(a) + exp(b)) without intermediate overflow.",
        modular=np.add,
        commutative=True,
        ulps=(3, 3),
        slots=46,
    ),
    _binary(
        "zeta",
        _FLOAT,
        special_functions.zeta,
        floats("zeta<float>({0}, {1})", "zeta<double>({0}, {1})"),
        "The sum of (b + k)^-a over all integers k from 0 on (the zeta function of Hurwitz); NaN for a < 1.",
        ulps=(64, 64),
        torch="special_zeta",
        slots=900,
    ),
    _binary(
        "gcd",
        _SHIFT,
        np.gcd,
        Spelling(signed="signed_divisor<{T}, {U}>({0}, {1})", unsigned="common_divisor<{T}>({0}, {1})"),
        "The greatest common divisor, not negative; gcd(a, 0) is abs(a). For integers.",
        commutative=True,
    ),
    # comparisons
    _binary("eq", _BOOL, np.equal, infix("=="), "a == b, bool.", modular=np.equal, commutative=True),
    _binary("ne", _BOOL, np.not_equal, infix("!="), "a != b, bool.", modular=np.not_equal, commutative=True, torch="ne not_equal"),
    _binary("lt", _BOOL, np.less, infix("<"), "a < b, bool.", modular=np.less, torch="lt less"),
    _binary("le", _BOOL, np.less_equal, infix("<="), "a <= b, bool.", modular=np.less_equal, torch="le less_equal"),
    _binary("gt", _BOOL, np.greater, infix(">"), "a > b, bool.", modular=np.greater, torch="gt greater"),
    _binary("ge", _BOOL, np.greater_equal, infix(">="), "a >= b, bool.", modular=np.greater_equal, torch="ge greater_equal"),
    # logic and bits
    _binary("logical_and", _LOGICAL, np.logical_and, infix("&&", AND), "True where both are not 0.", commutative=True),
    _binary("logical_or", _LOGICAL, np.logical_or, infix("||", OR), "True where one is not 0.", commutative=True),
    _binary("logical_xor", _LOGICAL, np.logical_xor, anywhere("(!{0} != !{1})", XOR), "True where exactly one is not 0.", commutative=True),
    _binary(
        "bitwise_and",
        _BITWISE,
        np.bitwise_and,
        bitwise("&"),
        "The bits set in both. For bool and integers.",
        commutative=True,
        torch="bitwise_and __and__",
        ranges=ranges.masked,
    ),
    _binary(
        "bitwise_or",
        _BITWISE,
        np.bitwise_or,
        bitwise("|"),
        "The bits set in either. For bool and integers.",
        commutative=True,
        torch="bitwise_or __or__",
        ranges=ranges.either,
    ),
    _binary(
        "bitwise_xor",
        _BITWISE,
        np.bitwise_xor,
        bitwise("^"),
        "The bits set in exactly one. For bool and integers.",
        commutative=True,
        torch="bitwise_xor __xor__",
        ranges=ranges.differing,
    ),
    _binary(
        "left_shift",
        _SHIFT,
        np.left_shift,
        Spelling(signed="shifted_left<{T}, {U}>({0}, {1})", unsigned="shifted_left<{T}, {U}>({0}, {1})"),
        "a * 2^b modulo the range. For integers; ``b`` in [0, bits).",
        torch="bitwise_left_shift __lshift__",
    ),
    _binary(
        "right_shift",
        _SHIFT,
        np.right_shift,
        Spelling(signed="signed_shifted_right<{T}, {U}>({0}, {1})", unsigned="unsigned_shifted_right<{T}>({0}, {1})"),
        "floor(a / 2^b). For integers; ``b`` in [0, bits).",
        torch="bitwise_right_shift __rshift__",
        ranges=ranges.shifted,
    ),
    _unary(
        "float_bits",
        DTypeRule.BITS,
        by_numpy.float_bits,
        floats("bits_of_float({0})", "bits_of_double({0})"),
        "The IEEE 754 bits of ``x``: uint64 for float64, uint32 for narrower floats, which are converted to float32 first; all NaNs have the same bits.",
        torch="",
    ),
    _unary(
        "float_of_bits",
        DTypeRule.OF_BITS,
        by_numpy.float_of_bits,
        Spelling(signed="float_of_bits({0})", unsigned="float_of_bits({0})"),
        "The float32 with the bits of a uint32, or the float64 with those of a uint64: the inverse of ``float_bits``.",
        torch="",
    ),
    # three operands
    Elementwise(
        "philox",
        ("key", "counter", "place"),
        _SHIFT,
        by_numpy.philox,
        Spelling(signed="(({T})philox({0}, {1}, {2}))", unsigned="(({T})philox({0}, {1}, {2}))"),
        "Word ``place % 4`` of Philox 4x32-10 for a 64-bit key and a counter with the halves ``counter`` and ``place // 4``. For integers.",
        torch="",
        slots=64,
    ),
    Elementwise(
        "where",
        ("condition", "a", "b"),
        DTypeRule.SELECT,
        np.where,
        anywhere("({0} ? {1} : {2})", moves=True),
        "``a`` where ``condition`` is not 0, else ``b``.",
        modular=np.where,
        numpy="where",
        ranges=ranges.join,
    ),
    Elementwise(
        "clamp",
        ("x", "min", "max"),
        _SAME,
        by_numpy.clamp,
        _CLAMP,
        "``minimum(maximum(x, min), max)``.",
        modular=by_numpy.clamp,
        numpy="",
        ranges=ranges.corners(lambda x, low, high: min(max(x, low), high)),
    ),
    Elementwise(
        "lerp",
        ("a", "b", "t"),
        _FLOAT,
        by_numpy.lerp,
        floats("lerp<{T}>({0}, {1}, {2})", "lerp<{T}>({0}, {1}, {2})"),
        "``a + t * (b - a)``, a float.",
        modular=by_numpy.lerp,
        slots=3,
    ),
    Elementwise(
        "fma",
        ("a", "b", "c"),
        _NUMERIC,
        by_numpy.fma,
        numbers("fmaf({0}, {1}, {2})", "fma({0}, {1}, {2})", "(({T})(({U}){0} * ({U}){1} + ({U}){2}))"),
        "``a * b + c`` with one rounding if the dtype has such an instruction. Not for bool.",
        modular=by_numpy.modular_fma,
        ulps=(0, 0),
        torch="",
        ranges=ranges.corners(lambda x, y, z: x * y + z),
    ),
)

ELEMENTWISE: dict[str, Elementwise] = {row.name: row for row in _ROWS}
