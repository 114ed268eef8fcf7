"""One launch: limits of a block, blocks beyond those resident, clusters, values of indices."""

import numpy as np

from taskfuse.sim import simulate
from tests.sim.kernels import INTERLEAVINGS, X, error, kernel


def test_limits_of_a_block() -> None:
    assert error(kernel("", block="(1025, 1, 1)")) == "k: 1025 threads per block; a block has at most 1024"
    assert error(kernel("", block="(1, 1, 65)")) == "k: 65 threads per block along z; a block has at most 64"
    assert error(kernel("", "SHARED s: float32[60000] align 4")) == "k: 240000 bytes of Shared memory; a block has at most 232448"
    k = kernel("", "DIM N", "SHARED s: float32[8] align 16 @ N", inputs="x: float32[N]")
    assert error(k, [X[:3]]) == "k: Shared 's' at byte 3, not a multiple of 16"
    k = kernel("", "DIM N", "SHARED s: float32[N - 4]", inputs="x: float32[N]")
    assert error(k, [X[:3]]) == "k: 's' has the extent -1"


def test_index_values() -> None:
    k = kernel(
        "FOR t in blockIdx.x..ceildiv(N, 2) step min(2, ceildiv(N, 2)):\n  y[t] = add.int64(index(t), index(ceildiv(N, 2)))",
        "DIM N",
        inputs="x: float32[N]",
        outputs="y: int64[ceildiv(N, 2)]",
        block="(1, 1, 1)",
        grid="(min(2, ceildiv(N, 2)), 1, 1)",
    )
    np.testing.assert_array_equal(simulate(k, [X[:9]])[0], np.arange(5) + 5)


def test_blocks_beyond_those_resident() -> None:
    k = kernel(
        "y[blockIdx.x, threadIdx.x] = copy(x[threadIdx.x])", "DIM N", inputs="x: float32[32], z: float32[N]", outputs="y: float32[N, 32]", grid="(N, 1, 1)"
    )
    for interleaving in INTERLEAVINGS:
        (y,) = simulate(k, [X, np.zeros(50, np.float32)], interleaving=interleaving)
        np.testing.assert_array_equal(y, np.broadcast_to(X, (50, 32)))


def test_clusters() -> None:
    k = kernel(
        "y[blockIdx.x] = copy.int64(index(clusterIdx.x))",
        outputs="y: float32[6]",
        block="(1, 1, 1)",
        grid="(6, 1, 1)",
    )
    clustered = type(k)(k.name, k.extents, k.params, k.grid, k.block, k.buffers, k.mbarriers, k.counters, k.body, kernel("", block="(2, 1, 1)").block)
    np.testing.assert_array_equal(simulate(clustered, [X])[0], [0, 1, 0, 1, 0, 1])
