"""Elementwise parts in one form, and what loads of them cost."""

import gc
import weakref

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.errors import UnsupportedError
from taskfuse.ir.expr import Gather, MathExpr, Read
from taskfuse.ir.identity import among
from taskfuse.ir.storage import needed, storage_reads
from taskfuse.schedulers.elementwise import (
    Leaf,
    OutputWork,
    align,
    ancestors,
    at_readers,
    bind_vectors,
    divides,
    fetched,
    follow,
    is_aligned,
    is_coalesced,
    leaf_of,
    recompute_all,
    registers,
    stored,
    vector_fits,
    widest,
    work,
)
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script
from taskfuse.target import DEFAULT, SECTOR_BYTES
from tests.schedulers.fusions import Build, tensor
from tests.schedulers.tried import arguments, built


def reads(fusion: tf.Fusion, tv: tf.TensorView) -> tuple[Read, ...]:
    return storage_reads(fusion, definition(fusion, tv))


def definition(fusion: tf.Fusion, tv: tf.TensorView) -> MathExpr:
    expr = fusion.definition(tv)
    assert expr is not None
    return expr


def aligned(build: Build) -> tuple[tf.Fusion, dict[str, Leaf]]:
    """A fusion in form, which computes what it did; its leaves by what they read."""
    fusion = built(build)
    args = arguments(fusion)
    before = fusion.evaluate(*args)
    script = Script(fusion)
    leaves = align(script, fusion)
    for a, b in zip(before, fusion.evaluate(*args), strict=True):
        assert np.array_equal(a, b)
    return fusion, {" ".join(r.tensor.name for r in leaf.reads): leaf for leaf in leaves}


# -- where elements are read --------------------------------------------------------------------------------------------------------------


def test_a_read_at_the_readers_own_point() -> None:
    fusion = built(lambda: [tensor("x", 4, 4) + tensor("y", 4, 4).T + tensor("z", 4) + tensor("s", 1, 4) + tensor("w", 4, 4)[::-1]])
    found = {r.tensor.name: is_aligned(r, e.output) for e in needed(fusion) for r in reads(fusion, e.output) if r.tensor.is_input}
    assert found == {"x": True, "y": False, "z": False, "s": False, "w": False}


def test_what_is_stored_are_parts_of_what_is_put_together() -> None:
    fusion = built(lambda: [tf.cat([tensor("x", 4), tensor("y", 4)], 0, "scatter"), tf.neg(tensor("z", 4))])
    assert [str(tv.shape[0]) for tv in stored(fusion)] == ["4", "4", "4"]
    assert not among(fusion.outputs[0], stored(fusion))


# -- the form -----------------------------------------------------------------------------------------------------------------------------


def test_all_that_is_elementwise_is_computed_at_the_points_of_the_output() -> None:
    fusion, leaves = aligned(lambda: [tf.exp(tf.neg(tensor("x", 8, 4))).T + tensor("y", 4, 8)])
    assert all([str(e) for e in expr.output.shape] == ["4", "8"] for expr in needed(fusion))
    assert leaves["x"].is_copy


def test_one_copy_serves_all_that_read_at_their_own_points() -> None:
    fusion = built(lambda: [tf.exp(x := tensor("x", 8)), tf.neg(x)])
    (leaf,) = align(Script(fusion), fusion)
    assert leaf.tensor.ndim == 1
    both = built(lambda: [tf.exp(x := tensor("x", 8)), tf.neg(x)])
    owner = {tv: tv for tv in both.outputs}
    assert len(align(Script(both), both, owner)) == 2  # each output loads for itself


def test_a_choice_among_inputs_is_a_leaf_but_no_copy() -> None:
    _, leaves = aligned(lambda: [tf.neg(tf.cat([tensor("x", 4), tensor("y", 4)], 0))])
    assert list(leaves) == ["x y"]
    assert not leaves["x y"].is_copy


def test_a_gather_is_a_leaf_with_its_indices() -> None:
    fusion = built(lambda: [tf.neg(tf.take(tensor("x", 8, 4), tensor("i", 3, dtype=tf.int64), 0))])
    (leaf,) = align(Script(fusion), fusion)
    assert [r.tensor.name for r in leaf.reads] == ["x"]
    assert [r.tensor.name for r in leaf.values] == ["i"]


