"""Terms: constants come back as the numbers that they are, of each dtype; no two kinds of terms have one tag."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.check.values.terms import (
    NOTHING,
    SCALAR,
    WRONG,
    Terms,
    constant,
    constant_dtype,
    constant_tag,
    constants,
    converted,
    is_constant,
    kind_of,
    numbers,
    tensor_tag,
)
from taskfuse.dtypes import DTYPES, DType, bool_, float16, float32, int32, uint8

ALL = list(DTYPES.values())


def text(terms: Terms) -> list[tuple[int, int]]:
    return list(zip(terms.tag.reshape(-1).tolist(), terms.data.reshape(-1).tolist(), strict=True))


@given(st.sampled_from(ALL), st.lists(st.integers(0, 1), min_size=1, max_size=4))
def test_constants_are_the_numbers_of_their_dtype(dtype: DType, values: list[int]) -> None:
    stored = np.asarray(values).astype(dtype.numpy)
    found = constants(stored, dtype)
    assert is_constant(found.tag).all()
    assert {constant_dtype(int(t)) for t in found.tag} == {dtype}
    assert (numbers(found.data, dtype) == stored).all()


@given(st.floats(allow_nan=False, width=32), st.sampled_from([d for d in ALL if d.is_float]))
def test_a_constant_is_rounded_as_its_dtype_rounds(value: float, dtype: DType) -> None:
    with np.errstate(all="ignore"):
        wanted = np.asarray([value]).astype(dtype.numpy)
    (got,) = numbers(constant(value, dtype).data, dtype)
    assert got == wanted[0] or (np.isnan(got) and np.isnan(wanted[0]))


def test_zeros_and_infinities_and_numbers_that_are_none() -> None:
    assert text(constant(0.0, float32)) != text(constant(-0.0, float32))  # a minimum tells them apart
    a, b = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    assert text(constants(np.array([a]), float32)) == text(constants(np.array([b]), float32))
    assert text(constant(float("inf"), float32)) != text(constant(float("-inf"), float32))


def test_large_integers_keep_their_bits() -> None:
    for value in (2**64 - 1, 2**63, 2**63 - 1):
        (got,) = numbers(constant(value, DTYPES["uint64"]).data, DTYPES["uint64"])
        assert int(got) == value
    (got,) = numbers(constant(-(2**63), DTYPES["int64"]).data, DTYPES["int64"])
    assert int(got) == -(2**63)


@given(st.sampled_from(ALL), st.sampled_from(ALL), st.integers(0, 9))
def test_conversion_is_that_of_numbers_and_leaves_what_has_the_dtype(one: DType, two: DType, value: int) -> None:
    first = constant(value, one)
    once = converted(first, two)
    with np.errstate(all="ignore"):
        assert text(once) == text(constants(numbers(first.data, one), two))
    assert converted(once, two) is once


def test_conversion_is_of_constants_alone() -> None:
    terms = Terms(np.array([NOTHING, WRONG, SCALAR, tensor_tag(0, 0), constant_tag(int32)]), np.array([0, 7, 1, 3, 300]))
    assert text(converted(terms, uint8)) == [(NOTHING, 0), (WRONG, 7), (SCALAR, 1), (tensor_tag(0, 0), 3), (constant_tag(uint8), 44)]
    assert text(terms)[-1] == (constant_tag(int32), 300)


def test_tags_tell_all_kinds_apart() -> None:
    tags = [NOTHING, WRONG, SCALAR, *map(constant_tag, ALL), *(tensor_tag(n, k) for n in range(5) for k in range(3))]
    assert len(set(tags)) == len(tags)
    assert [kind_of(tensor_tag(n, k)) for n in range(5) for k in range(3)] == [(n, k) for n in range(5) for k in range(3)]
    assert [t for t in (NOTHING, WRONG, SCALAR, *map(constant_tag, ALL)) if kind_of(t) is not None] == []
    assert is_constant(np.array(tags)).sum() == len(ALL)


@pytest.mark.parametrize(("value", "dtype", "got"), [(True, bool_, True), (70000.0, float16, np.inf), (-1, uint8, 255)])
def test_a_constant_of_a_narrow_dtype(value: float, dtype: DType, got: object) -> None:
    assert numbers(constant(value, dtype).data, dtype)[0] == got
