"""The cost model: what it chooses, and that it counts right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.kir.limits import SHARED_BYTES
from taskfuse.schedulers import MatmulConfig
from taskfuse.schedulers.cost import SHAPES, SHARED_TILES, Problem, candidates, estimate, rank
from taskfuse.schedulers.machine import SMS
from tests.schedulers.products import Product

EXTENT = st.integers(1, 8192)


@given(EXTENT, EXTENT, EXTENT, st.integers(1, 4), st.integers(0, 2))
def test_candidates_fit_and_are_ranked(m: int, n: int, k: int, batch: int, staged: int) -> None:
    problem = Problem(m, n, k, batch, staged=staged, direct=2 - staged)
    found = rank(problem)
    assert len(SHARED_TILES) <= len(found) <= len(SHAPES)
    assert [e.us for e in found] == sorted(e.us for e in found)
    for e in found:
        assert e.config.shared_bytes(2, staged) <= SHARED_BYTES
        assert 1 <= e.config.blocks <= min(SMS, problem.tiles(e.config))
        assert 0 < e.efficiency <= 1
        assert (e.waves - 1) * e.config.blocks < problem.tiles(e.config) <= e.waves * e.config.blocks


@given(EXTENT, EXTENT, st.integers(64, 4096))
def test_more_work_takes_longer(m: int, n: int, k: int) -> None:
    config = MatmulConfig()
    us = estimate(Problem(m, n, k), config).us
    assert estimate(Problem(m, n, 2 * k), config).us >= us
    assert estimate(Problem(m, n, k, batch=3), config).us >= us


@pytest.mark.parametrize(
    ("size", "tile", "waves"),
    [((4096, 4096, 4096), (128, 256), 4), ((2048, 2048, 2048), (128, 256), 1), ((64, 7168, 2048), (64, 64), 1), ((512, 4096, 7168), (128, 128), 1)],
)
def test_choices(size: tuple[int, int, int], tile: tuple[int, int], waves: int) -> None:
    best = rank(Problem(*size))[0]
    assert ((best.config.tile_m, best.config.tile_n), best.waves) == (tile, waves)


def test_numbers_of_one_estimate() -> None:
    """4096 x 4096 x 64 in 128 x 256: 512 tiles, 4 waves of one step: 1024 cycles of the tensor cores at their efficiency, and the epilogue."""
    e = estimate(Problem(4096, 4096, 64), MatmulConfig())
    assert (e.waves, e.bound) == (4, "DRAM")
    assert e.us == pytest.approx(2.5 + 2 * (2 * 4096 * 64 + 4096**2) / 4.3e6)
    e = estimate(Problem(4096, 4096, 6400), MatmulConfig())
    assert e.bound == "tensor cores"
    assert e.us == pytest.approx(2.5 + 4 * (100 * 1024 / 0.88 + 700 + 4 * 220) / 1700)


def test_groups_follow_the_shape() -> None:
    for problem in (Problem(4096, 4096, 512), Problem(64, 8192, 512), Problem(8192, 64, 512)):
        for config in candidates(problem):
            assert config.group in (1, 2, 4, 8, 16)


def test_sizes_are_hints_for_symbols_and_explained() -> None:
    small = tf.schedulers.matmul(Product().fusion(), sizes={"M": 64, "N": 128, "K": 64})
    assert small.problem == Problem(64, 128, 64)
    assert small.explain(2).splitlines()[0].startswith("matmul 64 x 128 x 64, operands of 2 bytes: chosen: tiles of 64 x 64 x 64, 1 warpgroup,")
    assert len(small.explain(2).splitlines()) == 6
    usual = tf.schedulers.matmul(Product(batch=("B",)).fusion(), MatmulConfig(), sizes={"B": 3})
    assert usual.problem == Problem(4096, 4096, 4096, 3)
    assert usual.given
    assert "matmul 3 x 4096 x 4096 x 4096" in usual.explain()


def test_the_code_makes_the_same_kernel() -> None:
    for product in (Product("residual rows relu"), Product("square bias", layout="mn", batch=("B",)), Product("scale", out=tf.float32)):
        made, again = product.fusion(), product.fusion()
        schedule = tf.schedulers.matmul(made)
        exec(schedule.code, {"fusion": again})
        assert str(again) == str(made)
        assert max(map(len, schedule.code.splitlines())) <= 160


def test_another_gpu() -> None:
    schedule = tf.schedulers.matmul(Product().fusion(), sms=16)
    assert schedule.config.blocks == 16
