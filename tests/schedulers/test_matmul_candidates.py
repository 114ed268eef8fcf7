"""The parameters that the cost model of products chooses from: those that fit, and the choice at sizes."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.schedulers import MatmulKind
from taskfuse.schedulers.config import MAX_ACCUMULATORS, ROOMY_ACCUMULATORS, shared_room
from taskfuse.schedulers.cost import MatmulProblem
from taskfuse.schedulers.matmul_candidates import MOST_SIDES, NARROW_ACCUMULATORS, RESIDENTS, SHAPES, SHARED_TILES, SPANS, candidates, rank
from taskfuse.target import DEFAULT, SHARED_BYTES, TARGETS
from tests.schedulers.products import ragged

EXTENT = st.integers(1, 8192)


@settings(max_examples=30)
@given(EXTENT, EXTENT, EXTENT, st.integers(1, 4), st.integers(0, 1))
def test_candidates_fit_and_are_ranked(m: int, n: int, k: int, batch: int, staged: int) -> None:
    problem = MatmulProblem(m, n, k, batch, staged=staged, direct=1 - staged)
    found = rank(problem)
    assert len(SHARED_TILES) <= len({e.config.tile_m * 1000 + e.config.tile_n for e in found}) <= len(found) <= len(SPANS) * len(SHAPES) * (1 + len(RESIDENTS))
    assert {e.config.spans(2) for e in found} <= set(SPANS)
    assert [e.us for e in found] == sorted(e.us for e in found)
    for e in found:
        assert e.config.shared_bytes(2, staged) <= shared_room(DEFAULT, e.config.residents) <= SHARED_BYTES
        assert 1 <= e.config.blocks <= min(DEFAULT.sms * e.config.residents, problem.tiles(e.config))
        assert 0 < e.efficiency <= 1
        assert (e.waves - 1) * e.config.blocks < problem.tiles(e.config) <= e.waves * e.config.blocks


@pytest.mark.parametrize(
    ("size", "tile", "kind", "waves"),
    [
        ((4096, 4096, 4096), (128, 256), MatmulKind.COOPERATIVE, 4),
        ((2048, 2048, 2048), (128, 256), MatmulKind.COOPERATIVE, 1),
        ((64, 7168, 2048), (64, 64), MatmulKind.COOPERATIVE, 1),
        ((512, 4096, 7168), (128, 128), MatmulKind.COOPERATIVE, 1),
        ((384, 128, 3584), (64, 16), MatmulKind.COOPERATIVE, 1),
        ((3072, 384, 4096), (128, 80), MatmulKind.COOPERATIVE, 1),
        ((3328, 1536, 4096), (256, 160), MatmulKind.COOPERATIVE, 1),
        ((1920, 1408, 4096), (192, 112), MatmulKind.COOPERATIVE, 1),
    ],
)
def test_choices(size: tuple[int, int, int], tile: tuple[int, int], kind: MatmulKind, waves: int) -> None:
    best = rank(MatmulProblem(*size))[0]
    assert ((best.config.tile_m, best.config.tile_n), best.config.kind, best.waves) == (tile, kind, waves)


def test_tiles_that_would_spill_are_no_candidates() -> None:
    """The more inputs an epilogue reads, the fewer."""
    found = [{(c.tile_m, c.tile_n, c.warpgroups, c.kind, c.cluster) for c in candidates(MatmulProblem(8192, 8192, 512, sides=n, wide=n))} for n in range(5)]
    for sides in range(4):
        assert found[sides] - found[sides + 1] == {tile for tile, most in MOST_SIDES.items() if most == sides}
    assert found[4] == found[3] < found[2] < found[1] < found[0]


def test_most_accumulators_are_for_one_output_that_reads_nothing() -> None:
    def largest(**facts: Any) -> int:
        return max(c.accumulators for c in candidates(MatmulProblem(4096, 4096, 512, **facts)) if c.warpgroups == 2)

    assert largest() == MAX_ACCUMULATORS[2] > ROOMY_ACCUMULATORS[2]
    for facts in ({"sides": 1, "wide": 1}, {"sides": 2}, {"sides": 1, "staged": 2}, {"staged": 2}, {"row_sums": 1}):
        assert largest(**facts) == ROOMY_ACCUMULATORS[2]
    assert largest(sides=1) == NARROW_ACCUMULATORS < largest()


def test_neighbors_share_the_tile_of_the_operand_that_has_more() -> None:
    for size, tile, group in (
        ((3712, 128, 4096), (64, 64), 1),
        ((1792, 256, 3712), (64, 64), 1),
        ((1024, 384, 3968), (64, 64), 2),
        ((384, 3200, 3584), (64, 160), 16),
        ((640, 4096, 1920), (128, 160), 16),
        ((128, 2688, 3328), (64, 64), 16),
        ((768, 1280, 4096), (64, 128), 4),
        ((1408, 896, 3200), (128, 80), 4),
    ):
        assert {c.group for c in candidates(MatmulProblem(*size)) if (c.tile_m, c.tile_n, c.cluster) == (*tile, 1)} == {group}


def test_narrow_tiles_that_warpgroups_share_have_long_steps() -> None:
    for tile in ((128, 64), (128, 80)):
        assert next(e.config.tile_k for e in rank(MatmulProblem(1024, 384, 3968)) if (e.config.tile_m, e.config.tile_n) == tile) == 128


def test_groups_follow_the_shape() -> None:
    for problem in (MatmulProblem(4096, 4096, 512), MatmulProblem(64, 8192, 512), MatmulProblem(8192, 64, 512)):
        for config in candidates(problem):
            assert config.group in (1, 2, 4, 8, 16)


@pytest.mark.parametrize(
    ("problem", "tile", "group"),
    [
        (ragged(4, 32768, 4096, 7168), (128, 256), 2),
        (ragged(8, 32768, 7168, 2048), (128, 256), 8),
        (ragged(32, 8192, 3072, 4096), (128, 256), 2),
    ],
)
def test_ragged_rows(problem: MatmulProblem, tile: tuple[int, int], group: int) -> None:
    """The largest tile; the group with which no block has more tiles than it must, and a wave reads the fewest bytes; of equals two rows."""
    best = rank(replace(problem, target=TARGETS["H100"]))[0]
    assert ((best.config.tile_m, best.config.tile_n), best.config.group) == (tile, group)
    assert best.efficiency <= 1
    others = [problem.waves(replace(best.config, group=g)) for g in (1, 2, 4, 8, 16)]
    assert best.waves == min(others)


def test_products_of_few_steps_have_several_blocks_of_a_multiprocessor() -> None:
    """Interactions of features, heads of 197 tokens: a tile has little to multiply, and waits for its factors and its stores. Long sums have one block."""
    interactions = MatmulProblem(27, 27, 64, 2048, staged=0, scattered=1)
    heads = MatmulProblem(197, 64, 197, 96, columns_contiguous=True, access=(2, 0))
    for problem in (interactions, heads):
        best, *others = rank(problem)
        alone = next(e for e in others if e.config.residents == 1)
        assert best.config.residents > 1
        assert best.us < 0.7 * alone.us
    assert {e.config.residents for e in rank(MatmulProblem(4096, 4096, 4096))} == {1}