def test_a_sum_of_one_element_is_computed_where_its_axis_is_lost() -> None:
    fusion, _ = aligned(lambda: [tf.sum(tf.exp(tensor("x", 8, 1)), axis=1)])
    assert [str(e) for e in fusion.outputs[0].shape] == ["8"]


def test_reductions_stay_where_they_are() -> None:
    fusion, _ = aligned(lambda: [tensor("x", 8, 8) / tf.expand_dims(tf.sum(tensor("y", 8, 4), 1), 1)])
    assert sum(expr.output.root[-1].is_reduction for expr in needed(fusion)) == 1


def test_a_gather_is_done_again_only_where_its_elements_exist_or_those_of_its_table_do() -> None:
    def taken() -> tf.TensorView:
        return tf.take(tensor("x", 8, 4), tensor("i", 3, dtype=tf.int64), 0)

    whole = built(lambda: [taken()[::-1] + 1.0])
    rows, columns = (built(lambda p=p: [tf.pad(taken(), p) + 1.0]) for p in ([(1, 1), (0, 0)], [(0, 0), (0, 1)]))
    for fusion, again in ((whole, True), (rows, True), (columns, False)):  # beside its columns the table has no element
        (before,) = (e.output for e in needed(fusion) if isinstance(e, Gather))
        recompute_all(Script(fusion), fusion)
        (after,) = (e.output for e in needed(fusion) if isinstance(e, Gather))
        assert (after is not before) is again


def test_a_concatenation_of_itself_again_and_again_is_too_much() -> None:
    def doubled() -> list[tf.TensorView]:
        x = tensor("x", 2)
        for _ in range(9):
            x = tf.cat([tf.exp(x), tf.neg(x)], 0)
        return [x]

    fusion = built(doubled)
    with pytest.raises(UnsupportedError, match="reads its operands at too many points"):
        recompute_all(Script(fusion), fusion)


# -- vectors ------------------------------------------------------------------------------------------------------------------------------


def vectors(build: Build, width: int, axis: int = -1) -> list[bool]:
    fusion = built(build)
    return [vector_fits(fusion, leaf, width, axis) for leaf in align(Script(fusion), fusion)]


@pytest.mark.parametrize(
    ("build", "width", "axis", "fits"),
    [
        (lambda: [tf.neg(tensor("x", 6, 8))], 4, -1, True),
        (lambda: [tf.neg(tensor("x", 6, 8))], 4, 0, False),
        (lambda: [tf.neg(tensor("x", 8, 6))], 4, -1, False),  # rows begin between multiples
        (lambda: [tf.neg(tensor("x", 6))], 4, -1, True),  # one row: where it ends is asked of the loop
        (lambda: [tf.neg(tensor("x", 8, 8).T)], 4, 0, True),
        (lambda: [tf.neg(tensor("x", 8, 8).T)], 4, -1, False),
        (lambda: [tf.neg(tensor("x", 16)[4:12])], 4, -1, True),
        (lambda: [tf.neg(tensor("x", 16)[2:10])], 4, -1, False),  # begins between multiples
        (lambda: [tf.neg(tensor("x", 16)[::2])], 4, -1, False),
        (lambda: [tf.neg(tensor("x", 16)[::-1])], 4, -1, False),
        (lambda: [tf.neg(tensor("x", 4, 2, 8).reshape(8, 8))], 4, -1, True),
        (lambda: [tf.neg(tensor("x", 8, 2).reshape(4, 4))], 4, -1, False),  # vectors would leave a row
        (lambda: [tf.neg(tf.cat([tensor("x", 4), tensor("y", 4)], 0))], 4, -1, False),  # no copy
        (lambda: [tf.neg(tensor("x"))], 4, -1, False),  # no axis
        (lambda: [tf.neg(tf.take(tensor("x", 8, 4), tensor("i", 3, dtype=tf.int64), 0))], 4, -1, True),
        (lambda: [tf.neg(tf.take(tensor("x", 8, 4), tensor("i", 4, dtype=tf.int64), 1))], 4, -1, False),  # each neighbor has its own index
    ],
)
def test_what_can_be_loaded_as_vectors(build: Build, width: int, axis: int, fits: bool) -> None:
    assert vectors(build, width, axis) == [fits]


