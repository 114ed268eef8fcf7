"""chunk_reduction: the math stays, for every axis, operator and dtype; chunks of chunks; symbolic extents; refused with a reason."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import ScheduleError
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR

RNG = np.random.default_rng(0)


def product(k: int | tf.Dim = 24) -> tuple[tf.Fusion, tf.TensorView]:
    with tf.Fusion("product") as fusion:
        a, b = tf.define_tensor([3, k], name="a"), tf.define_tensor([k if isinstance(k, int) else "K", 5], name="b")
        y = a @ b
        fusion.add_output(tf.relu(y))
    return fusion, y


def reduced(tv: tf.TensorView) -> int:
    return next(p for p, a in enumerate(tv.root) if a.is_reduction)


@pytest.mark.parametrize("op", ["sum", "max", "prod"])
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2)])
def test_the_math_stays(op: str, axes: tuple[int, ...]) -> None:
    with tf.Fusion("rows") as fusion:
        x = tf.define_tensor([4, 6, 8], name="x")
        y = getattr(tf, op)(x, axis=axes)
        fusion.add_output(y)
    given = [RNG.uniform(0.5, 1.5, (4, 6, 8)).astype(np.float32)]
    (wanted,) = evaluate(fusion, given, MODULAR)
    parts = y.chunk_reduction(axes[-1], 2)
    assert int(str(parts.shape[0])) == (4, 6, 8)[axes[-1]] // 2
    assert parts.ndim == y.ndim + 1
    assert np.array_equal(evaluate(fusion, given, MODULAR)[0], wanted)
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)


@pytest.mark.parametrize("call", ["chunk_reduction", "split_reduction"])
@pytest.mark.parametrize("length", [1, 3, 12])
def test_the_value_of_an_index_is_that_of_the_whole_axis(call: str, length: int) -> None:
    """Of where a maximum is, the term is the index itself."""
    with tf.Fusion("where") as fusion:
        x = tf.define_tensor([4, 12], name="x")
        y = tf.argmax(x, axis=1)
        fusion.add_output(y)
    given = [RNG.standard_normal((4, 12)).astype(np.float32)]
    getattr(y, call)(reduced(y), length)
    assert np.array_equal(fusion.evaluate(*given)[0], given[0].argmax(1))
    fusion.inline_most()
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert np.array_equal(kernel.simulate(*given, seed=0)[0], given[0].argmax(1))


def test_a_product_in_chunks_of_chunks_runs_and_is_proved() -> None:
    fusion, y = product()
    parts = y.chunk_reduction(reduced(y), 12)
    assert [str(e) for e in parts.shape] == ["2", "3", "5"]
    assert [str(e) for e in parts.chunk_reduction(reduced(parts), 4).shape] == ["3", "2", "3", "5"]
    a, b = (RNG.integers(-2, 3, shape).astype(np.float32) for shape in ((3, 24), (24, 5)))
    fusion.inline_most()
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    assert np.array_equal(kernel.simulate(a, b)[0], np.maximum(a @ b, 0))


def test_symbolic_extents() -> None:
    with tf.Fusion("product") as fusion:
        a, b = tf.define_tensor([3, tf.dim("K", multiple_of=4)], name="a"), tf.define_tensor(["K", 5], name="b")
        y = a @ b
        fusion.add_output(y)
    y.chunk_reduction(reduced(y), 4)
    for k in (4, 12):
        x, z = (RNG.integers(-2, 3, shape).astype(np.float32) for shape in ((3, k), (k, 5)))
        assert np.array_equal(fusion.evaluate(x, z)[0], x @ z)


def test_refused() -> None:
    fusion, y = product()
    k = reduced(y)
    for call, text in (
        (lambda: fusion.outputs[0].chunk_reduction(0, 2), "is not a reduction"),
        (lambda: y.chunk_reduction(0 if k else 1, 2), "is not a reduction axis"),
        (lambda: y.chunk_reduction(k, 7), "7 does not divide the axis of 24"),
        (lambda: y.chunk_reduction(k, 0), "a chunk has 0 elements"),
        (lambda: y.chunk_reduction(k, True), "a chunk has True elements"),
    ):
        with pytest.raises(ScheduleError, match=text):
            call()
    y.split(k, 4)
    with pytest.raises(ScheduleError, match="call chunk_reduction before split"):
        y.chunk_reduction(k, 2)
