"""Where masks start and end the terms of blocks: the least start and the greatest end of their elements, and the blocks that take a chunk."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.expr import Reduction
from taskfuse.ir.scalar import ZERO, ceildiv, const, evaluate, maximum, minimum, parse_expr
from taskfuse.schedule.block_bounds import BlockWalk, block_bound, pieces, terms_of_chunks

ROWS, CHUNK, M, N = 4, 2, 12, 16
Seen = Callable[[Any, Any], Any]
MASKS: dict[str, Seen] = {
    "up to the row": lambda i, j: j <= i,
    "from the row on": lambda i, j: j >= i,
    "near the row": lambda i, j: (j <= i + 1) & (i - j < 5),
}


def sums(seen: Seen) -> tuple[Reduction, Reduction, np.ndarray]:
    """Sums of a masked matrix over its columns, and over its rows; the mask."""
    with tf.Fusion("sums") as fusion:
        i, j = tf.expand_dims(tf.arange(M), 1), tf.arange(N)
        x = tf.where(seen(i, j), tf.define_tensor([M, N]), 0.0)
        made = tf.sum(x, 1), tf.sum(x, 0)
        fusion.add_output(*made)
    over_columns, over_rows = (fusion.definition(tv) for tv in made)
    assert isinstance(over_columns, Reduction)
    assert isinstance(over_rows, Reduction)
    return over_columns, over_rows, np.asarray(seen(*np.indices((M, N))))


@pytest.mark.parametrize("name", MASKS)
def test_walks_and_sums_over_their_rows_take_the_same_chunks(name: str) -> None:
    over_columns, over_rows, mask = sums(MASKS[name])
    low, high = (block_bound(over_columns, 1, ROWS, None, is_end=is_end) for is_end in (False, True))
    start = ZERO if low is None else maximum(pieces(low.value, CHUNK, up=False), 0)
    end = const(N // CHUNK) if high is None else minimum(maximum(pieces(high.value, CHUNK, up=True), 0), N // CHUNK)
    terms = terms_of_chunks(over_rows, 0, 1, BlockWalk(over_columns, ROWS, CHUNK, const(N // CHUNK), start, end))
    assert terms is not None
    walked, summed = set[tuple[int, int]](), set[tuple[int, int]]()
    for block in range(M // ROWS):
        first, last = (int(evaluate(e, {"i0": block * ROWS})) for e in (start, end))
        walked |= {(block, chunk) for chunk in range(first, last)}
    for chunk in range(N // CHUNK):
        first, last = (int(evaluate(e, {"i1": chunk})) for e in (terms.start, terms.end))
        summed |= {(row // ROWS, chunk) for row in range(first, last)}
    tiles = mask.reshape(M // ROWS, ROWS, N // CHUNK, CHUNK).any(axis=(1, 3))
    assert walked == summed
    assert walked == {(int(block), int(chunk)) for block, chunk in np.argwhere(tiles)}


def test_another_walk_is_not_known_to_take_them() -> None:
    over_columns, over_rows, _ = sums(MASKS["up to the row"])
    assert terms_of_chunks(over_rows, 0, 1, BlockWalk(over_columns, ROWS, CHUNK, const(N // CHUNK), ZERO, const(N // CHUNK))) is None
    assert terms_of_chunks(over_rows, 0, 1, BlockWalk(over_rows, ROWS, CHUNK, const(N // CHUNK), ZERO, parse_expr("2*(i0//4) + 1"))) is None


def test_pieces_of_minima_are_minima_of_pieces() -> None:
    e = parse_expr("min(max(3*t - 5, 2), 17)")
    for t in range(9):
        for up, wanted in ((True, ceildiv(e, 4)), (False, e // 4)):
            assert evaluate(pieces(e, 4, up=up), {"t": t}) == evaluate(wanted, {"t": t})
