"""Registers of wgmmas, and register budgets. What launches say of fences is in test_fences.py."""

import pytest

from taskfuse.check.registers import Held, budgets, released
from taskfuse.reports.certificate import Verdict
from tests.check.structured import structure


def test_registers_overlap_if_they_have_one_in_common() -> None:
    a = Held("acc", 0, 7)
    assert a.overlaps(Held("acc", 7, 9))
    assert not a.overlaps(Held("acc", 8, 9))
    assert not a.overlaps(Held("other", 0, 7))
    assert Held("acc", 3, float("inf")).overlaps(Held("acc", 100, 101))


def budget(body: str, launched: int | None = 168, block: str = "(128, 3, 1)") -> tuple[Verdict, str]:
    found = structure(body, block)
    (one,) = budgets(found.tree, found.threads, launched)
    return one.verdict, one.reason


ROLES = "IF threadIdx.y == 0:\n  SETMAXNREG {}\nELSE:\n  SETMAXNREG {}"


def test_budgets_fit_into_what_the_block_was_launched_with() -> None:
    assert budget(ROLES.format(24, 240)) == (Verdict.PROVED, "they sum to 64512 registers of the 64512 that 384 threads are launched with")
    verdict, reason = budget(ROLES.format(40, 240))
    assert verdict is Verdict.REFUTED
    assert reason.endswith("a warpgroup waits forever")


def test_those_without_a_budget_keep_what_they_were_launched_with() -> None:
    assert budget("IF threadIdx.y == 0:\n  SETMAXNREG 176")[0] is Verdict.REFUTED
    assert budget("IF threadIdx.y == 0:\n  SETMAXNREG 160")[0] is Verdict.PROVED


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("FOR k in 0..N:\n  SETMAXNREG 24", "it is not executed once by a fixed set of warpgroups"),
        ("c = CURSOR(slots 2, slot 0, parity 0)\nIF c.slot == 0:\n  SETMAXNREG 24", "it is not executed once by a fixed set of warpgroups"),
        (ROLES.format(24, 240) + "\nIF threadIdx.y == 1:\n  SETMAXNREG 232", "a warpgroup sets its budget twice"),
    ],
)
def test_once_by_each_warpgroup(body: str, reason: str) -> None:
    assert budget(body) == (Verdict.OUTSIDE, reason)


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("IF blockIdx.x < 2:\n  SETMAXNREG 24", Verdict.PROVED),
        ("IF blockIdx.x < 2:\n  IF threadIdx.y == 0:\n    SETMAXNREG 24\n  ELSE:\n    SETMAXNREG 240", Verdict.PROVED),
        ("IF blockIdx.x < 2:\n  IF threadIdx.y == 0:\n    SETMAXNREG 24\n  ELSE:\n    SETMAXNREG 248", Verdict.OUTSIDE),
        ("IF blockIdx.x < 2:\n  IF threadIdx.y == 0:\n    SETMAXNREG 24\nIF threadIdx.y == 1:\n  SETMAXNREG 240", Verdict.OUTSIDE),
        ("IF blockIdx.x < 2:\n  IF threadIdx.y == 1:\n    SETMAXNREG 240\nIF threadIdx.y == 0:\n  SETMAXNREG 24", Verdict.PROVED),
        ("IF blockIdx.x < 2:\n  IF threadIdx.y == 1:\n    SETMAXNREG 240\nELSE:\n  IF threadIdx.y == 0:\n    SETMAXNREG 24", Verdict.OUTSIDE),
    ],
)
def test_budgets_fit_into_every_block_whichever_conditions_hold_there(body: str, verdict: Verdict) -> None:
    assert budget(body)[0] is verdict


def test_unknown_launches() -> None:
    assert budget("SETMAXNREG 24", None)[0] is Verdict.OUTSIDE
    assert budget("SETMAXNREG 24", 168, "(128, N, 1)")[1].startswith("the registers of a thread at launch are unknown")
    found = structure("y[0, 0] = copy(1.0)")
    assert budgets(found.tree, found.threads, 168) == []


def test_an_increase_waits_for_what_others_release() -> None:
    found = structure(ROLES.format(24, 240), "(128, 3, 1)")
    ((low, high),) = released(found.tree, 168)
    assert (low.text, high.text) == ("SETMAXNREG 24", "SETMAXNREG 240")
    assert released(found.tree, None) == []
    assert released(structure("SETMAXNREG 24", "(128, 1, 1)").tree, 168) == []
