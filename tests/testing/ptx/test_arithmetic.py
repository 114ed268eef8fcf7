"""The meaning of floating-point instructions: numbers with the results that the PTX ISA says."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.testing.ptx.arithmetic import meaning
from taskfuse.testing.ptx.floats import BF16, F16, F32, F64, FloatFormat, decoder, encoder, rounded

FLOATS = st.floats(width=32)
NAN, INF = 0x7FFFFFFF, 0x7F800000
ONE, HALF, MINUS = 0x3F800000, 0x3F000000, 0x80000000


def of(opcode: str) -> Callable[..., int]:
    found = meaning(tuple(opcode.split(".")))
    assert found is not None
    return found


def f32(x: float) -> int:
    return encoder(F32)(x)


def word(low: int, high: int) -> int:
    return low | high << 16


@pytest.mark.parametrize(("name", "function"), [("add.rn", np.add), ("sub.rn", np.subtract), ("mul.rn", np.multiply), ("div.rn", np.divide)])
@pytest.mark.parametrize("kind", ["f32", "f64"])
@settings(max_examples=50)
@given(a=FLOATS, b=FLOATS)
def test_arithmetic_of_ieee(name: str, function: Callable[..., np.floating], kind: str, a: float, b: float) -> None:
    form, dtype = (F32, np.float32) if kind == "f32" else (F64, np.float64)
    with np.errstate(all="ignore"):
        wanted = float(function(dtype(a), dtype(b)))
    assert of(f"{name}.{kind}")(encoder(form)(a), encoder(form)(b)) == encoder(form)(wanted)


@given(st.floats(), st.floats(), st.floats())
def test_a_product_and_a_sum_are_rounded_once(a: float, b: float, c: float) -> None:
    e, d = encoder(F64), decoder(F64)
    found = d(of("fma.rn.f64")(e(a), e(b), e(c)))
    if math.isfinite(a) and math.isfinite(b) and math.isfinite(c):
        total = Fraction(a) * Fraction(b) + Fraction(c)
        try:
            assert found == float(total)
        except OverflowError:
            assert math.isinf(found)
    elif math.isnan(a) or math.isnan(b) or math.isnan(c):
        assert math.isnan(found)


def test_directed_roundings() -> None:
    third = [decoder(F32)(of(f"fma.{mode}.f32")(f32(1 / 3), f32(1 / 3), f32(1.0))) for mode in ("rm", "rp", "rz", "rn")]
    assert third[0] == third[2] < third[1]
    assert third[3] in third[:2]
    assert of("add.rm.f32")(ONE, f32(-1.0)) == MINUS
    assert of("add.rn.f32")(ONE, f32(-1.0)) == 0
    assert of("mul.rz.f32")(f32(-0.0), ONE) == MINUS
    assert decoder(F32)(of("sub.rp.f32")(ONE, f32(2.0**-60))) == 1


@pytest.mark.parametrize(
    ("opcode", "operands", "wanted"),
    [
        ("neg.f32", (ONE,), 0xBF800000),
        ("abs.f32", (0xFF800000,), INF),
        ("copysign.f32", (MINUS, ONE), 0xBF800000),  # the sign of the first
        ("min.f32", (NAN, ONE), ONE),
        ("min.NaN.f32", (NAN, ONE), NAN),
        ("max.f32", (NAN, NAN), NAN),
        ("max.f32", (MINUS, 0), 0),
        ("min.f32", (0, MINUS), MINUS),
        ("add.sat.f32", (ONE, ONE), ONE),
        ("cvt.sat.f32.f32", (NAN,), 0),
        ("cvt.sat.f32.f32", (0xBF800000,), 0),
        ("fma.rn.relu.bf16", (0x3F80, 0xBF80, 0), 0),
        ("add.ftz.f32", (1, 0), 0),
        ("add.rn.f32", (1, 0), 1),
        ("ex2.approx.ftz.f32", (f32(3.0),), f32(8.0)),
        ("ex2.approx.ftz.f32", (f32(-127.0),), 0),
        ("lg2.approx.f32", (f32(8.0),), f32(3.0)),
        ("lg2.approx.f32", (0,), 0xFF800000),
        ("rcp.rn.f32", (MINUS,), 0xFF800000),
        ("rsqrt.approx.f32", (f32(4.0),), HALF),
        ("sqrt.rn.f32", (0xBF800000,), NAN),
        ("tanh.approx.f32", (INF,), ONE),
        ("rcp.approx.ftz.f64", (encoder(F64)(2.0) + 7,), encoder(F64)(0.5)),
        ("setp.lt.f32", (NAN, ONE), 0),
        ("setp.ltu.f32", (NAN, ONE), 1),
        ("setp.ne.f32", (NAN, ONE), 0),
        ("setp.neu.f32", (NAN, ONE), 1),
        ("setp.nan.f32", (NAN, ONE), 1),
        ("setp.num.f32", (0, ONE), 1),
        ("setp.gt.and.f64", (encoder(F64)(2.0), encoder(F64)(1.0), 0), 0),
        ("setp.eq.f16", (0x8000, 0), 1),
        ("testp.infinite.f32", (INF,), 1),
        ("testp.subnormal.f32", (1,), 1),
        ("testp.finite.f32", (NAN,), 0),
        ("cvt.rn.f32.s32", (0xFFFFFFFE,), f32(-2.0)),
        ("cvt.rn.f32.u32", (0xFFFFFFFF,), f32(2.0**32)),
        ("cvt.rn.f64.s64", (2**63,), encoder(F64)(-(2.0**63))),
        ("cvt.rzi.s32.f32", (f32(-2.7),), 0xFFFFFFFE),
        ("cvt.rzi.s32.f32", (NAN,), 0),
        ("cvt.rzi.s64.f32", (NAN,), 1 << 63),
        ("cvt.rzi.u32.f32", (f32(-5.0),), 0),
        ("cvt.rni.s32.f32", (f32(2.5),), 2),
        ("cvt.rmi.f32.f32", (f32(-0.5),), f32(-1.0)),
        ("cvt.rpi.f32.f32", (f32(-0.5),), MINUS),
        ("cvt.rn.bf16x2.f32", (f32(1.0), f32(2.0)), word(0x4000, 0x3F80)),  # the first is the upper half
        ("cvt.rz.bf16.f32", (0x3F80FFFF,), 0x3F80),
        ("cvt.rn.bf16.f32", (0x3F80FFFF,), 0x3F81),
        ("cvt.rn.satfinite.e4m3x2.f32", (f32(1e9), f32(-1.0)), 0xB8 | 0x7E << 8),
        ("cvt.rn.satfinite.e5m2x2.f32", (NAN, f32(1.0)), 0x3C | 0x7F << 8),
        ("cvt.rn.f16x2.e4m3x2", (0x38 | 0xB8 << 8,), word(0x3C00, 0xBC00)),
        ("cvt.f32.f16", (0x3C00,), ONE),
        ("cvt.f64.f32", (ONE,), encoder(F64)(1.0)),
        ("add.bf16x2", (word(0x3F80, 0x4000), word(0x3F80, 0x3F80)), word(0x4000, 0x4040)),
        ("max.NaN.f16x2", (word(0x7FFF, 0x3C00), word(0, 0)), word(0x7FFF, 0x3C00)),
        ("fma.rn.f16x2", (word(0x3C00, 0x3C00), word(0x3C00, 0x4000), word(0, 0x3C00)), word(0x3C00, 0x4200)),
    ],
)
def test_results(opcode: str, operands: tuple[int, ...], wanted: int) -> None:
    assert of(opcode)(*operands) == wanted


@pytest.mark.parametrize("form", [F16, BF16], ids=lambda f: f.name)
@settings(max_examples=50)
@given(a=st.integers(0, 0xFFFF), b=st.integers(0, 0xFFFF), c=st.integers(0, 0xFFFF))
def test_products_and_sums_of_16_bits(form: FloatFormat, a: int, b: int, c: int) -> None:
    x, y, z = map(decoder(form), (a, b, c))
    found = of(f"fma.rn.{form.name}")(a, b, c)
    if all(map(math.isfinite, (x, y, z))) and (total := Fraction(x) * Fraction(y) + Fraction(z)):
        assert found == rounded(form, total.numerator, -(total.denominator.bit_length() - 1))


@pytest.mark.parametrize(
    "opcode",
    [
        *("add.f128", "add.cc.f32", "cvt.rna.tf32.f32", "sin.rm.f32", "setp.foo.f32", "cvt.f32.f32.f32", "min.xorsign.abs.f32"),
        *("testp.odd.f32", "dp4a.s32.s32", "cvt.rzi.pred.f32"),
    ],
)
def test_what_is_not_known(opcode: str) -> None:
    assert meaning(tuple(opcode.split("."))) is None


def test_upper_halves_of_f64() -> None:
    found = of("rsqrt.approx.ftz.f64")(encoder(F64)(3.0))
    assert found & 0xFFFFFFFF == 0
    assert math.isclose(decoder(F64)(found), 3**-0.5, rel_tol=2.0**-19)
    assert decoder(F64)(of("rsqrt.approx.f64")(encoder(F64)(3.0))) == pytest.approx(3**-0.5, rel=1e-15)
    assert struct.pack("<Q", found)
