"""Products of tiles in a run: each accumulator has the terms of its element, once."""

import pytest

from tests.check.values.transposed import TRANSPOSED
from tests.executions import changed, finding

STEP = TRANSPOSED[TRANSPOSED.index("  MMA.") : TRANSPOSED.index("FOR v in 0..4 UNROLL:\n  d[")]


def test_it_holds() -> None:
    assert finding(TRANSPOSED) == ""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("FOR t in 0..2", "FOR t in 0..1", "lacks the term at [0, 0, 16] and 15 more"),
        (STEP, 2 * STEP, "twice"),
        ("  acc[v] = copy(0.0)  ~ start acc\n", "  acc[v] = copy(1.0)  ~ start acc\n", ""),
        ("reduce add of mul(a_r[i0, i2], b_r[i2, i1])", "reduce maximum of mul(a_r[i0, i2], b_r[i2, i1])", "multiplies what no definition says"),
        ("~ term acc[16*threadIdx.y + tile.0, tile.1, 16*t + tile.2]", "~ term acc[16*threadIdx.y + tile.0, tile.1, 16*t + 15 - tile.2]", ""),
        ("= copy(acc[v])", "= copy(acc[3 - v])", ""),
    ],
)
def test_other_terms(old: str, new: str, said: str) -> None:
    found = finding(changed(TRANSPOSED, old, new))
    assert found
    assert said in found
