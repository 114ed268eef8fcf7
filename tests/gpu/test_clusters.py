"""Clusters: the launch attribute, the rank of a block, multicast copies and arrivals at other blocks."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse import atoms
from taskfuse.errors import LaunchError, ProofError
from tests.gpu.device import Array, poisoned, same, to_numpy, to_torch
from tests.gpu.programs import floats, load
from tests.lowering.clustered import grid, pointwise, shared

LAUNCHES = 200

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
    """By the proof at the extents of the call; without it, by the driver."""
    with pytest.raises(ProofError, match="whole clusters of 4"):
        tf.compile(ranks(4), backend="cuda")(torch.rand(6, device="cuda"))
    with pytest.raises(LaunchError, match="cluster"):
        tf.compile(ranks(4), backend="cuda", unsafe=True)(torch.rand(6, device="cuda"))


def check(kernel: tf.Kernel, *arguments: Array, launches: int = LAUNCHES) -> None:
    """Bounded waits; every launch writes poisoned outputs, which must be the simulator's."""
    simulated = kernel.simulate(*arguments)
    run = tf.compile(kernel, backend="cuda", debug=True)
    given = [to_torch(a) for a in arguments]
    for _ in range(launches):
        outs = tuple(poisoned(out.shape, p.dtype) for out, p in zip(simulated, kernel.outputs, strict=True))
        run(*given, out=outs)
        assert all(same(to_numpy(out), ref) for out, ref in zip(outs, simulated, strict=True))


@hopper
def test_a_hand_written_ring_across_blocks() -> None:
    for n in (1, 2, 5, 64):
        check(load("share"), floats(n, 4, 32))


@hopper
@pytest.mark.parametrize("on", [P.CIDx, P.CIDy])
@pytest.mark.parametrize(("heads", "cluster"), [(2, 2), (4, 2), (4, 4), (8, 8), (4, 1)])
@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("store", [False, True])
def test_multicast(heads: int, cluster: int, stages: int, store: bool, on: P) -> None:
    kernel = tf.lower(shared(heads, cluster, blocks=20, stages=stages, store=store, on=on))
    for n in (1, 19, 101):
        check(kernel, floats(n, 16, 32), floats(heads, seed=1), launches=LAUNCHES // 4)


@hopper
def test_a_swizzled_multicast() -> None:
    kernel = tf.lower(shared(columns=64, dtype=tf.float16, swizzle=128, blocks=8))
    check(kernel, floats(50, 16, 64).astype("float16"), floats(2, seed=1).astype("float16"))


@hopper
@pytest.mark.parametrize("multicast", [(True, True), (True, False), (False, True), (False, False)])
def test_operands_in_common_with_different_blocks(multicast: tuple[bool, bool]) -> None:
    check(tf.lower(grid(*multicast, k=40)), floats(2, 40, 8, 32), floats(2, 40, 8, 32, seed=1))


@hopper
def test_clusters_without_multicast() -> None:
    check(tf.lower(shared(atom=atoms.TMA_LOAD)), floats(9, 16, 32), floats(2, seed=1))
    check(tf.lower(pointwise(P.BIDx, P.CIDx, P.TIDx)), floats(6, 4, 32))


@hopper
@pytest.mark.parametrize("seed", range(4))
def test_under_random_delays(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKFUSE_CHAOS", str(seed))
    check(load("share"), floats(64, 4, 32), launches=1000)
    check(tf.lower(shared(4, 4, blocks=30, stages=3, store=True)), floats(64, 16, 32), floats(4, seed=1), launches=1000)
