"""Inputs whose elements stand in expressions of kernel IR."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskfuse.errors import VerifyError
from taskfuse.ir.types import PlaceSearch
from taskfuse.kir import parse_kernel
from taskfuse.kir.walk import looked_up

TEXT = (Path(__file__).parent.parent / "kernels" / "segment_sum.kir").read_text(encoding="utf-8")


def test_tables_are_inputs_of_one_axis_of_integers() -> None:
    kernel = parse_kernel(TEXT)
    assert [p.name for p in kernel.tables] == ["offsets"]
    assert looked_up(kernel) == {"offsets"}


def test_a_row_of_integers_that_no_expression_reads_is_not_looked_up() -> None:
    kernel = parse_kernel("KERNEL k(n: int32[4]) -> (y: int32[4])\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n\ny[0] = copy(n[0])\n")
    assert [p.name for p in kernel.tables] == ["n"]
    assert looked_up(kernel) == frozenset()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("offsets: int32[G + 1]", "offsets: float32[G + 1]", "'offsets' is not in scope"),
        ("offsets: int32[G + 1]", "offsets: uint64[G + 1]", "'offsets' is not in scope"),
        ("offsets: int32[G + 1]", "offsets: int32[G + 2]", "'offsets' has G + 2 elements, not G + 1"),
        ("offsets: int32[G + 1]", "offsets: int32[G + 1, 1]", "'offsets' is not in scope"),
        ("FOR r in 0..max(", "FOR r in 0..max(offsets - 3, ", "'offsets' is a tensor, not an integer"),
        ("clamp(offsets[blockIdx.x of G + 1], 0, M), 0)", "clamp(x[blockIdx.x of G + 1], 0, M), 0)", "'x' is not in scope"),
    ],
)
def test_what_is_no_table(old: str, new: str, reason: str) -> None:
    parse_kernel(TEXT).check_ir()
    assert old in TEXT
    bare = "\n".join(line.split("  ~ ")[0] for line in TEXT.replace(old, new).splitlines() if "DEFINE" not in line) + "\n"
    with pytest.raises(VerifyError) as caught:
        parse_kernel(bare).check_ir()
    assert reason in str(caught.value)


def test_a_table_that_is_written_in_place_is_none() -> None:
    text = "KERNEL k(n: int32[4]) -> (y: int32[4] into n)\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n\nFOR i in 0..clamp(n[0 of 4], 0, 4):\n  y[i] = copy(1)\n"
    with pytest.raises(VerifyError, match="'n' is not in scope"):
        parse_kernel(text).check_ir()


def test_definitions_name_tables_as_they_are() -> None:
    with pytest.raises(VerifyError, match=r"'offsets' has G \+ 1 elements, not G"):
        parse_kernel(TEXT.replace("if i1 < clamp(offsets[i0 + 1 of G + 1]", "if i1 < clamp(offsets[i0 + 1 of G]")).check_ir()


def test_the_promise_and_the_condition_of_a_part_are_text() -> None:
    text = """\
KERNEL k(t: int32[3] rising 0..4) -> (y: int32[4])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE p: int32[6] = copy(7)
  DEFINE y: int32[4] = whole p at (i0) if i0 < clamp(t[2 of 3], 0, 4)

y[0] = copy(7)  ~ value p[0]
"""
    kernel = parse_kernel(text)
    assert kernel.text(witness=True) == text.rstrip()
    (table,) = kernel.tables
    assert table.rises is not None
    assert list(map(str, table.rises)) == ["0", "4"]
    assert parse_kernel(text.replace(" rising 0..4", "")).tables[0].rises is None


# -- lengths of groups ----------------------------------------------------------------------------------------------------------------

LENGTHS = """\
KERNEL k(n: int32[G] lengths of M by ballot) -> (y: int32[G])
  DIM G min 1, M min 1
  GRID (G, 1, 1)  BLOCK (1, 1, 1)

y[blockIdx.x] = copy(index(clamp(n.offsets[blockIdx.x of G + 1], 0, M)))
"""


def test_lengths_have_offsets() -> None:
    kernel = parse_kernel(LENGTHS)
    kernel.check_ir()
    assert str(kernel) == LENGTHS.rstrip()
    assert [p.name for p in kernel.table_inputs] == ["n"]
    lengths, offsets = kernel.tables
    assert (lengths.name, offsets.name, str(offsets.shape[0])) == ("n", "n.offsets", "G + 1")
    assert offsets.rises is not None
    assert list(map(str, offsets.rises)) == ["0", "M"]
    assert offsets.search is PlaceSearch.BALLOT
    assert looked_up(kernel) == {"n", "n.offsets"}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (" lengths of M", "", "'n.offsets' is not in scope"),
        ("n.offsets[blockIdx.x of G + 1]", "n.offsets[blockIdx.x of G]", "'n.offsets' has G + 1 elements, not G"),
        ("G min 1", "G min 0", "'n' has G lengths: their number may be 0"),
        ("lengths of M", "rising 0..M lengths of M", "'n' has no lengths"),
        ("n: int32[G]", "n: float32[G]", "'n' has no lengths"),
        ("of M by", "of M + threadIdx.x by", "the sum of 'n' uses 'threadIdx.x', which is not an extent"),
        ("  GRID", "  SHARED n.offsets: int32[4]\n  GRID", "n.offsets"),
    ],
)
def test_what_are_no_lengths(old: str, new: str, reason: str) -> None:
    assert old in LENGTHS
    with pytest.raises(VerifyError) as caught:
        parse_kernel(LENGTHS.replace(old, new)).check_ir()
    assert reason in str(caught.value)
