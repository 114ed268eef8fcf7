"""Statistics against torch and NumPy."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from tests.ops.of_torch import RNG, check, results, torch
from tests.ops.reference import message

M = RNG.normal(size=(3, 4, 6)).astype(np.float32)
NAN = np.where(RNG.uniform(size=M.shape) < 0.3, np.nan, M).astype(np.float32)
NAN[0, 0] = np.nan


@pytest.mark.parametrize("name", ["nansum", "nanmean"])
def test_without_nan(name: str) -> None:
    check(lambda x: getattr(tf, name)(x, 1), lambda x: getattr(torch, name)(x, 1), NAN)
    check(lambda x: getattr(tf, name)(x, (0, 2), keepdims=True), lambda x: getattr(torch, name)(x, (0, 2), keepdim=True), NAN)


@pytest.mark.parametrize("name", ["nanmax", "nanmin"])
def test_extremes_without_nan(name: str) -> None:
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        wanted = getattr(np, name)(NAN, 2)
    np.testing.assert_array_equal(results(lambda x: getattr(tf, name)(x, 2), NAN)[0], wanted)
    whole = RNG.integers(-9, 9, (3, 4))
    np.testing.assert_array_equal(results(lambda x: getattr(tf, name)(x, 1), whole)[0], getattr(np, name)(whole, 1))


def test_nanmedian() -> None:
    check(lambda x: tf.nanmedian(x, 2)[0], lambda x: torch.nanmedian(x, 2)[0], NAN)
    check(lambda x: tf.nanmedian(x, 0, keepdims=True)[0], lambda x: torch.nanmedian(x, 0, keepdim=True)[0], NAN)
    values, indices = results(lambda x: tf.nanmedian(x, 2), NAN)
    np.testing.assert_array_equal(np.take_along_axis(NAN, indices[..., None], 2)[..., 0], values)
    check(lambda x: tf.nanmedian(x, 1)[0], lambda x: torch.nanmedian(x, 1)[0], RNG.integers(-9, 9, (3, 4)))


@pytest.mark.filterwarnings("ignore:Degrees of freedom")
@pytest.mark.parametrize("correction", [0, 1])
def test_variances_without_nan(correction: int) -> None:
    for name in ("nanvar", "nanstd"):
        found = results(partial(getattr(tf, name), axis=(0, 2), correction=correction), NAN)[0]
        np.testing.assert_allclose(found, getattr(np, name)(NAN, (0, 2), ddof=correction), rtol=1e-5)
    assert np.isnan(results(lambda x: tf.nanvar(x, 2), NAN)[0][0, 0])


def test_counts_and_ranges() -> None:
    check(lambda x: tf.count_nonzero(x, 1), lambda x: torch.count_nonzero(x, 1), np.trunc(M))
    check(lambda x: tf.aminmax(x, 1), lambda x: torch.aminmax(x, dim=1), NAN)
    check(lambda x: tf.ptp(x, 1), lambda x: np.ptp(x.numpy(), 1), M)


def test_average() -> None:
    check(lambda x, w: tf.average(x, 1, w), lambda x, w: np.average(x.numpy(), 1, w.numpy()), M, np.abs(M))
    check(lambda x, w: tf.average(x, 1, w), lambda x, w: np.average(x.numpy(), 1, w.numpy()), M, np.array([1, 2, 3, 4], np.float32))
    check(lambda x: tf.average(x, 1), lambda x: np.average(x.numpy(), 1), M)


@pytest.mark.parametrize("ord", [0, 1, 2, 3, 0.5, np.inf, -np.inf])
def test_norms(ord: float) -> None:
    check(lambda x: tf.vector_norm(x, ord, (0, 2)), lambda x: torch.linalg.vector_norm(x, ord, (0, 2)), M)


@pytest.mark.parametrize("q", [0, 0.3, 0.5, 1])
def test_quantiles(q: float) -> None:
    check(lambda x: tf.quantile(x, q, 1), lambda x: torch.quantile(x, q, 1), M)
    check(lambda x: tf.quantile(x, q, 2, keepdims=True), lambda x: torch.quantile(x, q, 2, keepdim=True), NAN)


def test_errors() -> None:
    with tf.Fusion("f"):
        x, n = tf.define_tensor(["N", tf.dim("Z", min=0)], name="x"), tf.define_tensor([4], "int32", name="n")
        assert message(lambda: tf.vector_norm(n)) == "vector_norm: n (int32) is not a float\nhelp: cast to a float first"
        wrong: Any = [0]
        assert message(lambda: tf.vector_norm(x, wrong)).startswith("vector_norm: [0] is not the order of a norm")
        assert message(lambda: tf.quantile(x, wrong)) == "quantile: q is [0]\nhelp: use a number from 0 to 1"
        assert message(lambda: tf.quantile(x, 2)) == "quantile: q is 2\nhelp: use a number from 0 to 1"
        assert message(lambda: tf.quantile(x, 0.5)).startswith("quantile: dimension 1 of x [N, Z] is not a positive constant")
        assert message(lambda: tf.nanmedian(x, 1)).startswith("nanmedian: dimension 1 of x [N, Z] may have no elements")
        assert message(lambda: tf.average(x, 0, n)).startswith("average: weights n [4] have neither the shape of x [N, Z] nor that of one axis")
