"""Convolutions against torch, in float64; from both orders of memory."""

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from tests.ops.of_torch import RNG, torch
from tests.ops.reference import evaluated, message

OPS = {1: (tf.conv1d, torch.nn.functional.conv1d), 2: (tf.conv2d, torch.nn.functional.conv2d), 3: (tf.conv3d, torch.nn.functional.conv3d)}
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 6, 7, 6), (4, 6, 3, 3), {}),
    "padded": ((2, 6, 7, 6), (4, 6, 3, 3), dict(padding=1)),
    "padded by more than half a window": ((1, 2, 4, 5), (3, 2, 3, 2), dict(padding=(3, 2))),
    "every second, dilated, grouped": ((2, 6, 7, 6), (4, 3, 3, 2), dict(stride=2, padding=(1, 0), dilation=(1, 2), groups=2)),
    "same": ((2, 4, 7, 6), (8, 4, 3, 2), dict(padding="same", dilation=2)),
    "valid": ((2, 4, 7, 6), (8, 4, 3, 2), dict(padding="valid", stride=3)),
    "a channel each": ((2, 4, 7, 6), (4, 1, 3, 3), dict(padding=1, groups=4)),
    "two of each channel": ((2, 4, 7, 6), (8, 1, 3, 3), dict(padding=1, groups=4)),
    "1 x 1": ((2, 4, 7, 6), (6, 4, 1, 1), {}),
    "every second of 1 x 1": ((2, 4, 7, 6), (6, 4, 1, 1), dict(stride=2)),
    "patches": ((2, 3, 8, 6), (5, 3, 2, 2), dict(stride=2)),
    "one image": ((3, 8, 6), (5, 3, 2, 2), dict(padding=1)),
    "sequences": ((2, 4, 9), (6, 4, 3), dict(padding=2, dilation=2)),
    "volumes": ((1, 4, 3, 4, 5), (2, 4, 2, 3, 3), dict(padding=1, stride=(1, 2, 1))),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", ["channels first", "channels last", "strides"])
