"""The text of every error that lowering raises for itself; each with the schedule that is one step away and lowers.

Errors of the order are in tests/schedule/test_order.py, of memory types in test_memory.py, of registers in test_registers.py.
"""

from collections.abc import Callable

import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError, TaskError, UnsupportedError
from tests.lowering.running import agrees, bind, numbers, refused

S, TX, TY, TZ, BX = P.Serial, P.TIDx, P.TIDy, P.TIDz, P.BIDx


def pair(shape: tuple[int | str, ...] = (4, 8), flip: int | None = None) -> tuple[tf.Fusion, tf.TensorView, tf.TensorView]:
    """tv1 = -x, tv2 (or tv3) = tv1 + 1, or its reversal along an axis."""
    with tf.Fusion("pair") as fusion:
        x = tf.define_tensor(list(shape), name="x")
        a = tf.neg(x)
        b = tf.add(a if flip is None else tf.flip(a, flip), 1.0)
        fusion.add_output(b)
    return fusion, a, b


def lowering(fusion: tf.Fusion) -> str:
    return refused(lambda: tf.lower(fusion), LoweringError)


# -- what is not built --------------------------------------------------------------------------------------------------------------


def test_vertical_groups_on_clusters() -> None:
    fusion, a, b = pair()
    bind(a, S, TX)
    bind(b, S, TX)
    fusion.group([fusion.task([a]), fusion.task([b])], "g").parallelize(P.CIDx)
    assert refused(lambda: tf.lower(fusion), UnsupportedError) == (
        "vertical group g on CIDx is not supported: rings between the blocks of a cluster are not built yet\n"
        "help: parallelize it on a thread or block index type"
    )


# -- loops of one role --------------------------------------------------------------------------------------------------------------


def test_tensors_of_one_role_bind_a_shared_loop_alike() -> None:
    def build(other: P) -> tf.Fusion:
        fusion, a, b = pair()
        bind(a, S, TX)
        bind(b, other, TX)
        a.inline_at(1)
        return fusion

    agrees(build(S), numbers(4, 8))
    agrees(build(P.Unroll), numbers(4, 8))
    assert lowering(build(TY)) == (
        "cannot lower tv1: it shares a loop with tv2 in one role, but its axis 0 is Serial and that of tv2 is TIDy\n"
        "help: bind both alike, or inline at 0 or less"
    )


# -- registers ----------------------------------------------------------------------------------------------------------------------


def test_a_register_has_no_address() -> None:
    def build(reader: tuple[P, P]) -> tf.Fusion:
        fusion, _, b = pair()
        bind(b, *reader)
        return fusion

    agrees(build((S, S)), numbers(4, 8))
    assert lowering(build((S, TX))) == (
        "cannot lower tv1: it is Local, and tv2 would find an element in it by the thread's index: a register has no address\n"
        "help: bind the axes of tv1 and tv2 alike (propagate, parallelize_like), or set_memory_type(Shared)"
    )


def test_an_index_of_a_register_is_a_constant() -> None:
    def build(rows: int | str) -> tf.Fusion:
        fusion, a, b = pair((rows, 4), flip=0)
        bind(a, S, TX)
        bind(b, S, TX)
        return fusion

    agrees(build(5), numbers(5, 4))
    assert lowering(build("N")) == (
        "cannot lower tv1: it is Local, and tv3 finds elements in it by an index that depends on N: a register has no address\n"
        "help: set_memory_type(Shared), or give N as a constant"
    )


def test_a_loop_that_indexes_registers_has_a_constant_trip_count() -> None:
    """tv1 has 4 elements but runs in its reader's merged loop of 4 * N trips."""

    def build(rows: int | str) -> tf.Fusion:
        with tf.Fusion("merged") as fusion:
            x, y = tf.define_tensor([4], name="x"), tf.define_tensor([rows, 4], name="y")
            a = tf.neg(x)
            b = tf.add(a, y)
            fusion.add_output(b)
        b.merge(0)
        b.propagate([a])
        return fusion

    agrees(build(3), numbers(4), numbers(3, 4))
    assert lowering(build("N")) == (
        "cannot lower tv2: a loop of 4*N trips indexes its Local array, which needs a constant index\n"
        "help: split the loop's axis by a constant and unroll the inner part, or set_memory_type(Shared)"
    )


def test_registers_are_written_by_the_thread_that_owns_them() -> None:
    def build(rows: int) -> tf.Fusion:
        fusion, a, b = pair((32,))
        for tv in (a, b):
            tv.split(0, 8)
            tv.axis(0).parallelize(TX)
        a.set_memory_type(MemoryType.Local)
        a.set_allocation_domain(tf.allocation(a).merge(0).split(0, rows).parallelize(0, TX))
        return fusion

    agrees(build(8), numbers(32))
    assert lowering(build(16)) == (
        "cannot lower tv1: its allocation puts an element into the registers of index at.TIDx.t0//2 of TIDx, which does not compute it\n"
        "help: bind loop and allocation axes alike"
    )


