"""Blocks of a cluster in the simulator: each has its own Shared memory; arrivals and copies reach the others; no block exits too early."""

from pathlib import Path

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import SimulationError

TEXT = (Path(__file__).parents[1] / "kernels" / "share.kir").read_text(encoding="utf-8")
SMALL = TEXT.replace("GRID (4, 1, 1)", "GRID (2, 1, 1)").replace("ceildiv(N - blockIdx.x//2, 2)", "N").replace("blockIdx.x//2 + 2*i", "i")
X = np.random.default_rng(0).normal(size=(7, 4, 32)).astype(np.float32)
WANTED = np.stack([X, X + 1], 1)
AT_START = ("SYNC cluster  # barriers are initialized", "SYNC block")
AT_EXIT = ("\nSYNC cluster  # no block exits while others reach it", "")
OWN = ("ARRIVE empty[c.slot] across CIDx", "ARRIVE empty[c.slot]")
ONE = tuple((f"INIT empty[{k}] count 2", f"INIT empty[{k}] count 1") for k in range(2))


def changed(*pairs: tuple[str, str], text: str = SMALL) -> tf.Kernel:
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return tf.parse_kernel(text)


@pytest.mark.parametrize("seed", range(2 * len(tf.Interleaving)))
def test_every_scheduler(seed: int) -> None:
    (y,) = tf.parse_kernel(TEXT).simulate(X, seed=seed)
    np.testing.assert_array_equal(y, WANTED)


def test_every_interleaving() -> None:
    """Nothing but arrivals and completions happens between the blocks: one kind of run."""
    found = changed().explore(X[:3])
    assert found.holds, found
    assert found.interleavings == 1


def test_every_state() -> None:
    """The search that knows no dependence finds nothing either."""
    found = changed().explore(X[:1], reduce=False, limit=500)
    assert found.failure is None, found


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ((AT_START,), "used before it was initialized"),
        ((AT_EXIT,), "of the cluster is reached after it has exited"),
        ((OWN, *ONE), "accessed while a TMA load that writes it is in flight"),
        ((OWN,), "no thread can continue"),
        ((("bytes 512", "bytes 256"),), "accessed while a TMA load that writes it is in flight"),
        ((("on full[p.slot] across CIDx", "on full[p.slot]"),), "no thread can continue"),
        ((ONE), "arrivals while 0 are pending"),
        ((("  FENCE mbarrier_init\n", ""),), "before fence.mbarrier_init by the thread that initialized it"),
        ((("0..N:\n      WAIT", "0..N - clusterIdx.x:\n      WAIT"),), "no thread can continue"),
        ((("TMA s[p.slot, 2*clusterIdx.x, 0]", "TMA s[p.slot, 0, 0]"),), "accessed while a TMA load that writes it is in flight"),
    ],
)
def test_faults(pairs: tuple[tuple[str, str], ...], reason: str) -> None:
    found = changed(*pairs).explore(X[:3])
    assert found.failure is not None
    assert reason in str(found.failure.error)


def test_a_failure_is_replayed() -> None:
    kernel = changed(AT_EXIT)
    found = kernel.explore(X[:3])
    assert found.failure is not None
    with pytest.raises(SimulationError) as caught:
        kernel.simulate(X[:3], choices=list(found.failure.choices))
    assert str(caught.value) == str(found.failure.error)


def test_the_barrier_of_a_cluster_is_of_all_its_blocks() -> None:
    text = """\
KERNEL meet() -> (y: float32[4])
  GRID (4, 1, 1)  BLOCK (32, 1, 1)  CLUSTER (2, 1, 1)

IF {}:
  SYNC cluster
IF threadIdx.x == 0:
  y[blockIdx.x] = copy(1.0)
"""
    (y,) = tf.parse_kernel(text.format("blockIdx.x//2 == 1")).simulate()
    np.testing.assert_array_equal(y, np.ones(4))
    with pytest.raises(SimulationError, match="cluster barrier after 32 threads of the cluster have exited"):
        tf.parse_kernel(text.format("clusterIdx.x == 1")).simulate()


def test_two_barriers_of_a_cluster_do_not_meet() -> None:
    text = """\
KERNEL two() -> (y: float32[2])
  GRID (2, 1, 1)  BLOCK (32, 1, 1)  CLUSTER (2, 1, 1)

IF clusterIdx.x == 0:
  SYNC cluster
ELSE:
  SYNC cluster
IF threadIdx.x == 0:
  y[blockIdx.x] = copy(1.0)
"""
    with pytest.raises(SimulationError, match="cluster barrier reached while other threads of the cluster wait at another one"):
        tf.parse_kernel(text).simulate()


def test_the_grid_is_whole_clusters() -> None:
    with pytest.raises(SimulationError, match="4 blocks along x are not whole clusters of 3"):
        changed(("CLUSTER (2", "CLUSTER (3"), text=TEXT).simulate(X)


def test_clusters_of_more_blocks_than_run_at_a_time() -> None:
    """A cluster is launched as a whole, whatever is resident."""
    text = TEXT.replace("GRID (4, 1, 1)", "GRID (32, 1, 1)").replace("CLUSTER (2, 1, 1)", "CLUSTER (16, 1, 1)").replace("//2", "//16")
    text = text.replace("2*clusterIdx.x", "clusterIdx.x").replace("box (1, 2, 32)", "box (1, 1, 32)").replace("count 2", "count 16")
    text = text.replace("[N, 2, 4, 32]", "[N, 16, 16, 32]").replace(", 4, 32]", ", 16, 32]").replace("0..4:", "0..16:").replace("512", "2048")
    x = np.random.default_rng(1).normal(size=(2, 16, 32)).astype(np.float32)
    (y,) = tf.parse_kernel(text).simulate(x, seed=3)
    np.testing.assert_array_equal(y, x[:, None] + np.arange(16, dtype=np.float32)[:, None, None])


def test_types_of_a_cluster_on_their_own() -> None:
    """Copies across x leave the blocks with another y alone."""
    text = TEXT.replace("GRID (4, 1, 1)", "GRID (4, 3, 1)").replace("CLUSTER (2, 1, 1)", "CLUSTER (2, 3, 1)")
    text = text.replace("float32[N, 2, 4, 32]", "float32[3, N, 2, 4, 32]").replace("y[blockIdx.x//2", "y[clusterIdx.y, blockIdx.x//2")
    kernel = tf.parse_kernel(text)
    for seed in range(4):
        (y,) = kernel.simulate(X[:3], seed=seed)
        np.testing.assert_array_equal(y, np.broadcast_to(WANTED[:3], (3, 3, 2, 4, 32)))


def test_a_timeline_has_the_copies_in_the_blocks_that_they_reach() -> None:
    line = changed().timeline(X[:2])
    loads = [lane.block for lane in line.lanes if lane.name == "TMA load"]
    assert set(loads) == {0, 1}
    assert {c.block for c in line.completions if c.barrier == "empty"} == {0, 1}
    assert line.error is None
