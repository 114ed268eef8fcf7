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
    for _ in range(2):  # the long way, and the short one
        assert run(out=(columns, below)) == (columns, below)
    between, reads, _, first, second = driver.launches  # the first call copies at its end
    assert between.parameter(0) == reads.parameter(0)
    assert first.parameter(0) == second.parameter(0) == columns.data_ptr()


def test_a_call_without_an_array_is_one_on_numpy_arrays() -> None:
    columns, below = tf.compile(triangle(), "sim")()
    assert np.array_equal(columns, np.arange(8))
    assert np.array_equal(below, np.tril(np.ones((8, 8), bool)))