# -- vector atoms -------------------------------------------------------------------------------------------------------------------


def vector(columns: int | str, shape: Callable[[tf.TensorView], tf.TensorView] = tf.copy, multiple: int | None = None) -> tf.Fusion:
    """A copy by vectors of 4 of what ``shape`` makes of x [8, columns]."""
    with tf.Fusion("vector") as fusion:
        if multiple is not None:
            x = tf.define_tensor([8, tf.dim("N", multiple_of=multiple)], name="x")
        else:
            x = tf.define_tensor([8, columns], name="x")
        y = shape(x)
        fusion.add_output(y)
    y.split(1, 4)
    y.axis(2).parallelize(P.Vectorize)
    return fusion


def test_a_vector_axis_divides() -> None:
    agrees(vector(8), numbers(8, 8))
    agrees(vector("N", multiple=4), numbers(8, 12))
    text = "cannot lower tv1: its vector axis of 4 does not divide what it splits\nhelp: declare tf.dim(..., multiple_of=...) or use another width"
    assert lowering(vector(10)) == text
    assert lowering(vector("N")) == text


def test_a_vector_axis_is_contiguous_in_both_tensors() -> None:
    assert lowering(vector(8, lambda x: tf.copy(x.T))) == (
        "cannot lower tv2: its vector axis is not the last axis of x\nhelp: make the vector axis the innermost axis of both tensors"
    )
    assert lowering(vector(8, lambda x: tf.copy(tf.flip(x, 1)))) == (
        "cannot lower tv2: its vector axis is not contiguous in x\nhelp: make the vector axis the innermost axis of both tensors"
    )


# -- channels -----------------------------------------------------------------------------------------------------------------------


def pipeline(producer: tuple[P, ...], consumer: tuple[P, ...], inline: int, shape: tuple[int, ...] = (4, 6, 8)) -> tf.Fusion:
    fusion, a, b = pair(shape)
    bind(a, *producer)
    bind(b, *consumer)
    fusion.group([fusion.task([a], "load"), fusion.task([b], "compute")], "g").parallelize(TZ)
    a.inline_at(inline)
    return fusion


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
        "cannot lower tv2: load makes it on 2 indices of BIDx, and compute reads it on 4: a ring is one block's\nhelp: bind block indices alike on both sides"
    )


def test_loops_shared_across_roles_are_bound_alike_or_distributed() -> None:
    agrees(pipeline((S, S, TX), (TY, S, TX), 2), numbers(4, 6, 8))
    assert lowering(pipeline((TY, S, TX), (S, S, TX), 2)) == (
        "cannot lower tv1: it shares a loop with tv2, but its axis 0 is TIDy and that of tv2 is Serial\nhelp: bind both alike, or inline tv1 at 0 or less"
    )


DISTRIBUTE = "\nhelp: bind the axis of all of the consumer's tensors to one thread index type, and to the whole of the consumer's extent"


def test_one_axis_distributes_a_channel() -> None:
    assert lowering(pipeline((S, S, TX), (TY, TY, TX), 2)) == (
        "cannot lower tv2: axis 0 is Serial in its producer and not bound alike in all of its readers" + DISTRIBUTE
    )


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
        "cannot lower compute: its instances on TIDy take turns in a channel, and a barrier of all of them stands where one holds the turn\n"
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
        "cannot lower compute: its instances on TIDy take turns in the ring of tv3, wait for each other, and take turns in the ring of tv1.b2 behind that: "
        "2 slots of it do not hold what the 3 instances take, and its producer cannot go on to fill the first\n"
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
        "cannot lower compute: its instances on TIDx take turns in a channel, and where one holds the turn it waits in a loop for slots of the ring of tv2, "
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
        "cannot lower compute: its instances on TIDy take turns in a channel and share warps, and a shuffle stands where one holds the turn\n"
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


def test_parts_of_a_scattered_cat_do_not_travel_through_a_channel() -> None:
    def build(form: tf.CatForm, vertical: bool = True) -> tf.Fusion:
        with tf.Fusion("cat") as fusion:
            x, y = tf.define_tensor([4, 8], name="x"), tf.define_tensor([3, 8], name="y")
            a, b = tf.neg(x), tf.neg(y)
            c = tf.cat([a, b], dim=0, form=form)
            d = tf.add(c, 1.0)
            fusion.add_output(d)
        for tv in (a, b, d):
            bind(tv, TY, TX)
        if form is tf.CatForm.GATHER:
            bind(c, TY, TX)
        g = fusion.group([fusion.task([a, b], "parts"), fusion.task([c, d], "whole")], "g")
        if vertical:
            g.parallelize(TZ)
        return fusion

    agrees(build(tf.CatForm.GATHER), numbers(4, 8), numbers(3, 8))
    agrees(build(tf.CatForm.SCATTER, vertical=False), numbers(4, 8), numbers(3, 8))
    assert lowering(build(tf.CatForm.SCATTER)) == (
        "cannot lower tv4: tv2 stores its part in Global memory, and tv5 reads it in another member of g\n"
        "help: use the gather form of cat there, or put the parts and their readers into one member"
    )


