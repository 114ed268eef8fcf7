"""The value layer over one kernel: what it says of right ones and of wrong ones, and when one run decides."""

import pytest

from taskfuse.check.refuted import WorkBudget
from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.structure import Structure
from taskfuse.check.values.verify import right, wrong_value
from taskfuse.kir import parse_kernel
from taskfuse.reports.certificate import Verdict

SUM = """\
KERNEL k(x: float32[N, 4]) -> (y: float32[N])
  DIM N
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL acc: float32[]
  DEFINE y: float32[N] over (N, 4) at (i0) = reduce add of copy(x[i0, i1]) from 0.0

FOR i in 0..N:
  acc = copy(0.0)  ~ start y
  FOR j in 0..4:
    acc = add(acc, x[i, j])  ~ term y[i, j]
  y[i] = copy(acc)  ~ value y[i]
"""


def obligations(text: str) -> list[tuple[str, Verdict]]:
    return [(o.subject, o.verdict) for o in right(Structure.of(StatementTree.of(parse_kernel(text))))]


def test_a_right_kernel_has_two_obligations() -> None:
    assert obligations(SUM) == [("writes", Verdict.PROVED), ("outputs", Verdict.PROVED)]
    assert obligations("\n".join(line for line in SUM.split("\n") if "DEFINE" not in line).replace("  ~ ", "  # ")) == []


def test_one_run_decides_at_constant_extents() -> None:
    """The terms of a row in an order of their own: right, and no rule says so."""
    odd = SUM.replace("[N", "[6").replace("0..N", "0..6").replace("(N", "(6").replace("  DIM N\n", "")
    assert obligations(odd)[0][1] is Verdict.PROVED
    turned = odd.replace("x[i, j])  ~ term y[i, j]", "x[i, 5*j % 4])  ~ term y[i, 5*j % 4]")
    assert all(v is Verdict.PROVED for _, v in obligations(turned))
    ((subject, verdict), *_) = obligations(odd.replace("FOR j in 0..4", "FOR j in 0..3"))
    assert (subject, verdict) == ("y[0]", Verdict.REFUTED)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("0..4:", "0..3:", "element [0] of y lacks the term at [0, 3]"),
        ("0..4:", "0..5:", ""),
        ("  acc = copy(0.0)  ~ start y\n", "  acc = copy(1.0)  ~ start y\n", ""),
        ("add(acc, x[i, j])", "add(acc, x[i, 0])", ""),
        ("y[i] = copy(acc)", "y[N - 1 - i] = copy(acc)", ""),
    ],
)
def test_wrong_values_have_a_counterexample(old: str, new: str, reason: str) -> None:
    assert old in SUM
    text = SUM.replace(old, new)
    assert any(v is not Verdict.PROVED for _, v in obligations(text))
    found = wrong_value(parse_kernel(text), {"N": 2}, WorkBudget())
    assert found is not None
    assert found.verdict is Verdict.REFUTED
    assert reason in found.reason
    assert wrong_value(parse_kernel(SUM), {"N": 2}, WorkBudget()) is None
    assert wrong_value(parse_kernel(text), {"N": 2}, WorkBudget(0, 0)) is None
