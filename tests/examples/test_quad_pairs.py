"""The programs of ``gemm_quad_pairs`` in every layout: exact on small integers, proved for all extents, and the same with another instruction."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import taskfuse as tf
from examples.gemm_quad_pairs import Program, Tiles, build, expected

WIDE = Tiles((64, 64, 16), (32, 32, 16), 32)
SPLIT = Tiles((32, 32, 32), (16, 16, 16))  # two warps divide the terms of a step

CASES: dict[str, tuple[Program, str, str, Tiles, bool]] = {
    "plain, split-K": (Program.PLAIN, "row", "row", SPLIT, True),
    "plain, 32 x 32 x 8": (Program.PLAIN, "row", "col", WIDE, True),
    "prologue": (Program.PROLOGUE, "col", "col", Tiles((32, 32, 16), (16, 32, 16)), True),
    "epilogue, 32 x 32 x 8": (Program.EPILOGUE, "col", "row", WIDE, True),
    "sum of products, split-K": (Program.ADD, "col", "row", SPLIT, True),
    "prologue, m16n8k16": (Program.PROLOGUE, "col", "row", Tiles((32, 32, 32), (16, 32, 32)), False),
    "sum of products, m16n8k16": (Program.ADD, "row", "row", Tiles((32, 32, 16), (16, 32, 16)), False),
}


def arguments(program: Program, a: str, b: str, tiles: Tiles) -> tuple[list[npt.NDArray[Any]], npt.NDArray[np.float64]]:
    """Small integers, for two blocks and three steps, and the exact result."""
    rng = np.random.default_rng(0)
    m, n, k = tiles.block[0], 2 * tiles.block[1], 3 * tiles.block[2]
    x, y = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    bias = rng.integers(-4, 5, n).astype(np.float16)
    given = [x if a == "row" else np.ascontiguousarray(x.T), y if b == "row" else np.ascontiguousarray(y.T)]
    more = {Program.EPILOGUE: [bias], Program.ADD: given}.get(program, [])
    return [*given, *more], expected(program, x.astype(np.float64), y.astype(np.float64), bias)


@pytest.mark.parametrize("name", CASES)
def test_programs(name: str) -> None:
    program, a, b, tiles, pairs = CASES[name]
    kernel = tf.lower(build(program, a, b, tiles, None if pairs else tf.atoms.mma(16, 8, 16)))
    args, exact = arguments(program, a, b, tiles)
    (out,) = kernel.simulate(*args, seed=1)
    np.testing.assert_array_equal(out.astype(np.float64), exact)
    kernel.verify().require()


def test_tiles_of_the_paper_are_proved() -> None:
    """128 x 128 x 32 by four warps, whose staging lies on the storage of the rings."""
    kernel = tf.lower(build(Program.PLAIN, "row", "col", Tiles()))
    kernel.verify().require()
