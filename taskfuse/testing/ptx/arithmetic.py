"""The meaning of the floating-point instructions, as functions of bits (PTX ISA, the section of each).

Instructions that are documented with an error (``.approx``) give the correctly rounded result, one of those that they may give.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from taskfuse.testing.ptx.floats import F32, F64, FORMATS, FloatFormat, Rounding, decoder, encoder, exact, odd_sum, rounded
from taskfuse.testing.ptx.nodes import SIZES

Meaning = Callable[..., int]
_ROUNDINGS = {r.value: r for r in Rounding if r is not Rounding.ODD}
_WHOLE: dict[str, Callable[[float], float]] = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}
_ORDERED: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a < b or a > b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "num": lambda a, b: a == a and b == b,
}
_JOINED: dict[str, Callable[[int, int], int]] = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
_PLAIN = frozenset({"rn", "approx", "full", "ftz"})
"""Modifiers that every arithmetic instruction may have."""


@cache
def meaning(opcode: tuple[str, ...]) -> Meaning | None:
    """The function of bits that an instruction computes; ``None``: it is not known."""
    name, *modifiers = opcode
    if name == "setp":
        return _comparison(modifiers)
    if name == "cvt":
        return _conversion(modifiers)
    kind = modifiers.pop() if modifiers else ""
    if name == "testp" and kind in FORMATS and len(modifiers) == 1:
        return _test(modifiers[0], FORMATS[kind])
    if kind.endswith("x2"):
        single = meaning((name, *modifiers, kind[:-2]))
        return None if single is None else _packed(single, FORMATS[kind[:-2]].bits)
    if kind not in FORMATS:
        return None
    form = FORMATS[kind]
    found = _function(name, modifiers, form)
    if found is not None and "ftz" in modifiers and form is F32:
        return _flushed(found)
    return found


def _packed(single: Meaning, bits: int) -> Meaning:
    """The same for both halves of a register."""
    mask = (1 << bits) - 1

    def both(*operands: int) -> int:
        return single(*(o & mask for o in operands)) | single(*(o >> bits & mask for o in operands)) << bits

    return both


def _flush(x: int) -> int:
    """A zero of the same sign in place of a subnormal f32."""
    return x if x & 0x7F800000 else x & 0x80000000


def _flushed(found: Meaning) -> Meaning:
    """Subnormal operands and results become zeros of their sign (``.ftz``)."""

    def flushed(*operands: int) -> int:
        return _flush(found(*map(_flush, operands)))

    return flushed


# -- functions of one, two and three operands -------------------------------------------------------------------------------------------


def _unary(f: Callable[[int], int]) -> Meaning:
    return f


def _binary(f: Callable[[int, int], int]) -> Meaning:
    return f


def _ternary(f: Callable[[int, int, int], int]) -> Meaning:
    return f


# -- arithmetic -------------------------------------------------------------------------------------------------------------------------


def _function(name: str, modifiers: list[str], form: FloatFormat) -> Meaning | None:
    if name in ("neg", "abs"):
        sign = form.sign
        return None if set(modifiers) - _PLAIN else _unary(lambda a: a ^ sign) if name == "neg" else _unary(lambda a: a & sign - 1)
    if name == "copysign":
        sign = form.sign
        return None if modifiers else _binary(lambda a, b: a & sign | b & sign - 1)
    if name in ("min", "max"):
        return None if set(modifiers) - {"NaN", "ftz"} else _extreme(form, name == "max", "NaN" in modifiers)
    mode = next((_ROUNDINGS[m] for m in modifiers if m in _ROUNDINGS), Rounding.NEAREST)
    more = set(modifiers) - _PLAIN - _ROUNDINGS.keys()
    if more - {"sat", "relu"}:
        return None
    match name:
        case "add" | "sub" | "mul" | "fma" | "mad":
            found = _exact(name, form, mode)
        case "rcp" | "rsqrt" if form is F64 and {"approx", "ftz"} <= set(modifiers):
            found = _upper(name)
        case "div" | "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "ex2" | "lg2" | "tanh" if mode is Rounding.NEAREST:
            found = _by_floats(_FLOATS[name], form)
        case _:
            return None
    return _limited(found, form, more) if more else found


def _exact(name: str, form: FloatFormat, mode: Rounding) -> Meaning:
    """Sums and products, which are exact before they are rounded."""
    d, e = decoder(form), encoder(form)
    if name in ("fma", "mad"):
        if form is F64 or mode is not Rounding.NEAREST:
            return _ternary(lambda a, b, c: _fused(form, d(a), d(b), d(c), mode))
        return _ternary(lambda a, b, c: e(odd_sum(d(a) * d(b), d(c))))
    if mode is not Rounding.NEAREST:
        if name == "mul":  # plus a zero of the product's sign
            return _binary(lambda a, b: _fused(form, d(a), d(b), math.copysign(0.0, d(a)) * math.copysign(1.0, d(b)), mode))
        sign = -1.0 if name == "sub" else 1.0
        return _binary(lambda a, b: _fused(form, d(a), 1.0, sign * d(b), mode))
    # a double rounding is innocuous from 2p + 2 bits on (Figueroa, "When is double rounding innocuous?")
    match name:
        case "add":
            return _binary(lambda a, b: e(d(a) + d(b)))
        case "sub":
            return _binary(lambda a, b: e(d(a) - d(b)))
        case _:
            return _binary(lambda a, b: e(d(a) * d(b)))


def _fused(form: FloatFormat, a: float, b: float, c: float, mode: Rounding) -> int:
    """a * b + c, rounded once."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return encoder(form)(a * b + c if math.isfinite(c) or not (math.isfinite(a) and math.isfinite(b)) else c)
    (m1, e1), (m2, e2), (m3, e3) = exact(a), exact(b), exact(c)
    m, e = m1 * m2, e1 + e2
    if m3:
        low = min(e, e3) if m else e3
        m, e = (m << e - low if m else 0) + (m3 << e3 - low), low
    if m:
        return rounded(form, m, e, mode)
    minus = math.copysign(1, a) * math.copysign(1, b) < 0
    both = math.copysign(1, c) < 0
    if m1 * m2 == 0 and m3 == 0 and minus is both:
        return form.sign if minus else 0
    return form.sign if mode is Rounding.DOWN else 0


