"""The proof of rings across the blocks of a cluster: what it asks, each with a kernel that lacks it and a twin that does not."""

from pathlib import Path

import pytest

import taskfuse as tf
from taskfuse.check import Verdict, verify

TEXT = (Path(__file__).parents[1] / "kernels" / "share.kir").read_text(encoding="utf-8")
LOAD = "TMA s[p.slot, 2*clusterIdx.x, 0] <- x.map(blockIdx.x//2 + 2*i, 2*clusterIdx.x, 0) on full[p.slot] across CIDx"
HALF = LOAD.replace("2*clusterIdx.x,", "2*clusterIdx.x + j,")
TRIPS = "FOR i in 0..ceildiv(N - blockIdx.x//2, 2):"


def changed(*pairs: tuple[str, str]) -> tf.Kernel:
    text = TEXT
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    kernel = tf.parse_kernel(text)
    kernel.check_ir()
    return kernel


def reasons(kernel: tf.Kernel) -> str:
    return "\n".join(map(str, verify(kernel).failures))


TWINS: dict[str, tuple[tuple[str, str], ...]] = {
    "as it is": (),
    "clusters of one dimension more": (
        ("CLUSTER (2, 1, 1)", "CLUSTER (2, 3, 1)"),
        ("GRID (4, 1, 1)", "GRID (4, 3, 1)"),
        ("float32[N, 2", "float32[3, N, 2"),
        ("      y[", "      y[clusterIdx.y, "),
    ),
    "one cluster": (("GRID (4, 1, 1)", "GRID (2, 1, 1)"), ("i in 0..ceildiv(N - blockIdx.x//2, 2)", "i in 0..N"), ("blockIdx.x//2 + 2*i", "i")),
    "more slots": (
        ("[2, 4, 32]", "[5, 4, 32]"),
        ("full[2], empty[2]", "full[5], empty[5]"),
        ("slots 2", "slots 5"),
        ("  INIT full[1] count 1\n", "".join(f"  INIT full[{k}] count 1\n" for k in range(1, 5))),
        ("  INIT empty[1] count 2\n", "".join(f"  INIT empty[{k}] count 2\n" for k in range(1, 5))),
    ),
    "two copies of a position": ((f"      {LOAD}\n", f"      FOR j in 0..2 UNROLL:\n        {HALF}\n"), ("box (1, 2, 32)", "box (1, 1, 32)")),
}


@pytest.mark.parametrize("name", TWINS)
def test_proved(name: str) -> None:
    certificate = verify(changed(*TWINS[name]))
    assert certificate.verdict is Verdict.PROVED, certificate


