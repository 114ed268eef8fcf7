"""Several kernels as one: where what goes between them lies."""

import sys

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cuda import arrays
from taskfuse.cuda.arrays import Kinds
from taskfuse.ir.storage import needed
from taskfuse.options import Backend
from taskfuse.runtime import arrays as runtime_arrays
from taskfuse.runtime.chain import Chain
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
