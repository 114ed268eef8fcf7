"""Several kernels as one: where what goes between them lies."""

import sys

import pytest

import taskfuse as tf
from taskfuse.cuda import arrays
from taskfuse.cuda.arrays import Kinds
from taskfuse.ir.storage import needed
from taskfuse.options import Backend
from taskfuse.runtime.chain import Chain
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