def test_vectors_that_fill_an_axis() -> None:
    fusion = built(lambda: [tf.neg(tf.define_tensor([tf.dim("N", multiple_of=4), 6, 0], name="x"))])
    n, six, none = fusion.inputs[0].shape
    facts = fusion.facts()
    assert [divides(4, n, facts), divides(8, n, facts), divides(2, six, facts), divides(4, six, facts), divides(4, none, facts)] == [
        True,
        False,
        True,
        False,
        False,
    ]


def test_bound_are_the_loads_that_fit_and_all_stores() -> None:
    fusion = built(lambda: [tensor("x", 8, 8) + tensor("y", 8, 8).T])
    script = Script(fusion)
    leaves = align(script, fusion)
    registers(script, fusion.outputs, [leaf.tensor for leaf in leaves], 4)
    for tv in (*(leaf.tensor for leaf in leaves), *fusion.outputs):
        tv.split(-1, 4)
    bind_vectors(script, leaves, fusion.outputs, 1)
    assert all(tv.schedule.ptype(tv.loop[-1]) is P.Serial for tv in fusion.tensors() if tv.loop)
    fits = [leaf for leaf in leaves if leaf.reads[0].tensor.name == "x"]
    bind_vectors(script, leaves, fusion.outputs, 4)
    assert {tv.name for tv in fusion.tensors() if tv.loop and tv.schedule.ptype(tv.loop[-1]) is P.Vectorize} == {
        fits[0].tensor.name,
        fusion.outputs[0].name,
    }


# -- loops --------------------------------------------------------------------------------------------------------------------------------


def test_ancestors_nearest_first() -> None:
    fusion = built(lambda: [tf.exp(tf.neg(tensor("x", 4)) + tf.sin(tensor("y", 4)))])
    names = [type(fusion.definition(tv)).__name__ for tv in ancestors(fusion, fusion.outputs[0])]
    assert len(names) == 3
    assert not any(tv.is_input for tv in ancestors(fusion, fusion.outputs[0]))
    assert ancestors(fusion, fusion.outputs[0])[0] in {r.tensor for r in reads(fusion, fusion.outputs[0])}


def test_ancestors_follow_the_loops_of_what_reads_them() -> None:
    fusion = built(lambda: [tf.exp(tf.neg(tensor("x", 8, 16)))])
    (out,) = fusion.outputs
    script = Script(fusion)
    script.on(out).split(1, 4).bind(0, P.BIDx)
    (inner,) = ancestors(fusion, out)
    follow(script, out, [inner])
    assert [str(a.extent) for a in inner.loop] == ["8", "4", "4"]
    assert inner.schedule.ptype(inner.loop[0]) is P.BIDx


def test_results_wait_in_registers_if_they_are_stored_as_vectors_or_read_again() -> None:
    def names(build: Build, vector: int) -> int:
        fusion = built(build)
        before = len(fusion.tensors())
        registers(Script(fusion), fusion.outputs, [tv for tv in fusion.tensors() if tv.is_input], vector)
        return len(fusion.tensors()) - before

    assert names(lambda: [tf.exp(tensor("x", 8))], 1) == 0
    assert names(lambda: [tf.exp(tensor("x", 8))], 4) == 1
    assert names(lambda: [tf.copy(tensor("x", 8))], 4) == 0  # a copy of what was loaded
    assert names(lambda: [y := tf.exp(tensor("x", 8)), tf.neg(y)], 1) == 1


# -- cost ---------------------------------------------------------------------------------------------------------------------------------


def of(build: Build, **options: bool) -> OutputWork:
    fusion = built(build)
    return work(fusion, Sizes(fusion, None, DEFAULT), **options)


def test_bytes_and_instructions() -> None:
    found = of(lambda: [tf.neg(tensor("x", 8, 16))])
    assert (found.loaded, found.stored) == (8 * 16 * 4, 8 * 16 * 4)
    assert of(lambda: [tf.exp(tensor("x", 8, 16))]).instructions > found.instructions == 8 * 16


