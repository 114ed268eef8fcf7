"""The persistent, warp-specialized matmul."""

from dataclasses import replace

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.kir import walk
from taskfuse.kir.nodes import VectorCopy
from taskfuse.kir.synchronization import Barrier
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


@pytest.mark.parametrize(
    "config",
    [
        tf.schedulers.MatmulConfig(128, 64, stages=2, blocks=2),
        tf.schedulers.MatmulConfig(64, 32, stages=2, blocks=3, kind=tf.schedulers.MatmulKind.PINGPONG),
        tf.schedulers.MatmulConfig(64, 16, warpgroups=1, stages=2, blocks=1),
    ],
)
def test_rows_of_ragged_tiles_are_stored_in_pieces(config: tf.schedulers.MatmulConfig) -> None:
    """16 bytes of a thread, from where its warp staged them; rows of other tiles stay as they are. Also where the output is read again."""
    with tf.Fusion("ragged") as fusion:
        a, b = tf.define_tensor((150, 64), tf.bfloat16, name="a"), tf.define_tensor((3, 64, 64), tf.bfloat16, name="b")
        y = tf.grouped_matmul(a, tf.permute(b, [0, 2, 1]), tf.table("offsets", 4, 150, rising=True))
        fusion.add_output(tf.relu(y))
        if config.warpgroups == 1:
            fusion.add_output(y)
    rng = np.random.default_rng(0)
    given = [rng.integers(-2, 3, s).astype(tf.bfloat16.numpy) for s in ((150, 64), (3, 64, 64))]
    table = np.array([0, 5, 5, 150], np.int32)
    wanted = fusion.evaluate(*given, table)
    tf.schedulers.matmul(fusion, config)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    stores = [s for s in walk(kernel) if isinstance(s, VectorCopy) and s.out.buffer in {tv.name for tv in fusion.outputs}]
    assert {s.width for s in stores} == {8}
    assert not any("crosses TIDx" in s.note for s in walk(kernel) if isinstance(s, Barrier))
    assert all((found == w).all() for found, w in zip(kernel.simulate(*given, table), wanted, strict=True))
