"""The cost model: that it counts right."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig, MatmulKind
from taskfuse.schedulers.cost import MatmulProblem, estimate, tile_time
from taskfuse.schedulers.matmul_candidates import RESIDENTS, candidates, rank
from taskfuse.target import DEFAULT, TARGETS
from tests.schedulers.products import Product, ragged

EXTENT = st.integers(1, 8192)


@given(EXTENT, EXTENT, st.integers(64, 4096))
def test_more_work_takes_longer(m: int, n: int, k: int) -> None:
    config = MatmulConfig()
    us = estimate(MatmulProblem(m, n, k), config).us
    assert estimate(MatmulProblem(m, n, 2 * k), config).us >= us
    assert estimate(MatmulProblem(m, n, k, batch=3), config).us >= us


def both(*cycles: float) -> float:
    """What two resources take together for a step."""
    return sum(c**7 for c in cycles) ** (1 / 7)


def test_turns_hide_all_epilogues_but_the_last() -> None:
    """4096 x 4096 x 6400 in 128 x 128: 1024 tiles, 8 of one block, of 512 cycles a step at their efficiency, and what the cache delays it;
    with short k, the epilogues."""
    turns, shared = MatmulConfig(128, 128, stages=6, kind=MatmulKind.PINGPONG), MatmulConfig(128, 128, stages=6)
    products, epilogue = 100 * both(512 / 0.99, 256 * 128 / 65 * 1024 / (8 * 132)), 320 + 4 * 540
    assert estimate(MatmulProblem(4096, 4096, 6400), turns).us == pytest.approx(2.25 + (8 * (products + 1000) + epilogue) / 1700)
    short = MatmulProblem(4096, 4096, 64, itemsize=2, staged=4)
    assert estimate(short, turns).us == pytest.approx(2.25 + 4 * (products / 100 + 320 + 16 * 540) / 1700)
    assert estimate(short, turns).us < estimate(short, shared).us


def test_turns_hide_half_of_the_math_of_epilogues() -> None:
    """As above: 128 elements of a thread in four pieces, 1.2 cycles an instruction, of which 0.55 delay each of 8 tiles, and all the last."""
    turns = MatmulConfig(128, 128, stages=6, kind=MatmulKind.PINGPONG)
    plain, worked = (estimate(MatmulProblem(4096, 4096, 6400, work=work), turns).us for work in (0, 10))
    assert worked - plain == pytest.approx(128 * 1.2 * 10 * (1 + 8 * 0.55) / 1700)


def test_the_first_load_of_a_bias_waits_for_memory() -> None:
    """600 cycles, of tiles that load it once and of those of one piece; a third of that for each of 31 further pairs where many outputs leave no registers."""
    for config, outputs, cycles in ((MatmulConfig(128, 128), 1, 600), (MatmulConfig(64, 64, warpgroups=1), 1, 600), (MatmulConfig(128, 128), 30, 6800)):
        problem = MatmulProblem(1024, 512, 640, sides=1, held=(2,) * (outputs + 1), held_by_piece=(2,) * outputs)
        waits = estimate(replace(problem, narrow=(2,)), config).us - estimate(problem, config).us
        assert waits == pytest.approx(cycles / 1700), config


def test_narrow_tiles_that_warpgroups_share_have_longer_steps() -> None:
    """1152 x 896 x 2176 with a bias took 11.0 us in tiles of 128 x 64, 8.8 in tiles of 64 x 128 of one warpgroup, which load as many bytes."""
    problem = MatmulProblem(1152, 896, 2176)
    one, two = (estimate(problem, config).us for config in (MatmulConfig(64, 128, warpgroups=1, stages=8), MatmulConfig(128, 64, stages=8)))
    assert two > 1.15 * one
    assert tile_time(problem, MatmulConfig(128, 64, 128)).products < tile_time(problem, MatmulConfig(128, 64)).products


def test_clusters_take_longer_to_start() -> None:
    """17 rows of tiles of 128 are 9 of clusters of two: one block has tiles that are outside."""
    one, two = MatmulConfig(128, 128, stages=6), MatmulConfig(128, 128, stages=6, cluster=2)
    problem = MatmulProblem(17 * 128, 2048, 4096)
    assert (problem.tiles(one), problem.tiles(two)) == (272, 288)
    assert estimate(problem, two).us == pytest.approx(estimate(problem, one).us + 0.7, rel=0.02)  # and its tiles outside load, too


def test_types_have_rates_of_their_own() -> None:
    """Steps are of 128 bytes: half as many of 8 bits as of 16, each as long on the tensor cores."""
    wide, narrow = (estimate(MatmulProblem(4096, 4096, 8192, itemsize=size), MatmulConfig(tile_k=128 // size)).us - 2.1 for size in (2, 1))
    assert narrow == pytest.approx(wide / 2, rel=0.05)


def test_numbers_of_one_estimate() -> None:
    """64 x 7168 x 2048 in 64 x 64: the bytes of b. 4096 x 4096 x 6400 in 128 x 256: 512 tiles, 4 waves of 100 steps, each 1024 cycles of the tensor
    cores at their efficiency and what the cache delays them, and the epilogue."""
    e = estimate(MatmulProblem(64, 7168, 2048), MatmulConfig(64, 64, warpgroups=1, stages=8, blocks=112))
    assert (e.waves, e.bound) == (1, "DRAM")
    assert e.us == pytest.approx(1.7 + 2 * (64 * 2048 + 7168 * 2048 + 64 * 7168) / 4.3e6)
    e = estimate(MatmulProblem(4096, 4096, 6400), MatmulConfig())
    assert e.bound == "tensor cores"
    assert e.us == pytest.approx(2.25 + 4 * (100 * both(1024 / 0.99, 384 * 128 / 65 * 512 / 528) + 320 + 4 * 540) / 1700)


def test_a_step_takes_its_time() -> None:
    """384 x 128 x 3584 in 64 x 16: 56 steps of 10 KiB, which the cache would deliver faster than barriers are passed."""
    problem = MatmulProblem(384, 128, 3584)
    chosen, longer, longest = (c for c in candidates(problem) if (c.tile_m, c.tile_n) == (64, 16))
    assert [(c.tile_k, c.stages) for c in (chosen, longer, longest)] == [(64, 8), (128, 8), (256, 5)]
    found = estimate(problem, chosen)
    assert found.bound == "barriers"
    assert found.us == pytest.approx(1.7 + (56 * 270 + 320 + 1.4 * 540 / 4) / 1700)
    assert estimate(problem, longer).us == pytest.approx(1.7 + (28 * (270 + 110) + 320 + 1.4 * 540 / 4) / 1700)


def test_few_slots_leave_memory_idle() -> None:
    """4096 x 14336 for eight rows: rings of 73 KiB in 64 blocks ask for 3.7 MB at a time, which memory takes 1.4 us for."""
    (problem,) = (order for order in MatmulProblem(8, 4096, 14336).orders if order.is_swapped)
    short, long = (MatmulConfig(64, 8, tile_k, 1, stages, blocks=64, is_swapped=True) for tile_k, stages in ((64, 8), (128, 8)))
    assert estimate(problem, long).bound == estimate(problem, short).bound == "DRAM"
    asked = 64 * 6.25 * (64 + 8) * 64 * 2
    assert estimate(problem, short).us == pytest.approx(1.7 + 2 * (4096 * 14336 + 8 * (14336 + 4096)) / asked * 1.4)
    assert estimate(problem, long).us < 0.7 * estimate(problem, short).us


def test_a_step_of_two_slots_waits_for_its_load() -> None:
    """32 KB at 65 bytes a cycle after 1200 cycles, where products take 512; a batch more in flight needs a slot more."""
    two = MatmulConfig(128, 128, stages=2)
    tile = tile_time(MatmulProblem(4096, 4096, 6400), two)
    assert (tile.products, tile.bound) == (pytest.approx(100 * (1200 + 32768 / 65)), "a short ring")
    assert tile_time(MatmulProblem(4096, 4096, 6400), replace(two, stages=3)).bound != "a short ring"
    assert tile_time(MatmulProblem(4096, 4096, 6400), replace(two, stages=3, in_flight=2)).bound == "a short ring"


def test_rows_behind_the_end_cost_time_even_where_memory_is_slower() -> None:
    """14336 x 4096 for one row: 64 rows of tiles took 35.4 us on an H200, those of 8 rows 29.4."""
    usual, swapped = MatmulProblem(1, 14336, 4096).orders
    wide, narrow = MatmulConfig(64, 128, 64, 1, 8, blocks=112), MatmulConfig(64, 8, 256, 1, 6, is_swapped=True)
    assert estimate(usual, wide).bound == estimate(swapped, narrow).bound == "DRAM"
    assert estimate(usual, wide).us == pytest.approx(35.4, rel=0.05)
    assert estimate(swapped, narrow).us == pytest.approx(29.4, rel=0.02)


def test_what_loads_together_shares_the_cache() -> None:
    """A second wave, or more blocks, slow down a step of tiles that the cache serves; so do columns of the last tile that are outside."""
    config = MatmulConfig(64, 128, warpgroups=1, stages=8)

    def step(m: int, n: int) -> float:
        problem = MatmulProblem(m, n, 6400)
        times = [estimate(replace(problem, k=k), config).us for k in (3200, 6400)]
        return (times[1] - times[0]) / estimate(problem, config).waves

    assert step(1024, 512) < step(2048, 512) < step(2048, 1024) * 1.001
    assert step(2048, 1024 - 32) > 1.02 * step(2048, 1024)


def test_sizes_are_hints_for_symbols_and_explained() -> None:
    small = tf.schedulers.matmul(Product().fusion(), sizes={"M": 128, "N": 128, "K": 64})
    assert small.alternatives == rank(MatmulProblem(128, 128, 64))
    assert small.explain(2).splitlines()[0].startswith("matmul 128 x 128 x 64, operands of 2 bytes: chosen: tiles of 64 x 16 x 64, 1 warpgroup,")
    assert len(small.explain(2).splitlines()) == 6
    usual = tf.schedulers.matmul(Product(batch=("B",)).fusion(), MatmulConfig(), sizes={"B": 3})
    assert usual.option == estimate(MatmulProblem(4096, 4096, 4096, 3), MatmulConfig())
    assert usual.explain().startswith("matmul 3 x 4096 x 4096 x 4096, operands of 2 bytes: given: tiles of 128 x 256 x 64")


def test_the_code_makes_the_same_kernel() -> None:
    for product, config in (
        (Product("residual rows relu"), None),
        (Product("square bias", layout="mn", batch=("B",)), None),
        (Product("scale", out=tf.float32), MatmulConfig(cluster=2)),
        (Product("scale", tf.float8_e4m3), MatmulConfig(128, 96, 128, stages=4, kind=MatmulKind.PINGPONG)),
    ):
        made, again = product.fusion(), product.fusion()
        schedule = tf.schedulers.matmul(made, config)
        exec(schedule.code, {"fusion": again})
        assert str(again) == str(made)
        assert max(map(len, schedule.code.splitlines())) <= 160


def test_another_gpu() -> None:
    schedule = tf.schedulers.matmul(Product().fusion(), target=replace(DEFAULT, sms=16))
    assert schedule.config.blocks == 16


def test_an_epilogue_takes_its_time() -> None:
    size = (4096, 2816, 1024)
    shared = MatmulConfig(128, 256, 64, 2, 4)
    alone, beside, busy = (estimate(MatmulProblem(*size, sides=n, wide=n, held=(2,) * (n + 1), work=w), shared).us for n, w in ((0, 0), (1, 1), (1, 40)))
    assert alone < beside < busy
    crowded = estimate(MatmulProblem(*size, sides=3, wide=3, held=(4, 4, 4, 2), work=1), shared).us
    assert beside < crowded < 1.2 * beside
    in_turns = estimate(MatmulProblem(*size, sides=1, wide=1, held=(2, 2), work=1), MatmulConfig(128, 128, stages=6, kind=MatmulKind.PINGPONG)).us
    assert in_turns > 2 * beside  # conditions stand around what it reads


def test_stores_of_single_elements_take_longer() -> None:
    config = MatmulConfig(128, 256, 64, 2, 4)
    problem = MatmulProblem(197, 197, 64, batch=96, staged=0)
    assert estimate(replace(problem, scattered=1), config).us > estimate(replace(problem, direct=1), config).us


def test_matrices_are_read_again_for_what_whole_tiles_leave() -> None:
    """32 groups of 256 rows in tiles of 128: each matrix once; of 272 rows, again for the 28 whose third tile is not a whole one."""
    h100, config = TARGETS["H100"], MatmulConfig(128, 256)
    for rows, times in ((256, 32), (272, 60)):
        found = estimate(replace(ragged(32, 32 * rows, 3072, 4096), target=h100), config)
        assert found.us == pytest.approx(2.25 + h100.dram_us(2 * (32 * rows * (4096 + 3072) + times * 3072 * 4096)))
        assert found.bound == "DRAM"


def test_several_blocks_of_a_multiprocessor_share_its_units() -> None:
    """A time per tile at least, that units work for it, whatever the number of blocks."""
    problem = MatmulProblem(4096, 4096, 64)
    one = MatmulConfig(64, 64, 64, 1, stages=3)
    tile = tile_time(problem, one)
    assert 0 < tile.busy < tile.products + tile.epilogue
    for n in RESIDENTS[:2]:
        some = replace(one, residents=n, blocks=n * DEFAULT.sms)
        figures = DEFAULT.products
        least = problem.tiles(some) / DEFAULT.sms * tile.busy * figures.residents_factor / DEFAULT.clock_mhz
        assert estimate(problem, some, tile).us >= least


def test_rows_that_threads_store_take_longer() -> None:
    config, problem = MatmulConfig(128, 256, group=8), ragged(4, 32768, 4096, 7168)
    times = [tile_time(replace(problem, by_threads=n), config) for n in (0, 1)]
    assert times[1].epilogue - times[0].epilogue == pytest.approx(4 * 540 * 1.8)
    assert times[0].products == times[1].products
