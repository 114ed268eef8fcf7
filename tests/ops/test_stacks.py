"""Stacks, grids, turns, pixels and channels, against torch."""

from functools import partial

import numpy as np
import pytest

import taskfuse as tf
from tests.ops.of_torch import RNG, check, torch
from tests.ops.reference import message

F = torch.nn.functional
V, W = (RNG.normal(size=n).astype(np.float32) for n in (5, 4))
A, M = (RNG.normal(size=shape).astype(np.float32) for shape in ((4, 6), (3, 4, 6)))
IMAGE = RNG.normal(size=(2, 8, 4, 6)).astype(np.float32)


@pytest.mark.parametrize("name", ["hstack", "vstack", "dstack", "column_stack"])
@pytest.mark.parametrize("x", [V, A, M, np.array(2, np.float32)], ids=["1", "2", "3", "0"])
def test_stacks(name: str, x: np.ndarray) -> None:
    check(lambda a, b: getattr(tf, name)([a, b]), lambda a, b: getattr(torch, name)([a, b]), x, np.asarray(x + 1))


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_meshgrid(indexing: str) -> None:
    check(partial(tf.meshgrid, indexing=indexing), partial(torch.meshgrid, indexing=indexing), V, W, V[:2])


def test_slices_and_dimensions() -> None:
    check(lambda x: tf.unbind(x, 1), lambda x: torch.unbind(x, 1), M)
    for name in ("atleast_1d", "atleast_2d"):
        for array in (V, A, np.ones((), np.float32)):
            check(getattr(tf, name), getattr(torch, name), array)


def test_turns() -> None:
    check(tf.fliplr, torch.fliplr, M)
    check(tf.flipud, torch.flipud, M)
    for k in range(-1, 4):
        check(partial(tf.rot90, k=k, axes=(1, 2)), partial(torch.rot90, k=k, dims=(1, 2)), M)


def test_pixels_and_channels() -> None:
    check(lambda x: tf.pixel_shuffle(x, 2), lambda x: F.pixel_shuffle(x, 2), IMAGE)
    check(lambda x: tf.pixel_unshuffle(x, 2), lambda x: F.pixel_unshuffle(x, 2), IMAGE)
    check(lambda x: tf.channel_shuffle(x, 4), lambda x: F.channel_shuffle(x, 4), IMAGE)


def test_errors() -> None:
    with tf.Fusion("f"):
        x = tf.define_tensor(["N", 3], name="x")
        assert message(lambda: tf.unbind(x)) == "unbind: dimension 0 of x [N, 3] is symbolic\nhelp: give a constant extent"
        assert message(lambda: tf.hstack([])).startswith("hstack: needs at least one tensor")
        assert message(lambda: tf.rot90(x, 1, (1, 1))).startswith("rot90: axes (1, 1) of x [N, 3] are the same axis")
        assert message(lambda: tf.pixel_shuffle(x, 2)).startswith("pixel_shuffle: x [N, 3] has fewer than three dimensions")
        assert message(lambda: tf.meshgrid(x)).startswith("meshgrid: indexing='xy' of x [N, 3]")