def _quotient(a: float, b: float) -> float:
    if b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


def _root(a: float) -> float:
    return a if a == 0 else math.sqrt(a) if a > 0 else math.nan


def _power(a: float) -> float:
    return math.nan if a != a else math.inf if a >= 1024 else 0.0 if a < -1080 else 2.0**a


def _logarithm(a: float) -> float:
    return math.nan if a != a or a < 0 else -math.inf if a == 0 else math.inf if math.isinf(a) else math.log2(a)


def _reciprocal(a: float) -> float:
    return _quotient(1.0, a)


def _reciprocal_root(a: float) -> float:
    return _quotient(1.0, _root(a))


def _sine(a: float) -> float:
    return math.sin(a) if math.isfinite(a) else math.nan


def _cosine(a: float) -> float:
    return math.cos(a) if math.isfinite(a) else math.nan


_FLOATS: dict[str, Callable[..., float]] = {
    "div": _quotient,
    "rcp": _reciprocal,
    "sqrt": _root,
    "rsqrt": _reciprocal_root,
    "sin": _sine,
    "cos": _cosine,
    "ex2": _power,
    "lg2": _logarithm,
    "tanh": math.tanh,
}


def _by_floats(f: Callable[..., float], form: FloatFormat) -> Meaning:
    d, e = decoder(form), encoder(form)

    def found(*operands: int) -> int:
        return e(f(*map(d, operands)))

    return found


def _upper(name: str) -> Meaning:
    """``rcp.approx.ftz.f64`` and ``rsqrt.approx.ftz.f64``: of the upper 32 bits; the other bits of the result are 0."""
    plain = _by_floats(_FLOATS[name], F64)
    upper = 0xFFFFFFFF << 32

    def found(a: int) -> int:
        result = plain(a & upper if a & 0x7FF << 52 else a & 1 << 63)
        return result & upper if result & 0x7FF << 52 else result & 1 << 63

    return found


def _limited(found: Meaning, form: FloatFormat, more: set[str]) -> Meaning:
    """``.sat``: from 0 to 1, 0 of NaN; ``.relu``: not below 0."""
    d, e = decoder(form), encoder(form)

    def limited(*operands: int) -> int:
        result = found(*operands)
        x = d(result)
        if "sat" in more:
            return e(min(max(x, 0.0), 1.0)) if x == x and x > 0 else 0
        return result if not x <= 0 else 0

    return limited


def _extreme(form: FloatFormat, greatest: bool, keeps_nan: bool) -> Meaning:
    """``min`` and ``max``: -0 is less than 0; the other operand of NaN, with ``.NaN`` NaN."""
    d, nan, sign = decoder(form), form.nan, form.sign

    def order(x: float, bits: int) -> tuple[float, bool]:
        return x, not bits & sign

    def found(a: int, b: int) -> int:
        x, y = d(a), d(b)
        if x != x or y != y:
            return nan if keeps_nan or (x != x and y != y) else b if x != x else a
        return a if (order(x, a) > order(y, b)) is greatest else b

    return found


def _test(what: str, form: FloatFormat) -> Meaning | None:
    d, smallest = decoder(form), math.ldexp(1.0, form.least)
    match what:
        case "finite":
            return _unary(lambda a: math.isfinite(d(a)))
        case "infinite":
            return _unary(lambda a: math.isinf(d(a)))
        case "number":
            return _unary(lambda a: not math.isnan(d(a)))
        case "notanumber":
            return _unary(lambda a: math.isnan(d(a)))
        case "normal":
            return _unary(lambda a: math.isfinite(d(a)) and abs(d(a)) >= smallest)
        case "subnormal":
            return _unary(lambda a: 0 < abs(d(a)) < smallest)
        case _:
            return None


