"""Convolutions on tensor cores: windows of every kind by bulk copies or by threads, proved with their values, against float64."""

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check import Verdict
from taskfuse.errors import TaskfuseError, UnsupportedError
from taskfuse.kir import walk
from taskfuse.kir.declarations import TensorMapParam
from taskfuse.kir.nodes import AsyncCopy, TmaLoad
from taskfuse.runtime.result_views import bases
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.testing.value_operators import VALUE_OPERATORS
from tests.ops.of_torch import torch
from tests.proofs import proved
from tests.schedulers.convolutions import CASES, ONE, Convolution
from tests.thinning import in_turn


@pytest.mark.parametrize("case", CASES)
def test_by_bulk_copies(case: str) -> None:
    kernel = CASES[case][0].checked(CASES[case][1])
    assert not any(isinstance(s, AsyncCopy) for s in walk(kernel))
    assert sum(isinstance(s, TmaLoad) for s in walk(kernel)) >= 2


def test_a_tile_is_a_box_of_pixels() -> None:
    """Its rows are those of windows that begin side by side, or at steps; what lies outside the images is zero, as padding is."""
    fusion = Convolution(2, 64, 16, (9, 10), (3, 3), stride=2, padding=1).fusion()
    tf.schedulers.matmul(fusion, ONE)
    kernel = tf.lower(fusion)
    (found,) = (p for p in kernel.params if isinstance(p, TensorMapParam) and p.tensor == "x")
    assert (found.box, found.steps) == ((1, 8, 8, 64), (1, 2, 2, 1))
    assert "accumulate i16 + i18 >= 1" in str(kernel)  # one walk over places of the window and channels


def test_by_threads() -> None:
    """Channels whose rows are no multiples of 16 bytes."""
    kernel = Convolution(2, 4, 16, (9, 10), (3, 3), padding=1).checked(ONE)
    assert any(isinstance(s, AsyncCopy) for s in walk(kernel))


MISTAKES = ("box elsewhere", "another map", "box of a map turned", "other steps of a map", "descriptor elsewhere", "accumulate flag", "another index said")


@pytest.mark.parametrize(
    ("op", "stride"), in_turn([op for op in VALUE_OPERATORS if op.name in MISTAKES], (1, 2)), ids=lambda given: getattr(given, "name", str(given))
)
def test_planted_mistakes(op: Any, stride: int) -> None:
    """None is proved that computes something else."""
    small = Convolution(1, 72, 16, (5, 9), (3, 3), stride=stride, padding=1)
    fusion = small.fusion()
    tf.schedulers.matmul(fusion, ONE)
    kernel = tf.lower(fusion)
    arguments = small.arguments()
    expected = small.expected(arguments)
    for mutant in list(op.apply(kernel))[:40:9]:
        try:
            is_proved = mutant.verify().verdict is Verdict.PROVED
        except TaskfuseError:
            continue
        if is_proved:
            (found,) = mutant.simulate(*arguments)
            np.testing.assert_array_equal(found.astype(np.float64), expected)


@pytest.mark.parametrize(
    "shape",
    [
        Convolution(32, 64, 64, (56, 56), (3, 3), padding=1, epilogue="bias relu"),
        Convolution(32, 128, 128, (56, 56), (3, 3), stride=2, padding=1),
        Convolution(32, 512, 512, (7, 7), (3, 3), padding=1),
        Convolution(8, 320, 320, (32, 32), (3, 3), padding=1, epilogue="bias"),
        Convolution(32, 96, 192, (56, 56), (2, 2), stride=2),
        Convolution(32, 256, 512, (56, 56), (1, 1), stride=2),
    ],
    ids=str,
)
def test_chosen_tiles_are_proved(shape: Convolution) -> None:
    """At sizes of networks: the automatic schedule is one kernel of tensor cores."""
    segments = choose_segments(shape.fusion())
    assert segments.scheduler == "matmul"
    tf.lower(segments.steps[0].fusion).verify().require()


