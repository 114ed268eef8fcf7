"""Ordered barriers of instances that take turns."""

import pytest

import taskfuse as tf
from taskfuse.errors import TaskError
from taskfuse.lowering.pingpong import check_pingpong
from tests.lowering.refusing import TX, TY, TZ, S, lowering, pair
from tests.lowering.running import agrees, bind, numbers, refused
from tests.schedule.points import pair as pair_of


def test_no_barrier_of_all_instances_stands_where_one_holds_the_turn() -> None:
    def build(columns: int, together: bool) -> tf.Fusion:
        with tf.Fusion("turn") as fusion:
            x = tf.define_tensor([2, 3, columns], name="x")
            a = tf.neg(x)
            b = tf.add(a, 1.0)
            c = tf.copy(tf.flip(b, 2))
            fusion.add_output(c)
        for tv in (a, b, c):
            tv.axis(2).parallelize(TX)
        for tv in (b, c):
            tv.axis(0).parallelize(TY)
        fusion.group([fusion.task([a], "load"), fusion.task([b, c], "compute")], "g").parallelize(TZ)
        a.inline_at(2)
        if together:
            b.inline_at(2)
        return fusion

    agrees(build(32, True), numbers(2, 3, 32))
    agrees(build(4, False), numbers(2, 3, 4))
    assert lowering(build(4, True)) == (
        "cannot lower compute: its instances on TIDy take turns in a channel, but a barrier of all of them lies within a turn\n"
        "help: keep data within an instance there: bind the axes that exchange it to lower thread types, in whole warps"
    )


def test_a_ring_behind_a_barrier_of_all_instances_holds_a_slot_for_each_of_them() -> None:
    def build(slots: int) -> tf.Fusion:
        with tf.Fusion("turn") as fusion:
            x = tf.define_tensor([3, 4], name="x")
            a = tf.neg(x)
            b = tf.exp(a)
            c = tf.copy(b)
            d = tf.abs(c)
            e = tf.add(tf.flip(d, 1), a)
            fusion.add_output(e)
        for tv in (a, b, c, d, e):
            tv.axis(1).parallelize(TX)
        inner = fusion.group([fusion.task([a], "load"), fusion.task([b], "middle")], "inner")
        inner.parallelize(TZ)
        fusion.group([inner, fusion.task([c], "relay"), fusion.task([d, e], "compute")], "g").parallelize(TZ)
        fusion.inline_most()
        for tv in (d, e):
            tv.axis(0).parallelize(TY)
        a.circular_buffer(slots)
        return fusion

    agrees(build(3), numbers(3, 4))
    assert lowering(build(2)) == (
        "cannot lower compute: its instances on TIDy take turns in the ring of tv3, wait for each other, and take turns in the ring of tv1.b2 afterwards: "
        "2 slots of it do not hold what the 3 instances take, and its producer cannot fill the first\n"
        "help: give it circular_buffer(3) or more, or keep data within an instance between the two"
    )


def test_no_ring_of_all_instances_is_filled_where_one_holds_the_turn() -> None:
    def build(shared: int) -> tf.Fusion:
        with tf.Fusion("turn") as fusion:
            x = tf.define_tensor([4, 3, 3], name="x")
            a = tf.relu(x)
            b = tf.abs(a)
            c = tf.neg(b)
            fusion.add_output(c)
        for tv in (b, c):
            tv.axis(1).parallelize(TX)
        a.inline_at(3)
        b.inline_at(shared)
        inner = fusion.group([fusion.task([a], "load"), fusion.task([b], "compute")], "inner")
        inner.parallelize(TY)
        fusion.group([inner, fusion.task([c], "store")], "g").parallelize(TZ)
        return fusion

    agrees(build(1), numbers(4, 3, 3))
    assert lowering(build(3)) == (
        "cannot lower compute: its instances on TIDx take turns in a channel, but within a turn one waits in a loop for slots of the ring of tv2, "
        "which all of them fill or empty together\nhelp: inline tv2 at 1 or less, or make the axis on TIDx Serial in all roles"
    )


def test_no_shuffle_of_a_shared_warp_stands_where_an_instance_holds_the_turn() -> None:
    def build(columns: int) -> tf.Fusion:
        with tf.Fusion("turn") as fusion:
            x = tf.define_tensor([2, 3, columns], name="x")
            a = tf.neg(x)
            s = tf.sum(a, 2)
            y = tf.neg(s)
            fusion.add_output(y)
        bind(a, S, S, TX)
        bind(s, TY, S, TX)
        bind(y, TY)
        fusion.group([fusion.task([a], "load"), fusion.task([s, y], "compute")], "g").parallelize(TZ)
        a.inline_at(2)
        s.inline_at(2)
        return fusion

    agrees(build(32), numbers(2, 3, 32))
    assert lowering(build(16)) == (
        "cannot lower compute: its instances on TIDy take turns in a channel and share warps, but a shuffle lies within a turn\n"
        "help: let each instance have whole warps: bind axes of it to lower thread types, 32 threads or a multiple"
    )


