"""Code in the tails of splits: where it runs without guards, and where guards stay."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P
from taskfuse.ir.atoms import Atom
from taskfuse.kir import walk
from taskfuse.kir.nodes import Compute, If, VectorCopy
from taskfuse.schedulers import SimtGemmConfig
from tests.lowering.running import agree, agrees, numbers

Math = Callable[[tf.TensorView], tf.TensorView]
SIZES = ((1, 1), (4, 8), (5, 9), (3, 23), (11, 16))


@dataclass
class Rows:
    """A reduction along the rows of x[M, K]: tiles of 4 x 8 in Shared memory, from there to registers, where four threads have a row each.

    Attributes:
        acc, row: the tensors in registers.
    """

    fusion: tf.Fusion
    acc: tf.TensorView
    row: tf.TensorView

    @staticmethod
    def of(math: Math, copy: Atom | None = None, of: Math | None = None, along: P = P.Serial) -> "Rows":
        """``copy``: the atom that fills the tiles; ``of``: what is kept in them, of the input; ``along``: what has the elements of a row."""
        with tf.Fusion("rows") as fusion:
            x = tf.define_tensor(["M", "K"], name="x")
            kept = None if of is None else of(x)
            out = math(x if kept is None else kept)
            fusion.add_output(out)
        acc, tile = out.cache_before(), x.cache_after() if kept is None else kept
        row = tile.cache_after()
        acc.split(1, 8).split(0, 4).reorder([0, 2, 1, 3])
        acc.axis(0).parallelize(P.BIDx)
        acc.axis(2).parallelize(P.TIDy)
        acc.axis(3).parallelize(along)
        acc.propagate([tile, row])
        out.split(0, 4)
        out.axis(0).parallelize(P.BIDx)
        out.axis(1).parallelize(P.TIDy)
        tf.parallelize_like(acc, [tile, row])
        tile.set_memory_type(MemoryType.Shared)
        if copy is not None:
            tile.set_atom(copy, [])
        tile.inline_at(2)
        row.inline_at(3)
        acc.inline_at(1)
        return Rows(fusion, acc, row)

    def check(self, *guarded: str) -> None:
        """Right at all sizes, proved; of ``acc`` and ``row``, those named ``guarded`` are written under conditions."""
        kernel = tf.lower(self.fusion)
        for size in SIZES:
            agree(kernel, self.fusion, numbers(*size), tolerance=1e-6)
        assert kernel.verify().is_proved
        assert {name for name in ("acc", "row") if is_guarded(kernel, getattr(self, name).name)} == set(guarded)


def is_guarded(kernel: tf.Kernel, buffer: str) -> bool:
    """True if a statement that writes ``buffer`` stands under a condition."""
    inside = {id(s) for branch in walk(kernel) if isinstance(branch, If) for s in walk(branch)}
    found = [id(s) in inside for s in walk(kernel) if isinstance(s, Compute | VectorCopy) and s.out.buffer == buffer]
    assert found
    return any(found)


def total(x: tf.TensorView) -> tf.TensorView:
    return tf.sum(x, axis=1)


@pytest.mark.parametrize("copy", [None, atoms.CP_ASYNC], ids=["plain", "cp_async"])
def test_sums_of_padded_tiles_need_no_guards(copy: Atom | None) -> None:
    Rows.of(total, copy).check()


CHANGED_BY_ZEROS: list[Math] = [lambda x: tf.max(x, axis=1), lambda x: tf.prod(x, axis=1)]


@pytest.mark.parametrize("math", CHANGED_BY_ZEROS, ids=["max", "prod"])
def test_what_zeros_would_change_is_guarded(math: Math) -> None:
    Rows.of(math).check("acc", "row")


def test_a_function_of_zeros_need_not_be_zero() -> None:
    Rows.of(total, of=lambda x: tf.exp(x)).check("acc", "row")


def test_threads_that_share_a_row_have_guards() -> None:
    """What joins their sums asks which of them have any."""
    Rows.of(total, along=P.TIDx).check("acc")


def test_both_factors_have_the_reduced_axis() -> None:
    """x[m, k] * s[m]: past the end of k the product is no 0 but 0 times anything."""
    with tf.Fusion("scaled") as fusion:
        x, s = tf.define_tensor(["M", 12], name="x"), tf.define_tensor(["M"], name="s")
        out = tf.einsum("mk,mk->m", x, tf.broadcast_to(tf.expand_dims(s, (1,)), x.shape))
        fusion.add_output(out)
    acc, tile, scale = out.cache_before(), x.cache_after(), s.cache_after()
    acc.split(1, 8).split(0, 4).reorder([0, 2, 1, 3])
    acc.axis(0).parallelize(P.BIDx)
    acc.axis(2).parallelize(P.TIDx)
    acc.propagate([tile])
    for tv in (out, scale):
        tv.split(0, 4)
        tv.axis(0).parallelize(P.BIDx)
        tv.axis(1).parallelize(P.TIDx)
    tf.parallelize_like(acc, [tile])
    for tv, at in ((tile, 2), (scale, 1)):
        tv.set_memory_type(MemoryType.Shared)
        tv.inline_at(at)
    acc.inline_at(1)
    x_, s_ = numbers(5, 12), numbers(5)
    s_[4] = float("inf")
    x_[4] = 1
    kernel = agrees(fusion, x_, s_)
    assert kernel.verify().is_proved
    assert is_guarded(kernel, acc.name)


@pytest.mark.parametrize("sizes", [(33, 34, 19), (32, 32, 32), (1, 1, 1), (18, 35, 20)])
@pytest.mark.parametrize("dtype", [tf.float32, tf.int8])
def test_products_on_cuda_cores_are_unguarded_inside(sizes: tuple[int, int, int], dtype: tf.DType) -> None:
    """All of 2 x 2 elements of a thread are computed; rows, columns and k that are not there are zeros, and no result is stored for them."""
    with tf.Fusion("product") as fusion:
        a, b = tf.define_tensor(["M", "K"], dtype=dtype, name="a"), tf.define_tensor(["K", "N"], dtype=dtype, name="b")
        out = tf.matmul(a, b, dtype=tf.float32 if dtype.is_float else tf.int32)
        fusion.add_output(out)
    tf.schedulers.simt_gemm(fusion, SimtGemmConfig(2, 2, depth=8))
    m, n, k = sizes
    kernel = agrees(fusion, numbers(m, k, dtype=dtype.numpy), numbers(k, n, dtype=dtype.numpy, seed=1), interleavings=(tf.Interleaving.RANDOM,))
    assert not any(is_guarded(kernel, s.out.buffer) for s in walk(kernel) if isinstance(s, Compute) and s.op.name == "fma")
    assert is_guarded(kernel, out.name)
