"""Convolutions on tensor cores: windows of every kind, with their arguments and results in float64."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig, MatmulKind
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
