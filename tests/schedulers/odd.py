"""Matrix products whose rows the copy engine may not be able to take."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import taskfuse as tf
from tests.schedulers.products import swapped


@dataclass(frozen=True)
class Odd:
    """``a @ b``, in float32.

    Attributes:
        unit: what M, N and K are declared to be multiples of.
        layout: for each operand, ``k`` if k is contiguous, else its other axis is.
    """

    unit: tuple[int, int, int] = (1, 1, 1)
    layout: str = "kk"
    batch: tuple[str, ...] = ()
    dtype: tf.DType = tf.bfloat16

    def fusion(self) -> tf.Fusion:
        with tf.Fusion("odd") as fusion:
            m, n, k = (tf.dim(name, multiple_of=unit) for name, unit in zip("MNK", self.unit, strict=True))
            a = tf.define_tensor([*self.batch, *((m, k) if self.layout[0] == "k" else (k, m))], dtype=self.dtype, name="a")
            b = tf.define_tensor([*self.batch, *((n, k) if self.layout[1] == "k" else (k, n))], dtype=self.dtype, name="b")
            fusion.add_output(tf.matmul(a if self.layout[0] == "k" else swapped(a), swapped(b) if self.layout[1] == "k" else b, dtype=tf.float32))
        return fusion

    def sizes(self, *extents: int) -> dict[str, int]:
        """So many units of each axis."""
        return {name: extent * unit for name, extent, unit in zip("MNK", extents, self.unit, strict=True)} | dict(zip(self.batch, (2, 3), strict=False))

    def check(self, kernel: tf.Kernel, args: list[Any], seed: int = 0) -> None:
        """The kernel's result is the float64 product, up to the rounding of float32 sums."""
        (out,) = kernel.simulate(*args, seed=seed)
        a, b = (np.asarray(x, np.float64) for x in args)
        a = a if self.layout[0] == "k" else np.swapaxes(a, -1, -2)
        b = np.swapaxes(b, -1, -2) if self.layout[1] == "k" else b
        assert (np.abs(out - a @ b) <= 2.0**-20 * (np.abs(a) @ np.abs(b))).all()


VARIANTS = {
    "4 bytes": Odd((1, 1, 2)),
    "8 bytes": Odd((1, 1, 4), dtype=tf.float16),
    "transposed": Odd((1, 2, 1), "mn"),
    "one of two": Odd((1, 1, 8), "kn"),
    "batches": Odd((1, 1, 2), batch=("B",)),
    "two batches": Odd((1, 1, 1), batch=("B", "C")),
    "pingpong": Odd((1, 1, 2)),
    "cluster": Odd((1, 8, 1), "kn"),
}
