"""Random products on tensor cores, rows of awkward lengths, tensors computed elsewhere: exact under every interleaving, proved or said not to be.

`make fuzz` checks as many as wanted, of every kind.
"""

from itertools import pairwise

import pytest

import taskfuse as tf
from taskfuse.testing import CheckError, Distribution, Effort, Mix, RandomChooser, check_case, random_schedule, seeded_case
from taskfuse.testing.contractions import contractions, epilogue
from taskfuse.testing.fuzz import failure, reproduction
from taskfuse.testing.layouts import layout
from taskfuse.testing.loops import Loops
from taskfuse.testing.program import Recorder

EFFORT = Effort(interleavings=8, orders=1, prove=True)
CHUNKS = [*pairwise(range(0, 17, 4))]


def check(mix: Mix, first: int, last: int) -> None:
    for seed in range(first, last):
        try:
            check_case(seeded_case(seed, mix), EFFORT)
        except CheckError as error:
            pytest.fail(failure(reproduction(seed, mix, EFFORT), error, budget=100), pytrace=False)


@pytest.mark.parametrize(("first", "last"), CHUNKS)
def test_products(first: int, last: int) -> None:
    check(Mix.PRODUCTS, first, last)


@pytest.mark.parametrize(("first", "last"), CHUNKS)
def test_rows_and_rewrites(first: int, last: int) -> None:
    check(Mix.ROWS, first, last)
    check(Mix.REWRITES, first, last)


def test_most_products_lower_with_what_they_draw_on() -> None:
    seen = Distribution()
    for seed in range(1000, 1040):
        seen.add(seeded_case(seed, Mix.PRODUCTS))
    assert seen.crashed == 0
    assert seen.lowered >= 0.7 * seen.cases, seen.text()
    for mechanism, floor in {"wgmma": 10, "mma": 5, "tma_load": 4, "ldmatrix_x4": 4, "tile order": 4, "group on threads": 12, "allocation domain": 10}.items():
        assert seen.kept[mechanism] >= floor, seen.table()
        assert seen.kept[mechanism] >= 0.6 * seen.drawn[mechanism], seen.table()


def test_registers_are_read_only_where_an_atom_under_a_guard_has_set_them() -> None:
    check(Mix.PRODUCTS, 7024, 7025)


@pytest.mark.parametrize("seed", [100012, 100040, 100182, 100368])
def test_everything_together(seed: int) -> None:
    """An empty axis in registers; bulk loads of a task with fewer threads; semaphores at extents; loads for a cluster in one role."""
    check(Mix.EVERYTHING, seed, seed + 1)


@pytest.mark.parametrize("seed", [162, 203])
def test_rows_of_fusions_that_have_no_axis(seed: int) -> None:
    check(Mix.ROWS, seed, seed + 1)


# -- the parts of the generator --------------------------------------------------------------------------------------------------------------


def matmul() -> tf.Fusion:
    with tf.Fusion("matmul") as fusion:
        a, b = tf.define_tensor([64, 32], dtype=tf.bfloat16), tf.define_tensor([16, 32], dtype=tf.bfloat16)
        d = tf.relu(tf.matmul(a, b.T, dtype=tf.float32))
        fusion.add_output(d)
        fusion.add_output(d / tf.sum(d, 1, keepdims=True))
    return fusion


def test_contractions_and_what_follows_them() -> None:
    fusion = matmul()
    found = [c for tv in fusion.tensors() for c in contractions(tv)]
    extents = [(*(str(a.extent) for a in (c.m, c.n, c.k)), c.is_turned) for c in found]
    assert extents == [("64", "16", "32", False), ("16", "64", "32", True)]
    assert [(c.a.place, c.a.rows, c.a.depth, c.b.rows) for c in found] == [(0, 0, 1, 0), (1, 0, 1, 0)]
    relu = fusion.outputs[0]
    assert epilogue(fusion, found[0].tv) == [relu]  # the quotient also needs the sum, which is of whole rows
    assert epilogue(fusion, found[0].tv, lambda tv: True) == [relu]


def test_a_users_product_on_tensor_cores() -> None:
    options = Mix.PRODUCTS.options(0)
    cases = [random_schedule(RandomChooser(seed), matmul(), options=options) for seed in range(6)]
    assert sum("wgmma" in case.drawn or "mma" in case.drawn for case in cases) == 6
    for case in cases:
        check_case(case)


def test_loops_are_named_by_axes() -> None:
    recorder = Recorder()
    x = recorder.call(tf, "define_tensor", [6, 10])
    y = recorder.call(tf, "neg", x)
    loops = Loops(recorder, y)
    first, second = y.loop
    outer, inner = loops.split(second, 5)
    loops.last([first, outer])
    loops.bind(first, tf.ParallelType.TIDx)
    loops.done()
    loops.done()
    assert y.loop == (inner, first, outer)
    assert recorder.lines[2:] == ["tv1.split(1, 5)", "tv1.reorder([2, 0, 1])", "tv1.axis(1).parallelize(P.TIDx)"]


def test_layouts_are_written_as_they_are_made() -> None:
    kinds: set[str] = set()
    for seed in range(60):
        recorder = Recorder()
        x = recorder.call(tf, "define_tensor", [6, 10])
        y: tf.TensorView = recorder.call(tf, "neg", x)
        recorder.call(recorder.fusion, "add_output", y)
        copy: tf.TensorView = recorder.call(y, "cache_before")
        made = layout(RandomChooser(seed), copy, copy.name)
        kinds.add("by hand" if ".split" in made.text or ".pad(" in made.text else made.text.partition("(")[0])
        if recorder.attempt(copy, "set_allocation_domain", made) is not None:
            assert str(recorder.program().run()) == str(recorder.fusion)
    assert {"tf.layouts.padded", "tf.layouts.rowmajor", "by hand"} <= kinds
