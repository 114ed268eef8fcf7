"""Launches that are looked at: extents, tables, and values of indices that are data."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskfuse.check.drawn_launches import LARGE, MOST, ROW, SAMPLES, drawn_extents, drawn_tables, drawn_values
from taskfuse.check.refuted import TooLarge
from taskfuse.kir import parse_kernel
from taskfuse.reports.certificate import Verdict

TEXT = (Path(__file__).parent.parent / "kernels" / "segment_sum.kir").read_text(encoding="utf-8")


def test_elements_rise() -> None:
    found = drawn_tables(parse_kernel(TEXT), {"M": 5, "G": 3})
    assert {name: table.tolist() for name, table in found.items()} == {"offsets": [0, ROW, 2 * ROW, 3 * ROW]}


def test_rows_of_integers_that_no_expression_reads_are_no_tables() -> None:
    kernel = parse_kernel("KERNEL k(n: int32[4]) -> (y: int32[4])\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n\ny[0] = copy(n[0])\n")
    assert drawn_tables(kernel, {}) == {}


def test_one_launch_proves_nothing_of_a_kernel_with_tables() -> None:
    text = TEXT.replace("G + 1", "4").replace("[G", "[3").replace("(G", "(3").replace("[M]", "[5]").replace("M", "5").replace("  DI5 5 min 0, G min 1\n", "")
    right, odd = parse_kernel(text), parse_kernel(text.replace("FOR r in 0..max(", "FOR r in 0..2 + 0*max("))
    assert right.verify().is_proved
    assert not odd.verify().is_proved  # right for the rows of the table that is drawn, and wrong for longer ones


def test_extents_are_within_what_is_known_of_them() -> None:
    found = list(drawn_extents(parse_kernel(TEXT)))
    assert len({tuple(f.values()) for f in found}) == len(found)
    assert all(f["M"] >= 0 and f["G"] >= 1 for f in found)
    assert {"M": 1, "G": LARGE} in found
    assert list(drawn_extents(parse_kernel("KERNEL k() -> (y: int32[4])\n  GRID (1, 1, 1)  BLOCK (4, 1, 1)\n\ny[threadIdx.x] = copy(1)\n"))) == [{}]


def test_few_values_are_all_drawn_and_of_many_the_first_and_the_last() -> None:
    assert drawn_values([2, 3]).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert drawn_values([]).tolist() == [[]]
    assert drawn_values([0, 3]).tolist() == []
    many = drawn_values([1000, 1000]).tolist()
    assert len(many) <= SAMPLES
    assert [0, 0] in many
    assert [999, 999] in many
    assert len(drawn_values([1000], entirely=True)) == 1000
    with pytest.raises(TooLarge):
        drawn_values([1000], entirely=True, lanes=MOST)


def test_no_argument_has_a_negative_extent() -> None:
    head = "KERNEL k(x: float32[N - K], N: integer, K: integer) -> (y: float32[N - K])\n"
    text = f"{head}  DIM N, K\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n\nFOR i in 0..N - K:\n  y[i] = exp(x[i])\n"
    kernel = parse_kernel(text)
    assert all(e["N"] >= e["K"] for e in drawn_extents(kernel))
    assert kernel.verify().verdict is Verdict.OUTSIDE  # of calls with given extents it is proved
