"""Memory types follow from where values cross (writer, owner and reader as functions of the element); explicit types that conflict are errors."""

import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError
from tests.lowering.running import agrees, bind, buffer, numbers, refused

Global, Local, Shared = MemoryType.Global, MemoryType.Local, MemoryType.Shared


def pair(writer: tuple[P, ...], reader: tuple[P, ...], memory: MemoryType | None = None, turned: bool = False) -> tf.Fusion:
    """tv1 = -x, then its copy (or its reversal) tv2, [4, 8]."""
    with tf.Fusion("pair") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        a = tf.neg(x)
        b = tf.add(tf.flip(a, 1) if turned else a, 1.0)
        fusion.add_output(b)
    bind(a, *writer)
    bind(b, *reader)
    if memory is not None:
        a.set_memory_type(memory)
    return fusion


S, U, TX, TY, BX = P.Serial, P.Unroll, P.TIDx, P.TIDy, P.BIDx


@pytest.mark.parametrize(
    ("writer", "reader", "turned", "wanted"),
    [
        ((TY, TX), (TY, TX), False, Local),  # equal index expressions
        ((TX, TY), (TY, TX), False, Shared),  # exchanged
        ((TY, TX), (TY, TX), True, Shared),  # another element of the same axis
        ((U, TX), (U, TX), True, Shared),
        ((TX, U), (TX, U), True, Local),  # within one thread
        ((BX, TX), (BX, TX), False, Local),
        ((BX, TX), (BX, TX), True, Shared),  # crosses TIDx, not BIDx
        ((BX, U), (S, U), False, Global),
        ((BX, TX), (TX, BX), False, Global),
        ((U, BX), (U, BX), True, Global),
        ((U, U), (U, U), True, Local),
    ],
)
def test_memory_types_are_derived(writer: tuple[P, ...], reader: tuple[P, ...], turned: bool, wanted: MemoryType) -> None:
    fusion = pair(writer, reader, turned=turned)
    kernel = agrees(fusion, numbers(4, 8))
    assert buffer(kernel, fusion.tensors()[1].name).memory is wanted


