"""Functions in a form that NumPy lacks, against Python's integers and wider floats."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from taskfuse.ir import numpy_functions as by_numpy
from taskfuse.ir.elementwise_function import Array


def test_a_fused_product_and_sum_is_rounded_once() -> None:
    a, b = np.array([1 + 2**-12], np.float32), np.array([1 + 2**-12], np.float32)
    c = np.array([-1 - 2**-11], np.float32)
    assert by_numpy.fma(a, b, c)[0] == 2**-24
    assert (a * b + c)[0] == 0  # the product was rounded


@pytest.mark.parametrize("base", [-3, -1, 0, 1, 2, 7])
def test_integer_powers_are_truncated(base: int) -> None:
    exponents = [e for e in range(-3, 6) if base or e >= 0]
    found = by_numpy.power_of(np.array([base] * len(exponents), np.int64), np.array(exponents, np.int64))
    assert found.tolist() == [int(Fraction(base) ** e) for e in exponents]


def test_all_nans_have_the_same_bits() -> None:
    bits = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0x3F800000, 0x80000000], np.uint32)
    assert by_numpy.float_bits(bits.view(np.float32)).tolist() == [0x7FC00000] * 3 + [0x3F800000, 0x80000000]


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_, ml_dtypes.bfloat16])
def test_integers_are_not_rounded_to_floats(dtype: npt.DTypeLike) -> None:
    x: Array = np.asarray([0, 1, 1], dtype)
    for function in (by_numpy.nearest, by_numpy.floor, by_numpy.ceil, by_numpy.trunc):
        assert function(x).dtype == np.dtype(dtype)
        assert function(x).astype(int).tolist() == [0, 1, 1]


def test_gelu_keeps_its_digits_far_below_zero() -> None:
    assert by_numpy.gelu(np.array([-10.0], np.float64))[0] == pytest.approx(-7.619853024160525e-23, rel=1e-9, abs=0)
