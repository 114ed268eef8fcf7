"""Several kernels as one: where what goes between them lies."""

import sys

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cuda import arrays
from taskfuse.cuda.arrays import Kinds
from taskfuse.errors import OutputError
from taskfuse.ir.storage import needed
from taskfuse.options import Backend
from taskfuse.runtime import arrays as runtime_arrays
from taskfuse.runtime.chain import Chain, Link, written_into
from taskfuse.schedule.segment import SegmentedFusion
from tests.cuda.fakes import FakeDriver, FakeTensor, FakeTorch, aligned


@pytest.mark.parametrize("backend", ["auto", "cuda"])
def test_what_is_made_of_nothing_is_made_where_the_arguments_are(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> None:
    driver = FakeDriver()
    monkeypatch.setitem(sys.modules, "torch", FakeTorch())
    monkeypatch.setattr(arrays, "kinds", lambda: Kinds(driver))
    with tf.Fusion("masked") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        steps = tf.arange(8)
        fusion.add_output(tf.where(steps < 3, x, 0.0))
        fusion.add_output(tf.add(steps, 1))
    code = [e.output for e in needed(fusion)]
    run = tf.compile(tf.segment(fusion, [[steps], [tv for tv in code if tv is not steps]]), backend)
    assert isinstance(run, Chain)
    made = run(FakeTensor(aligned((4, 8), "float32")))
    assert [type(y) for y in made] == [FakeTensor] * 2
    assert len(driver.launches) == 2


def triangle() -> SegmentedFusion:
    """Two kernels without an input: the second reads what the first makes."""
    with tf.Fusion("triangle") as fusion:
        columns = tf.arange(8)
        fusion.add_output(columns)
        fusion.add_output(tf.ge(tf.reshape(tf.arange(8), [8, 1]), columns))
    others = [e.output for e in needed(fusion) if e.output is not columns]
    return tf.segment(fusion, [[columns], others])


@pytest.mark.parametrize("backend", ["auto", "cuda"])
def test_without_an_input_what_goes_between_is_made_where_the_results_are(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> None:
    driver = FakeDriver(parameter_sizes=(8,))
    kinds = Kinds(driver)
    monkeypatch.setitem(sys.modules, "torch", FakeTorch())
    monkeypatch.setattr(arrays, "kinds", lambda: kinds)
    monkeypatch.setattr(runtime_arrays, "kinds", lambda: kinds)
    run = tf.compile(triangle(), backend, specialize=False)
    columns, below = FakeTensor(aligned((8,), "int64")), FakeTensor(aligned((8, 8), "bool"))
    for _ in range(3):  # the long way twice, and the short one
        assert run(out=(columns, below)) == (columns, below)
    assert len(driver.launches) == 6  # none copies
    assert {launch.parameter(0) for launch in driver.launches} == {columns.data_ptr()}


def steps() -> SegmentedFusion:
    """Two kernels, each with a result; the second reads the argument, too."""
    with tf.Fusion("steps") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        first = x + 1
        second = first * x
        fusion.add_output(first)
        fusion.add_output(second)
    return tf.segment(fusion, [[first], [second]])


@pytest.mark.parametrize("overlaps", [False, True])
def test_given_results_that_overlap_nothing_are_written_at_once(monkeypatch: pytest.MonkeyPatch, overlaps: bool) -> None:
    driver = FakeDriver(parameter_sizes=(8, 8, 8))
    kinds = Kinds(driver)
    monkeypatch.setitem(sys.modules, "torch", FakeTorch())
    monkeypatch.setattr(arrays, "kinds", lambda: kinds)
    monkeypatch.setattr(runtime_arrays, "kinds", lambda: kinds)
    x, other, second = (FakeTensor(aligned((4, 8), "float32")) for _ in range(3))
    tf.compile(steps(), "cuda")(x, out=(x if overlaps else other, second))
    assert len(driver.launches) == 2 + overlaps


def test_the_simulator_writes_given_results() -> None:
    run, x = tf.compile(steps(), "sim"), np.arange(32, dtype=np.float32).reshape(4, 8)
    first, second = np.empty_like(x), np.empty_like(x)
    run(x, out=(first, second))
    assert np.array_equal(first, x + 1)
    assert np.array_equal(second, (x + 1) * x)
    y = x.copy()
    run(y, out=(y, second))  # the second kernel reads the argument as it was
    assert np.array_equal(y, x + 1)
    assert np.array_equal(second, (x + 1) * x)


def test_a_call_without_an_array_is_one_on_numpy_arrays() -> None:
    columns, below = tf.compile(triangle(), "sim")()
    assert np.array_equal(columns, np.arange(8))
    assert np.array_equal(below, np.tril(np.ones((8, 8), bool)))


def two_moments() -> tf.Fusion:
    """A count that goes up, and two tensors of unlike sizes that are scaled by a function of it: all are written where they were."""
    with tf.Fusion("moments") as fusion:
        count, x, y = (tf.define_tensor(shape, name=name) for name, shape in (("count", []), ("x", [40, 3]), ("y", [70])))
        more = count + 1.0
        for tensor in (x, y):
            fusion.add_output(tensor * (1.0 - tf.pow(0.5, more)), into=tensor)
        fusion.add_output(more, into=count)
    return fusion


def test_results_of_several_kernels_in_place_of_arguments() -> None:
    fusion = two_moments()
    run = tf.compile(fusion, "sim")
    assert len(run.kernels) == 2, "the count, and behind it both tensors side by side"
    assert sum(len(kernel.in_place) for kernel in run.kernels) == 3
    for seed in range(4):
        given = [np.full((), 3, np.float32), *(np.random.default_rng(seed).uniform(1, 2, shape).astype(np.float32) for shape in ((40, 3), (70,)))]
        expected = fusion.evaluate(*(x.copy() for x in given))
        made = run(*given, seed=seed)
        assert all(a is b for a, b in zip(made, (given[1], given[2], given[0]), strict=True))
        for a, b in zip(made, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_an_argument_that_overlaps_one_that_is_written() -> None:
    """The kernels run one after another: the second would read what the first has overwritten."""
    run = tf.compile(two_moments(), "sim")
    memory = np.ones(200, np.float32)
    with pytest.raises(OutputError, match="overlaps another array of the call"):
        run(np.zeros((), np.float32), memory[:120].reshape(40, 3), memory[100:170])


def test_where_a_later_kernel_reads_what_would_be_overwritten() -> None:
    with tf.Fusion("both") as fusion:
        x = tf.define_tensor([8], name="x")
        first = (x + 1.0).named("first")
        second = (tf.flip(x, 0) * first).named("second")
        fusion.add_output(first, second)
    parts = tf.segment(fusion, [[first], [tv for tv in fusion.tensors() if not tv.is_input and tv is not first]])
    links = [Link(tf.compile(part, "sim"), part.arguments, tuple(tv.name for tv in part.outputs)) for part in parts.segments]
    assert written_into(fusion, links, [("first", "x")]) == [(), ()]
    assert written_into(fusion, links, [("second", "x")])[0] == ()
    assert [k for k, _ in written_into(fusion, links, [("second", "x")])[1]] == [0]
