"""Factors of mma.sync that threads load to registers, element by element, as the instruction takes them: all types and shapes, and remainders."""

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError, ScheduleError
from taskfuse.ir.matrix_instructions import Family, accumulator_dtype, rows

RNG = np.random.default_rng(0)
TYPES = (tf.float64, tf.float32, tf.bfloat16, tf.float16, tf.float8_e4m3, tf.float8_e5m2, tf.int8, tf.uint8)
CASES = [(row.a, row.m, row.k) for dtype in TYPES for row in rows(Family.MMA, dtype, dtype) if row.shape.layouts is None]


def build(dtype: tf.DType, m: int, k: int, depth: Any, a: str = "mk", b: str = "nk", memory: MemoryType = MemoryType.Shared) -> tf.Fusion:
    """a @ b in blocks of 16 x 8 or 8 x 8, one warp each, two steps of k in a tile."""
    atom, sums = atoms.mma(m, 8, k), accumulator_dtype(dtype, dtype)
    extents: dict[str, Any] = {"m": 2 * m - 3, "n": 13, "k": depth}
    with tf.Fusion("product") as fusion:
        x, y = (tf.define_tensor([extents[c] for c in axes], dtype=dtype, name=name) for axes, name in ((a, "x"), (b, "y")))
        acc = tf.einsum(f"{a},{b}->mn", x, y, dtype=sums)
        d = tf.copy(acc)
        fusion.add_output(d)
    tiles = [x.cache_after(), y.cache_after()]
    factors = [tile.cache_after() for tile in tiles]
    acc.split(0, m).split(2, 8).split(4, 2 * k).reorder([0, 2, 4, 1, 3, 5])
    acc.axis(0).parallelize(P.BIDx)
    acc.axis(1).parallelize(P.BIDy)
    acc.propagate(tiles, upto=3)
    acc.propagate([d], upto=2)
    acc.split(5, k).reorder([0, 1, 2, 5, 3, 4, 6])
    acc.propagate(factors, upto=4)
    acc.set_atom(atom, (-3, -2, -1))
    for tv in (acc, *factors):
        tv.axis(3).parallelize(P.Unroll)
    tf.parallelize_like(acc, [*tiles, *factors, d])
    for tile in tiles:
        tile.set_memory_type(memory)
        tile.merge(3, 4).split(3, 32).axis(4).parallelize(P.TIDx)
        tile.inline_at(3)
    for factor, side, axes in zip(factors, "ab", (a, b), strict=True):
        if axes[-1] != "k":
            factor.reorder([0, 1, 2, 3, 5, 4])
        factor.fragment((-2, -1), atom, side)
        factor.inline_at(4)
    d.fragment((2, 3), atom if m == 8 else None)
    acc.inline_at(2)
    return fusion


def numbers(fusion: tf.Fusion) -> list[Any]:
    return [RNG.integers(0, 5, [int(str(e)) for e in tv.shape]).astype(tv.dtype.numpy) for tv in fusion.inputs]


@pytest.mark.parametrize(("a", "b"), [("mk", "nk"), ("km", "kn")])
@pytest.mark.parametrize(("dtype", "m", "k"), CASES, ids=str)
def test_kernels_are_proved_right_and_compile(dtype: tf.DType, m: int, k: int, a: str, b: str) -> None:
    """With rows, columns and k that end inside a tile."""
    fusion = build(dtype, m, k, 4 * k - 3, a, b)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert tf.parse_kernel(str(kernel)) == kernel
    x, y = numbers(fusion)
    exact = np.einsum(f"{a},{b}->mn", x.astype(np.float64), y.astype(np.float64))
    (out,) = kernel.simulate(x, y, seed=1)
    assert np.array_equal(out.astype(np.float64), exact)
    assert f"mma_m{m}n8k{k}" in kernel.cuda_source()


@pytest.mark.parametrize(("m", "k"), [(8, 4), (16, 4), (16, 8), (16, 16)])
def test_float64_compiles(m: int, k: int) -> None:
    kernel = tf.lower(build(tf.float64, m, k, 4 * k))
    assert kernel.cubin()
    assert '"+d"(d[0])' in kernel.cuda_source()


def test_a_factor_that_ends_inside_a_tile_comes_from_shared_memory() -> None:
    fusion = build(tf.float64, 16, 8, 29, memory=MemoryType.Global)
    with pytest.raises(LoweringError, match="is not filled with 0 there"):
        tf.lower(fusion)


def test_a_wrong_factor_is_refused() -> None:
    with tf.Fusion("product") as fusion:
        x = tf.define_tensor([16, 8], dtype=tf.float64, name="x")
        y = tf.copy(x)
        fusion.add_output(tf.neg(y))
    atom = atoms.mma(16, 8, 8)
    for call, reason in (
        (lambda: y.fragment((0, 1), operand="a"), "the factor 'a' is given without its atom"),
        (lambda: y.fragment((0, 1), atom, "c"), "the factor 'c'"),
        (lambda: y.fragment((0, 1), atom, "b"), "axes of \\[16, 8\\] values are not 8 rows and 8 columns"),
        (lambda: y.fragment((0, 1), atoms.wgmma(64, 8, 16), "b"), "takes no factor b of float64 from registers"),
    ):
        with pytest.raises(ScheduleError, match=reason):
            call()
    y.fragment((0, 1), atom, "a")
    assert [str(a.extent) for a in y.loop] == ["8", "4", "2", "2"]
