"""Keys of axes: equal for equal derivations of axes that an op map identifies, and only for those."""

import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import float32
from taskfuse.errors import ScheduleError
from taskfuse.ir.fusion import Fusion
from taskfuse.schedule.keys import Keys
from tests.schedule.points import pair


def test_axes_that_an_op_map_identifies_are_one() -> None:
    x, a, b = pair(4, 6)
    keys = Keys(a.fusion)
    assert all(keys.equal(p, q) and keys.equal(p, r) for p, q, r in zip(x.logical, a.loop, b.loop, strict=True))
    assert not keys.equal(a.loop[0], a.loop[1])
    assert keys.key(a.loop[0]) == keys.key(a.loop[0])


def test_equal_derivations_are_equal() -> None:
    _, a, b = pair(24, 6)
    for tv in (a, b):
        tv.split(0, 4)
    keys = Keys(a.fusion)
    assert [keys.equal(p, q) for p, q in zip(a.loop, b.loop, strict=True)] == [True, True, True]
    assert not keys.equal(a.loop[0], b.loop[1])  # the other half


def test_other_factors_are_others() -> None:
    _, a, b = pair(24)
    a.split(0, 4)
    b.split(0, 6)
    keys = Keys(a.fusion)
    assert not keys.equal(a.loop[0], b.loop[0])
    assert not keys.equal(a.loop[1], b.loop[1])


def test_the_order_of_a_merge_counts() -> None:
    _, a, b = pair(4, 6)
    a.merge(0, 1)
    b.merge(1, 0)
    assert not Keys(a.fusion).equal(a.loop[0], b.loop[0])


def test_a_split_that_divides_and_is_merged_again_is_its_axis() -> None:
    _, a, b = pair(24, "N")
    a.split(0, 4).merge(0)
    a.split(1, 5).merge(1)  # may not divide N: its product runs over more
    keys = Keys(a.fusion)
    assert keys.equal(a.loop[0], b.loop[0])
    assert not keys.equal(a.loop[1], b.loop[1])


def test_a_split_by_one_is_its_axis() -> None:
    _, a, b = pair("N")
    a.split(0, 1)
    keys = Keys(a.fusion)
    assert keys.equal(a.loop[0], b.loop[0])
    assert not keys.equal(a.loop[1], b.loop[0])


def test_transposed_reads_identify_across() -> None:
    with Fusion("f") as fusion:
        a = tf.exp(tf.define_tensor([4, 6]))
        b = tf.sin(a.T)
        fusion.add_output(b)
    keys = Keys(fusion)
    assert keys.equal(a.loop[0], b.loop[1])
    assert keys.equal(a.loop[1], b.loop[0])
    assert not keys.equal(a.loop[0], b.loop[0])


def test_reads_that_shift_identify_nothing() -> None:
    with Fusion("f") as fusion:
        a = tf.exp(tf.define_tensor([6]))
        b = tf.sin(a[1:])
        fusion.add_output(b)
    assert not Keys(fusion).equal(a.loop[0], b.loop[0])


def test_transforms_that_are_learned_later() -> None:
    _, a, b = pair(24)
    a.split(0, 4)
    keys = Keys(a.fusion)
    b.split(0, 4)
    assert not keys.equal(a.loop[0], b.loop[0])
    keys = Keys(a.fusion)
    assert keys.equal(a.loop[0], b.loop[0])


def test_a_merge_with_an_axis_of_extent_one_is_the_other_axis() -> None:
    _, a, b = pair(1, 6, 2)
    a.merge(0, 1)
    b.merge(1, 0)
    keys = Keys(a.fusion)
    assert keys.equal(a.loop[0], b.loop[0])
    assert keys.equal(a.loop[0], b.root[1])
    b.merge(0, 1)
    assert not Keys(a.fusion).equal(a.loop[0], b.loop[0])


def test_keys_hold_axes_that_are_made_later() -> None:
    """Those of the others stay, and equal derivations are equal to those of new keys."""
    _, a, b = pair(24, 6)
    a.split(0, 4)
    keys = Keys(a.fusion)
    before = [keys.key(x) for x in a.loop]
    b.split(0, 4)
    keys.add_loops(b)
    assert [keys.key(x) for x in a.loop] == before
    assert [keys.equal(p, q) for p, q in zip(a.loop, b.loop, strict=True)] == [True, True, True]


def test_digits_are_the_same_in_whichever_steps_splits_make_them() -> None:
    """Also of an axis that no split divides, as the first digit has no other before it; not of its later ones."""
    _, a, b = pair(96, 100, 90)
    for k in (0, 3, 6):
        a.split(k, 4).split(k, 2)  # i // 8, i // 4 % 2, i % 4
        b.split(k, 8).split(k + 1, 4)
    keys = Keys(a.fusion)
    assert [keys.equal(p, q) for p, q in zip(a.loop, b.loop, strict=True)] == [True] * 9
    _, c, d = pair(90)
    c.split(0, 20).split(1, 8)  # i % 20 // 8
    d.split(0, 8).split(0, 3)
    keys = Keys(c.fusion)
    assert [keys.equal(p, q) for p, q in zip(c.loop, d.loop, strict=True)] == [False] * 3


def test_an_axis_that_is_read_at_quotients_is_a_digit() -> None:
    """Its loops may be those of the reader; the loops of what is packed in an element are not."""
    with Fusion("f") as fusion:
        x = tf.define_tensor([6, 32], dtype=float32)
        packed = tf.sin(x)
        wide = tf.cos(tf.reshape(tf.broadcast_to(packed[:, :, None], [6, 32, 2]), [6, 64]))
        fusion.add_output(wide)
    packed.split(1, 8)
    wide.split(1, 16).split(2, 4)  # i // 16, i // 4 % 4, i % 4
    keys = Keys(fusion)
    assert keys.equal(packed.loop[1], wide.loop[1])
    assert not keys.equal(packed.loop[2], wide.loop[2])
    packed.inline_at(2)
    with pytest.raises(ScheduleError, match="axis 2 of tv1"):
        packed.inline_at(3)
