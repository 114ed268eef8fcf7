"""Keys of axes: equal for equal derivations of axes that an op map identifies, and only for those."""

import taskfuse.ops as tf
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