def test_columns_cost_a_sector_each_unless_they_are_turned() -> None:
    def columns() -> list[tf.TensorView]:
        return [tf.neg(tensor("x", 64, 64).T)]

    assert of(columns).loaded == 64 * 64 * SECTOR_BYTES
    assert of(columns, turned=True).loaded == 64 * 64 * 4


def test_what_is_read_at_the_same_points_is_loaded_once_or_for_each() -> None:
    def twice() -> list[tf.TensorView]:
        return [tf.exp(x := tensor("x", 64)), tf.neg(x)]

    assert of(twice).loaded == 64 * 4
    assert of(twice, apart=True).loaded == 2 * 64 * 4


def test_a_broadcast_is_loaded_once() -> None:
    assert of(lambda: [tensor("x", 64, 64) + tensor("b", 64)]).loaded == (64 * 64 + 64) * 4


def test_a_table_costs_sectors_at_most_all_of_it() -> None:
    wide = of(lambda: [tf.take(tensor("x", 1 << 20), tensor("i", 64, dtype=tf.int64), 0)])
    assert wide.loaded == pytest.approx(64 * SECTOR_BYTES + 64 * 8, rel=1e-3)  # few are drawn twice
    narrow = of(lambda: [tf.take(tensor("x", 8), tensor("i", 64, dtype=tf.int64), 0)])
    assert narrow.loaded == 8 * 4 + 64 * 8
    rows = of(lambda: [tf.take(tensor("x", 1 << 20, 64), tensor("i", 8, dtype=tf.int64), 0)])
    assert rows.loaded == pytest.approx(8 * 64 * 4 + 8 * 8, rel=1e-3)  # neighbors have one index


def test_a_table_larger_than_the_cache_is_loaded_again() -> None:
    """Of rows at random places; along an axis, one place of those before it after another, each row is loaded once."""
    size = 1 << 20
    rows = of(lambda: [tf.take(tensor("x", size, 64), tensor("i", 4 * size, dtype=tf.int64), 0)])
    assert 2 * size * 256 < rows.loaded - 32 * size < 4 * size * 256
    along = of(lambda: [tf.take_along_axis(tensor("x", size, 64), tensor("i", size, 64, dtype=tf.int64), 1)])
    assert along.loaded <= size * 64 * (4 + 8)


def test_the_slower_of_memory_and_arithmetic_and_the_launch() -> None:
    memory, arithmetic = OutputWork(1e9, 1e9, 0.0, DEFAULT), OutputWork(0.0, 0.0, 1e12, DEFAULT)
    assert memory.us(16) == pytest.approx(DEFAULT.kernel_us(DEFAULT.dram_us(2e9)), rel=1e-6)
    assert memory.us(4) > memory.us(16)
    assert sorted((1, 2, 4, 8, 16), key=lambda size: memory.us(size)) == [16, 8, 4, 2, 1]
    assert arithmetic.us(16) == arithmetic.us(1) == pytest.approx(DEFAULT.kernel_us(DEFAULT.issue_us(1e12)))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: [tf.neg(tensor("x", 8, 64))], True),
        (lambda: [tf.neg(tensor("x", 64, 64).T)], False),
        (lambda: [tf.neg(tensor("x", 4, 64).reshape(256))], True),
        (lambda: [tf.neg(tensor("x", 64, 2).reshape(128))], False),  # rows of less than a sector
        (lambda: [tf.neg(tensor("x"))], True),
    ],
)
def test_neighbors_read_neighbors(build: Build, expected: bool) -> None:
    fusion = built(build)
    (out,) = fusion.outputs
    (read,) = reads(fusion, out)
    assert is_coalesced(fusion, read, out) is expected


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: [tf.neg(tensor("x", 8, 64))], 4),
        (lambda: [tf.neg(tensor("x", 64, 64).T)], SECTOR_BYTES),
        (lambda: [tf.neg(tensor("x", 64, 2).reshape(128))], 4),
        (lambda: [tf.neg(tensor("x", 64, 4)[:, :2])], 8),  # half of each sector
        (lambda: [tf.neg(tf.pixel_shuffle(tensor("x", 1, 4, 16, 64), 2))], 4),  # neighbors are in two rows, and all of both are read
        (lambda: [tf.neg(tensor("x"))], SECTOR_BYTES),
        (lambda: [tf.take(tensor("x", 1 << 20), tensor("i", 64, dtype=tf.int64), 0)], SECTOR_BYTES),
    ],
)
def test_sectors_are_counted_where_neighbors_read(build: Build, expected: float) -> None:
    fusion = built(build)
    (out,) = fusion.outputs
    assert fetched(reads(fusion, out)[0], out, Sizes(fusion, None, DEFAULT)) == expected


