"""Mistakes of scopes and proxies: each operator plants the one that its name says, in one place."""

from pathlib import Path

import pytest

from taskfuse.kir import parse_kernel
from taskfuse.testing.scope_operators import SCOPE_OPERATORS
from tests.testing.planted import planted

TESTS = Path(__file__).parents[1]
KERNELS = {name: (TESTS / "kernels" / f"{name}.kir").read_text(encoding="utf-8") for name in ("double", "rotate", "share")}
KERNELS["updates"] = (TESTS / "check" / "museum" / "update_late_fence.fixed.kir").read_text(encoding="utf-8")
KERNELS["square"] = (
    KERNELS["share"].replace("CLUSTER (2, 1, 1)", "CLUSTER (2, 2, 1)").replace("GRID (4, 1, 1)", "GRID (4, 2, 1)").replace("across CIDx", "across CIDx, CIDy")
)


@pytest.mark.parametrize(
    ("kernel", "operator", "count", "first"),
    [
        ("double", "fence of the other memory", 1, "FENCE proxy.async.global"),
        ("double", "proxy fence by few threads", 1, "IF threadIdx.x == 0:"),
        ("double", "few threads wait", 2, "IF threadIdx.x == 0:"),
        ("rotate", "block barrier for the grid's", 2, "SYNC block  # RAW: every block has written"),
        ("square", "reach fewer blocks", 2, "TMA s[p.slot, 2*clusterIdx.x, 0] <- x.map(blockIdx.x//2 + 2*i, 2*clusterIdx.x, 0) on full[p.slot] across CIDy"),
        ("updates", "store a box that is to be combined", 1, "TMA m(0, 0) <- t[0, 0]  ~ value u[blockIdx.x, tile.0, tile.1] tile (8, 32)"),
    ],
)
def test_planted(kernel: str, operator: str, count: int, first: str) -> None:
    found = planted(SCOPE_OPERATORS, operator, parse_kernel(KERNELS[kernel]))
    assert (len(found), found[0]) == (count, first)


def test_what_is_not_there_is_not_changed() -> None:
    for operator in ("fence of the other memory", "block barrier for the grid's", "reach fewer blocks", "store a box that is to be combined"):
        assert planted(SCOPE_OPERATORS, operator, parse_kernel(KERNELS["share"])) == []
