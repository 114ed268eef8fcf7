"""Formats of floating point: against NumPy and ml_dtypes, number by number."""

import math
import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.testing.ptx.floats import BF16, E4M3, E5M2, F16, F32, F64, FloatFormat, Rounding, decoder, encoder, exact, odd_sum, rounded

NARROW = {F16: np.float16, BF16: ml_dtypes.bfloat16, E5M2: ml_dtypes.float8_e5m2, E4M3: ml_dtypes.float8_e4m3fn}
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("form", NARROW, ids=lambda f: f.name)
def test_every_number_of_a_narrow_format(form: FloatFormat) -> None:
    bits = np.arange(1 << form.bits, dtype=f"u{form.bits // 8}")
    with np.errstate(all="ignore"):
        wanted = bits.view(NARROW[form]).astype(np.float64)
    decode, encode = decoder(form), encoder(form)
    found = [decode(b) for b in bits.tolist()]
    assert np.array_equal(np.array(found), wanted, equal_nan=True)
    assert [encode(x) for x in found if x == x] == [b for b, x in zip(bits.tolist(), found, strict=True) if x == x]
    assert {encode(x) for x in found if x != x} == {form.nan}


@pytest.mark.parametrize("form", NARROW, ids=lambda f: f.name)
@given(x=SINGLE | st.sampled_from([448.0, 464.0, 464.1, 61440.0, 61439.9, 65519.0, 65520.0, 2.0**-17, 1.5 * 2.0**-24, 3.4e38]))
def test_rounding_to_a_narrow_format(form: FloatFormat, x: float) -> None:
    x = float(np.float32(x))
    with np.errstate(all="ignore"):
        wanted = np.float32(x).astype(NARROW[form])
    found = encoder(form)(x)
    assert math.isnan(decoder(form)(found)) if wanted != wanted else found == int(wanted.view(f"u{form.bits // 8}"))


@given(FINITE)
def test_rounding_to_f32(x: float) -> None:
    with np.errstate(all="ignore"):
        assert encoder(F32)(x) == int(np.float64(x).astype(np.float32).view(np.uint32))
    assert encoder(F64)(x) == struct.unpack("<Q", struct.pack("<d", x))[0]
    assert decoder(F64)(encoder(F64)(x)) == x
    m, e = exact(x)
    assert Fraction(m) * Fraction(2) ** e == Fraction(x)


@given(FINITE.filter(bool))
def test_directed_roundings_are_neighbors(x: float) -> None:
    down, up, zero, odd = (decoder(F32)(encoder(F32, mode)(x)) for mode in (Rounding.DOWN, Rounding.UP, Rounding.ZERO, Rounding.ODD))
    assert down <= x <= up
    assert zero == (down if x > 0 else up) or math.isinf(zero)
    if down == up:
        assert odd == x
    elif math.isfinite(down) and math.isfinite(up):
        assert np.nextafter(np.float32(down), np.float32(np.inf)) == np.float32(up)
        assert odd in (down, up)
        assert encoder(F32)(odd) & 1


def test_what_is_too_great() -> None:
    assert rounded(F32, 1, 128) == F32.infinity
    assert rounded(F32, -1, 128) == 0xFF800000
    assert rounded(F32, 1, 128, Rounding.ZERO) == F32.largest
    assert rounded(F32, -1, 128, Rounding.UP) == 0x80000000 | F32.largest
    assert rounded(E4M3, 480, 0) == E4M3.nan


@given(SINGLE, SINGLE, SINGLE)
def test_a_sum_that_is_rounded_to_odd_may_be_rounded_again(a: float, b: float, c: float) -> None:
    total = Fraction(a) * Fraction(b) + Fraction(c)
    found = encoder(F32)(odd_sum(a * b, c))
    if total:
        wanted = rounded(F32, total.numerator, -(total.denominator.bit_length() - 1))
        assert found == wanted
    else:
        assert decoder(F32)(found) == 0
