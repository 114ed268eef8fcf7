"""Tiles that blocks share: how many steps each block takes."""

import pytest

import taskfuse as tf


def test_stream_k_gives_blocks_equally_many_steps() -> None:
    shares = tf.tiles.stream_k(132).shares(tiles=12, steps=56)
    assert (shares.blocks, shares.share, shares.items, shares.parts) == (112, 6, 2, 10)
    whole = tf.tiles.stream_k(4).shares(tiles=8, steps=5)
    assert [whole.of_block(b) for b in (0, 3)] == [[(0, 0, 5), (1, 0, 5)], [(6, 0, 5), (7, 0, 5)]]


def test_split_k_gives_each_tile_equally_many_blocks() -> None:
    shares = tf.tiles.split_k(3).shares(tiles=2, steps=8)
    assert [shares.of_block(b) for b in range(shares.blocks)] == [[(t, *k)] for t in range(2) for k in ((0, 3), (3, 6), (6, 8))]
    assert (shares.items, shares.parts) == (1, 3)


@pytest.mark.parametrize("make", [tf.tiles.split_k, tf.tiles.stream_k])
def test_none_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match="at least 1 block, not 0"):
        make(0)
