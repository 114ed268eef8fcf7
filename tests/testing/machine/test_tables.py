"""Tables on the second machine: their elements are brought into the range that the expression says."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskfuse.kir import parse_kernel
from taskfuse.testing.machine.refuter import find_fault

TEXT = (Path(__file__).parents[2] / "kernels" / "segment_sum.kir").read_text(encoding="utf-8")
LAUNCHES = [{"M": 5, "G": 3}, {"M": 0, "G": 1}, {"M": 9, "G": 2}]


def test_a_right_kernel_has_no_fault() -> None:
    assert find_fault(parse_kernel(TEXT), LAUNCHES) is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("x[r + clamp(offsets[blockIdx.x of", "x[1 + r + clamp(offsets[blockIdx.x of", "bounds"),
        ("offsets[blockIdx.x + 1 of", "offsets[blockIdx.x + 2 of", "no value"),
        ("clamp(offsets[blockIdx.x of G + 1], 0, M)] if", "clamp(offsets[blockIdx.x of G + 1], -1, M)] if", "bounds"),
    ],
)
def test_what_leaves_the_table_or_the_tensor_is_found(old: str, new: str, words: str) -> None:
    assert old in TEXT
    kernel = parse_kernel(TEXT.replace(old, new))
    assert words in str(find_fault(kernel, LAUNCHES))
    assert not kernel.verify().is_proved