def test_the_widest_element() -> None:
    fusion = built(lambda: [tf.cast(tensor("x", 8, dtype=tf.float64), tf.bfloat16)])
    assert widest(fusion, align(Script(fusion), fusion)) == 8
    assert widest(fusion, ()) == 2


def test_what_a_vector_has_one_element_of_is_not_the_widest() -> None:
    """As the mean of a channel in float32, of which a vector of its elements takes one; weights of columns are loaded as vectors."""
    for shape, size in (([4, 8, 1], 2), ([16], 4)):
        fusion = built(lambda shape=shape: [tf.cast(tensor("x", 4, 8, 16, dtype=tf.bfloat16) * tensor("scale", *shape), tf.bfloat16)])
        assert widest(fusion, align(Script(fusion), fusion)) == size


def test_a_function_reads_no_values() -> None:
    fusion = built(lambda: [tf.sum(tf.exp(tensor("x", 8)), 0)])
    total = fusion.outputs[0]
    assert not leaf_of(fusion, reads(fusion, total)[0].tensor).values


def test_what_is_at_its_readers_is_computed_once_until_the_fusion_changes() -> None:
    with tf.Fusion("flipped") as fusion:
        x = tf.define_tensor([8, 4], name="x")
        fusion.add_output(tf.flip(tf.exp(x), 0) + 1.0)
    first = at_readers(fusion)
    assert at_readers(fusion) is first
    assert all(is_aligned(r, e.output) or r.tensor.is_input for e in needed(first) for r in storage_reads(first, e))
    fusion.add_output(tf.neg(fusion.outputs[0]))
    second = at_readers(fusion)
    assert second is not first
    assert len(second.outputs) == 2
    recompute_all(Script(fusion), fusion)
    assert at_readers(fusion) is not second
    assert [str(e) for e in needed(at_readers(fusion))] == [str(e) for e in needed(fusion)]


def test_a_refusal_is_remembered() -> None:
    with tf.Fusion("wide") as fusion:
        x = tf.define_tensor([64], name="x")
        for _ in range(8):
            x = tf.flip(x, 0) + tf.cat([x[1:], x[:1]])
        fusion.add_output(x)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="too many points"):
            at_readers(fusion)


def test_points_that_multiply_are_refused_before_the_first_is_made() -> None:
    """Each of seven stages of a Hadamard transform reads the one before at four points: 16384 elements of each thread, which took seconds to write down."""
    with tf.Fusion("hadamard") as fusion:
        h = tf.define_tensor([64, 128], name="x")
        for k in (1, 2, 4, 8, 16, 32, 64):
            pairs = tf.reshape(h, [64, 64 // k, 2, k])
            a, b = pairs[:, :, 0], pairs[:, :, 1]
            h = tf.reshape(tf.stack([a + b, a - b], 2), [64, 128])
        fusion.add_output(h)
    before = len(fusion.tensors())
    with pytest.raises(UnsupportedError, match="it reads operands at too many points"):
        tf.schedulers.pointwise(fusion)
    assert len(fusion.tensors()) == before


def test_what_is_at_its_readers_does_not_keep_the_fusion() -> None:
    with tf.Fusion("flipped") as fusion:
        fusion.add_output(tf.flip(tf.exp(tf.define_tensor([8, 4], name="x")), 0) + 1.0)
    at_readers(fusion)
    seen = weakref.ref(fusion)
    del fusion
    gc.collect()
    assert seen() is None
