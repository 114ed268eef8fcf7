"""Random numbers: known answers of Philox, moments, equal elements for equal seeds."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from tests.ops.reference import Array, message


def made(build: Callable[[], tf.TensorView], *arguments: Any) -> Array:
    with tf.Fusion("random") as fusion:
        fusion.add_output(build())
    return fusion.evaluate(*arguments)[0]


def test_known_answers() -> None:
    """Those of Random123: a counter and a key of zeros, and of the digits of pi."""
    assert [hex(v) for v in made(lambda: tf.random_bits([4], 0))] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]

    def of_pi() -> tf.TensorView:
        key, counter, place = (tf.full([4], n % 2**64, "uint64") for n in (0x299F31D0A4093822, 0x85A308D3243F6A88, 0x0370734413198A2E * 4))
        return tf.philox(key, counter, place + tf.cast(tf.arange(4), "uint64"))

    assert [hex(int(v)) for v in made(of_pi)] == ["0xd16cfe09", "0x94fdcceb", "0x5001e420", "0x24126ea1"]


def test_elements_follow_the_threads_of_a_grid() -> None:
    """Thread t draws words of the sequence t: four for elements t, t + threads, and so on, then those of the next counter."""
    whole = made(lambda: tf.random_bits([40], 7, 8, threads=3))
    for i in range(40):
        sequence, turn = i % 3, i // 3
        words = made(
            lambda s=sequence, t=turn: tf.philox(tf.full([4], 7, "uint64"), tf.full([4], 2 + t // 4, "uint64"), tf.cast(tf.arange(s * 4, s * 4 + 4), "uint64"))
        )
        assert whole[i] == words[turn % 4]
    assert (made(lambda: tf.rand([40], 7, 8, threads=3)) == np.float32(whole) * np.float32(2**-32) + np.float32(2**-33)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("threads", [None, 256])
def test_moments(dtype: str, threads: int | None) -> None:
    u = made(lambda: tf.rand([200, 100], 42, 4, dtype, threads)).astype(np.float64)
    assert u.min() >= 0
    assert u.max() < 1
    np.testing.assert_allclose([u.mean(), u.var() * 12], [0.5, 1], atol=0.03)
    n = made(lambda: tf.randn([200, 100], 2**40 + 3, 4, dtype, threads)).astype(np.float64)
    np.testing.assert_allclose([n.mean(), n.var(), (n**3).mean(), (n**4).mean()], [0, 1, 0, 3], atol=0.15)
    assert len(np.unique(n)) > (19000 if dtype != "bfloat16" else 100)


def test_dropout_and_bernoulli() -> None:
    with tf.Fusion("dropped") as fusion:
        x, seed, offset = tf.define_tensor(["N", 64]), tf.define_scalar("int64"), tf.define_tensor([], "int64")
        dropped = tf.dropout(x, 0.25, seed, offset)
        fusion.add_output(dropped)
        fusion.add_output(tf.dropout(x, 1.0, seed) + tf.dropout(x, 0.0, seed))
        fusion.add_output(tf.bernoulli(tf.full_like(x, 0.25), seed, offset))
    ones, at = np.ones((200, 64), np.float32), np.array(8)
    first, whole, drawn = fusion.evaluate(ones, at, 3)
    assert set(np.unique(first)) == {np.float32(0), np.float32(1 / 0.75)}
    np.testing.assert_allclose([(first == 0).mean(), drawn.mean()], 0.25, atol=0.02)
    assert (whole == 1).all()
    assert (fusion.evaluate(ones, at, 3)[0] == first).all()
    assert (fusion.evaluate(ones, at, 4)[0] != first).any()
    assert (fusion.evaluate(ones, np.array(12), 3)[0] != first).any()


def test_a_kernel_of_dropout() -> None:
    with tf.Fusion("dropped") as fusion:
        fusion.add_output(tf.dropout(tf.define_tensor([4, 8]), 0.5, tf.define_scalar("int64")))
    run, x = tf.compile(fusion), np.ones((4, 8), np.float32)
    assert [kernel.verify().is_proved for kernel in run.kernels] == [True]
    np.testing.assert_array_equal(run(x, 5)[0], fusion.evaluate(x, 5)[0])


def test_errors() -> None:
    with tf.Fusion("f"):
        x, whole = tf.define_tensor([4], name="x"), tf.define_tensor([4], "int32", name="n")
        real: Any = 0.5
        assert message(lambda: tf.rand([4], real)) == ("rand: 0.5 is not a seed\nhelp: use an integer, a run-time scalar or a 0-d tensor of integers")
        assert message(lambda: tf.rand([4], x)) == "rand: x (float32) is not a seed\nhelp: use integers"
        assert message(lambda: tf.rand([4], whole)) == "rand: n [4] is not 0-d\nhelp: use a 0-d tensor or a run-time scalar"
        assert message(lambda: tf.rand([4], 0, dtype="int32")) == "rand: int32 is not a float\nhelp: use tf.random_bits for integers"
        assert message(lambda: tf.random_bits([4], 0, threads=0)).startswith("random_bits: 0 threads")
        assert message(lambda: tf.dropout(x, 1.5, 0)) == "dropout: the probability is 1.5\nhelp: use a number from 0 to 1"
        assert message(lambda: tf.dropout(whole, 0.5, 0)) == "dropout: n (int32) is not a float\nhelp: cast to a float first"
        assert message(lambda: tf.bernoulli(whole, 0)) == "bernoulli: n (int32) is not a float\nhelp: cast to a float first"
