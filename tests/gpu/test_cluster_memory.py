"""Shared memory of other blocks of a cluster: reductions over CIDx, data that crosses the blocks, and a product with K in parts."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from examples import gemm_split_cluster
from tests.gpu.device import poisoned, same, to_numpy, to_torch
from tests.gpu.programs import floats
from tests.lowering.over_clusters import crossing, row_sums, shares, softmax

LAUNCHES = 50
pytestmark = pytest.mark.usefixtures("hopper")


def runs_as_simulated(fusion: tf.Fusion, *shape: int) -> None:
    """The results of many launches are those of the simulator, to the bit."""
    kernel = tf.lower(fusion)
    run = tf.compile(fusion, backend="cuda")
    x = floats(*shape)
    (wanted,) = kernel.simulate(x)
    given = to_torch(x)
    for _ in range(LAUNCHES):
        out = poisoned(wanted.shape, tf.float32)
        run(given, out=out)
        assert same(to_numpy(out), wanted)


@pytest.mark.parametrize("blocks", [2, 4, 8])
def test_rows_are_summed_by_a_cluster(blocks: int) -> None:
    runs_as_simulated(row_sums(blocks), 50, 4096)


def test_sums_in_a_loop_use_their_storage_again() -> None:
    runs_as_simulated(row_sums(4, rows=4), 24, 1024)


def test_each_block_sums_a_share_of_the_columns() -> None:
    runs_as_simulated(shares(), 256, 64)


def test_elements_of_another_block() -> None:
    runs_as_simulated(crossing(), 4, 32)


def test_softmax_of_rows_that_a_cluster_holds_in_registers() -> None:
    fusion = softmax(8, 4096)
    run = tf.compile(fusion, backend="cuda")
    x = floats(16, 4096)
    (out,) = run(to_torch(x))
    assert np.allclose(to_numpy(out), fusion.evaluate(x)[0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("m", "n", "k", "parts", "tile_n"), [(128, 1408, 3456, 8, 128), (384, 128, 3584, 8, 64), (896, 128, 1920, 4, 64), (200, 136, 576, 2, 128)]
)
def test_products_with_k_in_parts(m: int, n: int, k: int, parts: int, tile_n: int) -> None:
    run = tf.compile(gemm_split_cluster.build(k, parts, tile_n=tile_n), backend="cuda")
    a, b = (torch.randn(rows, k, device="cuda", dtype=torch.bfloat16) for rows in (m, n))
    (first,) = run(a, b)
    wanted = a.float() @ b.float().T
    assert torch.allclose(first.float(), wanted, rtol=2**-8, atol=1e-2)
    for _ in range(LAUNCHES):  # the order of the sums is one
        assert torch.equal(run(a, b)[0], first)
