"""Views that kernels take as arrays: their strides, what has none, and the arrays of calls."""

import pickle
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import InputError
from taskfuse.ir.storage import strided


def heads(name: str) -> tf.TensorView:
    return tf.reshape(tf.define_tensor(["B", "S", 32], name=name), ["B", "S", 2, 16]).permute(0, 2, 1, 3)


def scores() -> tuple[tf.Fusion, tuple[tf.TensorView, ...]]:
    with tf.Fusion("scores") as fusion:
        q, k = heads("q"), heads("k")
        fusion.add_output(tf.matmul(q, k.permute(0, 1, 3, 2)))
    return fusion, (q, k)


def test_strides() -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor(["B", "S", 24], name="x")
        views = [tf.reshape(x, [-1, 24]), x[:, 1:, 8:16], tf.reshape(x, ["B", "S", 3, 8]).permute(2, 0, 1, 3), x.T, tf.expand_dims(x[0], 1)]
        others = [tf.flip(x, 1), tf.broadcast_to(x, [5, "B", "S", 24]), tf.reshape(x[:, :, :16], ["B", -1]), tf.exp(x), x]
    found = [strided(fusion, tv) for tv in views]
    assert [(str(v.start), *map(str, v.strides)) for v in found if v is not None] == [
        ("0", "24", "1"),
        ("32", "24*S", "24", "1"),
        ("0", "8", "24*S", "24", "1"),
        ("0", "1", "24", "24*S"),
        ("0", "24", "0", "1"),
    ]
    assert [v is not None and v.has_rows(16, fusion.facts()) for v in found] == [True, True, True, False, True]
    assert [strided(fusion, tv) for tv in others] == [None] * len(others)


def test_rows_are_aligned_as_those_of_an_array_of_the_same_shape() -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([4, 6, 197], dtype=tf.bfloat16, name="x")
        merged, narrow = tf.reshape(x, [24, 197]), x[:, :, :64]
    found = [strided(fusion, tv) for tv in (merged, narrow)]
    assert [v is not None and v.has_rows(16, fusion.facts()) for v in found] == [True, False]


@pytest.mark.parametrize("order", ["C", "F"])
def test_products_of_views(order: Any) -> None:
    fusion, views = scores()
    code = [tv.name for tv in fusion.outputs]
    segmented = tf.segment(fusion, [code], views=[list(views)])
    assert [tv.shape for tv in segmented.segments[0].inputs][:2] == [tv.shape for tv in views]
    run = pickle.loads(pickle.dumps(tf.compile(segmented, backend="sim")))
    rng = np.random.default_rng(0)
    for b, s in ((1, 3), (2, 5)):
        q, k = (np.asarray(rng.integers(-4, 5, (b, s, 32)), np.float32, order=order) for _ in range(2))
        (found,), (wanted,) = run(q, k), fusion.evaluate(q, k)
        assert np.array_equal(found, wanted)
    with pytest.raises(InputError) as caught:
        run(q, k.astype(np.float64))
    assert str(caught.value).splitlines()[0] == "input 1 of fusion 'scores': 'k' has dtype float64, not float32"