FAULTS: dict[str, tuple[tuple[tuple[str, str], ...], str]] = {
    "blocks start when they like": ((("SYNC cluster  # barriers are initialized", "SYNC block"),), "nothing orders its initialization and this use"),
    "blocks exit when they like": (
        (("\nSYNC cluster  # no block exits while others reach it", ""),),
        "it may exit before an access from another block of the cluster",
    ),
    "a block's own barrier at the end": ((("SYNC cluster  # no", "SYNC block  # no"),), "it may exit before an access from another block of the cluster"),
    "empty in one block": (
        (("ARRIVE empty[c.slot] across CIDx", "ARRIVE empty[c.slot]"), ("count 2", "count 1")),
        "race: nothing orders a read and a write of one element",
    ),
    "counted for one block": ((("count 2", "count 1"),), "may come before phase"),
    "half of the bytes": ((("bytes 512", "bytes 256"),), "race: nothing orders a read and a write of one element"),
    "twice the bytes": ((("bytes 512", "bytes 1024"),), "no thread can continue"),
    "copies for oneself": (((LOAD, LOAD.replace(" across CIDx", "")),), "no thread can continue"),
    "copies of the same rows": ((("TMA s[p.slot, 2*clusterIdx.x, 0]", "TMA s[p.slot, 0, 0]"),), "race: nothing orders a write and a write of one element"),
    "copies that overlap": (
        (("TMA s[p.slot, 2*clusterIdx.x, 0]", "TMA s[p.slot, clusterIdx.x, 0]"),),
        "race: nothing orders a write and a write of one element",
    ),
    "one block issues everything": (
        ((f"      {LOAD}\n", f"      IF clusterIdx.x == 0:\n        {LOAD.replace('2*clusterIdx.x', '0')}\n"), ("box (1, 2, 32)", "box (1, 4, 32)")),
        "an arrival of phase 1 may come before phase 0 is complete",  # of a block that has not begun the first one
    ),
    "one trip less in a block": (((TRIPS, TRIPS.replace("2):", "2) - clusterIdx.x:")),), "no thread can continue"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_refuted(name: str) -> None:
    pairs, reason = FAULTS[name]
    kernel = changed(*pairs, ("DIM N", "DIM N max 6"))
    assert verify(kernel).verdict is Verdict.REFUTED
    assert reason in reasons(kernel)


OUTSIDE: dict[str, tuple[tuple[tuple[str, str], ...], str]] = {
    "the bound of a loop differs between blocks": (
        ((TRIPS, "FOR i in 0..ceildiv(N - blockIdx.x, 4):"),),
        "the trip count of the loop over i differs between blocks of the cluster",
    ),
    "not all blocks get something from each": (
        (
            ("CLUSTER (2, 1, 1)", "CLUSTER (2, 2, 1)"),
            ("GRID (4, 1, 1)", "GRID (4, 2, 1)"),
            ("ARRIVE empty[c.slot] across CIDx", "ARRIVE empty[c.slot] across CIDx, CIDy"),
            ("count 2", "count 4"),
            ("float32[N, 2", "float32[2, N, 2"),
            ("      y[", "      y[clusterIdx.y, "),
        ),
        "copies and releases do not reach the same blocks of the cluster",
    ),
    "rows that are read before they come": (
        (("SYNC cluster  # barriers are initialized", "SYNC cluster  # barriers are initialized\nIF threadIdx.y == 1:\n  s[0, 0, threadIdx.x] = copy(0.0)"),),
        "other blocks of the cluster may write it at any time",
    ),
    "a barrier of the cluster that one of its blocks comes to": (
        (("SYNC cluster  # no", "IF clusterIdx.x == 0:\n  SYNC cluster  # one\nSYNC cluster  # no"),),
        "blocks of the cluster may differ in whether they reach it",
    ),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_not_accepted(name: str) -> None:
    pairs, reason = OUTSIDE[name]
    kernel = changed(*pairs, ("DIM N", "DIM N max 3"))
    assert not verify(kernel).is_proved
    assert reason in reasons(kernel)


def test_the_certificate_names_what_reaches_other_blocks() -> None:
    assert "proved: cluster: 2 statements access other blocks before those exit" in str(verify(changed()))


def test_an_arrival_at_other_blocks_outside_of_a_ring() -> None:
    text = """\
KERNEL once(x: float32[32]) -> (y: float32[64])
  GRID (2, 1, 1)  BLOCK (32, 1, 1)  CLUSTER (2, 1, 1)
  MBARRIER done[1]

IF threadIdx.x == 0:
  INIT done[0] count 2
SYNC cluster
IF threadIdx.x == 0:
  ARRIVE done[0] across CIDx
  WAIT done[0] parity 0
y[32*blockIdx.x + threadIdx.x] = copy(x[threadIdx.x])
SYNC cluster
"""
    kernel = tf.parse_kernel(text)
    assert verify(kernel).verdict is Verdict.OUTSIDE
    assert "it accesses other blocks of the cluster outside a ring" in reasons(kernel)


WHOLE = """\
KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N min 2 multiple_of {multiple}
  GRID ({blocks}, 1, 1)  BLOCK (1, 1, 1)  CLUSTER (2, 1, 1)

IF blockIdx.x < N:
  y[blockIdx.x] = copy(x[blockIdx.x])
"""


@pytest.mark.parametrize(("blocks", "multiple", "is_whole"), [("N", 2, True), ("N", 1, False), ("2*N", 1, True), ("2*N + 1", 1, False), ("N + 2", 4, True)])
def test_the_grid_is_whole_clusters(blocks: str, multiple: int, is_whole: bool) -> None:
    """No launch of others exists; that this is so at some extents says nothing of the rest."""
    kernel = tf.parse_kernel(WHOLE.format(blocks=blocks, multiple=multiple))
    assert kernel.verify().is_proved is is_whole
    assert kernel.verify({"N": 4}).is_proved is (blocks != "2*N + 1")
