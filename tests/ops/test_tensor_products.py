"""Products other than those of matrices, against torch."""

from functools import partial

import numpy as np
import pytest

import taskfuse as tf
from tests.ops.of_torch import RNG, check, torch
from tests.ops.reference import message

V, W = (RNG.normal(size=n).astype(np.float32) for n in (5, 4))
A, B, M = (RNG.normal(size=shape).astype(np.float32) for shape in ((4, 6), (6, 5), (3, 4, 6)))
LOOSE = {"rtol": 1e-5, "atol": 1e-5}


def test_sums_of_products() -> None:
    check(tf.inner, torch.inner, M, A, **LOOSE)
    check(tf.inner, torch.inner, A, np.array(2, np.float32))
    check(tf.vdot, torch.vdot, V, V, **LOOSE)
    check(lambda x, y: tf.tensordot(x, y, 1), lambda x, y: torch.tensordot(x, y, 1), M, B, **LOOSE)
    check(lambda x, y: tf.tensordot(x, y, 0), lambda x, y: torch.tensordot(x, y, 0), V, W)
    check(lambda x, y: tf.tensordot(x, y, ([1, 2], [0, 1])), lambda x, y: torch.tensordot(x, y, ([1, 2], [0, 1])), M, A, **LOOSE)


def test_kron() -> None:
    check(tf.kron, torch.kron, A, B)
    check(tf.kron, torch.kron, M, V)


def test_cross() -> None:
    x = RNG.normal(size=(4, 3)).astype(np.float32)
    check(tf.cross, torch.linalg.cross, x, x[::-1].copy())
    check(lambda a, b: tf.cross(a, b, 0), lambda a, b: torch.linalg.cross(a, b, dim=0), x[:3], x[1:])


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0.5, 2.0), (0, 3.0)])
def test_added_products(beta: float, alpha: float) -> None:
    check(lambda x, a, b: tf.addmm(x, a, b, beta, alpha), lambda x, a, b: torch.addmm(x, a, b, beta=beta, alpha=alpha), V, A, B, **LOOSE)
    batch = np.stack([A, -A]), np.stack([B, B + 1])
    check(lambda x, a, b: tf.baddbmm(x, a, b, beta, alpha), lambda x, a, b: torch.baddbmm(x, a, b, beta=beta, alpha=alpha), V, *batch, **LOOSE)


@pytest.mark.parametrize("p", [1, 2, 3, np.inf, 0.5])
def test_cdist(p: float) -> None:
    mode = "donot_use_mm_for_euclid_dist"
    check(lambda x, y: tf.cdist(x, y, p), lambda x, y: torch.cdist(x, y, p, compute_mode=mode), M, A + 1, **LOOSE)


def test_scaled_sums() -> None:
    for name in ("addcmul", "addcdiv"):
        check(partial(getattr(tf, name), value=0.3), partial(getattr(torch, name), value=0.3), V, V + 1, V - 9, **LOOSE)


def test_linear() -> None:
    check(tf.linear, torch.nn.functional.linear, M, A, **LOOSE)
    check(tf.linear, torch.nn.functional.linear, M, A, W, **LOOSE)


def test_errors() -> None:
    with tf.Fusion("f"):
        x, y = tf.define_tensor([2, 4], name="x"), tf.define_tensor([3, 5], name="y")
        assert message(lambda: tf.tensordot(x, y, 1)).startswith("tensordot: axes [1] of x [2, 4] and [0] of y [3, 5] differ in extent")
        assert message(lambda: tf.cross(x, x)).startswith("cross: dimension 1 of x [2, 4] is not 3")
        assert message(lambda: tf.cdist(x, y)).startswith("cdist: x [2, 4] and y [3, 5] do not have distances of order 2")
        assert message(lambda: tf.addmm(x, tf.define_tensor([2], name="v"), y)).startswith("addmm: v [2] and y [3, 5] are not of 2 dimensions")
