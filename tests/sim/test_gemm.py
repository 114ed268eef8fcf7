"""The hand-written Hopper GEMM against NumPy, and with faults planted in it."""

from functools import cache

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from taskfuse.errors import SimulationError
from taskfuse.ir.values import MODULAR
from taskfuse.kir import parse_kernel
from taskfuse.sim import Interleaving, simulate
from tests.sim.kernels import load, replaced, without

GEMM, BIAS = load("gemm"), load("gemm_bias")


@cache
def problem(m: int, n: int, k: int) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic], npt.NDArray[np.float32]]:
    """Small integers: every sum of products is exact in float32, so that its order does not matter."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
    return a, b, a.astype(np.float32) @ b.astype(np.float32).T


@pytest.mark.parametrize("shape", [(1, 8, 8), (64, 64, 64), (130, 136, 72), (300, 264, 200), (128, 1160, 40)])
def test_shapes(shape: tuple[int, int, int]) -> None:
    a, b, expected = problem(*shape)
    for seed in (0, 5):
        (d,) = simulate(parse_kernel(GEMM), [a, b], seed=seed)
        np.testing.assert_array_equal(d, expected.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("interleaving", Interleaving)
def test_schedulers(interleaving: Interleaving) -> None:
    a, b, expected = problem(520, 136, 200)  # two blocks have two tiles
    (d,) = simulate(parse_kernel(GEMM), [a, b], seed=1, interleaving=interleaving)
    np.testing.assert_array_equal(d, expected.astype(ml_dtypes.bfloat16))


def test_bias() -> None:
    a, b, expected = problem(130, 136, 72)
    bias = np.arange(136, dtype=np.float32)
    (d,) = simulate(parse_kernel(BIAS), [a, b, bias], seed=5)
    np.testing.assert_array_equal(d, (expected + bias).astype(ml_dtypes.bfloat16))


def test_in_the_ring() -> None:
    a, b, _ = problem(130, 136, 72)
    k = parse_kernel(GEMM)
    words = [MODULAR.encode(x, p.dtype) for x, p in zip((a, b), k.inputs, strict=True)]
    np.testing.assert_array_equal(simulate(k, [a, b], values=MODULAR)[0], words[0] @ words[1].T)


FAULTS = {
    "producer does not wait": without(GEMM, "WAIT empty"),
    "consumer does not wait": without(GEMM, "WAIT full"),
    "producer's parity": replaced(GEMM, "slots 3, slot 0, parity 1", "slots 3, slot 0, parity 0"),
    "consumer's parity": replaced(GEMM, "a = CURSOR(slots 3, slot 0, parity 0)", "a = CURSOR(slots 3, slot 0, parity 1)"),
    "expected bytes": replaced(GEMM, "bytes 32768", "bytes 16384"),
    "empty counts too few": replaced(GEMM, "count 8", "count 7"),
    "empty counts too many": replaced(GEMM, "count 8", "count 9"),
    "a wgmma more in flight": replaced(GEMM, "WAIT_GROUP wgmma <= 1", "WAIT_GROUP wgmma <= 2"),
    "accumulators not waited for": without(GEMM, "WAIT_GROUP wgmma <= 0"),
    "slot released too early": replaced(GEMM, "WAIT_GROUP wgmma <= 1\n      IF ko > 0:", "WAIT_GROUP wgmma <= 1\n      IF ko >= 0:"),
    "no commit of the wgmmas": without(GEMM, "COMMIT wgmma"),
    "no wgmma fence": without(GEMM, "FENCE wgmma"),
    "release cursor stays": without(GEMM, "r.advance(1)"),
    "release cursor stays at the drain": replaced(GEMM, "    r.advance(1)\n    FOR c", "    FOR c"),
    "source of a store not waited for": without(GEMM, "WAIT_GROUP bulk.read <= 1"),
    "no wait_group at the end": without(GEMM, "WAIT_GROUP bulk <= 0"),
    "no commit of the stores": without(GEMM, "COMMIT bulk"),
    "no proxy fence": without(GEMM, "FENCE proxy.async"),
    "no barrier before the writes": without(GEMM, "# WAR"),
    "no barrier after the writes": without(GEMM, "# RAW"),
    "no barrier after the initialization": without(GEMM, "SYNC block"),
    "no fence after the initialization": without(GEMM, "FENCE mbarrier_init"),
    "accumulators not reset": replaced(GEMM, "accumulate ko + kk > 0", "accumulate t + ko + kk > 0"),
    "stride of a descriptor": replaced(GEMM, "sbo 1024, major K), accumulate", "sbo 512, major K), accumulate"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str) -> None:
    a, b, expected = problem(520, 136, 264)
    kernel = parse_kernel(FAULTS[fault])

    def is_found(interleaving: Interleaving) -> bool:
        try:
            (d,) = simulate(kernel, [a, b], seed=1, interleaving=interleaving)
        except SimulationError:
            return True
        return not np.array_equal(d, expected.astype(ml_dtypes.bfloat16))

    assert any(is_found(interleaving) for interleaving in (Interleaving.HIGH_FIRST, Interleaving.LOW_FIRST, Interleaving.RANDOM, Interleaving.ASYNC_LATE))