# -- foreign axes -------------------------------------------------------------------------------------------------------------------


def foreign(memory: MemoryType | None, inline: int = 1) -> tf.Fusion:
    """tv2 [4] in its reader's merged loop [3 * 4], bound to TIDx."""
    with tf.Fusion("foreign") as fusion:
        x, y = tf.define_tensor([4], name="x"), tf.define_tensor([3, 4], name="y")
        a = tf.neg(x)
        b = tf.add(a, y)
        fusion.add_output(b)
    b.merge(0)
    b.propagate([a])
    bind(a, TX)
    bind(b, TX)
    a.inline_at(inline)
    if memory is not None:
        a.set_memory_type(memory)
    return fusion


def test_an_axis_that_is_partly_foreign_is_bound_in_private_memory_only() -> None:
    agrees(foreign(None), numbers(4), numbers(3, 4))
    text = (
        "cannot lower tv2: axis 0 merges own axes with a consumer's and is bound to TIDx, which shares Shared memory\n"
        "help: bind the axis in Local memory only, or do not merge what the tensor lacks"
    )
    assert lowering(foreign(MemoryType.Shared)) == text
    assert lowering(foreign(None, inline=0)) == text


def test_a_foreign_loop_inside_of_a_reduction_would_accumulate_again() -> None:
    def build(inside: bool) -> tf.Fusion:
        with tf.Fusion("again") as fusion:
            x, y = tf.define_tensor([3, 4], name="x"), tf.define_tensor([5, 3], name="y")
            s = tf.sum(x, 1)
            z = tf.add(s, y)
            fusion.add_output(z)
        z.propagate([s], upto=2)
        if inside:
            s.reorder({0: 2})
        return fusion

    agrees(build(False), numbers(3, 4), numbers(5, 3))
    assert lowering(build(True)) == (
        "cannot lower tv2: loop axis 2 runs over an axis of a consumer inside the reduction: each element would be accumulated more than once\n"
        "help: reorder that axis before the reduction axes, or do not merge it with one"
    )


def test_a_reduction_axis_that_shares_an_index_type_is_not_empty() -> None:
    def build(columns: int | str) -> tf.Fusion:
        with tf.Fusion("empty") as fusion:
            x = tf.define_tensor([3, columns], name="x")
            s = tf.sum(x, 1)
            fusion.add_output(tf.neg(s))
        bind(s, TX, TX)
        bind(fusion.outputs[0], TX)
        return fusion

    agrees(build(4), numbers(3, 4))
    assert lowering(build(0)) == (
        "cannot lower tv1: a reduction axis that shares TIDx with another axis may be empty\n"
        "help: declare its extent with tf.dim(..., min=1), or bind the axes to different index types"
    )


# -- laws, at lowering --------------------------------------------------------------------------------------------------------------


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
        "g: it takes turns over an axis of extent 4 that is a loop axis of none of its tensors\nhelp: g.pingpong(tensor.axis(k)) with a tensor of the group"
    )


# -- names and limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "spelled"),
    [("x", "x"), ("a b", "a_b"), ("1x", "_1x"), ("FOR", "FOR_"), ("min", "min_"), ("i0", "i0_"), ("N", "N_"), ("table", "table_")],
)
def test_names_that_a_kernel_cannot_have_are_spelled_in_others(name: str, spelled: str) -> None:
    with tf.Fusion("two words") as fusion:
        tf.define_tensor(["N"], name="a_b_")
        fusion.add_output(tf.neg(tf.define_tensor(["N"], name=name)))
    agrees(fusion, numbers(5), numbers(5))
    kernel = tf.lower(fusion)
    assert (kernel.name, kernel.params[1].name) == ("two_words", spelled)


def test_dimensions_of_any_name() -> None:
    with tf.Fusion("named") as fusion:
        fusion.add_output(tf.neg(tf.define_tensor(["i0n", tf.dim("min", multiple_of=2), "x"], name="x")))
    agrees(fusion, numbers(3, 4, 2))
    assert [e.name for e in tf.lower(fusion).extents] == ["i0n_", "min_", "x"]


def test_shared_memory_of_a_block_is_limited() -> None:
    def build(rows: int) -> tf.Fusion:
        fusion, a, b = pair((rows, 32), flip=1)
        bind(a, S, TX)
        bind(b, S, TX)
        a.set_memory_type(MemoryType.Shared)
        return fusion

    tf.lower(build(1816))
    assert lowering(build(1817)) == (
        "cannot lower Shared memory: a block would need 232576 bytes; sm_90a has 232448\n"
        "note: tv1: 232576 bytes\n"
        "help: use smaller tiles or fewer stages, or set_memory_type(Global)"
    )
