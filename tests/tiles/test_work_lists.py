"""Lists of tiles: every tile once, round-robin, the page's problems, the table of a host."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.ir.scalar import const, sym
from taskfuse.ir.tables import held_places
from taskfuse.ir.tables import places as table_places
from taskfuse.tiles import Half, Problem, WorkItem, WorkList, sort_problems
from tests.strategies import built

TEXT = tuple(Problem(m, n, k) for m, n, k in ((1152, 768, 128), (1152, 768, 1024), (768, 1152, 128), (768, 1152, 1024)))
PROBLEMS = st.lists(
    st.builds(Problem, st.integers(1, 300), st.integers(1, 300), st.integers(0, 500), st.integers(1, 2))
    | built(lambda n, k, half: Problem(n, n, k, half=half), st.integers(1, 300), st.integers(0, 500), st.sampled_from(Half)),
    min_size=1,
    max_size=5,
)


@given(PROBLEMS, st.sampled_from([(64, 64), (128, 64), (32, 96)]), st.integers(1, 20))
def test_every_tile_is_one_blocks(problems: list[Problem], tile: tuple[int, int], blocks: int) -> None:
    listed = WorkList(tuple(problems), tile, blocks)
    items = list(listed.items())
    assert len(set(items)) == len(items) == listed.tiles == sum(listed.sizes)
    for g, p in enumerate(problems):
        assert listed.sizes[g] == sum(i.problem == g for i in items)
        if p.half is None:
            assert listed.sizes[g] == np.prod((p.batch, *listed.grid(g)))
    parts = [listed.of_block(b) for b in range(blocks)]
    assert Counter(i for part in parts for i in part) == Counter(items)
    for b, part in enumerate(parts):
        assert part == sorted(part, key=items.index)
        assert [sum(i.problem == g for i in part) for g in range(len(problems))] == listed.counts[:, b].tolist()
        assert all(listed.blocks_of(i.problem)[i.batch, i.row, i.column] == b for i in part)
    assert max(map(len, parts)) == listed.waves
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(PROBLEMS, st.integers(1, 20))
def test_the_table_of_a_host_says_the_same(problems: list[Problem], blocks: int) -> None:
    listed = WorkList(tuple(problems), (64, 64), blocks)
    table = listed.precomputed()
    for b in range(blocks):
        mine = [(i.problem, listed.starts[i.problem]) for i in listed.of_block(b)]
        assert [tuple(entry) for entry in table[b].tolist() if entry[0] >= 0] == mine


def test_the_problems_of_the_page() -> None:
    """Of 108 blocks half take both tiles with k = 1024; sorted by k, each takes one with 1024 and one with 128."""
    given = WorkList(TEXT, (128, 128), 108)
    assert given.sizes == (54, 54, 54, 54)
    assert (given.waves, given.depths.min(), given.depths.max()) == (2, 256, 2048)
    assert given.imbalance == pytest.approx(2048 / 1152)
    by_k = given.sorted()
    assert [p.k for p in by_k.problems] == [1024, 1024, 128, 128]
    assert (by_k.depths == 1152).all()
    assert by_k.imbalance == 1
    assert sort_problems(TEXT) == (1, 3, 0, 2)
    assert given.of_block(60) == [WorkItem(1, 0, 1, 0), WorkItem(3, 0, 0, 6)]
    assert given.explain().splitlines()[-1] == "k of a block: 256 to 2048, mean 1152.0: imbalance 1.78"


def test_the_figures_of_the_page() -> None:
    """Four problems of 2 x 2 tiles on eight blocks; of triangles no block gets a tile that it would leave."""
    four = WorkList((Problem(2, 2, 1),) * 4, (1, 1), 8)
    assert four.blocks_of(1)[0].tolist() == [[4, 5], [6, 7]]
    assert four.blocks_of(2)[0].tolist() == [[0, 1], [2, 3]]
    lower = WorkList((Problem(2, 2, 1, half=Half.LOWER),) * 4, (1, 1), 8)
    assert [lower.blocks_of(g)[0].tolist() for g in range(4)] == [[[0, -1], [1, 2]], [[3, -1], [4, 5]], [[6, -1], [7, 0]], [[1, -1], [2, 3]]]


@pytest.mark.parametrize("make", [lambda: Problem(0, 1, 1), lambda: Problem(2, 3, 1, half=Half.LOWER), lambda: WorkList(()), lambda: WorkList(TEXT, blocks=0)])
def test_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=r"problem|triangle"):
        make()


@pytest.mark.parametrize("offsets", [[0, 3, 9], [0, 0, 0, 12], [0, 12, 12, 12], [0, 1, 2, 3, 12]])
@pytest.mark.parametrize("tile", [1, 4, 5, 64])
def test_the_groups_of_tiles(offsets: list[int], tile: int) -> None:
    made = tf.tiles.places(offsets, tile)
    holds, _ = held_places(sym("t"), const(len(offsets)), const(0), const(offsets[-1]), tile)
    assert made.dtype == np.int32
    assert made.tolist() == table_places(holds, offsets[-1] // tile + len(offsets) - 1, {"t": np.array(offsets)}).tolist()


def test_rows_behind_the_last_group_count() -> None:
    assert len(tf.tiles.places([0, 3, 9], 4, rows=40)) == 12


@pytest.mark.parametrize(("offsets", "tile"), [([0, 3], 4), ([0, 3, 9], 0), ([[0, 3, 9]], 4)])
def test_positions_that_are_no_groups(offsets: list[int], tile: int) -> None:
    with pytest.raises(ValueError, match="offsets and tiles of"):
        tf.tiles.places(offsets, tile)
