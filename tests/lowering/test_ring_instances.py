"""Rings between blocks: which blocks have one of their own, and what none can carry."""

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError
from taskfuse.ir.types import ParallelType
from taskfuse.lowering.ring_instances import check_between_blocks, own_rings
from tests.lowering.stepped import state_after

S, TX, BX, BY = P.Serial, P.TIDx, P.BIDx, P.BIDy


def roles(writer: tuple[P, ...], reader: tuple[P, ...], shape: tuple[int, ...] = (4, 6, 8), inline: int = 2) -> tf.Fusion:
    """Two roles in other planes of blocks."""
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor(list(shape), name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    for tv, ptypes in ((a, writer), (b, reader)):
        for k, p in enumerate(ptypes):
            tv.axis(k).parallelize(p)
    fusion.group([fusion.task([a], "load"), fusion.task([b], "use")], "g").parallelize(P.BIDz)
    a.inline_at(inline)
    return fusion


def rings(fusion: tf.Fusion) -> tuple[ParallelType, ...]:
    return own_rings_of(fusion, "tv1", "tv2")


def own_rings_of(fusion: tf.Fusion, writer: str, reader: str) -> tuple[ParallelType, ...]:
    state = state_after(fusion, "grid-stride")
    a, b = state.fusion.tensor(writer), state.fusion.tensor(reader)
    shared = state.shared_loops.path[a][: a.schedule.inline]
    return own_rings(state.ranges, a, [b], [state.tree.place[a], state.tree.place[b]], shared)


@pytest.mark.parametrize(
    ("writer", "reader", "expected"),
    [
        ((BX, S, TX), (BX, S, TX), (BX,)),
        ((BX, BY, TX), (BX, BY, TX), (BX, BY)),
        ((S, S, TX), (S, S, TX), ()),
        ((S, TX, TX), (S, TX, TX), ()),
    ],
)
def test_blocks_are_paired_along_types_that_bind_shared_loops_alone(writer: tuple[P, ...], reader: tuple[P, ...], expected: tuple[P, ...]) -> None:
    assert rings(roles(writer, reader)) == expected


def test_a_loop_of_their_own_on_the_same_type_unpairs_them() -> None:
    assert rings(roles((BX, S, BX), (BX, S, BX), inline=1)) == ()


def test_blocks_that_all_read_what_one_of_them_makes_are_not_paired() -> None:
    with tf.Fusion("f") as fusion:
        x, y = tf.define_tensor([8], name="x"), tf.define_tensor([4, 8], name="y")
        a = tf.neg(x)
        b = tf.add(a, y)
        fusion.add_output(b)
    b.axis(0).parallelize(BX)
    b.axis(1).parallelize(TX)
    b.propagate([a], upto=1)
    tf.parallelize_like(b, [a])
    fusion.group([fusion.task([a], "load"), fusion.task([b], "use")], "g").parallelize(P.BIDz)
    a.inline_at(1)
    assert a.loop[0].is_foreign
    assert own_rings_of(fusion, a.name, b.name) == ()


def test_one_block_needs_no_ring_of_its_own() -> None:
    assert rings(roles((BX, S, TX), (BX, S, TX), shape=(1, 6, 8))) == ()


def test_no_role_takes_turns_at_a_ring_between_blocks() -> None:
    state = state_after(roles((S, S, TX), (S, S, TX)), "grid-stride")
    a, b = (state.fusion.tensor(name) for name in ("tv1", "tv2"))
    loops = state.shared_loops.path[a][:2]
    check_between_blocks(a, loops, [b])
    b.schedule.ptypes[loops[0].axes[b]] = P.TIDy
    with pytest.raises(LoweringError) as caught:
        check_between_blocks(a, loops, [b])
    assert caught.value.message == (
        "cannot lower tv2: its axis 0 is bound to TIDy and Serial in tv1, which other blocks make: instances of a role"
        " cannot take turns at a ring between blocks"
    )
    assert caught.value.help == "bind the axis alike on both sides, or make it Serial in tv2"


def test_the_copy_engine_fills_no_ring_between_blocks() -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([8, 32], name="x")
        a = tf.copy(x)
        fusion.add_output(tf.neg(a))
    a.set_memory_type(tf.MemoryType.Shared)
    a.set_atom(tf.atoms.TMA_LOAD, (1,))
    with pytest.raises(LoweringError, match="it is a boundary between blocks, which lies in Global memory; its atom tma_load copies to Shared memory"):
        check_between_blocks(a, (), ())