@pytest.mark.parametrize(("window", "stride", "out"), [((7, 7), 2, 64), ((16, 16), 16, 768)])
def test_few_channels(window: tuple[int, int], stride: int, out: int) -> None:
    """Of images of three colors: kernels copy rows of windows, or whole ones, and weights; tensor cores multiply these."""
    *copies, product = choose_segments(Convolution(32, 3, out, (224, 224), window, stride=stride, padding=window[0] % 2 * 3, dtype=tf.bfloat16).fusion()).steps
    assert [part.schedule.scheduler for step in copies for part in step.parts] == ["pointwise", "pointwise"]
    assert product.schedule.scheduler == "matmul"
    kernel = tf.lower(product.fusion)
    kernel.verify().require()
    assert not any(isinstance(s, AsyncCopy) for s in walk(kernel))


def test_groups() -> None:
    """Of 64 channels: a group is a part of each row of the image, which bulk copies bring; bias and result have an axis of groups."""
    random = np.random.default_rng(0)
    x, w, b = (random.integers(-2, 3, s).astype(np.float16) for s in ((2, 3, 6, 128), (32, 3, 3, 64), (32,)))
    with tf.Fusion("conv") as fusion:
        image, weight, bias = (tf.define_tensor(a.shape, tf.float16, name) for a, name in ((x, "x"), (w, "w"), (b, "b")))
        y = tf.conv2d(tf.permute(image, [0, 3, 1, 2]), tf.permute(weight, [0, 3, 1, 2]), bias, padding=1, groups=2)
        fusion.add_output(tf.permute(y, [0, 2, 3, 1]))
    stored = bases(fusion)
    assert stored is not None
    tf.schedulers.matmul(stored.fusion, ONE)
    kernel = tf.lower(stored.fusion)
    assert sum(isinstance(s, TmaLoad) for s in walk(kernel)) >= 2
    (found,) = kernel.simulate(x, w, b, seed=1)
    nchw = (torch.from_numpy(np.moveaxis(a, -1, 1).astype(np.float64)) for a in (x, w))
    expected = torch.nn.functional.conv2d(*nchw, torch.from_numpy(b.astype(np.float64)), 1, 1, 1, 2).numpy()
    np.testing.assert_array_equal(found.astype(np.float64).reshape(2, 3, 6, 32), np.moveaxis(expected, 1, -1))
    proved(kernel)


@pytest.mark.parametrize("stride", [1, 2])
def test_any_extents(stride: int) -> None:
    """One kernel for all batches and images is proved; windows at the ends begin in the padding, or in images."""
    case = Convolution(2, 64, 16, (7, 11), (3, 3), stride=stride, padding=1)
    with tf.Fusion("conv") as fusion:
        x = tf.define_tensor([tf.dim("N", min=1), tf.dim("H", min=3), tf.dim("W", min=3), 64], tf.float16, "x")
        w = tf.define_tensor([16, 3, 3, 64], tf.float16, "w")
        y = tf.conv2d(tf.permute(x, [0, 3, 1, 2]), tf.permute(w, [0, 3, 1, 2]), stride=stride, padding=1)
        fusion.add_output(tf.permute(y, [0, 2, 3, 1]))
    tf.schedulers.matmul(fusion, ONE)
    kernel = tf.lower(fusion)
    arguments = case.arguments()
    (found,) = kernel.simulate(*arguments)
    np.testing.assert_array_equal(found.astype(np.float64), case.expected(arguments))
    proved(kernel)


def test_what_there_is_no_schedule_for() -> None:
    def refused(fusion: tf.Fusion) -> str:
        with pytest.raises(UnsupportedError) as caught:
            tf.schedulers.matmul(fusion)
        return caught.value.message

    with tf.Fusion("first") as first:
        x, w = tf.define_tensor([2, 64, 24, 24], tf.float16, "x"), tf.define_tensor([16, 3, 3, 64], tf.float16, "w")
        first.add_output(tf.conv2d(x, tf.permute(w, [0, 3, 1, 2]), padding=1))
    assert "is computed" in refused(first)
    assert [step.schedule.scheduler for step in choose_segments(first).steps] == ["transpose", "matmul"]  # what is computed is a copy
    with tf.Fusion("sum") as total:
        x, w = tf.define_tensor([2, 9, 10, 64], tf.float16, "x"), tf.define_tensor([16, 3, 3, 64], tf.float16, "w")
        total.add_output(tf.sum(tf.conv2d(tf.permute(x, [0, 3, 1, 2]), tf.permute(w, [0, 3, 1, 2]), padding=1), (0, 2, 3)))
    assert "sums over several axes or reads windows" in refused(total)
