"""The rank of the block that has an element, from its indices in the cluster."""

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.ir.scalar import const, simplify, sym
from taskfuse.lowering.ranks import blocks, rank, spread
from tests.lowering.running import Measured, bind


def measured() -> tuple[Measured, tf.TensorView]:
    """A tensor in clusters of 2 x 3 blocks."""
    with tf.Fusion("f") as fusion:
        y = tf.abs(tf.define_tensor([2, 3, 8], name="x"))
        fusion.add_output(y)
    fusion.task([y], "t")
    bind(y, P.CIDx, P.CIDy, P.TIDx)
    return Measured(fusion), y


def test_ranks_run_over_x_first() -> None:
    found, _ = measured()
    assert simplify(blocks(found.ranges)) is const(6)
    i, j = sym("i"), sym("j")
    assert simplify(rank(found.ranges, found.nodes["t"], {P.CIDx: i, P.CIDy: j})) is simplify(i + 2 * j)
    assert simplify(rank(found.ranges, found.nodes["t"], {P.CIDy: j})) is simplify(2 * j)  # of a type that is left out, the first


def test_axes_on_cluster_types_say_the_block() -> None:
    found, y = measured()
    i, j, k = (sym(name) for name in "ijk")
    index = spread(found.ranges, found.nodes["t"], y, y.loop, (i, j, k))
    assert [simplify(e) for e in index] == [simplify(i + 2 * j), k]
