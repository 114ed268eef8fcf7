"""Products of which data says how many of the first rows of each matrix are read: these are found, and computed in layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers.contraction import find
from taskfuse.schedulers.cost import MatmulProblem
from taskfuse.schedulers.first_rows import has_first_rows
from taskfuse.schedulers.matmul_candidates import rank
from tests.proofs import proved
from tests.schedulers.products import SMALL

GROUPS, ROWS, N, K = 3, 200, 72, 64


def padded(kind: str) -> tf.Fusion:
    """Some elements of each product of a batch, else 0."""
    with tf.Fusion("padded") as fusion:
        a, b = (tf.define_tensor(shape, tf.bfloat16, name=name) for name, shape in (("a", (GROUPS, ROWS, K)), ("b", (GROUPS, K, N))))
        counts = tf.table("counts", GROUPS, ROWS)
        match kind:
            case "rows":
                y = tf.grouped_matmul_masked(a, b, counts)
            case "function of rows":
                y = tf.relu(tf.grouped_matmul_masked(a, b, counts, tf.float32))
            case "triangle":
                y = tf.tril(a @ b)
            case "some":
                y = tf.where(tf.iota(ROWS)[None, :, None] < 100, a @ b, 0.0)
            case _:
                y = a @ b
        fusion.add_output(tf.cast(y, tf.bfloat16))
    return fusion


@pytest.mark.parametrize(("kind", "is_found"), [("rows", True), ("function of rows", True), ("triangle", False), ("some", False), ("all", False)])
def test_rows_that_data_ends(kind: str, is_found: bool) -> None:
    fusion = padded(kind)
    assert has_first_rows(fusion, find(fusion)) is is_found


def test_first_rows_of_all_matrices_come_first() -> None:
    """Right in any case; and by the model's choice, of two blocks none multiplies more tiles than it must."""
    fusion = padded("rows")
    chosen = tf.schedulers.matmul(fusion)
    assert chosen.config.layers
    assert "layers=True" in chosen.code
    fusion = padded("rows")
    tf.schedulers.matmul(fusion, replace(SMALL, group=1, layers=True))
    kernel = tf.lower(fusion)
    proved(kernel, {})
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(tf.bfloat16.numpy) for shape in ((GROUPS, ROWS, K), (GROUPS, K, N)))
    counts = np.array([70, 0, 150], np.int32)
    (found,) = kernel.simulate(a, b, counts)
    (wanted,) = padded("rows").evaluate(a, b, counts)
    np.testing.assert_allclose(found.astype(np.float32), wanted.astype(np.float32), rtol=2**-7, atol=1e-2)


def test_tiles_suit_any_number_of_rows() -> None:
    """In the mean: 6 x 22 columns of tiles of 192 are those of 132 blocks, however many rows of tiles count."""
    problem = MatmulProblem(1024, 4096, 7168, 6, columns_contiguous=True, has_first_rows=True)
    best = rank(problem)[0].config
    assert not any(e.config.is_pingpong for e in rank(problem))
    assert (best.tile_m, best.tile_n, best.group, best.layers) == (128, 192, 2, True)
    weights = 1 / np.arange(1, 9)
    assert problem.multiplied(best) == pytest.approx(np.average([2, 2, 4, 4, 6, 6, 8, 8], weights=weights))
    assert problem.multiplied(replace(best, tile_n=256)) == pytest.approx(np.average([2, 2, 3, 3, 5, 5, 6, 6], weights=weights))
    assert problem.multiplied(replace(best, layers=False)) == problem.waves(best) == 8


def test_layers_of_what_they_do_not_suit() -> None:
    with tf.Fusion("shared") as fusion:
        a, b = tf.define_tensor((256, K), tf.bfloat16, name="a"), tf.define_tensor((GROUPS, K, N), tf.bfloat16, name="b")
        fusion.add_output(tf.grouped_matmul(a, b, tf.table("offsets", GROUPS + 1, 256, rising=True)))
    with pytest.raises(UnsupportedError, match="layers, and matrices of the batch share the factor with the columns"):
        tf.schedulers.matmul(fusion, replace(SMALL, layers=True))
    with pytest.raises(UnsupportedError, match=r"half = Half.LOWER, and layers"):
        replace(SMALL, half=tf.tiles.Half.LOWER, layers=True)
