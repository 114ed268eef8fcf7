"""Offsets of groups from their lengths, whatever these are."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.ir.offsets import lengths_name, offsets, offsets_name

ANY = st.lists(st.one_of(st.integers(-3, 9), st.sampled_from([2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])), min_size=1, max_size=40)


@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=40))
def test_lengths_that_add_up(lengths: list[int]) -> None:
    assert offsets(np.array(lengths), sum(lengths)).tolist() == [0, *accumulate(lengths)]


@given(lengths=ANY, total=st.integers(0, 20))
def test_offsets_rise_from_zero_to_the_total(lengths: list[int], total: int) -> None:
    found = offsets(np.array(lengths, np.int64), total).tolist()
    assert (found[0], found[-1], len(found)) == (0, total, len(lengths) + 1)
    assert all(low <= high for low, high in pairwise(found))
    assert all(end - start in (max(length, 0), total - start) for (start, end), length in zip(pairwise(found), lengths, strict=True))


def test_names() -> None:
    assert offsets_name("lengths") == "lengths.offsets"
    assert lengths_name("lengths.offsets") == "lengths"
    assert lengths_name("offsets") is None
