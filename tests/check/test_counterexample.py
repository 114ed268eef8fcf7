"""One launch for all interleavings: phases, accesses and fences that happens-before does not order."""

from pathlib import Path

import pytest

from taskfuse.check.counterexample import counterexample
from taskfuse.check.refuted import Refuted, TooLarge, WorkBudget
from taskfuse.kir import parse_kernel

KERNELS = Path(__file__).parent.parent / "kernels"


def found(name: str, extents: dict[str, int], *edits: tuple[str, str], budget: WorkBudget | None = None) -> Refuted | None:
    text = (KERNELS / f"{name}.kir").read_text(encoding="utf-8")
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return counterexample(parse_kernel(text), extents, budget)


@pytest.mark.parametrize(("name", "n"), [("ring", 5), ("ring", 0), ("ahead", 4), ("async_tile", 5), ("async_ring", 5)])
def test_right_kernels_have_none(name: str, n: int) -> None:
    assert found(name, {"N": n}) is None


@pytest.mark.parametrize(
    ("name", "edit", "subject", "reason"),
    [
        ("ring", ("    WAIT empty[p.slot] parity p.parity\n", ""), "full[0]", "an arrival of phase"),
        ("ring", ("    WAIT full[c.slot] parity c.parity\n", ""), "", ""),
        ("ring", ("    ARRIVE empty[c.slot]\n", ""), "deadlock", "no thread can continue"),
        ("ring", ("INIT full[i] count 32", "INIT full[i] count 33"), "deadlock", "no thread can continue"),
        ("ahead", ("  SYNC warp  # row i is there, and row i - 1 has been read\n", ""), "s", "race: nothing orders"),
        ("ahead", ("WAIT_GROUP copy <= 1", "WAIT_GROUP copy <= 2"), "s", "race: nothing orders"),
        ("async_tile", ("  WAIT_GROUP copy <= 0\n", ""), "s", "race: nothing orders"),
    ],
)
def test_wrong_kernels_have_one(name: str, edit: tuple[str, str], subject: str, reason: str) -> None:
    refuted = found(name, {"N": 5}, edit)
    assert refuted is not None
    assert refuted.subject.startswith(subject)
    assert reason in refuted.reason
    assert refuted.notes[-1] == "extents N = 5"


def test_a_fault_may_need_many_trips() -> None:
    wait = ("    WAIT empty[p.slot] parity p.parity\n", "")
    assert found("ring", {"N": 1}, wait) is None
    assert found("ring", {"N": 3}, wait) is not None


def test_work_is_bounded() -> None:
    with pytest.raises(TooLarge):
        found("ring", {"N": 50}, budget=WorkBudget(100, 100))
