"""Endpoints of channels: who may be at them."""

import taskfuse as tf
from tests.lowering.refusing import BX, TX, TY, TZ, S, lowering, pipeline
from tests.lowering.running import agrees, bind, numbers


def test_boundaries_between_blocks() -> None:
    agrees(pipeline((BX, S, TX), (BX, S, TX), 1), numbers(4, 6, 8))
    assert lowering(pipeline((BX, S, TX), (S, BX, TX), 0, (4, 4, 8))) == (
        "cannot lower tv1: it is a boundary of vertical group g on threads and would live in Global memory\n"
        "note: the blocks that make it are not those that read it\n"
        "help: bind block indices alike on both sides, and leave its memory type unset"
    )


def test_the_two_ends_of_a_ring_are_in_the_same_blocks() -> None:
    def build(rows: int) -> tf.Fusion:
        with tf.Fusion("blocks") as fusion:
            x, y = tf.define_tensor([2, 8], name="x"), tf.define_tensor([rows, 8], name="y")
            a = tf.neg(x)
            b, c = tf.add(a, 1.0), tf.neg(y)
            fusion.add_output(b)
            fusion.add_output(c)
        for tv in (a, b, c):
            bind(tv, BX, TX)
        fusion.group([fusion.task([a], "load"), fusion.task([b, c], "compute")], "g").parallelize(TZ)
        return fusion

    agrees(build(2), numbers(2, 8), numbers(2, 8))
    assert lowering(build(4)) == (
        "cannot lower tv2: load makes it on 2 indices of BIDx, compute reads it on 4: a ring belongs to one block\nhelp: bind block indices alike on both sides"
    )


DISTRIBUTE = "\nhelp: bind the axis of all of the consumer's tensors to one thread index type, and to the whole of the consumer's extent"


def test_one_axis_distributes_a_channel() -> None:
    assert lowering(pipeline((S, S, TX), (TY, TY, TX), 2)) == (
        "cannot lower tv2: axis 0 is Serial in its producer and not bound alike in all of its readers" + DISTRIBUTE
    )
