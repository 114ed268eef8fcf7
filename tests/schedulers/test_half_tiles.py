"""Products of which one triangle is read: it is found, its tiles are counted as the kernels deal them, and the cost model chooses their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.schedulers.contraction import find as find_product
from taskfuse.schedulers.half_tiles import HalfTiles, find
from taskfuse.tiles import Half

LOWER, UPPER = Half


def triangle(kind: str, side: int | str = 256, terms: int = 64, k: int = 0) -> tf.Fusion:
    with tf.Fusion("triangle") as fusion:
        a, b = (tf.define_tensor((tf.dim(side, min=1) if isinstance(side, str) else side, terms), tf.bfloat16, name=name) for name in "ab")
        p = tf.matmul(a, b.T, dtype=tf.float32)
        match kind:
            case "lower":
                y = tf.tril(p, k)
            case "upper":
                y = tf.triu(p, k)
            case "sum":
                y = tf.tril(p + tf.matmul(b, a.T, dtype=tf.float32), k)
            case "function":
                y = tf.relu(tf.tril(p * 2.0, k))
            case "both":
                y = tf.tril(p) + p
            case _:
                y = p
        fusion.add_output(tf.cast(y, tf.bfloat16))
    return fusion


def found(fusion: tf.Fusion) -> HalfTiles | None:
    return find(fusion, find_product(fusion), 1)


@pytest.mark.parametrize(("kind", "half"), [("lower", LOWER), ("upper", UPPER), ("sum", LOWER), ("function", LOWER)])
def test_triangles_are_found_in_what_is_read(kind: str, half: Half) -> None:
    assert found(triangle(kind)) == HalfTiles(half, 0, 256)
    assert found(triangle(kind, k=3)) == HalfTiles(half, 3 if half is LOWER else -3, 256)
    assert found(triangle(kind, k=300)) is found(triangle(kind, k=-300)) is None  # all of it, or nothing


def test_what_is_read_whole_has_no_half() -> None:
    assert found(triangle("both")) is found(triangle("all")) is found(triangle("lower", "N")) is None


def test_a_result_whose_rows_are_columns_of_its_product() -> None:
    with tf.Fusion("turned") as fusion:
        a, b = (tf.define_tensor((256, 64), tf.bfloat16, name=name) for name in "ab")
        fusion.add_output(tf.tril(a @ b.T).T)
    product = find_product(fusion)
    assert find(fusion, product, 1) == HalfTiles(LOWER if product.axes.m == 0 else UPPER, 0, 256)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(Half), st.integers(-9, 9), st.integers(1, 12), st.sampled_from([(2, 2), (4, 2), (2, 4), (3, 3)]), st.integers(1, 3), st.integers(1, 7))
def test_tiles_are_dealt_as_kernels_deal_them(half: Half, offset: int, side: int, tile: tuple[int, int], batch: int, blocks: int) -> None:
    tiles = HalfTiles(half, offset, side, batch)
    i, j = np.indices((side, side))
    inside = j - i <= offset if half is LOWER else i - j <= offset
    grid = tuple(-(-side // extent) for extent in tile)
    used = {(r, c) for r, c in np.ndindex(*grid) if inside[r * tile[0] : (r + 1) * tile[0], c * tile[1] : (c + 1) * tile[1]].any()}
    for first in (None, half):
        dealt = tiles.dealt(tile, 2, blocks, first)
        assert dealt.used == batch * len(used)
        assert -(-dealt.used // blocks) <= dealt.most <= dealt.used
        rest = batch * grid[0] * grid[1] - dealt.used
        assert -(-rest // blocks) <= dealt.others <= rest


def test_the_order_evens_out_what_blocks_get() -> None:
    tiles = HalfTiles(LOWER, 0, 4096)
    even, usual = (tiles.dealt((128, 128), 8, 132, first) for first in (LOWER, None))
    assert even == (528, 4, 4)
    assert usual.most > even.most


@pytest.mark.parametrize("kind", ["lower", "sum"])
def test_the_model_chooses_the_order(kind: str) -> None:
    fusion = triangle(kind, 4096, 2048)
    chosen = tf.schedulers.matmul(fusion)
    assert chosen.config.half is LOWER
    assert "of 1024 tiles the 528 that have elements of the lower triangle multiply," in chosen.explain()
    assert chosen.us < 0.65 * tf.schedulers.matmul(triangle("all", 4096, 2048 if kind == "lower" else 4096)).us


@pytest.mark.parametrize("kind", ["sum", "function", "upper"])
def test_tiles_that_nobody_reads_do_not_multiply(kind: str) -> None:
    fusion = triangle(kind, 192)
    tf.schedulers.matmul(fusion, tf.schedulers.MatmulConfig(64, 64, warpgroups=1, stages=2, blocks=2, half=UPPER if kind == "upper" else LOWER))
    kernel = tf.lower(fusion)
    kernel.verify().require()
    walks = [line for line in str(kernel).splitlines() if line.strip().startswith("FOR i") and ">= 0:" in line and "select" in line]
    assert len(walks) >= 2  # of the role that loads, and of the one that multiplies
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-2, 3, (192, 64)).astype(np.float32).astype(tf.bfloat16.numpy) for _ in "ab"]
    (result,), (wanted,) = kernel.simulate(*arrays), triangle(kind, 192).evaluate(*arrays)
    assert (result == wanted).all()
