"""Mistakes in values: each operator plants the one that its name says, in one place, and leaves the witness as it is."""

import pytest

from taskfuse.kir import held, parse_kernel, walk
from taskfuse.testing.value_operators import LIE_OPERATORS, TILE_OPERATORS, VALUE_OPERATORS
from tests.testing.planted import SUMS, planted

ROW = "4*blockIdx.x + threadIdx.x"
TERM = f"acc = fma(x[{ROW}, j], z[{ROW}, j], acc)  ~ term y[{ROW}, j]"
VALUE = f"y[{ROW}] = copy(acc)  ~ value y[{ROW}]"


@pytest.mark.parametrize(
    ("operator", "count", "line"),
    [
        ("loop starts one later", 1, "FOR j in 1..4:"),
        ("loop stops one earlier", 1, "FOR j in 0..3:"),
        ("step doubled", 1, "FOR j in 0..4 step 2:"),
        ("first trip each time", 1, f"acc = fma(x[{ROW}, 0], z[{ROW}, 0], acc)  ~ term y[{ROW}, j]"),
        ("guard dropped", 1, "-IF threadIdx.x < 4:"),
        ("guard too tight", 1, "IF threadIdx.x + 1 < 4:"),
        ("guard too wide", 1, "IF threadIdx.x - 1 < 4:"),
        ("guard inverted", 1, "IF threadIdx.x >= 4:"),
        ("by thread 0 alone", 3, "IF threadIdx.x == 0:"),
        ("statement dropped", 3, "-acc = copy(0.0)  ~ start y"),
        ("statement twice", 3, TERM),
        ("start dropped", 1, "-acc = copy(0.0)  ~ start y"),
        ("one block more or less", 6, "GRID (3, 1, 1)  BLOCK (4, 1, 1)"),
    ],
)
def test_planted(operator: str, count: int, line: str) -> None:
    found = planted(VALUE_OPERATORS, operator, parse_kernel(SUMS))
    assert len(found) == count
    assert line in found


def test_claims_stay() -> None:
    kernel = parse_kernel(SUMS)
    claims = {held(s) for s in walk(kernel)}
    own = [op for op in VALUE_OPERATORS if op not in LIE_OPERATORS]
    assert all({held(s) for s in walk(mutant)} <= claims for op in own for mutant in op.apply(kernel))


def test_names_are_unique() -> None:
    names = [op.name for op in VALUE_OPERATORS]
    assert len(set(names)) == len(names)
    assert {op.name for op in (*LIE_OPERATORS, *TILE_OPERATORS)} <= set(names)
