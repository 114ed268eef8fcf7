"""Random products of groups: all layouts are drawn, tables keep or break their promises, and no table leads outside."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.row_tiles import RowTiles
from taskfuse.ir.scalar import Expr
from taskfuse.testing.case import fusion_case, seeded_case
from taskfuse.testing.checks import CheckError, Effort, Property, check_case
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.grouped import GroupedGraph, hostile, rising
from taskfuse.testing.options import Mix
from taskfuse.testing.program import Recorder


def test_every_layout_is_drawn() -> None:
    drawn = Counter[str]()
    for seed in range(40):
        recorder = Recorder()
        GroupedGraph(RandomChooser(seed), Mix.GROUPED.options(seed), recorder).grow()
        drawn.update(recorder.made)
    assert {"grouped_matmul", "grouped_matmul_masked", "grouped_matmul_tiled", "grouped_matmul_aligned", "table"} <= drawn.keys()


def test_tables_that_rise() -> None:
    rng = np.random.default_rng(0)
    groups: set[str] = set()
    for _ in range(60):
        table = rising(rng, 5, 0, 9)
        assert (table[0], table[-1], len(table)) == (0, 9, 5)
        sizes = np.diff(table)
        assert (sizes >= 0).all()
        groups |= {"empty"} if (sizes == 0).any() else {"all"}
        groups |= {"one"} if (sizes > 0).sum() == 1 else set()
    assert groups == {"empty", "all", "one"}
    assert rising(rng, 2, 0, 9).tolist() == [0, 9]


def test_tables_that_break_every_promise() -> None:
    rng = np.random.default_rng(0)
    tables = [hostile(rng, 5, 0, 9) for _ in range(60)]
    assert any((t > 2**30).any() for t in tables)
    assert any((t < 0).any() for t in tables)
    assert sum((np.diff(t) < 0).any() for t in tables) > 40


@pytest.mark.parametrize("seed", [0, 7, 20])
def test_cases_have_all_properties(seed: int) -> None:
    check_case(seeded_case(seed, Mix.GROUPED), Effort(interleavings=1, orders=0))


def test_a_definition_that_leads_outside_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps from rows to tiles without their clamps, as they were once, are right for tables that rise alone."""

    def tile(self: RowTiles, row: Expr) -> Expr:
        group = self.group_of(row)
        return self.number(group) + (row - self.offset(group)) // self.size

    def check() -> None:
        with tf.Fusion("gathered") as fusion:
            a, b = tf.define_tensor((5, 3), name="a"), tf.define_tensor((2, 3, 2), name="b")
            fusion.add_output(tf.grouped_matmul(a, b, tf.table("t", 3, 5, rising=True), tile=2))
        for seed in range(8):
            check_case(fusion_case(fusion, seed=seed), Effort(interleavings=1, orders=0))

    check()
    monkeypatch.setattr(RowTiles, "tile", tile)
    with pytest.raises(CheckError) as caught:
        check()
    assert caught.value.prop is Property.SAFE
