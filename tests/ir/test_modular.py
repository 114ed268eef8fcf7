"""Modular values: words whose sums and products are exact, hashes for all else, the same in every process."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.dtypes import DTYPES, DType, bfloat16, float8_e4m3, float16, float32, float64
from taskfuse.ir.modular import CLAMP, GREATEST, LEAST, WORD, embed, hash_words, inverse, mix, power

FLOATS = [d for d in DTYPES.values() if d.is_float]


def word(value: float, dtype: str = "float64") -> int:
    return int(embed(np.array(value, DTYPES[dtype].numpy), DTYPES[dtype]))


def test_mixing_is_the_finalizer_of_splitmix64() -> None:
    """The first outputs of SplitMix64 from seed 0, as published with it."""
    state = np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert [int(w) for w in mix(state)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@given(st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=50))
def test_mixing_is_a_bijection(words: list[int]) -> None:
    assert len(set(mix(np.array(words, WORD)).tolist())) == len(words)


WORDS = st.integers(0, 2**64 - 1)


@given(st.sampled_from((5, 13)), WORDS, WORDS)
def test_powers_take_sums_to_products(base: int, x: int, y: int) -> None:
    a, b = (np.array(v, WORD) for v in (x, y))
    with np.errstate(over="ignore"):
        assert power(base, a + b) == power(base, a) * power(base, b)
        assert power(base, a - b) * power(base, b) == power(base, a)
    assert int(power(base, a)) == pow(base, x, 2**64)


@pytest.mark.parametrize("base", [5, 13])
def test_powers_of_exponents_that_differ_below_2_to_the_62_differ(base: int) -> None:
    """The order is 2^62 if the power of 2^61 is not 1."""
    assert pow(base, 2**62, 2**64) == 1 != pow(base, 2**61, 2**64)
    near = np.array([k + d for k in (0, 2**20, 2**61, 2**62 - 1) for d in range(-8, 9)], object) % 2**62
    assert len(set(power(base, near.astype(WORD)).tolist())) == len(set(near.tolist()))


@given(WORDS)
def test_exponentials_have_powers_of_their_own(x: int) -> None:
    a = np.array(x, WORD)
    assert x % 2**62 == 0 or power(5, a) != power(13, a)


@given(WORDS, WORDS)
def test_inverses_of_products_are_products_of_inverses(x: int, y: int) -> None:
    a, b = (np.array(v, WORD) for v in (x, y))
    with np.errstate(over="ignore"):
        product = a * b
        assert product == 0 or inverse(product) == inverse(a) * inverse(b)
        odd = b | np.uint64(1)
        assert x == 0 or inverse(a * odd) == inverse(a) * inverse(odd)
        assert x % 2 == 0 or a * inverse(a) == 1
        assert inverse(power(5, a)) == power(5, np.uint64(0) - a)


def test_inverses_of_small_words() -> None:
    words = np.arange(4096, dtype=WORD)
    assert len(set(inverse(words).tolist())) == len(words)
    assert int(inverse(words)[1]) == 1
    assert inverse(words)[0] != 0


def test_what_clamps_a_finite_number_changes_no_word() -> None:
    for dtype in (bfloat16, float32, float64):
        assert int(embed(np.array(dtype.max_value, dtype.numpy), dtype)) == GREATEST
    assert int(embed(np.array(np.nextafter(np.float32(CLAMP), np.float32(0))), float32)) != GREATEST


def test_hashes_depend_on_the_name_and_on_the_order() -> None:
    a, b = np.arange(8, dtype=WORD), np.arange(8, 16, dtype=WORD)
    found = [hash_words("exp", a), hash_words("log", a), hash_words("exp", a, b), hash_words("exp", b, a)]
    assert len({tuple(w.tolist()) for w in found}) == 4
    assert (hash_words("exp", a) == found[0]).all()
    assert hash_words("exp").shape == ()


@pytest.mark.parametrize("value", [-(2**53), -7, -1, 0, 1, 2, 255, 2**53])
def test_integers_are_themselves(value: int) -> None:
    assert word(value) == value % 2**64


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_ends_are_neutral_for_extrema(dtype: DType) -> None:
    assert int(embed(np.array(dtype.lowest, dtype.numpy), dtype)) == LEAST
    assert int(embed(np.array(dtype.highest, dtype.numpy), dtype)) == GREATEST


def test_zeros_are_one_and_nans_are_one() -> None:
    assert word(-0.0) == word(0.0) == 0
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FFFFFFFFFFFFFFF], np.uint64).view(np.float64)
    assert len(set(embed(nans, float64).tolist())) == 1


@given(st.floats(-60000, 60000, width=16))
def test_widening_changes_nothing(value: float) -> None:
    narrow = np.array([value], np.float16)
    assert (embed(narrow, float16) == embed(narrow.astype(np.float32), float32)).all()
    assert (embed(narrow, float16) == embed(narrow.astype(np.float64), float64)).all()


@pytest.mark.parametrize("dtype", [bfloat16, float8_e4m3], ids=str)
def test_different_values_between_the_ends_have_different_words(dtype: DType) -> None:
    values: npt.NDArray[Any] = np.arange(2**dtype.bits, dtype=f"u{dtype.itemsize}").view(dtype.numpy)
    with np.errstate(invalid="ignore"):  # of NaN
        values = values[(values > dtype.lowest) & (values < min(dtype.highest, CLAMP)) & (values != 0)]
    assert len(set(embed(values, dtype).tolist())) == len(values)


def test_the_ends_are_the_words_of_0_and_of_minus_1() -> None:
    """There are no words left for them: products with an infinity are evidence only of where they stand."""
    assert word(float("-inf")) == word(0.0)
    assert word(float("inf")) == word(-1.0)
