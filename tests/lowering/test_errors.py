"""The text of every error that lowering raises for itself; each with the schedule that is one step away and lowers.

Errors of the order are in tests/schedule/test_order.py, of memory types in test_memory.py, of registers in test_registers.py.
"""

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.errors import UnsupportedError
from tests.lowering.refusing import TX, TY, TZ, S, lowering, pair, pipeline
from tests.lowering.running import agrees, bind, numbers, refused


def test_vertical_groups_on_clusters() -> None:
    fusion, a, b = pair()
    bind(a, S, TX)
    bind(b, S, TX)
    fusion.group([fusion.task([a]), fusion.task([b])], "g").parallelize(P.CIDx)
    assert refused(lambda: tf.lower(fusion), UnsupportedError) == (
        "vertical group g on CIDx is not supported: rings between the blocks of a cluster are not supported yet\n"
        "help: parallelize it on a thread or block index type"
    )


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


def test_loops_shared_across_roles_are_bound_alike_or_distributed() -> None:
    agrees(pipeline((S, S, TX), (TY, S, TX), 2), numbers(4, 6, 8))
    assert lowering(pipeline((TY, S, TX), (S, S, TX), 2)) == (
        "cannot lower tv1: it shares a loop with tv2, but its axis 0 is TIDy and that of tv2 is Serial\nhelp: bind both alike, or inline tv1 at 0 or less"
    )


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
        "cannot lower tv4: tv2 stores its part in Global memory, and tv5 uses it in another member of g\n"
        "help: use the gather form there (unscatter), or put the parts and their readers into one member"
    )


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
