"""Whole, converged warps: what they decide alike, equally often, with the same operands."""

import pytest

from taskfuse.check.convergence import convergence
from taskfuse.reports.certificate import Verdict
from tests.check.structured import structure


def reasons(body: str, block: str = "(64, 1, 1)") -> list[str]:
    found = structure(body, block)
    return [o.reason if o.verdict is not Verdict.PROVED else "" for o in convergence(found.tree, found.threads)]


SHUFFLE = "SHUFFLE r[0] <- r[1] xor 16"


@pytest.mark.parametrize(
    "body",
    [
        SHUFFLE,
        f"IF threadIdx.x < 32:\n  {SHUFFLE}",
        f"FOR k in 0..N:\n  {SHUFFLE}",
        f"IF blockIdx.x < 3:\n  {SHUFFLE}",
        f"FOR k in 0..threadIdx.x//32:\n  {SHUFFLE}",
    ],
)
def test_whole_warps(body: str) -> None:
    assert reasons(body) == [""]


def test_nothing_to_converge_is_no_obligation() -> None:
    assert reasons("y[0, threadIdx.x] = copy(x[0, threadIdx.x])") == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"IF threadIdx.x < 16:\n  {SHUFFLE}", "it is not executed by whole warps"),
        (f"FOR k in 0..threadIdx.x:\n  {SHUFFLE}", "threads of one warp may execute it different numbers of times"),
        (f"FOR k in 0..4:\n  IF threadIdx.x + k < 40:\n    {SHUFFLE}", "threads of one warp may disagree on whether to execute it"),
    ],
)
def test_torn_warps(body: str, reason: str) -> None:
    (found,) = reasons(body)
    assert found.startswith(reason)


def test_a_block_of_half_a_warp() -> None:
    assert reasons("COMMIT wgmma", "(16, 1, 1)") == ["it is not executed by whole warpgroups"]
    assert reasons("COMMIT wgmma", "(128, 1, 1)") == [""]


def test_each_that_is_torn_is_told_with_its_role() -> None:
    found = structure(f"IF threadIdx.x < 16:  # few\n  {SHUFFLE}\n{SHUFFLE}")
    (one,) = convergence(found.tree, found.threads)
    assert one.notes == (f"{SHUFFLE} in few",)
