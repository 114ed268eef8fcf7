"""Shared memory of other blocks of a cluster in the simulator: each cluster has its own, and blocks are accessed while they run."""

import numpy as np
import pytest

from taskfuse.errors import SimulationError
from tests.lowering.over_clusters import EARLY_EXIT, OF_A_BLOCK, OUTSIDE, OWN, STORED_THERE, UNORDERED, exchange, meet

X = np.arange(4 * 32, dtype=np.float32).reshape(4, 32)


def test_blocks_read_what_others_have_stored() -> None:
    for seed in range(4):
        (y,) = exchange().simulate(X, seed=seed)
        assert (y == X[[1, 0, 3, 2]]).all()  # two clusters, each with its own


def test_blocks_store_in_others() -> None:
    kernel = exchange(*STORED_THERE, ("\n\ns[", "\n\nSYNC cluster\ns["))
    assert (kernel.simulate(X)[0] == X[[1, 0, 3, 2]]).all()
    assert (exchange(OWN).simulate(X)[0] == X).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ((UNORDERED,), "is accessed before it is known to have begun"),
        ((OF_A_BLOCK,), "is accessed before it is known to have begun"),
        (STORED_THERE, "is accessed before it is known to have begun"),
        ((EARLY_EXIT,), "of the cluster is reached after it has exited"),
        ((OUTSIDE,), "Cluster 's' accessed out of bounds"),
        ((("\n\ns[clusterIdx.x, ", "\n\nIF threadIdx.x > 0:\n  s[clusterIdx.x, "),), "read of uninitialized Cluster 's'"),
    ],
)
def test_what_goes_wrong(changes: tuple[tuple[str, str], ...], message: str) -> None:
    kernel = exchange(*changes)

    def run() -> None:
        for seed in range(8):
            kernel.simulate(X, seed=seed)

    with pytest.raises(SimulationError, match=message):
        run()


def test_every_interleaving_of_an_exchange() -> None:
    small = exchange(
        ("[4, 32]) ->", "[4, 1]) ->"), ("y: float32[4, 32])", "y: float32[4, 1])"), ("BLOCK (32", "BLOCK (1"), ("float32[2, 32] align", "float32[2, 1] align")
    )
    x = X[:, :1]
    assert small.explore(x, limit=20_000).holds


def test_threads_meet_through_one_of_each_block() -> None:
    x = np.arange(256, dtype=np.float32).reshape(4, 64)
    for seed in range(4):
        assert (meet().simulate(x, seed=seed)[0] == x[[1, 0, 3, 2], ::-1]).all()
