"""Schedules of reductions, the structure they are found by, and what has none."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.errors import LoweringError, TaskfuseError, UnsupportedError
from taskfuse.kir import walk
from taskfuse.kir.nodes import For
from taskfuse.kir.synchronization import BarrierScope
from taskfuse.schedulers import Keep, RowConfig
from tests.errors import text
from tests.proofs import proved
from tests.schedulers.reduced import x
from tests.schedulers.rows import SUMS, Kind, barriers, check, extremes, make, softmax, total


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(TaskfuseError) as caught:
        call()
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    return text(caught.value)


@settings(max_examples=6, deadline=None)
@given(
    st.sampled_from(SUMS),
    st.sampled_from([tf.float32, tf.bfloat16]),
    st.sampled_from([0, -1]),
    st.integers(1, 9),
    st.sampled_from([2, 24, 61, 128]),
    st.sampled_from([1, 8, 32, 64]),
    st.sampled_from([1, 3]),
    st.sampled_from([1, 2]),
)
def test_any_shape(kind: Kind, dtype: tf.DType, axis: int, few: int, many: int, threads: int, rows: int, blocks: int) -> None:
    check(make(kind, (few, many) if axis == -1 else (many, few), dtype, axis), RowConfig(threads, rows, 2, blocks))


@pytest.mark.parametrize("kind", SUMS)
def test_symbolic_extents(kind: Kind) -> None:
    check(make(kind, ("M", tf.dim("N", multiple_of=8))), None, {"M": 3, "N": 8}, {"M": 9, "N": 520})


def test_all_elements() -> None:
    kernel = check(make(total, (4096,)), RowConfig(64, 1, 2, blocks=4))
    assert barriers(kernel) == [
        BarrierScope.BLOCK,
        BarrierScope.GRID,
        BarrierScope.BLOCK,
    ]  # the last of what joins the results of blocks


def test_one_barrier_for_all_elements_of_a_thread() -> None:
    """A thread has a vector of the result, and each step of the join is taken for all of it."""
    kernel = check(make(extremes, (256, 64), axis=0), RowConfig(16, 8, 2))
    assert barriers(kernel) == [BarrierScope.BLOCK]  # of three reductions
    kernel = check(make(total, (256, 64), axis=0), RowConfig(8, 8, 2, blocks=2))
    assert barriers(kernel).count(BarrierScope.GRID) == 1


def different_axes() -> list[tf.TensorView]:
    a = x(4, 6)
    return [tf.sum(a, 0), tf.sum(a, 1)]


def shifted() -> list[tf.TensorView]:
    a = tf.exp(x(4, 6))
    return [tf.sum(a, 1), tf.flip(a, 1)]


def own_axis() -> list[tf.TensorView]:
    return [tf.sum(x(4, 6), 1), tf.exp(x(5, name="y"))]


CASES: dict[str, tuple[Callable[[], list[tf.TensorView]], str]] = {
    "nothing": (lambda: [tf.exp(x(4, 6))], "it reduces nothing\nhelp: tf.schedulers.pointwise takes such fusions"),
    "axes": (different_axes, "tv1 and tv2 reduce different axes\nhelp: give each its own fusion"),
    "shifted": (shifted, "tv5 has an axis that tv1 lacks\nhelp: move it to a separate fusion"),
    "own": (own_axis, "tv3 has an axis that tv1 lacks\nhelp: move it to a separate fusion"),
    "part": (
        lambda: [tf.sum(x(4, 6, 8) * tf.exp(x(6, 1, name="y")), (1, 2))],
        "tv2 has some of the reduced axes and lacks others\nhelp: broadcast it, or pass it with all of them",
    ),
    "single": (lambda: [tf.sum(x(4, 1), 1)], "it reduces nothing\nhelp: tf.schedulers.pointwise takes such fusions"),
    "phases": (lambda: [tf.softmax(x(4, 6))], "a row is read 3 times\nhelp: tf.schedulers.normalization takes such fusions"),
}


@pytest.mark.parametrize("name", CASES)
def test_refusals_leave_the_fusion_as_it_was(name: str) -> None:
    build, reason = CASES[name]
    with tf.Fusion("f") as fusion:
        for out in build():
            fusion.add_output(out)
    before = str(fusion)
    head = "a reduction schedule of fusion 'f' is not supported: "
    assert refused(lambda: tf.schedulers.reduction(fusion)) == head + reason
    assert str(fusion) == before


def test_what_cannot_be_lowered_is_refused_before_anything_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise LoweringError(what="tv1", reason="no room")

    monkeypatch.setattr(sys.modules["taskfuse.schedulers.reduction"], "lower", refuse)  # the package has a function of the name
    with tf.Fusion("f") as fusion:
        fusion.add_output(tf.sum(x(4, 6), 1))
    before = str(fusion)
    with pytest.raises(UnsupportedError, match="a reduction schedule of fusion 'f' is not supported: cannot lower tv1: no room"):
        tf.schedulers.reduction(fusion)
    assert str(fusion) == before


def test_a_fusion_with_a_schedule() -> None:
    fusion = make(total, (4, 64))
    tf.schedulers.reduction(fusion)
    expected = "a reduction schedule of fusion 'total' is not supported: it has a schedule already\nhelp: give it a fusion without scheduling calls"
    assert refused(lambda: tf.schedulers.reduction(fusion)) == expected


def test_parameters() -> None:
    head = "this RowConfig is not supported: "
    cases: list[tuple[dict[str, Any], str]] = [
        ({"threads": 0}, "threads is 0\nhelp: use a positive number"),
        ({"threads": 512, "rows": 4}, "512 threads for each of 4 rows\nhelp: a block has at most 1024 threads"),
    ]
    for wrong, reason in cases:
        with pytest.raises(UnsupportedError) as caught:
            RowConfig(**wrong)
        assert text(caught.value) == head + reason
    small = RowConfig(32, 1, 1, keep=Keep.REGISTERS)
    reason = "32 threads of a row hold 1 vectors each, and it has 128\nhelp: use more threads, blocks or vectors"
    assert refused(lambda: tf.schedulers.normalization(make(softmax, (4, 1024)), small)) == head + reason
    reason = "a row of N elements is kept in registers\nhelp: give its extent as a constant, or keep=Keep.NOTHING"
    expected = "a reduction schedule of fusion 'softmax' is not supported: " + reason
    assert refused(lambda: tf.schedulers.normalization(make(softmax, (4, "N")), small)) == expected


def moved(name: str, x: tf.TensorView) -> tf.TensorView:
    """Elements of ``x``, ``[4, 6, 16]``, from other places."""
    match name:
        case "slice":
            return x[:, :, 1:14]
        case "copied slice":
            return tf.copy(x[:, :, 1:14])
        case "flip":
            return tf.flip(x, 2)
        case "broadcast":
            return tf.broadcast_to(x[:, :, 0:1], [4, 6, 16])
        case "mask":
            return tf.broadcast_to(tf.reshape(tf.lt(tf.arange(16), 5), [1, 1, 16]), [4, 6, 16])
        case _:
            return tf.permute(x, [1, 0, 2])


MOVED = ("slice", "copied slice", "flip", "broadcast", "permuted")


@pytest.mark.parametrize(("name", "norm"), [*((n, norm) for n in MOVED for norm in (False, True)), ("mask", False)])
def test_an_output_that_moves_elements_shares_the_loops_of_what_reduces_it(name: str, norm: bool) -> None:
    """Computed twice, it would have no axis in common with the rest, and one thread would walk over all of it."""
    with tf.Fusion("moved") as fusion:
        x = tf.define_tensor([4, 6, 16], name="x")
        out = moved(name, x)
        fusion.add_output(out)
        values = tf.cast(out, tf.float32)
        fusion.add_output(tf.softmax(values, 2) if norm else tf.sum(values * values, 2))
    scheduler = tf.schedulers.normalization if norm else tf.schedulers.reduction
    scheduler(fusion)
    kernel = proved(tf.lower(fusion))
    assert not [s for s in walk(kernel) if isinstance(s, For) and not s.unroll and ".slot" not in s.var]
    given = np.random.default_rng(0).random((4, 6, 16), np.float32)
    with tf.Fusion("meant") as meant:
        x = tf.define_tensor([4, 6, 16], name="x")
        made = moved(name, x)
        meant.add_output(made)
        meant.add_output(tf.cast(made, tf.float32))
    wanted, floats = meant.evaluate(given)
    first, second = kernel.simulate(given)
    assert (first == wanted).all()
    e = np.exp(floats)
    np.testing.assert_allclose(second, e / e.sum(2, keepdims=True) if norm else (floats * floats).sum(2), rtol=1e-5)


@pytest.mark.parametrize("config", [RowConfig(32, 2, 1), RowConfig(8, 1, 2, 2), RowConfig(4, 1, 1)], ids=str)
def test_what_phases_compute_again_of_nothing_has_loops_of_its_own(config: RowConfig) -> None:
    """No axis of the second phase is known to be one of the first: gradients of a cross-entropy sum a row in which one element is not zero."""
    with tf.Fusion("loss") as fusion:
        scores, classes = tf.define_tensor([6, 50], name="scores"), tf.define_tensor([6, 1], dtype=tf.int64, name="classes")
        chosen = tf.scatter(tf.zeros([6, 50]), 1, classes, -1.0) * 0.5
        fusion.add_output(chosen - tf.exp(scores) * tf.sum(chosen, 1, keepdims=True))
    tf.schedulers.normalization(fusion, config)
    kernel = proved(tf.lower(fusion))
    rng = np.random.default_rng(0)
    values, places = rng.standard_normal((6, 50)).astype(np.float32), rng.integers(0, 50, (6, 1))
    hot = np.zeros((6, 50), np.float32)
    np.put_along_axis(hot, places, -0.5, 1)
    (found,) = kernel.simulate(values, places)
    np.testing.assert_allclose(found, hot + 0.5 * np.exp(values), rtol=1e-6)


def test_masks_that_phases_compute_again() -> None:
    with tf.Fusion("mask") as fusion:
        out = moved("mask", tf.define_tensor([4, 6, 16], name="x"))
        fusion.add_output(out)
        fusion.add_output(tf.softmax(tf.cast(out, tf.float32), 2))
    tf.schedulers.normalization(fusion)
    proved(tf.lower(fusion))


def test_a_gather_is_loaded_after_an_index_that_others_read_too() -> None:
    """Samples at places that data names, with zeros outside: the choice reads the index in its own loop, the loads need it before."""
    with tf.Fusion("samples") as fusion:
        table, at, weights = tf.define_tensor([50, 8]), tf.define_tensor([6, 4]), tf.define_tensor([6, 4])
        index = tf.cast(at, tf.int64)
        found = tf.where(tf.lt(index, 40)[:, :, None], tf.take(table, index, 0), 0.0)
        fusion.add_output(tf.sum(found * weights[:, :, None], 1))
    tf.schedulers.reduction(fusion)
    kernel = proved(tf.lower(fusion))
    rng = np.random.default_rng(0)
    given = rng.standard_normal((50, 8)).astype(np.float32), (rng.random((6, 4)) * 50).astype(np.float32), rng.standard_normal((6, 4)).astype(np.float32)
    np.testing.assert_allclose(kernel.simulate(*given)[0], fusion.evaluate(*given)[0], rtol=1e-5, atol=1e-6)
