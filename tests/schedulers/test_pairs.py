"""Reductions of a function of pairs on the CUDA cores: found by their axes, proved, equal to the reference; refused where they are of another kind."""

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import SimtGemmConfig, pairs
from taskfuse.schedulers.script import Script
from taskfuse.sim import simulate
from tests.calls import Math
from tests.proofs import proved

T = tf.define_tensor
SMALL = SimtGemmConfig(2, 2)
RNG = np.random.default_rng(0)


def squares(x: tf.TensorView, y: tf.TensorView) -> tf.TensorView:
    return tf.sum(tf.square(x[:, None] - y[None]), 2)


def absolute(x: Any, y: Any) -> Any:
    return tf.sqrt(tf.sum(tf.abs(x[:, None] - y[None]), 2)) * 2.0


def tropical(x: Any, y: Any) -> Any:
    return tf.min(x[:, None] + y[None], 2)


def batches(x: Any, y: Any) -> Any:
    return tf.max(tf.minimum(x[:, :, None], y[:, None]), 3)


def narrow(x: Any, y: Any) -> Any:
    return tf.sum(tf.square(tf.cast(x[:, None], tf.float32) - tf.cast(y[None], tf.float32)), 2)


def made(math: Math, *shapes: list[int], dtype: tf.DType = tf.float32) -> tf.Fusion:
    with tf.Fusion("pairs") as fusion:
        fusion.add_output(math(*(T(list(shape), dtype=dtype, name=name) for shape, name in zip(shapes, "xyz", strict=False))))
    return fusion


CASES: list[tuple[Math, tuple[list[int], ...], tf.DType, int]] = [
    (squares, ([36, 24], [33, 24]), tf.float32, 2),
    (absolute, ([20, 9], [17, 9]), tf.float32, 3),
    (tropical, ([32, 16], [32, 16]), tf.int32, 2),
    (batches, ([2, 18, 8], [2, 20, 8]), tf.float32, 2),
    (narrow, ([32, 32], [32, 32]), tf.bfloat16, 4),
    (lambda x: squares(x, x), ([24, 12],), tf.float32, 2),
]


@pytest.mark.parametrize(("math", "shapes", "dtype", "instructions"), CASES)
def test_any_function(math: Math, shapes: tuple[list[int], ...], dtype: tf.DType, instructions: int) -> None:
    """Both factors come in tiles; the body is computed in registers, for each pair once."""
    fusion = made(math, *shapes, dtype=dtype)
    plain, _ = tf.copy_fusion(fusion)
    settled, _ = tf.copy_fusion(fusion)
    pairs.settle(Script(settled))
    assert pairs.find(settled).instructions == instructions
    names: dict[str, Any] = {"fusion": tf.copy_fusion(fusion)[0]}
    code = tf.schedulers.simt_gemm(fusion, SMALL).code
    kernel = tf.lower(fusion)
    exec(code, names)
    assert str(tf.lower(names["fusion"])) == str(kernel)
    proved(kernel)
    arguments: list[np.ndarray[Any, Any]] = [RNG.integers(-8, 8, shape).astype(dtype.numpy) for shape in shapes]
    (found,), (wanted,) = simulate(kernel, arguments), plain.evaluate(*arguments)
    assert np.array_equal(found, wanted) if math is not absolute else np.allclose(found, wanted, rtol=1e-6)
    assert str(kernel).count("COPY.async") == 2


def test_the_axes_are_those_of_the_inputs() -> None:
    found = pairs.find(made(lambda x, y: squares(y, x), [64, 8], [32, 8]))
    assert (found.axes.m, found.axes.n, found.axes.k, found.axes.batch) == (0, 1, 2, ())
    assert (found.a.tensor.name, found.b.tensor.name) == ("y", "x")
    assert found.a.is_k_major
    assert not found.a.is_whole
    product = pairs.find(made(lambda x, y: x @ y, [64, 8], [8, 32]))
    assert (product.instructions, product.inner, product.a.is_whole) == (1, (), True)


REFUSED: list[tuple[Math, tuple[list[int], ...], str]] = [
    (lambda x, y, z: tf.sum(tf.square(x[:, None] - y[None]) * z[None, None], 2), ([32, 8], [32, 8], [8]), "reads elements of inputs at 3 places"),
    (lambda x, y: tf.sum(tf.square(x - y), 1), ([32, 8], [32, 8]), "has no rows or no columns"),
    (lambda x, y: tf.sum(tf.square(x[:, None] - y[None]), 2) + x[0, 0], ([32, 8], [32, 8]), "the factor x is computed, or read elsewhere, too"),
    (lambda x, y: tf.sum(tf.exp(x)[:, None] - y[None], 2), ([32, 8], [32, 8]), "at points other than its own"),
]


@pytest.mark.parametrize(("math", "shapes", "reason"), REFUSED)
def test_refusals(math: Math, shapes: tuple[list[int], ...], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        pairs.find(made(math, *shapes))


def test_large_ones_are_asked_first() -> None:
    """A thread has 8 x 4 pairs of each element that it loads; as rows, each pair would load two."""
    chosen = tf.schedulers.auto(made(squares, [2048, 128], [2048, 128]))
    assert chosen.scheduler == "simt_gemm"
    assert chosen.config == SimtGemmConfig(8, 4)
