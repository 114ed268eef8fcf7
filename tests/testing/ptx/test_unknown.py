"""Arithmetic of PTX on integers: the formulas of the ISA's pages on words of 32 bits; unknown values stay unknown and decide nothing."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.testing.ptx.events import RANK
from taskfuse.testing.ptx.unknown import (
    SHARED,
    UNKNOWN,
    Unknown,
    absolute,
    bits,
    choose,
    dots,
    equal,
    funnel,
    generic,
    greatest,
    highest,
    inserted,
    least,
    logic,
    mapa,
    mirrored,
    ones,
    permuted,
    quotient,
    remainder,
    shifted,
    specific,
    zeros,
)

WORDS = st.integers(0, 2**32 - 1)
SIGNED = st.integers(-(2**31), 2**31 - 1)


@given(SIGNED, SIGNED.filter(bool))
def test_division_rounds_to_zero_and_the_remainder_has_the_sign_of_the_dividend(a: int, b: int) -> None:
    q, r = quotient(a, b), remainder(a, b)
    assert q == math.trunc(a / b)
    assert isinstance(q, int)
    assert isinstance(r, int)
    assert q * b + r == a
    assert abs(r) < abs(b)
    assert r == 0 or (r < 0) == (a < 0)


def test_division_by_zero_is_unspecified() -> None:
    assert quotient(7, 0) is UNKNOWN
    assert remainder(7, 0) is UNKNOWN


@given(WORDS, WORDS, WORDS, st.integers(0, 255))
def test_lop3_looks_each_bit_up(a: int, b: int, c: int, table: int) -> None:
    found = logic(a, b, c, table)
    assert isinstance(found, int)
    assert found & 0xFFFFFFFF == sum((table >> ((a >> k & 1) << 2 | (b >> k & 1) << 1 | c >> k & 1) & 1) << k for k in range(32))


@given(WORDS, WORDS, st.lists(st.integers(0, 15), min_size=4, max_size=4))
def test_prmt_picks_bytes_or_repeats_their_signs(a: int, b: int, chosen: list[int]) -> None:
    source = (b << 32 | a).to_bytes(8, "little")
    wanted = bytes((0xFF if source[c & 7] & 0x80 else 0) if c & 8 else source[c] for c in chosen)
    assert permuted(a, b, sum(c << 4 * k for k, c in enumerate(chosen))) == int.from_bytes(wanted, "little")


@given(WORDS, st.integers(0, 31), st.integers(0, 32))
def test_fields_of_bits(a: int, first: int, count: int) -> None:
    count = min(count, 32 - first)
    field = bits(a, first, count, signed=False)
    assert field == a // 2**first % 2**count
    assert inserted(field, 0, first, count) == a & sum(1 << k for k in range(first, first + count))
    negative = bits(a, first, count, signed=True)
    assert isinstance(negative, int)
    assert (negative - a // 2**first) % 2**count == 0
    assert -(2 ** max(count - 1, 0)) <= negative < 2 ** max(count - 1, 0) or count == 0


@given(WORDS, WORDS, st.integers(0, 70))
def test_shf_shifts_across_the_words(a: int, b: int, count: int) -> None:
    for wrap, n in ((True, count % 32), (False, min(count, 32))):
        left, right = funnel(a, b, count, left=True, wrap=wrap), funnel(a, b, count, left=False, wrap=wrap)
        assert isinstance(left, int)
        assert isinstance(right, int)
        assert left % 2**32 == (b << n | a >> 32 - n) % 2**32
        assert right % 2**32 == (a >> n | b << 32 - n) % 2**32


@given(WORDS)
def test_counts_of_bits(a: int) -> None:
    assert ones(a) == f"{a:b}".count("1")
    assert zeros(a, 32) == len(f"{a:032b}") - len(f"{a:032b}".lstrip("0"))


@given(SIGNED, st.integers(-20, 20))
def test_shifts_by_negative_counts_go_right(a: int, count: int) -> None:
    assert shifted(a, count) == math.floor(a * 2.0**count)


def test_addresses_come_back() -> None:
    assert specific(generic(48, "shared"), "shared") == 48
    assert generic(48, "shared") == SHARED + 48
    assert generic(48, "global") == 48
    assert [mapa(16, rank) for rank in range(2)] == [16 + RANK, 16 + 2 * RANK]


@pytest.mark.parametrize(
    "found",
    [
        UNKNOWN + 1,
        1 - UNKNOWN,
        UNKNOWN << 3,
        ~UNKNOWN,
        UNKNOWN < 4,
        UNKNOWN & 1,
        equal(UNKNOWN, 1),
        least(1, UNKNOWN),
        greatest(UNKNOWN, 1),
        quotient(UNKNOWN, 2),
        remainder(2, UNKNOWN),
        absolute(UNKNOWN),
        choose(UNKNOWN, 1, 1),
        shifted(1, UNKNOWN),
        bits(UNKNOWN, 0, 1, signed=False),
        inserted(1, 1, UNKNOWN, 1),
        logic(1, 1, 1, UNKNOWN),
        permuted(1, UNKNOWN, 0),
        funnel(1, 1, UNKNOWN, left=True, wrap=True),
        ones(UNKNOWN),
        zeros(UNKNOWN, 32),
    ],
)
def test_what_is_computed_from_data_is_unknown(found: object) -> None:
    assert isinstance(found, Unknown)


def test_a_mask_of_zero_is_known_and_nothing_is_decided_by_data() -> None:
    assert UNKNOWN & 0 == 0
    with pytest.raises(AssertionError, match="a decision on data"):
        bool(UNKNOWN < 3)


@given(WORDS)
def test_brev_turns_a_word_around(a: int) -> None:
    found = mirrored(a, 32)
    assert isinstance(found, int)
    assert [found >> k & 1 for k in range(32)] == [a >> 31 - k & 1 for k in range(32)]
    assert mirrored(UNKNOWN, 32) is UNKNOWN


def test_bfind_finds_the_first_one() -> None:
    assert [highest(a, 32, False) for a in (0, 1, 5, 2**31)] == [2**32 - 1, 0, 2, 31]
    assert [highest(a, 32, True) for a in (0, 1, 5, 2**31)] == [2**32 - 1, 31, 29, 0]
    assert highest(UNKNOWN, 32, True) is UNKNOWN


def test_dp4a_adds_products_of_bytes() -> None:
    assert dots(0x01FF0203, 0x02000504, 7, True, True) == 7 + 2 + 0 + 10 + 12
    assert dots(0xFF000000, 0xFF000000, 0, True, True) == 1
    assert dots(0xFF000000, 0xFF000000, 0, True, False) == -255
    assert dots(UNKNOWN, 1, 0, True, True) is UNKNOWN
