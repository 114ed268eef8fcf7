"""Fusions with one matrix product, random operands for them, and what the results may be off."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig
from taskfuse.schedulers.cost import MatmulProblem
from taskfuse.schedulers.ragged_tiles import RaggedTiles

Array = npt.NDArray[Any]
SMALL = MatmulConfig(64, 64, 64, warpgroups=1, stages=3, blocks=3)
TWO = MatmulConfig(128, 64, 64, warpgroups=2, stages=3, blocks=2)
EXACT = 2.0**-20
"""Of the sum of the terms' sizes: what float32 sums of a few hundred terms may be off."""
TF32 = np.uint32(0xFFFFE000)
"""The bits of a float32 that tensor cores read."""
CURVES: dict[str, tuple[Callable[[tf.TensorView], tf.TensorView], Callable[[Array], Array]]] = {
    "relu": (tf.relu, lambda x: np.maximum(x, 0)),
    "gelu": (tf.gelu_tanh, lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
    "silu": (tf.silu, lambda x: x / (1 + np.exp(-x))),
}


@dataclass(frozen=True)
class Product:
    """``epilogue(a @ b)``.

    Attributes:
        epilogue: words: bias (along n), rows (a factor along m), residual, scale, relu, gelu, silu, square (a second output).
        layout: for each operand, ``k`` if k is contiguous, else its other axis is.
        batch: leading axes; ``a`` has all of them, ``b`` those that ``b_batch`` does not take away.
    """

    epilogue: str = ""
    dtype: tf.DType = tf.bfloat16
    out: tf.DType = tf.bfloat16
    layout: str = "kk"
    batch: tuple[str, ...] = ()
    b_batch: bool = True

    def fusion(self) -> tf.Fusion:
        """The math, with symbolic extents."""
        unit = 16 // self.dtype.itemsize
        with tf.Fusion("product") as fusion:
            m, n, k = (tf.dim(name, multiple_of=unit) for name in "MNK")
            if self.layout == "kk":
                m = tf.dim("M")
            lead = list(self.batch)
            ab = lead if self.b_batch else []
            a = tf.define_tensor([*lead, m, k] if self.layout[0] == "k" else [*lead, k, m], dtype=self.dtype, name="a")
            b = tf.define_tensor([*ab, n, k] if self.layout[1] == "k" else [*ab, k, n], dtype=self.dtype, name="b")
            x = tf.matmul(
                a if self.layout[0] == "k" else swapped(a), swapped(b) if self.layout[1] == "k" else b, dtype=tf.int32 if self.dtype.is_integer else tf.float32
            )
            product = x
            for word in self.epilogue.split():
                match word:
                    case "bias":
                        x = x + tf.define_tensor(["N"], dtype=self.dtype, name="bias")
                    case "rows":
                        x = x * tf.define_tensor(["M", 1], dtype=tf.float32, name="rows")
                    case "residual":
                        x = x + tf.define_tensor([*lead, "M", "N"], dtype=self.dtype, name="residual")
                    case "scale":
                        x = x * tf.define_scalar(tf.float32, name="scale")
                    case "square":
                        fusion.add_output(tf.square(product))
                    case _:
                        x = CURVES[word][0](x)
            fusion.add_output(tf.cast(x, self.out) if x.dtype is not self.out else x)
        return fusion

    def expected(self, args: Sequence[Any]) -> list[tuple[Array, Array]]:
        """Each output in float64, and the sum of its terms' sizes."""
        a, b, *rest = (np.asarray(x, np.float64) for x in args)
        a = a if self.layout[0] == "k" else np.swapaxes(a, -1, -2)
        b = np.swapaxes(b, -1, -2) if self.layout[1] == "k" else b
        x, size = a @ b, np.abs(a) @ np.abs(b)
        product = x, size
        outs: list[tuple[Array, Array]] = []
        words = self.epilogue.split()
        given = iter(rest)
        tensors = {word: next(given) for word in words if word in ("bias", "rows", "residual")}
        tensors |= {word: next(given) for word in words if word == "scale"}  # run-time scalars come last
        for word in words:
            match word:
                case "bias" | "residual":
                    x, size = x + tensors[word], size + np.abs(tensors[word])
                case "rows" | "scale":
                    x, size = x * tensors[word], size * np.abs(tensors[word])
                case "square":
                    outs.append((product[0] ** 2, 3 * product[1] ** 2))
                case _:
                    x = CURVES[word][1](x)
        return [*outs, (x, size)]

    def check(self, fusion: tf.Fusion, outs: Sequence[Array], args: Sequence[Any], sums: float = EXACT) -> None:
        """Every element is the float64 result, but for float32 functions and sums, off by ``sums`` of their terms' sizes, and one rounding to the
        output's dtype; integers are it exactly."""
        for tv, out, (wanted, size) in zip(fusion.outputs, outs, self.expected(args), strict=True):
            assert out.shape == wanted.shape
            assert out.dtype == tv.dtype.numpy
            error = np.abs(out.astype(np.float64) - wanted)
            allowed = 0 if tv.dtype.is_integer else rounding(tv.dtype, wanted) + sums * (size + 1)
            assert (error <= allowed).all(), f"{np.max(error)} at {np.unravel_index(np.argmax(error - allowed), out.shape)}"


def subnormal(dtype: tf.DType) -> float:
    """The smallest number above 0."""
    return float(np.nextafter(np.zeros((), dtype.numpy), np.ones((), dtype.numpy)))


def rounding(dtype: tf.DType, values: Array) -> Array:
    """What rounding to ``dtype`` may take from each value, or add to it."""
    return np.maximum(2.0**-dtype.precision * np.abs(values), subnormal(dtype) / 2)


def swapped(tv: tf.TensorView) -> tf.TensorView:
    """The last two axes exchanged."""
    return tv.permute(*range(tv.ndim - 2), tv.ndim - 1, tv.ndim - 2)


def operands(fusion: tf.Fusion, sizes: dict[str, int], seed: int = 0) -> list[Any]:
    """Random inputs: normal, of float32 what tf32 holds; integers of the whole range; 0.5 for each run-time scalar."""
    rng = np.random.default_rng(seed)

    def tensor(tv: tf.TensorView) -> Array:
        shape = [int(tf.scalar.evaluate(e, sizes)) for e in tv.shape]
        if tv.dtype.is_integer:
            return rng.integers(int(tv.dtype.min_value), int(tv.dtype.max_value) + 1, shape).astype(tv.dtype.numpy)
        values = rng.standard_normal(shape).astype(tv.dtype.numpy)
        return np.asarray((values.view(np.uint32) & TF32).view(np.float32)) if tv.dtype is tf.float32 else values

    return [*(tensor(tv) for tv in fusion.inputs), *(0.5 for _ in fusion.scalars)]


def fitted(config: MatmulConfig, dtype: tf.DType) -> MatmulConfig:
    """``config`` with steps of k of 128 bytes."""
    return replace(config, tile_k=128 // dtype.itemsize)


def simulated(product: Product, config: MatmulConfig, *sizes: dict[str, int], seed: int = 0) -> tf.Kernel:
    """Schedule, lower, simulate and check a product at each of ``sizes``. Returns the kernel."""
    fusion = product.fusion()
    tf.schedulers.matmul(fusion, fitted(config, product.dtype), tf32=product.dtype is tf.float32)
    kernel = tf.lower(fusion)
    for extents in sizes:
        args = operands(fusion, extents, seed)
        product.check(fusion, kernel.simulate(*args, seed=seed), args)
    return kernel


def ragged(groups: int, rows: int, n: int, k: int, size: int = 128) -> MatmulProblem:
    """Of ``groups`` groups of rows, each times a matrix with n contiguous, in tiles of ``size`` rows; threads store them."""
    tiles = RaggedTiles(groups, rows, size)
    return MatmulProblem(size, n, k, rows // size + groups, columns_contiguous=True, matrices=groups, by_threads=1, ragged=tiles)