def test_the_number_of_instances_is_a_constant() -> None:
    with tf.Fusion("instances") as fusion:
        x = tf.define_tensor(["N", 32], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    bind(a, S, TX)
    bind(b, TY, TX)
    fusion.group([fusion.task([a]), fusion.task([b])], "g").parallelize(TZ)
    a.inline_at(1)
    assert lowering(fusion) == ("cannot lower the ring of tv1: it is distributed over N instances\nhelp: their number is a constant: split the axis by one")


def test_turns_over_an_axis_that_is_gone() -> None:
    fusion, a, b = pair((4, 3, 32))
    for tv in (a, b):
        tv.axis(2).parallelize(TX)
    axis = b.axis(0)
    g = fusion.group([fusion.task([a]), fusion.task([b])], "g")
    g.pingpong(axis)
    g.parallelize(TZ)
    assert refused(lambda: tf.lower(fusion), TaskError) == (
        "g: it takes turns over axis 0 of tv2, which is bound to Serial\nhelp: instances that take turns differ in a thread index: bind the axis to one"
    )
    axis.parallelize(TY)
    a.inline_at(2)
    agrees(fusion, numbers(4, 3, 32), interleavings=(tf.Interleaving.LOW_FIRST, tf.Interleaving.RANDOM))
    b.axis(0).parallelize(S)
    a.inline_at(0)
    b.split(0, 2)
    assert refused(lambda: tf.lower(fusion), TaskError) == (
        "g: it takes turns over an axis of extent 4, which is not a loop axis of its tensors\nhelp: g.pingpong(tensor.axis(k)) with a tensor of the group"
    )


def test_the_axis_is_a_loop_axis_of_the_group_on_threads() -> None:
    _, a, b = pair_of(4, 8)
    load, use = a.fusion.group([a.fusion.task([a])], "load"), a.fusion.group([a.fusion.task([b])], "use")
    check_pingpong(use)
    b.axis(0).parallelize(TY)
    use.pingpong(b.axis(0))
    check_pingpong(use)
    load.pingpong(b.axis(0))
    with pytest.raises(TaskError) as caught:
        check_pingpong(load)
    assert caught.value.message == "load: it takes turns over an axis of extent 4, which is not a loop axis of its tensors"
    assert caught.value.help == "load.pingpong(tensor.axis(k)) with a tensor of the group"
    use.pingpong(b.axis(1))
    with pytest.raises(TaskError) as caught:
        check_pingpong(use)
    assert caught.value.message == "use: it takes turns over axis 1 of tv2, which is bound to Serial"
    assert caught.value.help == "instances that take turns differ in a thread index: bind the axis to one"


def test_readers_of_other_instances_are_refused() -> None:
    """A thread index has two digits in one reader and one in the other, so a thread would be of two instances."""
    with tf.Fusion("readers") as f:
        x = tf.define_tensor([4, tf.dim("N", min=1)], name="x")
        a = tf.exp(x)
        f.add_output(tf.neg(a))
        f.add_output(tf.cumsum(a, 1))
    y, z = f.outputs
    y.axis(1).parallelize(TY)
    f.group([f.task([a]), f.task([y, z])]).parallelize(TZ)
    for tv in (y, z):
        tv.axis(0).parallelize(TY)
    a.inline_at(1)
    assert "threads along TIDy are of other instances of axis 0 in it than in" in refused(lambda: tf.lower(f))


def test_each_instance_has_a_thread() -> None:
    """Where it has none, its producer would wait for it."""

    def build(columns: tf.Dim | int) -> tf.Fusion:
        with tf.Fusion("instances") as f:
            x = tf.define_tensor([4, columns], name="x")
            a = tf.exp(x)
            b = tf.neg(a)
            f.add_output(b)
        f.group([f.task([a]), f.task([b])]).parallelize(TZ)
        b.axis(0).parallelize(TY)
        b.axis(1).parallelize(TY)
        a.inline_at(1)
        return f

    agrees(build(tf.dim("N", min=1)), numbers(4, 3))
    said = refused(lambda: tf.lower(build(tf.dim("N", min=0))))
    assert "an instance that takes turns has no thread where N is 0, and its producer waits for it" in said
    assert "declare that N is at least 1, or bind its empty axis to another type than axis 0" in said
    said = refused(lambda: tf.lower(build(0)))
    assert "an instance that takes turns has no thread, and its producer waits for it" in said
    assert "help: bind its empty axis to another type than axis 0" in said


def triangles(rows: int | str) -> tf.Fusion:
    """Sums of the lower triangles of matrices, one matrix for each instance: trip i of the loop over rows takes i + 1 slots."""
    with tf.Fusion("turn") as fusion:
        x = tf.define_tensor([3, rows, 4], name="x")
        a = tf.neg(x)
        b = tf.tril(a)
        c = tf.sum(b, 2)
        fusion.add_output(c)
    for tv in (b, c):
        tv.axis(0).parallelize(TY)
    fusion.group([fusion.task([a], "load"), fusion.task([b, c], "compute")], "g").parallelize(TZ)
    for tv in (a, b):
        tv.inline_at(3)
    a.circular_buffer(2)
    return fusion


def test_slots_that_depend_on_a_loop_of_an_instance_are_added_over_its_trips() -> None:
    fusion = triangles(5)
    text = str(tf.lower(fusion))
    assert "ch0.c.advance(14*threadIdx.y)" in text  # 1 + 2 + 3 + 4 + 4
    agrees(fusion, numbers(3, 5, 4))


def test_slots_that_depend_on_many_trips_are_refused() -> None:
    assert lowering(triangles("N")) == (
        "cannot lower tv2: its instances share a ring, and how many slots one takes in a trip of a loop of N depends on the trip\n"
        "help: make the loop's trips a constant of at most 64, or keep the axis Serial in all roles"
    )
