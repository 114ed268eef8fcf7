"""Elements at places that a tensor gives, against torch."""

import numpy as np
import pytest

import taskfuse as tf
from tests.ops.of_torch import RNG, check, torch
from tests.ops.reference import message

F = torch.nn.functional
IMAGE = RNG.normal(size=(2, 3, 5, 7)).astype(np.float32)
GRID = RNG.uniform(-1.7, 1.7, (2, 4, 6, 2)).astype(np.float32)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_modes(mode: str, padding: str, align: bool) -> None:
    check(lambda x, g: tf.grid_sample(x, g, mode, padding, align), lambda x, g: F.grid_sample(x, g, mode, padding, align), IMAGE, GRID, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("align", [False, True])
def test_three_dimensions(align: bool) -> None:
    volume, grid = RNG.normal(size=(2, 3, 4, 5, 7)).astype(np.float32), RNG.uniform(-1.7, 1.7, (2, 4, 6, 2, 3)).astype(np.float32)
    check(
        lambda x, g: tf.grid_sample(x, g, "bilinear", "reflection", align),
        lambda x, g: F.grid_sample(x, g, "bilinear", "reflection", align),
        volume,
        grid,
        rtol=1e-4,
        atol=1e-5,
    )


def test_one_row_is_mirrored_to_itself() -> None:
    check(
        lambda x, g: tf.grid_sample(x, g, "nearest", "reflection", True),
        lambda x, g: F.grid_sample(x, g, "nearest", "reflection", True),
        IMAGE[:, :, :1].copy(),
        GRID,
    )


def test_errors() -> None:
    with tf.Fusion("f"):
        x, grid, flat = (tf.define_tensor(shape, name=name) for shape, name in (([2, 3, 5, 7], "x"), ([2, 4, 6, 2], "g"), ([2, 3, 5], "y")))
        line = tf.define_tensor([2, 4, 1], name="l")
        assert message(lambda: tf.grid_sample(x, x)).startswith("grid_sample: x [2, 3, 5, 7] does not hold positions in x [2, 3, 5, 7]")
        assert message(lambda: tf.grid_sample(x, grid, "cubic")).startswith("grid_sample: 'cubic' and 'zeros' are not a mode and a padding")
        assert message(lambda: tf.grid_sample(flat, line, "bicubic")) == "grid_sample: bicubic sampling in 1 dimensions\nhelp: use bilinear"
        assert message(lambda: tf.grid_sample(x, tf.cast(grid, "float64"))).startswith("grid_sample: x (float32) and")
