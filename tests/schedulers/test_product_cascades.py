"""Reductions of a product's long rows in chunks of its tiles: the math stays, kernels are proved, and no element of the product is stored."""

import ml_dtypes
import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.expr import Gather
from taskfuse.ir.storage import needed
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers import MatmulConfig
from taskfuse.schedulers.product_cascades import tile_walks
from tests.proofs import proved
from tests.schedulers.losses import Loss, form_of, loss_of, plain, segmented

WIDTH = 64


def capped(x: tf.TensorView, target: tf.TensorView) -> tf.TensorView:
    return tf.cross_entropy(tf.tanh(x / 30.0) * 30.0, target, reduction="none")


def squared_too(x: tf.TensorView, target: tf.TensorView) -> tf.TensorView:
    """With a loss of the logarithm of the sum of exponentials."""
    z = tf.logsumexp(x, axis=1)
    return z - tf.squeeze(tf.take_along_axis(x, tf.expand_dims(target, 1), 1), 1) + z * z * 1e-4


def arguments(tokens: int, classes: int, scale: float, *, is_ignored: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x, w = (random.standard_normal((n, WIDTH)).astype(np.float32) for n in (tokens, classes))
    target = random.integers(0, classes, tokens)
    target[:: 1 if is_ignored else 5] = -100
    return (x * scale).astype(ml_dtypes.bfloat16), w.astype(ml_dtypes.bfloat16), target


def logits(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    return exact.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


CASES = {
    "whole chunks, large logits": (plain, 20, 288, 1000.0, False),
    "a chunk that ends early, softcap": (capped, 20, 300, 4.0, False),
    "all ignored": (plain, 8, 512, 1.0, True),
}


@pytest.mark.parametrize("name", CASES)
def test_losses(name: str) -> None:
    loss, tokens, classes, scale, is_ignored = CASES[name]
    fusion = loss_of(loss, tokens, classes)
    form = form_of(fusion)
    assert form is not None
    assert not any(isinstance(e, Gather) for e in needed(form))
    x, w, target = arguments(tokens, classes, scale, is_ignored=is_ignored)
    values = logits(x, w)
    if loss is capped:
        values = np.tanh(values / 30) * 30
    top = values.max(1)
    chosen = values[np.arange(tokens), np.maximum(target, 0)]
    exact = np.where(target < 0, 0, top + np.log(np.exp(values - top[:, None]).sum(1)) - chosen)
    assert np.allclose(form.evaluate(x, w, target)[0], exact, rtol=1e-5, atol=3e-5 * scale)
    if is_ignored:
        return
    _, part = segmented(form)
    wanted = copy_fusion(part)[0]
    tf.schedulers.matmul(part, MatmulConfig(64, tile_of(form), warpgroups=1))
    assert not any(tv.ndim > 2 for tv in part.outputs)
    given = {"x": x, "w": w}
    args = [given.get(tv.name, target) for tv in wanted.inputs]
    for got, expected in zip(proved(tf.lower(part)).simulate(*args, seed=0), wanted.evaluate(*args), strict=True):
        assert np.allclose(got, expected, rtol=1e-5, atol=1e-5 * scale)


def test_symbolic_tokens() -> None:
    form = form_of(loss_of(squared_too, "T", 288))
    assert form is not None
    _, part = segmented(form)
    tf.schedulers.matmul(part, MatmulConfig(64, tile_of(form), warpgroups=1))
    proved(tf.lower(part))
    args = arguments(33, 288, 1.0, is_ignored=False)
    args[2][:] = np.maximum(args[2], 0)
    assert np.allclose(form.evaluate(*args)[0], loss_of(squared_too, "T", 288).evaluate(*args)[0], rtol=1e-5)


def tile_of(fusion: tf.Fusion) -> int:
    return next(int(str(e.output.shape[2])) for e in needed(fusion) if e.output.ndim == 3 and e.output.dtype is tf.float32)


def stored(x: tf.TensorView, target: tf.TensorView) -> tf.TensorView:
    x.fusion.add_output(x)
    return plain(x, target)


def masses(x: tf.TensorView, target: tf.TensorView) -> tf.TensorView:
    """Each element is needed once the sums are known."""
    return tf.softmax(x, axis=1)


@pytest.mark.parametrize("loss", [stored, masses])
def test_logits_that_are_needed_are_stored(loss: Loss) -> None:
    assert form_of(loss_of(loss, 64, 512)) is None


def test_rows_of_a_tile_need_no_chunks() -> None:
    fusion = loss_of(lambda x, _: tf.max(x, axis=1), 64, 128)
    assert form_of(fusion) is None
    assert len(list(tile_walks(fusion))) == 1