# -- comparisons ------------------------------------------------------------------------------------------------------------------------


def _comparison(modifiers: list[str]) -> Meaning | None:
    """``setp``: unordered comparisons (``ltu``) are also true of NaN."""
    compare, *joins, kind = (m for m in modifiers if m != "ftz")
    if kind not in FORMATS or len(joins) > 1:
        return None
    d = decoder(FORMATS[kind])
    unordered = compare.endswith("u") and compare[:-1] in _ORDERED
    test = _ORDERED.get(compare[:-1] if unordered else compare)
    if compare == "nan":
        found = _binary(lambda a, b: d(a) != d(a) or d(b) != d(b))
    elif test is None:
        return None
    elif unordered:
        found = _binary(lambda a, b: test(x := d(a), y := d(b)) or x != x or y != y)
    else:
        found = _binary(lambda a, b: test(d(a), d(b)))
    if "ftz" in modifiers:
        found = _flushed_operands(found)
    if not joins:
        return found
    join = _JOINED.get(joins[0])
    return None if join is None else _ternary(lambda a, b, c: join(found(a, b), c))


def _flushed_operands(found: Meaning) -> Meaning:
    def flushed(*operands: int) -> int:
        return found(*map(_flush, operands))

    return flushed


# -- conversions ------------------------------------------------------------------------------------------------------------------------


def _conversion(modifiers: list[str]) -> Meaning | None:
    """``cvt`` with a floating-point type on either side."""
    *how, to, source = modifiers
    if to.endswith("x2"):
        if source.endswith("x2"):
            single = _conversion([*how, to[:-2], source[:-2]])
            if single is None or source[:-2] not in FORMATS:
                return None
            width, target = FORMATS[source[:-2]].bits, FORMATS[to[:-2]].bits
            mask = (1 << width) - 1
            return _unary(lambda a: single(a & mask) | single(a >> width & mask) << target)
        single = _conversion([*how, to[:-2], source])
        if single is None or to[:-2] not in FORMATS:
            return None
        target = FORMATS[to[:-2]].bits
        return _binary(lambda a, b: single(b) | single(a) << target)
    known = {"ftz", "sat", "satfinite", "relu", *_ROUNDINGS, *_WHOLE}
    if set(how) - known or not {to, source} & FORMATS.keys():
        return None
    whole = next((_WHOLE[m] for m in how if m in _WHOLE), None)
    if to not in FORMATS:
        return None if whole is None or to not in SIZES or to[0] not in "su" or "ftz" in how else _to_integer(FORMATS[source], whole, to)
    form = FORMATS[to]
    mode = next((_ROUNDINGS[m] for m in how if m in _ROUNDINGS), Rounding.NEAREST)
    if source not in FORMATS:
        return _of_integer(source, form, mode) if source in SIZES and source[0] in "su" and not {"relu", "sat", "satfinite"} & set(how) else None
    d, e = decoder(FORMATS[source]), encoder(form, mode)
    found = _unary(lambda a: e(_integral(whole, d(a)) if whole is not None else d(a)))
    if "satfinite" in how:
        found = _saturated(found, d, form)
    limits = {"sat", "relu"} & set(how)
    if limits:
        found = _limited(found, form, limits)
    return _flushed(found) if "ftz" in how and F32 in (form, FORMATS[source]) and {to, source} == {"f32"} else None if "ftz" in how else found


def _integral(whole: Callable[[float], float], x: float) -> float:
    return math.copysign(float(whole(x)), x) if math.isfinite(x) else x


def _saturated(found: Meaning, d: Callable[[int], float], form: FloatFormat) -> Meaning:
    """``.satfinite``: the largest number in place of greater ones; NaN stays."""

    def limited(a: int) -> int:
        x, result = d(a), found(a)
        if x == x and (result & form.sign - 1) > form.largest:
            return form.largest | (form.sign if x < 0 else 0)
        return result

    return limited


def _to_integer(form: FloatFormat, whole: Callable[[float], float], to: str) -> Meaning:
    """Numbers out of range become the nearest integer; NaN becomes 0, in and from 64 bits the number with the first bit alone."""
    d, bits = decoder(form), 8 * SIZES[to]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
    of_nan = 1 << bits - 1 if form is F64 or bits == 64 else 0

    def found(a: int) -> int:
        x = d(a)
        if x != x:
            return of_nan
        n = (high if x > 0 else low) if math.isinf(x) else min(max(int(whole(x)), low), high)
        return n & (1 << bits) - 1

    return found


def _of_integer(source: str, form: FloatFormat, mode: Rounding) -> Meaning:
    bits = 8 * SIZES[source]
    half = 1 << bits - 1 if source[0] == "s" else 0

    def found(a: int) -> int:
        n = (a & (1 << bits) - 1 ^ half) - half
        return rounded(form, n, 0, mode) if n else 0

    return found
