"""Where code finds an element: registers have no address."""

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from tests.lowering.refusing import TX, S, lowering, pair
from tests.lowering.running import agrees, bind, numbers


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
