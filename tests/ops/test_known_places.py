"""Writes at indices that count along the points: no data says them, and no table finds the last point of an element."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.expr import Update
from tests.ops.reference import Array, evaluated, numbers

B, S, D = 4, 9, 3
X = numbers((B, S, D), "float64")
ROWS, TWO, PART, LONG = (numbers(s, "float64", seed=k) for k, s in enumerate([(B, D), (B, 2, D), (B, 4, D), (4, S, D)]))
AT = np.array([3, -1, 8, 9])
PAIRS = np.array([[3, 4], [0, 0], [8, -1], [9, 2]])
Put = Callable[[tf.TensorView, Sequence[tf.TensorView]], tf.TensorView]


def written(places: Array, values: Array, plus: bool = False) -> Array:
    """``X`` with values at positions of its rows, of which those outside write nothing."""
    found = X.copy()
    for point in np.ndindex(places.shape):
        if -S <= places[point] < S:
            found[point[0], places[point]] = values[point] + (found[point[0], places[point]] if plus else 0)
    return found


def at_slice(first: int, plus: bool = False) -> Array:
    found = X.copy()
    found[:, first : first + 4 or None] = PART + (found[:, first : first + 4 or None] if plus else 0)
    return found


def at_rows(rows: Any, columns: Any, value: Any) -> Array:
    found = X.copy()
    found[rows, columns] = value
    return found


def counted(n: int, start: int = 0) -> tf.TensorView:
    return tf.arange(n) + start


CASES: dict[str, tuple[Put, tuple[Array, ...], Array, int]] = {  # the op, its further inputs, the result, and how many updates find the last points
    "a position in each row": (lambda x, t: tf.index_put(x, [tf.arange(B), t[0]], t[1]), (AT, ROWS), written(AT, ROWS), 0),
    "added there": (lambda x, t: tf.index_put(x, [tf.arange(B), t[0]], t[1], True), (AT, ROWS), written(AT, ROWS, True), 0),
    "two in each row": (lambda x, t: tf.index_put(x, [counted(B)[:, None], t[0]], t[1]), (PAIRS, TWO), written(PAIRS, TWO), 1),
    "rows last": (lambda x, t: tf.index_put(x, [tf.arange(B), t[0].T], tf.permute(t[1], [1, 0, 2])), (PAIRS, TWO), written(PAIRS, TWO), 1),
    "some rows": (lambda x, t: tf.index_put(x, [counted(2, 1), t[0]], t[1][:2]), (AT[:2], ROWS), at_rows([1, 2], AT[:2], ROWS[:2]), 0),
    "a slice": (lambda x, t: tf.index_put(x, [None, counted(4, 2)], t[0]), (PART,), at_slice(2), 0),
    "a slice at the end": (lambda x, t: tf.index_put(x, [None, counted(4, -4)], t[0]), (PART,), at_slice(-4), 0),
    "added to a slice": (lambda x, t: tf.index_add(x, 1, counted(4, 2), t[0]), (PART,), at_slice(2, True), 0),
    "a box": (lambda x, _: tf.index_put(x, [counted(3, 1)[:, None], counted(2, 5)], 5.0), (), at_rows(slice(1, 4), slice(5, 7), 5), 0),
    "a diagonal": (lambda x, _: tf.index_put(x, [counted(3, 1), counted(3, 1)], 5.0), (), at_rows([1, 2, 3], [1, 2, 3], 5), 0),
    "past the end": (lambda x, t: tf.index_put(x, [counted(4, 2)], t[0]), (LONG,), at_rows(slice(2, 4), slice(None), LONG[:2]), 1),
    "always one": (lambda x, t: tf.index_put(x, [tf.arange(4) * 0 + 1], t[0]), (LONG,), at_rows(1, slice(None), LONG[3]), 1),
    "of every row, the last of two": (lambda x, t: tf.index_put(x, [tf.broadcast_to(tf.arange(4), [2, 4])], t[0]), (np.stack([0 * LONG, LONG]),), LONG, 1),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_known_of_indices(case: str) -> None:
    put, inputs, wanted, updates = CASES[case]

    def call(x: tf.TensorView, *others: tf.TensorView) -> tf.TensorView:
        found = put(x, others)
        assert sum(isinstance(e, Update) for e in found.fusion.exprs()) == updates
        return found

    assert np.array_equal(evaluated(call, X, *inputs), wanted)


def test_rows_of_any_number() -> None:
    with tf.Fusion("cache") as fusion:
        cache, new = tf.define_tensor(["B", "S", "D"], tf.float64), tf.define_tensor(["B", "D"], tf.float64)
        fusion.add_output(tf.index_put(cache, [tf.arange("B"), tf.define_tensor(["B"], tf.int64)], new))
    assert not any(isinstance(e, Update) for e in fusion.exprs())
    assert np.array_equal(fusion.evaluate(X, ROWS, AT)[0], written(AT, ROWS))


def test_a_cache_is_copied_by_the_kernel_that_writes_its_new_rows() -> None:
    """Each element asks whether the position of its row names it; int64 positions, which all elements of a row read alike, do not shorten vectors."""
    with tf.Fusion("cache") as fusion:
        cache, new = tf.define_tensor([4, 32, 64], tf.bfloat16), tf.define_tensor([4, 64], tf.bfloat16)
        fusion.add_output(tf.index_put(cache, [tf.arange(4), tf.define_tensor([4], tf.int64)], new))
    assert "vectors of 8" in tf.schedulers.pointwise(fusion).config.words
