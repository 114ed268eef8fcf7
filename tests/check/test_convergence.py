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


PRODUCT = """\
KERNEL k(x: float32[4]) -> (y: float32[4])
  GRID (4, 1, 1)  BLOCK {block}
  LOCAL acc: float32[32]
  SHARED s: bfloat16[2, 64, 64] align 1024

"""


@pytest.mark.parametrize(
    ("accumulate", "offset", "row", "reason"),
    [
        ("true", "0", "0", ""),
        ("blockIdx.x > 0", "32*threadIdx.y", "threadIdx.y", ""),
        ("threadIdx.x < 128", "0", "0", ""),
        ("threadIdx.x < 64", "0", "0", "threads of one warpgroup may give it different operands: threadIdx.x < 64"),
        ("threadIdx.x//32 > 0", "0", "0", "threads of one warpgroup may give it different operands: threadIdx.x//32 > 0"),
        ("threadIdx.y > 0", "0", "0", ""),
        ("true", "2*threadIdx.x", "0", "threads of one warpgroup may give it different operands: 2*threadIdx.x"),
        ("true", "0", "threadIdx.x//64", "threads of one warpgroup may give it different operands: threadIdx.x//64"),
    ],
)
def test_operands_of_a_warpgroup(accumulate: str, offset: str, row: str, reason: str) -> None:
    """One instruction of all its threads: each tile, and whether it accumulates, has one value for them."""
    good, bad = (f"desc(s[{r}, 0, 0] + {o}, swizzle 128, lbo 0, sbo 1024, major K)" for r, o in (("1", "0"), (row, offset)))
    for tiles in (f"{good}, {bad}", f"{bad}, {good}"):
        body = f"WGMMA.m64n64k16.bfloat16 acc[0], {tiles}, accumulate {accumulate}"
        found = structure(body, "(128, 2, 1)", PRODUCT)
        assert [o.reason if o.verdict is not Verdict.PROVED else "" for o in convergence(found.tree, found.threads)] == [reason]


@pytest.mark.parametrize(
    ("moves", "differ"),
    [
        ("c.advance(1)", False),
        ("IF threadIdx.y == 0:\n  c.advance(threadIdx.y + 1)", False),
        ("FOR k in 0..threadIdx.y:\n  c.advance(1)", False),
        ("IF threadIdx.x < 64:\n  c.advance(1)", True),
        ("c.advance(threadIdx.x//64)", True),
        ("FOR k in 0..threadIdx.x:\n  c.advance(1)", True),
        ("FOR k in 0..4:\n  IF threadIdx.x > k:\n    c.advance(1)", True),
        ("d = CURSOR(slots 2, slot 0, parity 0)\nc.advance(d.slot)", True),
        ("IF c.slot == 0:\n  c.advance(1)", True),
        ("IF threadIdx.y == 1:\n  IF threadIdx.x < 64:\n    c.advance(1)", True),
    ],
)
def test_threads_of_a_warpgroup_move_a_cursor_together(moves: str, differ: bool) -> None:
    tile = "desc(s[c.slot, 0, 0] + 0, swizzle 128, lbo 0, sbo 1024, major K)"
    wgmma = f"WGMMA.m64n64k16.bfloat16 acc[0], {tile}, {tile}, accumulate true"
    found = structure(f"c = CURSOR(slots 2, slot 0, parity 0)\n{moves}\n{wgmma}", "(128, 2, 1)", PRODUCT)
    reasons = [o.reason for o in convergence(found.tree, found.threads) if o.verdict is not Verdict.PROVED]
    assert reasons == ["threads of one warpgroup may give it different operands: c.slot"] * differ


def test_others_may_move_it_elsewhere() -> None:
    """The threads past the warpgroup are a part of another."""
    tile = "desc(s[c.slot, 0, 0] + 0, swizzle 128, lbo 0, sbo 1024, major K)"
    body = "c = CURSOR(slots 2, slot 0, parity 0)\nIF threadIdx.x < 144:\n  c.advance(1)\nIF threadIdx.x < 128:\n"
    body += f"  WGMMA.m64n64k16.bfloat16 acc[0], {tile}, {tile}, accumulate true"
    found = structure(body, "(160, 1, 1)", PRODUCT)
    assert [o.verdict for o in convergence(found.tree, found.threads)] == [Verdict.PROVED]
