"""Roles whose instances wait for each other: refused before a kernel is made; the same roles in another order are proved."""

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError
from tests.lowering.running import agrees, bind, numbers, refused
from tests.proofs import proved

S, TX, TY = P.Serial, P.TIDx, P.TIDy


def roles(*, binding: P = TX, second_reads: bool = True) -> tf.Fusion:
    """Rows: ``load`` makes elements one after another; ``first`` makes others of them, and ``second`` the result of what both make.

    Args:
        binding: of the elements in the last two, which hand theirs to each other row by row, unless it is Serial.
        second_reads: what ``load`` makes.
    """
    with tf.Fusion("roles") as fusion:
        x = tf.define_tensor([3, 8], name="x")
        loaded = [tf.neg(x)]
        c = tf.add(loaded[0], 1.0)
        if second_reads:
            loaded.append(tf.exp(x))
        d = tf.mul(c, loaded[1] if second_reads else 2.0)
        fusion.add_output(d)
    for tv in loaded:
        bind(tv, S, S)
    for tv in (c, d):
        bind(tv, S, binding)
    fusion.group([fusion.task(loaded, "load"), fusion.task([c], "first"), fusion.task([d], "second")], "g").parallelize(TY)
    for tv in (*loaded, c):
        tv.inline_at(2)
        tv.circular_buffer(2)
        tv.set_memory_type(MemoryType.Shared)
    return fusion


def test_instances_that_hand_on_together_what_they_take_in_turns() -> None:
    text = refused(lambda: tf.lower(roles()), LoweringError)
    assert "waits form a cycle" in text
    assert "task first fills the ring of tv2 when all its instances have had their turn at the ring of tv1" in text
    assert "task second waits for the ring of tv2 before it reads the ring of tv3" in text
    assert "task load fills the ring of tv3 one iteration after another, and waits when its 2 slots are full" in text
    assert "help: make axis 1 of tv2 Serial" in text


def test_elements_that_are_handed_on_one_by_one() -> None:
    kernel = agrees(roles(binding=S), numbers(3, 8))
    proved(kernel)


def test_a_reader_that_takes_no_turn() -> None:
    kernel = agrees(roles(second_reads=False), numbers(3, 8))
    proved(kernel)
