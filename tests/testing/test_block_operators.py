"""Mistakes between blocks: each operator plants the one that its name says, in one place."""

from pathlib import Path

import pytest

from taskfuse.kir import parse_kernel
from taskfuse.testing.block_operators import BLOCK_OPERATORS
from tests.testing.planted import planted

KERNELS = {name: parse_kernel((Path(__file__).parents[1] / "kernels" / f"{name}.kir").read_text(encoding="utf-8")) for name in ("share", "blocks", "meet")}


@pytest.mark.parametrize(
    ("kernel", "operator", "count", "first"),
    [
        ("share", "block barrier for the cluster's", 2, "SYNC block  # barriers are initialized"),
        ("share", "arrive at one block only", 1, "ARRIVE empty[c.slot]"),
        ("share", "count one block of a cluster", 1, "INIT empty[0] count 1; INIT empty[1] count 1"),
        ("share", "slot empty in one block", 1, "INIT empty[0] count 1; INIT empty[1] count 1; ARRIVE empty[c.slot]"),
        ("meet", "access the next block", 2, "s[(clusterIdx.x + 1) % 2, threadIdx.x] = copy(x[blockIdx.x, threadIdx.x])"),
        ("meet", "access the own block", 1, "y[blockIdx.x, threadIdx.x] = copy(s[clusterIdx.x, 63 - threadIdx.x])"),
        ("meet", "arrive in the scope of a block", 1, "ARRIVE m[m.c.slot] across CIDx"),
        ("meet", "wait in the scope of a block", 1, "WAIT m[m.c.slot] parity m.c.parity"),
        ("blocks", "acquire one phase less", 3, "ACQUIRE empty[blockIdx.x, p.slot] phases p.phase - 1"),
        ("blocks", "acquire one phase more", 3, "ACQUIRE empty[blockIdx.x, p.slot] phases p.phase + 1"),
        ("blocks", "drop barrier after acquire", 3, "-SYNC block  # what one thread has acquired, all have"),
        ("blocks", "drop barrier before release", 3, "-SYNC block  # before one thread releases for the block"),
        ("blocks", "semaphore of one release more", 2, "SEMAPHORE full[2, 2] count 2, empty[2, 2] count 2"),
        ("blocks", "all blocks use the first ring", 6, "ACQUIRE empty[0, p.slot] phases p.phase"),
    ],
)
def test_planted(kernel: str, operator: str, count: int, first: str) -> None:
    found = planted(BLOCK_OPERATORS, operator, KERNELS[kernel])
    assert (len(found), found[0]) == (count, first)


def test_what_is_not_there_is_not_changed() -> None:
    assert planted(BLOCK_OPERATORS, "block barrier for the cluster's", KERNELS["blocks"]) == []
    assert planted(BLOCK_OPERATORS, "drop acquire", KERNELS["share"]) == []
