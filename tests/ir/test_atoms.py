"""The table of atoms: rows are found by their printed names, and say what their instructions do."""

from typing import Any

import pytest

from taskfuse.ir import atoms
from taskfuse.ir.atoms import ATOMS, Atom, Bounds, Completion, find, mma, wgmma
from taskfuse.ir.matrix_instructions import Family

ROWS = [*ATOMS.values(), wgmma(64, 128, 16), wgmma(64, 8, 32), mma(16, 8, 8)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_found_by_its_name(row: Atom) -> None:
    assert find(row.name) == row
    low, high = row.axes
    assert 0 <= low <= high
    assert row.min_bytes <= row.max_bytes
    assert (row.binds is None) == (high == 0)
    assert row.tile is None or len(row.tile) == high == low


@pytest.mark.parametrize("name", ["wgmma_m64n12k16", "wgmma_m64n264k16", "mma_m16n16k16", "wgmma_m64n8k16x", "tma", ""])
def test_what_is_no_instruction_has_no_row(name: str) -> None:
    assert find(name) is None


def test_an_instruction_that_there_is_not() -> None:
    with pytest.raises(ValueError, match=r"^wgmma\(32, 8, 16\): no such instruction; m is 64, n a multiple of 8 up to 256, k 32 bytes of an operand$"):
        wgmma(32, 8, 16)
    word: Any = "a"
    for arguments in ((16, 16, 16), (word, 8, 4)):
        with pytest.raises(ValueError, match=r": no such instruction; m is 16, n is 8, k 32, 64 or 128 bytes of an operand$") as caught:
            mma(*arguments)
        assert str(caught.value).startswith(f"mma{arguments}: ")
    with pytest.raises(ValueError, match=r"^mma\(16, 8, 16, 'row', 'col'\): no such instruction; m8n8k4 alone takes layouts$"):
        mma(16, 8, 16, "row", "col")


def test_products_sum_and_everything_else_copies() -> None:
    for row in ROWS:
        assert (row.contraction is None) == (row.shape is None)
        if row.contraction is not None:
            assert (row.contraction.combine.name, row.contraction.body.name) == ("add", "mul")
            assert not row.copies_only
    assert [row.name for row in ROWS if not row.copies_only and row.contraction is None] == ["scalar"]


def test_who_is_waited_for() -> None:
    """An instruction of the asynchronous proxy is not done when it is issued."""
    assert all(row.completion is not Completion.IMMEDIATE for row in ROWS if row.is_async)
    assert atoms.CP_ASYNC.completion is Completion.ARRIVAL
    assert not atoms.CP_ASYNC.is_async, "it is of the generic proxy"
    assert (atoms.TMA_LOAD.bounds, atoms.TMA_STORE.bounds) == (Bounds.FILL, Bounds.CLIP)
    shape = wgmma(64, 8, 16).shape
    assert shape is not None
    assert shape.family is Family.WGMMA
    assert wgmma(64, 8, 16).sets_first
    assert not mma(16, 8, 16).sets_first


def test_quad_pairs_share_an_instruction() -> None:
    """Four products, each of lanes 4q to 4q + 3 and 16 + 4q to 16 + 4q + 3."""
    row = mma(8, 8, 4, "col", "row")
    assert (row.name, row.units, row.lanes, row.lane_digits) == ("mma_m8n8k4_col_row", 4, 32, (2, 4, 4))
    assert find(row.name) == row
    assert (mma(16, 8, 16).units, mma(16, 8, 16).lane_digits, wgmma(64, 8, 16).lane_digits) == (1, (1, 1, 32), (1, 1, 128))
    assert find("mma_m8n8k4") == mma(8, 8, 4)  # of float64: one product of the warp
    for name in ("mma_m8n8k8", "mma_m8n8k8_row_col", "mma_m16n8k16_row_col", "wgmma_m64n8k16_row_col", "mma_m8n8k4_row"):
        assert find(name) is None


def test_quad_pairs_need_their_layouts() -> None:
    with pytest.raises(ValueError, match=r"^mma\(8, 8, 4, 'row', None\): no such instruction; m8n8k4 takes 'row' or 'col' as a and as b, or neither$"):
        mma(8, 8, 4, "row")
