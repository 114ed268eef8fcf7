"""Clusters: the launch attribute, and the rank of a block."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.errors import LaunchError
from tests.gpu.device import poisoned, same, to_numpy, to_torch
from tests.gpu.programs import floats

RANKS = """KERNEL ranks(x: float32[N]) -> (y: float32[N])
  DIM N min 1
  GRID (N, 1, 1)  BLOCK (32, 1, 1)  CLUSTER (WIDE, 1, 1)

IF threadIdx.x == 0:
  y[blockIdx.x] = add(x[blockIdx.x], index(10*clusterIdx.x))
"""
hopper = pytest.mark.usefixtures("hopper")


def ranks(width: int) -> tf.Kernel:
    return tf.parse_kernel(RANKS.replace("WIDE", str(width)))


@hopper
@pytest.mark.parametrize("width", [2, 4, 8])
def test_blocks_know_their_rank(width: int) -> None:
    kernel = ranks(width)
    run = tf.compile(kernel, backend="cuda")
    for n in (width, 40 * width):
        x = floats(n)
        out = poisoned((n,), tf.float32)
        run(to_torch(x), out=out)
        (simulated,) = kernel.simulate(x)
        assert same(to_numpy(out), simulated)


@hopper
def test_clusters_in_a_graph() -> None:
    run = tf.compile(ranks(2), backend="cuda")
    x = torch.rand(64, device="cuda")
    (first,) = run(x)
    out = torch.empty_like(x)
    run(x, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(x, out=out)
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, first)


@hopper
def test_a_cluster_too_large_is_refused() -> None:
    with pytest.raises(LaunchError, match="cluster"):
        tf.compile(ranks(32), backend="cuda")(torch.rand(64, device="cuda"))


@hopper
def test_a_grid_that_is_no_whole_clusters_is_refused() -> None:
    with pytest.raises(LaunchError, match="cluster"):
        tf.compile(ranks(4), backend="cuda")(torch.rand(6, device="cuda"))
