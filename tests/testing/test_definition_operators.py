"""Mistakes in definitions: each operator changes one definition, and nothing else."""

import pytest

from taskfuse.kir import parse_kernel
from taskfuse.kir.operands import Access
from taskfuse.testing.definition_operators import DEFINITION_OPERATORS, all_operands, with_operands
from tests.testing.planted import SUMS, changed

SUM = "DEFINE y: float32[8] over (8, 4) at (i0) = reduce add of mul(x[i0, i1], z[i0, i1]) from 0.0"
MANY = parse_kernel("""\
KERNEL k(x: float32[8, 4], z: float32[8, 4], t: int32[8]) -> (y: float32[8, 4])
  GRID (1, 1, 1)  BLOCK (8, 1, 1)
  DEFINE a: float32[8, 4] = sub(x[i0, i1], 2.0)
  DEFINE b: float32[8, 4] = pick(a[i0, i1] if i0 < 3, z[i0, i1] if i1 < 2, otherwise 0.0)
  DEFINE c: float32[8, 4] = scan add along 1 of b[i0, i1]
  DEFINE y: float32[8, 4] = find c[v0, i1] at t[i0] of 8
""")  # fmt: skip


@pytest.mark.parametrize(
    ("operator", "count", "old", "new"),
    [
        ("index shifted", 4, "x[i0, i1]", "x[(i0 + 1) % 8, i1]"),
        ("index backwards", 4, "x[i0, i1]", "x[7 - i0, i1]"),
        ("axis dropped", 4, "x[i0, i1]", "x[0, i1]"),
        ("indices exchanged", 2, "x[i0, i1]", "x[i1, i0]"),
        ("another tensor", 2, "x[i0, i1]", "z[i0, i1]"),
        ("another function", 5, "mul(", "maximum("),
        ("another start", 1, "from 0.0", "from 1.0"),
        ("points left out", 2, "over (8, 4)", "over (8, 3)"),
        ("terms elsewhere", 1, "at (i0)", "at ((i0 + 1) % 8)"),
        ("operands swapped", 0, "", ""),
    ],
)
def test_planted_in_a_sum(operator: str, count: int, old: str, new: str) -> None:
    (op,) = [op for op in DEFINITION_OPERATORS if op.name == operator]
    kernel = parse_kernel(SUMS)
    found = changed(kernel, op.apply(kernel))
    assert len(found) == count
    assert not found or SUM.replace(old, new) in found


@pytest.mark.parametrize(
    ("operator", "part"),
    [
        ("another constant", "sub(x[i0, i1], 3.0)"),
        ("operands swapped", "sub(2.0, x[i0, i1])"),
        ("other cases", "pick(a[i0, i1] if i0 >= 3,"),
        ("other cases", "pick(z[i0, i1] if i1 < 2, otherwise 0.0)"),
        ("another axis of a scan", "scan add along 0 of b[i0, i1]"),
        ("index shifted", "find c[v0, i1] at t[(i0 + 1) % 8] of 8"),
    ],
)
def test_planted_in_others(operator: str, part: str) -> None:
    (op,) = [op for op in DEFINITION_OPERATORS if op.name == operator]
    assert any(part in line for line in changed(MANY, op.apply(MANY)))


def test_ends_are_moved() -> None:
    (op,) = [op for op in DEFINITION_OPERATORS if op.name == "points left out"]
    kernel = parse_kernel(SUMS.replace("z[i0, i1]) from 0.0", "z[i0, i1]) from 0.0 until 1 < i0 - 2"))
    found = changed(kernel, op.apply(kernel))
    assert {line.partition("from 0.0")[2] for line in found if "over (8, 4)" in line} == {"", " until 1 < i0 - 1", " until 1 < i0 - 3"}


def test_operands_are_put_back() -> None:
    for d in (*MANY.definitions, *parse_kernel(SUMS).definitions):
        assert with_operands(d.rule, all_operands(d.rule)) == d.rule
        assert any(isinstance(o, Access) for o in all_operands(d.rule))