@pytest.mark.parametrize("biased", [False, True])
def test_against_torch(case: str, order: str, biased: bool) -> None:
    shape, weights, given = CASES[case]
    dims = len(weights) - 2
    ours, theirs = OPS[dims]
    x, weight, bias = RNG.normal(size=shape), RNG.normal(size=weights), RNG.normal(size=weights[:1])
    expected = theirs(*map(torch.from_numpy, (x, weight, *([bias] if biased else []))), **given).numpy()
    place = len(shape) - dims - 1  # of the channels
    with tf.Fusion("conv") as fusion:
        if order == "channels last":
            lying = np.ascontiguousarray(np.moveaxis(x, place, -1))
            made = tf.define_tensor(lying.shape, "float64", "x")
            taken = tf.permute(made, [*range(place), len(shape) - 1, *range(place, len(shape) - 1)])
        else:
            lying = x
            strides = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, place, -1)), -1, place).strides if order == "strides" else None
            taken = tf.define_tensor(x.shape, "float64", "x", strides=None if strides is None else [s // 8 for s in strides])
        w, b = tf.define_tensor(weights, "float64", "w"), tf.define_tensor(weights[:1], "float64", "b")
        fusion.add_output(ours(taken, w, b if biased else None, **given))
    (found,) = fusion.evaluate(lying, weight, bias)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_the_sum_is_float32_and_rounded_once() -> None:
    x, w = (RNG.normal(size=shape).astype(np.float16) for shape in ((1, 64, 4, 4), (2, 64, 3, 3)))
    found = evaluated(lambda a, b: tf.conv2d(a, b, padding=1), x, w)
    assert found.dtype == np.float16
    wide = torch.nn.functional.conv2d(torch.from_numpy(x).float(), torch.from_numpy(w).float(), padding=1).numpy()
    np.testing.assert_allclose(found, wide, rtol=2**-11, atol=2**-11)


FEW: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "rows of a window": ((2, 3, 9, 10), (8, 3, 5, 5), dict(stride=2, padding=2)),
    "whole windows": ((2, 3, 9, 10), (8, 3, 3, 3), dict(stride=2, padding=1)),
    "patches": ((2, 3, 8, 12), (8, 3, 4, 4), dict(stride=4)),
    "one channel": ((2, 1, 7, 9), (9, 1, 3, 3), dict(padding=(0, 1), dilation=(1, 2))),
    "one image": ((3, 7, 9), (8, 3, 3, 2), {}),
    "sequences": ((2, 3, 20), (8, 3, 4), dict(stride=3, padding=1)),
    "volumes": ((1, 3, 4, 5, 6), (8, 3, 3, 2, 2), dict(stride=(1, 2, 2), padding=(1, 0, 1))),
}


@pytest.mark.parametrize("case", FEW)
@pytest.mark.parametrize("last", [False, True])
def test_few_channels(case: str, last: bool) -> None:
    """Places of a window and channels are one axis of a copy; small integers are exact."""
    shape, weights, given = FEW[case]
    dims = len(weights) - 2
    place = len(shape) - dims - 1
    x, weight, bias = (RNG.integers(-3, 4, s).astype(np.float16) for s in (shape, weights, weights[:1]))
    with tf.Fusion("conv") as fusion:
        lying = np.ascontiguousarray(np.moveaxis(x, place, -1)) if last else x
        made = tf.define_tensor(lying.shape, "float16", "x")
        taken = tf.permute(made, [*range(place), len(shape) - 1, *range(place, len(shape) - 1)]) if last else made
        fusion.add_output(OPS[dims][0](taken, tf.define_tensor(weights, "float16", "w"), tf.define_tensor(weights[:1], "float16", "b"), **given))
    expected = OPS[dims][1](*(torch.from_numpy(a).double() for a in (x, weight, bias)), **given).numpy()
    np.testing.assert_array_equal(fusion.evaluate(lying, weight, bias)[0].astype(np.float64), expected)
    if case in ("patches", "sequences"):
        np.testing.assert_array_equal(tf.compile(fusion, backend="sim")(lying, weight, bias)[0].astype(np.float64), expected)


@pytest.mark.parametrize("case", ["padded", "every second, dilated, grouped", "a channel each", "1 x 1", "patches", "sequences"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("computed", [False, True])
def test_compiled(case: str, last: bool, computed: bool) -> None:
    """By the automatic schedule, in the simulator, from any order of memory, and of what is computed."""
    shape, weights, given = CASES[case]
    dims = len(weights) - 2
    x, weight = RNG.normal(size=shape).astype(np.float32), RNG.normal(size=weights).astype(np.float32)
    with tf.Fusion("conv") as fusion:
        lying = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
        made = tf.define_tensor(lying.shape, name="x")
        taken = tf.permute(made, [0, dims + 1, *range(1, dims + 1)]) if last else made
        taken = -taken if computed else taken
        fusion.add_output(tf.relu(OPS[dims][0](taken, tf.define_tensor(weights, name="w"), **given)))
    (found,) = tf.compile(fusion, backend="sim")(lying, weight)
    expected = np.maximum(OPS[dims][1](torch.from_numpy(-x if computed else x).double(), torch.from_numpy(weight).double(), **given).numpy(), 0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_windows_of_padding_alone() -> None:
    """The only window of a row lies before the input: zeros, for any number of images."""
    with tf.Fusion("padding") as fusion:
        x, w, b = tf.define_tensor(["B", 2, 1]), tf.define_tensor([3, 2, 1]), tf.define_tensor([3])
        fusion.add_output(tf.conv1d(x, w, b, stride=3, padding=1))
    given = [np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((4, 2, 1), (3, 2, 1), (3,))]
    (got,) = tf.compile(fusion, backend="sim")(*given)
    assert np.array_equal(got, np.broadcast_to(given[2][:, None], (4, 3, 1)))


def test_symbolic_batches() -> None:
    x, w = RNG.normal(size=(3, 4, 6, 5)), RNG.normal(size=(2, 4, 3, 3))
    found = evaluated(lambda a, b: tf.conv2d(a, b, padding=1), x, w, shapes=[["N", 4, 6, 5], [2, 4, 3, 3]])
    np.testing.assert_allclose(found, torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), padding=1).numpy(), rtol=1e-12, atol=1e-12)


def test_refusals() -> None:
    with tf.Fusion("conv"):
        x, w = tf.define_tensor([2, 6, 7, 6], name="x"), tf.define_tensor([4, 3, 3, 3], name="w")

        def refused(*given: Any, **named: Any) -> str:
            return message(lambda: tf.conv2d(*given, **named))

        assert refused(x, w) == "conv2d: x [2, 6, 7, 6] has 6 channels, and w [4, 3, 3, 3] takes 3 in each of 1 group\nhelp: the weight is [O, C / groups, ..]"
        assert refused(x, w, groups=0).startswith("conv2d: 0 is not a number of groups")
        assert refused(x, w, groups=2, stride=0).startswith("conv2d: 0 is not a stride")
        assert refused(x, w, groups=2, stride=[1, 2, 3]).startswith("conv2d: 3 numbers of stride for 2 dimensions")
        assert refused(x, w, groups=2, padding="full").startswith("conv2d: padding 'full' of windows of 3 with stride 1")
        assert refused(x, w, groups=2, padding="same", stride=2).startswith("conv2d: padding 'same' of windows of 3 with stride 2")
        assert refused(x, w, groups=2, dilation=4).startswith("conv2d: a window of 3 does not provably fit into x [2, 6, 7, 6]")
        assert refused(x, w, tf.define_tensor([3], name="b"), groups=2).startswith("conv2d: b [3] is not a vector of the 4 output channels")
        assert message(lambda: tf.conv1d(x, w)).startswith("conv1d: x [2, 6, 7, 6] cannot be convolved with w [4, 3, 3, 3]\nhelp: give x [N, C, L]")
        whole = tf.define_tensor([2, 6, 7, 6], "int32", "i"), tf.define_tensor([4, 6, 3, 3], "int32", "j")
        for wrong in ("float32", "bool", "int64"):
            assert refused(*whole, tf.define_tensor([4], wrong, f"b_{wrong}")).startswith(
                f"conv2d: b_{wrong} ({wrong}) does not convert to int32, the dtype of the sums\nhelp: cast the bias to int32"
            )
        assert refused(x, w, tf.define_tensor([4], "float64", "d"), groups=2).startswith(
            "conv2d: d (float64) does not convert to float32, the dtype of the sums"
        )
        truths = tf.define_tensor([2, 6, 7, 6], "bool", "t"), tf.define_tensor([4, 6, 3, 3], "bool", "u")
        assert refused(*truths).startswith("conv2d: t (bool) and u (bool) do not support arithmetic")
