"""One triangle of a square result first: every tile once, all with work in front, in kernels that are proved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.check.verify import verify
from taskfuse.ir.scalar import const, evaluate
from taskfuse.reports.certificate import Verdict
from taskfuse.tiles import Half, Halves, halves, macro_tiles, triangular
from tests.lowering.running import agrees, numbers

TILES = [(32, 32), (64, 32), (32, 64), (96, 32)]


def points(order: Halves, *extents: int) -> list[tuple[int, ...]]:
    """The tiles of all items, in order."""
    given = [const(e) for e in extents]
    w = np.arange(int(evaluate(order.items(given), {})))
    return list(zip(*(np.broadcast_to(evaluate(m, {"i0": w}), w.shape).tolist() for m in order.maps(given)), strict=True))


@pytest.mark.parametrize("half", list(Half))
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("extent", [1, 31, 32, 100, 128, 132, 200, 1000])
def test_every_tile_once_and_those_of_the_triangle_first(half: Half, tile: tuple[int, int], extent: int) -> None:
    grid = -(-extent // tile[0]), -(-extent // tile[1])
    found = points(halves(half, tile), *grid)
    inside = [at for at in found if at[0] < grid[0] and at[1] < grid[1]]
    assert sorted(inside) == list(np.ndindex(*grid))
    wanted = {at for at in triangular(extent, tile, half) if at is not None}
    assert wanted <= set(found[: macro_tiles(grid, tile)])
    assert wanted.isdisjoint(found[macro_tiles(grid, tile) :])


def test_the_triangle_is_folded() -> None:
    """The last row and the first one, the second to last and the second; then the other half, folded as well."""
    assert points(halves(), 4, 4)[:10] == [(3, 0), (3, 1), (3, 2), (3, 3), (0, 0), (2, 0), (2, 1), (2, 2), (1, 0), (1, 1)]
    assert points(halves(), 3, 3)[:6] == [(2, 0), (2, 1), (2, 2), (1, 0), (1, 1), (0, 0)]
    assert points(halves(Half.UPPER), 3, 3) == [(j, i) for i, j in points(halves(), 3, 3)]
    assert points(halves(), 3, 3)[6:] == [(0, 2), (1, 2), (0, 1)]


@given(st.integers(1, 2**15), st.data())
def test_exact_for_any_number(side: int, data: st.DataObject) -> None:
    """Row and column are in the triangle, and next to each other or at the ends of rows, in all rows of up to 2**31 tiles and more."""
    numbers_of = side * (side + 1) // 2
    w = data.draw(st.integers(0, numbers_of - 1))
    row, column = (int(evaluate(m, {"i0": w})) for m in halves().maps([const(side), const(side)]))
    width = side + 1 - side % 2
    pair, place = divmod(w, width)
    assert (row, column) == ((side - 1 - pair, place) if place < side - pair else (pair - side % 2, place - (side - pair)))
    assert 0 <= column <= row < side


def test_batches_one_after_another() -> None:
    found = points(halves(Half.LOWER, (64, 32)), 2, 3, 6)
    assert sorted(found) == list(np.ndindex(2, 3, 6))
    assert [at[1:] for at in found[:18]] == [at[1:] for at in found[18:]] == points(halves(Half.LOWER, (64, 32)), 3, 6)


def test_refused() -> None:
    with pytest.raises(ValueError, match="do not make square macro tiles"):
        halves(Half.LOWER, (64, 48))
    with pytest.raises(ValueError, match="two axes, not 1"):
        halves().maps([const(3)])


# -- in kernels -----------------------------------------------------------------------------------------------------------------------


def ordered(n: int | tf.Dim, tile: tuple[int, int], blocks: int = 0) -> tf.Fusion:
    with tf.Fusion("halves") as fusion:
        x = tf.define_tensor((n, n), name="x")
        y = tf.tril(x)
        fusion.add_output(y)
    y.split(1, tile[1]).split(0, tile[0]).reorder([0, 2, 1, 3]).rasterize([0, 1], halves(Half.LOWER, tile))
    if blocks:
        y.split(0, blocks)
    y.axis(1 if blocks else 0).parallelize(P.BIDx)
    return fusion


@pytest.mark.parametrize(("n", "tile", "blocks"), [(24, (4, 4), 0), (20, (4, 4), 3), (132, (64, 32), 0), (132, (32, 64), 5), (4096, (64, 64), 132)])
def test_kernels_are_proved(n: int, tile: tuple[int, int], blocks: int) -> None:
    fusion = ordered(n, tile, blocks)
    kernel = tf.lower(fusion) if n > 1000 else agrees(fusion, numbers(n, n))
    kernel.verify().require()


def test_extents_that_calls_say_are_proved_at_theirs() -> None:
    kernel = agrees(ordered(tf.dim("N", min=1), (4, 4)), numbers(21, 21))
    kernel.verify({"N": 21}).require()
    assert str(kernel).count("//") > 0


def test_items_with_one_tile_are_not_proved() -> None:
    kernel = tf.lower(ordered(24, (4, 4)))
    text = kernel.text(witness=True)
    once = "5 - blockIdx.x//7, blockIdx.x//7)"
    assert once in text
    for wrong in ("5 - blockIdx.x//7, 5 - blockIdx.x//7)", "5, blockIdx.x//7)"):
        found = verify(tf.parse_kernel(text.replace(once, wrong)))
        assert any(o.verdict is not Verdict.PROVED for o in found.argument)


# -- products -------------------------------------------------------------------------------------------------------------------------


def product(n: int, k: int, half: Half) -> tf.Fusion:
    with tf.Fusion("rank2k") as fusion:
        p, q = (tf.define_tensor((n, k), tf.bfloat16, name=name) for name in "pq")
        kept = (tf.tril if half is Half.LOWER else tf.triu)(tf.matmul(p, q.T, dtype=tf.float32))
        fusion.add_output(tf.cast(kept, tf.bfloat16))
    return fusion


@pytest.mark.parametrize("half", list(Half))
def test_tiles_of_the_other_half_are_not_multiplied(half: Half) -> None:
    n, k = 200, 128
    fusion = product(n, k, half)
    tf.schedulers.matmul(fusion, tf.schedulers.MatmulConfig(64, 64, warpgroups=1, stages=2, blocks=4, half=half))
    assert "halves" in str(fusion) or "select" in str(fusion)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert "select(" in next(line for line in str(kernel).splitlines() if "FOR" in line and "in 0..select(" in line)
    rng = np.random.default_rng(0)
    p, q = (rng.integers(-3, 4, (n, k)).astype(np.float32).astype(tf.bfloat16.numpy) for _ in range(2))
    (found,), (wanted,) = kernel.simulate(p, q), fusion.evaluate(p, q)
    assert (found == wanted).all()
