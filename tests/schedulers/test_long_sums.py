"""Long reductions become chunks, which share launches; short ones and those of many rows stay; all compute the same."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR
from taskfuse.schedulers.long_sums import chunk_long_sums
from taskfuse.schedulers.schedule import Sizes
from taskfuse.target import DEFAULT
from tests.schedulers.tried import arguments


def norms(count: int, rows: int = 256, columns: int = 512) -> tf.Fusion:
    """Gradients, clipped by the norm of all."""
    with tf.Fusion("clipped") as fusion:
        gradients = [tf.define_tensor([rows, columns], name=f"g{k}") for k in range(count)]
        total = tf.sqrt(tf.sum(tf.stack([tf.sum(tf.square(g)) for g in gradients], 0), 0))
        for g in gradients:
            fusion.add_output(g * tf.minimum(1.0 / total, 1.0))
    return fusion


def form(fusion: tf.Fusion) -> tf.Fusion | None:
    found = chunk_long_sums(fusion, Sizes(fusion, None, DEFAULT))
    return None if found is None else found.fusion


def test_norms_of_many_gradients_take_as_many_launches_as_those_of_two() -> None:
    found = {count: tf.compile(norms(count, 1024), "sim") for count in (2, 5)}
    assert len({len(run.kernels) for run in found.values()}) == 1
    run = found[5]
    assert run.schedule is not None
    assert "chunk_reduction" in run.schedule.code


def test_its_kernels_are_proved_and_right() -> None:
    fusion = norms(2)
    run, given = tf.compile(fusion, "sim"), arguments(fusion)
    assert run.schedule is not None
    assert "chunk_reduction" in run.schedule.code
    for ours, wanted in zip(run(*given), fusion.evaluate(*given), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5)


def test_a_loss_is_two_kernels_without_a_barrier_of_the_grid() -> None:
    """A launch of one with a barrier overlaps with none, and costs more than the second kernel."""
    with tf.Fusion("loss") as fusion:
        x, y = (tf.define_tensor([2048, 256], dtype=tf.bfloat16, name=name) for name in "xy")
        fusion.add_output(tf.mean(tf.abs(tf.cast(x, tf.float32) - y)))
    run, given = tf.compile(fusion, "sim", target="H200"), arguments(fusion)
    assert run.schedule is not None
    assert "chunk_reduction" in run.schedule.code
    assert [kernel.is_cooperative for kernel in run.kernels] == [False, False]
    np.testing.assert_allclose(run(*given)[0], fusion.evaluate(*given)[0], rtol=1e-5)


def test_the_form_computes_the_same() -> None:
    with tf.Fusion("sums") as fusion:
        x, y = tf.define_tensor([3, 96, 256], name="x"), tf.define_tensor([4096, 2, 16], name="y")
        fusion.add_output(tf.sum(x, (1, 2)), tf.max(y, 0), tf.argmax(y, 0))
    found = form(fusion)
    assert found is not None
    given = arguments(fusion)
    for ours, wanted in zip(evaluate(found, given, MODULAR), evaluate(fusion, given, MODULAR), strict=True):
        assert np.array_equal(ours, wanted)


@pytest.mark.parametrize(
    ("count", "shape", "axes", "dtype"),
    [
        (2, [16, 128], (0, 1), tf.float32),  # short
        (2, [1024, 512], (1,), tf.float32),  # rows enough
        (2, [1031, 509], (0, 1), tf.float32),  # primes
        (2, [1024, 512], (0, 1), tf.bfloat16),  # parts would be rounded
    ],
)
def test_what_stays(count: int, shape: list[int], axes: tuple[int, ...], dtype: tf.DType) -> None:
    with tf.Fusion("sums") as fusion:
        for k in range(count):
            fusion.add_output(tf.max(tf.define_tensor(shape, dtype=dtype, name=f"x{k}"), axes))
    assert form(fusion) is None
