"""Floating-point formats by their bits: exact values, and rounding (IEEE 754; OCP "8-bit Floating Point Specification" for the formats of 8 bits).

Registers hold bits. Every number of a format up to f64 is a Python ``float``, so :func:`decoded` is exact; :func:`encoded` rounds once.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache


class Rounding(Enum):
    """The direction of a rounding (PTX ISA, "Rounding modifiers"); ODD: to the neighbor whose last bit is 1, if the number is not exact."""

    NEAREST = "rn"
    ZERO = "rz"
    DOWN = "rm"
    UP = "rp"
    ODD = "odd"


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A format.

    Attributes:
        bits: its width.
        precision: significant bits, the hidden one included.
        least, most: exponents of the smallest and the largest normal numbers.
        largest: bits of the largest finite number.
        infinity: bits of infinity; ``None``: there is none.
        nan: bits of the NaN that instructions give.
    """

    name: str
    bits: int
    precision: int
    least: int
    most: int
    largest: int
    infinity: int | None
    nan: int

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << self.bits - 1


def _ieee(name: str, bits: int, precision: int, nan: int) -> FloatFormat:
    most = (1 << bits - precision - 1) - 1
    infinity = (2 * most + 1) << precision - 1
    return FloatFormat(name, bits, precision, 1 - most, most, infinity - 1, infinity, nan)


F64 = _ieee("f64", 64, 53, 0xFFF8000000000000)
F32 = _ieee("f32", 32, 24, 0x7FFFFFFF)
F16 = _ieee("f16", 16, 11, 0x7FFF)
BF16 = _ieee("bf16", 16, 8, 0x7FFF)
E5M2 = _ieee("e5m2", 8, 3, 0x7F)
E4M3 = FloatFormat("e4m3", 8, 4, -6, 8, 0x7E, None, 0x7F)
FORMATS = {f.name: f for f in (F64, F32, F16, BF16, E5M2, E4M3)}

_D, _F, _H, _Q, _I, _S = (struct.Struct(f"<{c}") for c in "dfeQIH")


@cache
def _table(form: FloatFormat) -> tuple[float, ...]:
    return tuple(_decoded(form, bits) for bits in range(1 << form.bits))


def _decoded(form: FloatFormat, bits: int) -> float:
    """The number by the definition of the format."""
    magnitude = bits & form.sign - 1
    if (form.infinity is None and magnitude == form.nan) or (form.infinity is not None and magnitude > form.infinity):
        return math.nan
    sign = -1.0 if bits & form.sign else 1.0
    if magnitude == form.infinity:
        return sign * math.inf
    exponent, fraction = magnitude >> form.precision - 1, magnitude & (1 << form.precision - 1) - 1
    if exponent:
        fraction |= 1 << form.precision - 1
    return sign * math.ldexp(fraction, max(exponent, 1) - 1 + form.least - (form.precision - 1))


@cache
def decoder(form: FloatFormat) -> Callable[[int], float]:
    """The function from bits of a format to the number."""
    if form is F64:
        return lambda bits: _D.unpack(_Q.pack(bits))[0]
    if form is F32:
        return lambda bits: _F.unpack(_I.pack(bits))[0]
    return _table(form).__getitem__


def rounded(form: FloatFormat, m: int, e: int, mode: Rounding = Rounding.NEAREST) -> int:
    """The bits of ``m * 2**e``, for ``m`` other than 0, rounded to a format."""
    sign, m = (form.sign, -m) if m < 0 else (0, m)
    unit = max(e + m.bit_length() - form.precision, form.least - (form.precision - 1))  # exponent of the last place
    shift = unit - e
    if shift <= 0:
        k = m << -shift
    else:
        k, rest, half = m >> shift, m & (1 << shift) - 1, 1 << shift - 1
        match mode:
            case Rounding.NEAREST:
                k += rest > half or (rest == half and k & 1)
            case Rounding.DOWN | Rounding.UP:
                k += bool(rest) and (sign != 0) is (mode is Rounding.DOWN)
            case Rounding.ODD:
                k |= bool(rest)
            case Rounding.ZERO:
                pass
    # a carry into the exponent gives the right bits, too
    magnitude = k + (unit - (form.least - (form.precision - 1)) << form.precision - 1)
    if magnitude > form.largest:
        stays = mode in (Rounding.ZERO, Rounding.ODD) or (mode in (Rounding.DOWN, Rounding.UP) and (sign != 0) is not (mode is Rounding.DOWN))
        if stays:
            magnitude = form.largest
        elif form.infinity is None:
            return form.nan
        else:
            magnitude = form.infinity
    return sign | magnitude


def _encoded(form: FloatFormat, x: float, mode: Rounding = Rounding.NEAREST) -> int:
    """The bits of a number, by :func:`rounded`."""
    if x != x:
        return form.nan
    if math.isinf(x):
        found = form.nan if form.infinity is None else form.infinity
        return found | form.sign if x < 0 else found
    if x == 0:
        return form.sign if math.copysign(1, x) < 0 else 0
    m, e = math.frexp(x)
    return rounded(form, int(m * 2**53), e - 53, mode)


@cache
def encoder(form: FloatFormat, mode: Rounding = Rounding.NEAREST) -> Callable[[float], int]:
    """The function from numbers to the bits of a format."""
    if form is F64:
        return lambda x: _Q.unpack(_D.pack(x))[0] if x == x else F64.nan
    if mode is not Rounding.NEAREST or form not in (F32, F16):
        return lambda x: _encoded(form, x, mode)
    to, word = (_F, _I) if form is F32 else (_H, _S)

    def nearest(x: float) -> int:
        if x != x:
            return form.nan
        try:
            return word.unpack(to.pack(x))[0]
        except OverflowError:
            return _encoded(form, x)

    return nearest


def exact(x: float) -> tuple[int, int]:
    """A finite number as ``m * 2**e``."""
    m, e = math.frexp(x)
    return int(m * 2**53), e - 53


def odd_sum(a: float, b: float) -> float:
    """a + b in f64, rounded to odd: a second rounding, to a format of fewer than 52 bits, then gives what one rounding gives
    (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd")."""
    total = a + b
    if not math.isfinite(total):
        return total
    part = total - a
    error = (a - (total - part)) + (b - part)  # exact (Knuth, "The Art of Computer Programming", volume 2, 4.2.2)
    if error:
        bits: int = _Q.unpack(_D.pack(total))[0]
        if not bits & 1:
            return _D.unpack(_Q.pack(bits + (1 if (error > 0) == (total > 0) else -1)))[0]
    return total
