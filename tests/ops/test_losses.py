"""Losses and similarities, against torch."""

from functools import partial

import numpy as np
import pytest

import taskfuse as tf
from tests.ops.of_torch import RNG, check, torch
from tests.ops.reference import message

F = torch.nn.functional
X, Y = (RNG.normal(size=(3, 4, 6)).astype(np.float32) for _ in range(2))
P, Q = (RNG.uniform(0, 1, X.shape).astype(np.float32) for _ in range(2))
REDUCTIONS = pytest.mark.parametrize("reduction", ["none", "sum", "mean"])


@REDUCTIONS
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"])
def test_of_distances(name: str, reduction: str) -> None:
    check(lambda x, y: getattr(tf, name)(x, y, reduction), lambda x, y: getattr(F, name)(x, y, reduction=reduction), X, P, rtol=1e-5)


@REDUCTIONS
def test_parameters(reduction: str) -> None:
    check(lambda x, y: tf.huber_loss(x, y, reduction, 0.3), lambda x, y: F.huber_loss(x, y, reduction, 0.3), X, Y, rtol=1e-5)
    check(lambda x, y: tf.smooth_l1_loss(x, y, reduction, 0.3), lambda x, y: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.3), X, Y, rtol=1e-5)
    check(lambda x, y: tf.smooth_l1_loss(x, y, reduction, 0), lambda x, y: F.smooth_l1_loss(x, y, reduction=reduction, beta=0), X, Y, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:reduction")
@REDUCTIONS
def test_of_probabilities(reduction: str) -> None:
    p, q = P.copy(), Q.copy()
    p[0, 0, :2], q[0, 0, :2] = [0, 1], [1, 0]
    check(lambda x, y: tf.binary_cross_entropy(x, y, reduction), lambda x, y: F.binary_cross_entropy(x, y, reduction=reduction), p, q, rtol=1e-5)
    for is_log in (False, True):
        ours, theirs = partial(tf.kl_div, reduction=reduction, log_target=is_log), partial(F.kl_div, reduction=reduction, log_target=is_log)
        check(ours, theirs, X, q, rtol=1e-5, atol=1e-5)


@REDUCTIONS
@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_of_classes(name: str, reduction: str) -> None:
    target = RNG.integers(0, 4, (3, 6))
    target[0, 0] = -100
    check(lambda x, t: getattr(tf, name)(x, t, reduction=reduction), lambda x, t: getattr(F, name)(x, t, reduction=reduction), X, target, rtol=1e-5)
    one = np.array(2)
    check(lambda x, t: getattr(tf, name)(x, t, reduction=reduction), lambda x, t: getattr(F, name)(x, t, reduction=reduction), X[0, :, 0].copy(), one)


def test_similarities() -> None:
    check(tf.cosine_similarity, F.cosine_similarity, X, Y, rtol=1e-5)
    check(tf.normalize, F.normalize, X)
    check(lambda x: tf.normalize(x, 3.0, axis=2), lambda x: F.normalize(x, 3.0, 2), X, rtol=1e-5)


def test_errors() -> None:
    with tf.Fusion("f"):
        x, n = tf.define_tensor([3, 4], name="x"), tf.define_tensor([4], "int32", name="n")
        assert message(lambda: tf.mse_loss(x, x, "all")) == 'mse_loss: \'all\' is not a reduction\nhelp: use "none", "sum" or "mean"'
        assert message(lambda: tf.mse_loss(x, n)) == "mse_loss: n (int32) is not a float\nhelp: cast to a float first"
        assert message(lambda: tf.nll_loss(x, n)).startswith("nll_loss: n [4] are not targets of x [3, 4]")
        assert message(lambda: tf.nll_loss(x, x)).startswith("nll_loss: x (float32) are not floats, or x (float32) not class numbers")
