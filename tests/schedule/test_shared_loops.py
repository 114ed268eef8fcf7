"""Joined loops: one loop for all tensors that inline positions join, and the reason where axes do not run over the same values."""

import taskfuse.ops as tf
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import const
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.views import view
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.shared_loops import SharedLoops, mismatch
from tests.schedule.points import pair


def reason(producer: TensorView, consumer: TensorView, position: int) -> str | None:
    expr = consumer.fusion.definition(consumer)
    assert expr is not None
    return mismatch(Keys(producer.fusion), producer, expr, position)


def test_axes_in_step_do_not_mismatch() -> None:
    _, a, b = pair(24, 6)
    for tv in (a, b):
        tv.split(0, 4)
    assert [reason(a, b, k) for k in range(3)] == [None] * 3


def test_what_is_out_of_step_is_named() -> None:
    _, a, b = pair(24, 6)
    a.split(0, 4)
    b.split(0, 6)
    assert reason(a, b, 0) == "axis 0 of tv1 (extent 6) is not axis 0 of tv2 (extent 4)"
    b.merge(0).merge(0)
    assert reason(a, b, 1) == "tv2 has only 1 loop axes"


def test_a_turned_read_joins_where_the_loops_are_turned() -> None:
    with Fusion("f") as fusion:
        a = tf.exp(tf.define_tensor([4, 6]))
        b = tf.sin(a.T)
        fusion.add_output(b)
    assert reason(a, b, 0) == "axis 0 of tv1 (extent 4) is not axis 0 of tv3 (extent 6)"
    b.reorder([1, 0])
    assert [reason(a, b, k) for k in range(2)] == [None, None]


def test_an_axis_of_tiles_joins_that_of_the_reader() -> None:
    """What is read at the number of a tile, where the reader's axis is split into such tiles, and only there."""
    with Fusion("f") as fusion:
        a = tf.exp(tf.define_tensor([6, 4]))
        b = tf.sin(view(a, "digits", [const(22)], (iteration_symbol(0) // 4, iteration_symbol(0) % 4)))
        fusion.add_output(b)
    assert reason(a, b, 0) is not None
    b.split(0, 4)
    assert reason(a, b, 0) is None
    assert Keys(fusion).equal(a.loop[0], b.loop[0])
    b.merge(0).split(0, 6)
    assert reason(a, b, 0) is not None


def test_two_reads_at_different_places_never_join_what_they_differ_in() -> None:
    """Keys of the axes are equal, but one read is turned."""
    with Fusion("f") as fusion:
        a = tf.exp(tf.define_tensor([6, 6]))
        b = a + a.T
        fusion.add_output(b)
    assert reason(a, b, 0) is not None
    assert reason(a, b, 1) is not None


def test_each_loop_is_one_up_to_the_inline_position() -> None:
    _, a, b = pair(4, 6)
    apart = SharedLoops.of(a.fusion)
    assert len(apart.loops) == 4
    assert not set(apart.path[a]) & set(apart.path[b])
    a.inline_at(1)
    joined = SharedLoops.of(a.fusion)
    assert joined.path[a][0] is joined.path[b][0]
    assert joined.path[a][1] is not joined.path[b][1]
    assert joined.path[a][0].axes == {a: a.loop[0], b: b.loop[0]}
    assert [loop.depth for loop in joined.path[b]] == [0, 1]
    assert len(joined.loops) == 3


def test_joins_go_through_chains() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([4])
        a = tf.exp(x)
        b, c = tf.sin(a), tf.cos(a)
        d = b + c
        fusion.add_output(d)
    for tv in (b, c, a):
        tv.inline_at(1)
    (loop,) = SharedLoops.of(fusion).loops
    assert set(loop.axes) == {a, b, c, d}


def test_loops_differ_in_an_axis_of_extent_one() -> None:
    with Fusion("f") as fusion:
        a = tf.exp(tf.define_tensor([6, 4]))
        b = tf.sin(tf.expand_dims(a, 0))
        fusion.add_output(b)
    assert reason(a, b, 0) == "axis 0 of tv1 (extent 6) is not axis 0 of tv3 (extent 1)"
    b.merge(0, 1)
    assert [reason(a, b, k) for k in range(2)] == [None, None]
    a.merge(0, 1)
    assert reason(a, b, 0) == "axis 0 of tv1 (extent 24) is not axis 0 of tv3 (extent 6)"
