"""The persistent, warp-specialized matmul."""

from dataclasses import replace

import pytest

import taskfuse as tf
from tests.proofs import proved
from tests.schedulers.multiplied import KINDS
from tests.schedulers.products import TWO, Product, simulated


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind: str) -> None:
    """Rounds that are full, ragged, of one tile; clusters of which one block has nothing. Each kernel is proved for all sizes."""
    product = Product("rows bias", out=tf.float32) if "narrow" in kind or "three" in kind else Product("square residual bias")
    sizes = {"M": 130, "N": 72, "K": 72}, {"M": 1, "N": 8, "K": 8}
    proved(simulated(product, KINDS[kind], *sizes), *sizes)


@pytest.mark.parametrize("columns", [64, 128])
def test_tiles_that_divide_the_columns_are_proved_without_guards(columns: int) -> None:
    """Then only the order of tiles says that a column is inside: the number of the tile in its group over the rows of the group, these the last's."""
    with tf.Fusion("whole") as fusion:
        n, k = tf.dim("N", multiple_of=columns), tf.dim("K", multiple_of=8)
        a, b = (tf.define_tensor([rows, k], dtype=tf.bfloat16, name=name) for rows, name in (("M", "a"), (n, "b")))
        fusion.add_output(tf.matmul(a, b.T, dtype=tf.float32) + tf.define_tensor(["N"], name="bias"))
    tf.schedulers.matmul(fusion, replace(TWO, blocks=132))
    proved(tf.lower(fusion), {"M": 300, "N": 2 * columns, "K": 72})
