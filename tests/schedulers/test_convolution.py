"""Convolutions on tensor cores: windows of every kind by bulk copies or by threads, proved with their values, against float64."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check import Verdict
from taskfuse.errors import TaskfuseError, UnsupportedError
from taskfuse.kir import walk
from taskfuse.kir.declarations import TensorMapParam
from taskfuse.kir.nodes import AsyncCopy, TmaLoad
from taskfuse.schedulers import MatmulConfig, MatmulKind
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.testing.value_operators import VALUE_OPERATORS
from tests.ops.of_torch import torch
from tests.proofs import proved

ONE, TWO = MatmulConfig(64, 16, 64, 1, 2, 1, 1, 3), MatmulConfig(128, 16, 64, 2, 3, 1, 2, 3)
PINGPONG = MatmulConfig(64, 16, 64, 2, 3, 1, 2, 3, kind=MatmulKind.PINGPONG)
CLUSTERS = MatmulConfig(128, 16, 64, 2, 3, 1, 2, 4, cluster=2)
LONG = MatmulConfig(192, 16, 128, 3, 2, 1, 2, 4)


@dataclass(frozen=True)
class Convolution:
    """A convolution of ``x [n, *extents, channels]`` with ``weight [out, *window, channels]``."""

    n: int
    channels: int
    out: int
    extents: tuple[int, ...]
    window: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    epilogue: str = ""
    dtype: tf.DType = tf.float16

    def fusion(self) -> tf.Fusion:
        dims = len(self.extents)
        first = [0, dims + 1, *range(1, dims + 1)]
        with tf.Fusion("conv") as fusion:
            x = tf.define_tensor([self.n, *self.extents, self.channels], self.dtype, "x")
            w = tf.define_tensor([self.out, *self.window, self.channels], self.dtype, "w")
            b = tf.define_tensor([self.out], self.dtype, "b") if "bias" in self.epilogue else None
            function = {1: tf.conv1d, 2: tf.conv2d, 3: tf.conv3d}[dims]
            y = function(tf.permute(x, first), tf.permute(w, first), b, self.stride, self.padding, self.dilation)
            y = tf.relu(y) if "relu" in self.epilogue else y
            fusion.add_output(tf.permute(y, [0, *range(2, dims + 2), 1]))
        return fusion

    def arguments(self) -> list[Any]:
        """Small integers, whose sums are exact."""
        random, numpy = np.random.default_rng(0), self.dtype.numpy
        shapes = (self.n, *self.extents, self.channels), (self.out, *self.window, self.channels), (self.out,)
        return [random.integers(-2, 3, s).astype(numpy) for s in shapes[: 3 if "bias" in self.epilogue else 2]]

    def expected(self, arguments: list[Any]) -> Any:
        x, w, *b = (torch.from_numpy(np.moveaxis(a, -1, 1).astype(np.float64) if a.ndim > 1 else a.astype(np.float64)) for a in arguments)
        function = getattr(torch.nn.functional, f"conv{len(self.extents)}d")
        y = function(x, w, *(b or [None]), self.stride, self.padding, self.dilation)
        y = y.relu() if "relu" in self.epilogue else y
        return np.moveaxis(y.numpy(), 1, -1)

    def checked(self, config: MatmulConfig) -> tf.Kernel:
        """The kernel, simulated and proved."""
        fusion = self.fusion()
        tf.schedulers.matmul(fusion, config)
        kernel = tf.lower(fusion)
        arguments = self.arguments()
        (found,) = kernel.simulate(*arguments, seed=1)
        np.testing.assert_array_equal(found.astype(np.float64), self.expected(arguments))
        proved(kernel)
        return kernel


SAME = Convolution(2, 64, 16, (9, 10), (3, 3), padding=1)
CASES: dict[str, tuple[Convolution, MatmulConfig]] = {
    "padded": (SAME, ONE),
    "without padding": (Convolution(2, 64, 16, (9, 10), (3, 3)), ONE),
    "channels that end in a step": (Convolution(3, 72, 24, (9, 10), (3, 3), padding=1, epilogue="bias relu"), TWO),
    "taking turns": (Convolution(3, 72, 24, (9, 10), (3, 3), padding=1, epilogue="bias relu"), PINGPONG),
    "clusters": (Convolution(3, 72, 24, (9, 10), (3, 3), padding=1, epilogue="bias relu"), CLUSTERS),
    "long steps": (Convolution(3, 72, 24, (9, 10), (3, 3), padding=1), LONG),
    "dilated": (Convolution(2, 64, 16, (9, 10), (3, 3), padding=2, dilation=2), ONE),
    "every second": (Convolution(2, 64, 16, (9, 10), (3, 3), stride=2, padding=1), ONE),
    "patches": (Convolution(2, 64, 16, (10, 10), (2, 2), stride=2), ONE),
    "one place": (Convolution(2, 64, 16, (9, 10), (1, 1)), ONE),
    "one place of every second": (Convolution(2, 64, 16, (9, 10), (1, 1), stride=2), ONE),
    "more padding than window": (Convolution(1, 64, 16, (5, 6), (2, 3), padding=4), ONE),
    "sequences": (Convolution(2, 64, 16, (70,), (3,), padding=1), ONE),
    "sequences, every third": (Convolution(2, 64, 16, (70,), (5,), stride=3, padding=2, dilation=2), ONE),
    "volumes": (Convolution(1, 64, 16, (3, 4, 5), (2, 3, 3), padding=1), ONE),
    "bfloat16": (Convolution(2, 64, 16, (9, 10), (3, 3), padding=1, dtype=tf.bfloat16), ONE),
}


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


@pytest.mark.parametrize("op", [op for op in VALUE_OPERATORS if op.name in MISTAKES], ids=lambda op: op.name)
@pytest.mark.parametrize("stride", [1, 2])
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
        Convolution(2, 1280, 1280, (16, 16), (3, 3), padding=1, epilogue="bias"),
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
        x, w = tf.define_tensor([2, 64, 9, 10], tf.float16, "x"), tf.define_tensor([16, 3, 3, 64], tf.float16, "w")
        first.add_output(tf.conv2d(x, tf.permute(w, [0, 3, 1, 2]), padding=1))
    assert "is computed" in refused(first)
    assert [step.schedule.scheduler for step in choose_segments(first).steps] == ["transpose", "matmul"]  # what is computed is a copy
    with tf.Fusion("sum") as total:
        x, w = tf.define_tensor([2, 9, 10, 64], tf.float16, "x"), tf.define_tensor([16, 3, 3, 64], tf.float16, "w")
        total.add_output(tf.sum(tf.conv2d(tf.permute(x, [0, 3, 1, 2]), tf.permute(w, [0, 3, 1, 2]), padding=1), (0, 2, 3)))
    assert "sums over several axes or reads windows" in refused(total)