def digits_pair(reader: tuple[int, int]) -> tf.Fusion:
    """[32] split by 8 on both sides, both parts on TIDx; the reader's parts in the given order."""
    with tf.Fusion("digits") as fusion:
        x = tf.define_tensor([32], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    for tv in (a, b):
        tv.split(0, 8)
    b.reorder(list(reader))
    bind(a, P.TIDx, P.TIDx)
    bind(b, P.TIDx, P.TIDx)
    return fusion


def test_index_expressions_are_compared_not_parallel_types() -> None:
    assert buffer(agrees(digits_pair((0, 1)), numbers(32)), "tv1").memory is Local
    assert buffer(agrees(digits_pair((1, 0)), numbers(32)), "tv1").memory is Shared


def test_a_split_equals_the_whole_if_the_thread_is_the_same() -> None:
    with tf.Fusion("split") as fusion:
        x = tf.define_tensor([32], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    b.split(0, 8)
    bind(a, P.TIDx)
    bind(b, P.TIDx, P.TIDx)
    assert buffer(agrees(fusion, numbers(32)), "tv1").memory is Local


@pytest.mark.parametrize(("reader", "wanted"), [((0, 1, 2), Local), ((1, 0, 2), Global)])
def test_digits_are_compared_one_by_one(reader: tuple[int, int, int], wanted: MemoryType) -> None:
    """Of an extent that is a sum, such as that of a padded axis, the digits of a block index do not simplify to it when they are put together."""
    with tf.Fusion("digits") as fusion:
        x = tf.define_tensor([3, 2, "W"], name="x")
        a = tf.pad(x, ((0, 0), (0, 0), (0, 1)))
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    for tv in (a, b):
        tv.split(2, 3)
    b.reorder([*reader, 3])
    for tv in (a, b):
        bind(tv, BX, BX, BX, U)
    assert buffer(agrees(fusion, numbers(3, 2, 7)), a.name).memory is wanted


def test_starts_of_regions_count() -> None:
    """The same axis on the same type crosses if the ranges start elsewhere: here on BIDx."""

    def build(parallel: bool) -> tf.Fusion:
        with tf.Fusion("starts") as fusion:
            x, y = tf.define_tensor([3, 4], name="x"), tf.define_tensor([3, 4], name="y")
            a, b = tf.neg(x), tf.neg(y)
            c = tf.add(b, 1.0)
            fusion.add_output(a)
            fusion.add_output(c)
        for tv in (a, b, c):
            bind(tv, P.BIDx, P.TIDx)
        g = fusion.group([fusion.task([a]), fusion.task([b])])
        if parallel:
            g.parallelize(P.BIDx)
        return fusion

    assert buffer(agrees(build(False), numbers(3, 4), numbers(3, 4)), "tv3").memory is Local
    assert buffer(agrees(build(True), numbers(3, 4), numbers(3, 4)), "tv3").memory is Global


def test_inputs_outputs_and_parts_of_a_scattered_cat_are_global() -> None:
    with tf.Fusion("parts") as fusion:
        x = tf.define_tensor([4], name="x")
        a, b = tf.neg(x), tf.add(x, 1.0)
        c = tf.cat([a, b], form=tf.CatForm.SCATTER)
        d = tf.add(c, 1.0)
        fusion.add_output(d)
    for tv in (a, b, d):
        bind(tv, P.TIDx)
    kernel = agrees(fusion, numbers(4))
    assert [(b.name, b.memory) for b in kernel.buffers] == [(c.name, Global)]


@pytest.mark.parametrize("memory", [Local, Shared, Global])
def test_an_explicit_type_that_reaches_further_is_kept(memory: MemoryType) -> None:
    fusion = pair((P.TIDy, P.TIDx), (P.TIDy, P.TIDx), memory)
    assert buffer(agrees(fusion, numbers(4, 8)), "tv1").memory is memory
    fusion = pair((P.TIDy, P.TIDx), (P.TIDx, P.TIDy), Global)
    assert buffer(agrees(fusion, numbers(4, 8)), "tv1").memory is Global


def test_an_explicit_type_that_conflicts_is_an_error() -> None:
    assert refused(lambda: tf.lower(pair((P.TIDy, P.TIDx), (P.TIDx, P.TIDy), Local)), LoweringError) == (
        "cannot lower tv1: it is set to Local, but tv2 reads elements of tv1 that other indices of TIDx compute\n"
        "help: set_memory_type(Shared), leave it unset, or bind the axes alike"
    )
    assert refused(lambda: tf.lower(pair((P.BIDx, P.TIDx), (P.TIDx, P.BIDx), Shared)), LoweringError) == (
        "cannot lower tv1: it is set to Shared, but tv2 reads elements of tv1 that other indices of BIDx compute\n"
        "help: set_memory_type(Global), leave it unset, or bind the axes alike"
    )
    assert refused(lambda: tf.lower(pair((P.BIDx, P.TIDx), (P.TIDx, P.BIDx), Local)), LoweringError) == (
        "cannot lower tv1: it is set to Local, but tv2 reads elements of tv1 that other indices of BIDx compute\n"
        "help: set_memory_type(Global), leave it unset, or bind the axes alike"
    )


def channel(memory: MemoryType | None, blocks: bool = False) -> tf.Fusion:
    fusion = pair((P.BIDx if blocks else P.Serial, P.TIDx), (P.Serial, P.TIDx), memory)
    a, b = fusion.tensors()[1:]
    fusion.group([fusion.task([a]), fusion.task([b])], "g").parallelize(P.TIDz)
    return fusion


def test_a_boundary_lives_in_shared_memory() -> None:
    assert buffer(agrees(channel(None), numbers(4, 8)), "tv1").memory is Shared
    assert buffer(agrees(channel(Shared), numbers(4, 8)), "tv1").memory is Shared
    assert refused(lambda: tf.lower(channel(Global)), LoweringError) == (
        "cannot lower tv1: it is a boundary of vertical group g on threads and would live in Global memory\n"
        "help: bind block indices alike on both sides, and leave its memory type unset"
    )
    assert refused(lambda: tf.lower(channel(Local)), LoweringError) == (
        "cannot lower tv1: it is set to Local, but tv2 reads elements of tv1 that other indices of TIDz compute\n"
        "help: set_memory_type(Shared), leave it unset, or bind the axes alike"
    )


def test_local_memory_spread_over_threads_is_read_by_its_owner() -> None:
    """The writer's axis is split otherwise than the reader's, but both leave the element in the thread that reads it."""
    with tf.Fusion("owner") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    bind(a, P.Unroll, P.TIDx)
    bind(b, P.Unroll, P.TIDx)
    kernel = agrees(fusion, numbers(4, 8))
    found = buffer(kernel, "tv1")
    assert (found.memory, [str(e) for e in found.shape]) == (Local, ["4"])


def test_outputs_are_read_back_from_global_memory() -> None:
    with tf.Fusion("back") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        a = tf.neg(x)
        b = tf.add(tf.flip(a, 1), 1.0)
        fusion.add_output(a)
        fusion.add_output(b)
    bind(a, P.BIDx, P.TIDx)
    bind(b, P.BIDx, P.TIDx)
    kernel = agrees(fusion, numbers(4, 8))
    assert kernel.buffers == ()
    assert "SYNC block  # tv1 crosses TIDx in t0" in str(kernel)
