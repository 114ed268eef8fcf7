"""The last resort: a kernel for each tensor."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.ir.storage import needed
from taskfuse.schedulers.apart import apart, atoms
from taskfuse.target import DEFAULT
from tests.schedulers.fusions import tensor
from tests.schedulers.tried import built, made


def parts() -> list[tf.TensorView]:
    x = tensor("x", 4, 6)
    y = tf.exp(x)
    both = tf.cat([tf.sin(y), tf.cos(y)], 0, "scatter")
    return [tf.sum(both, 1), y]


def test_the_parts_of_an_assembly_stay_together() -> None:
    fusion = built(parts)
    tensors = [e.output for e in needed(fusion)]
    assert [sorted(tv.name for tv in p) for p in atoms(fusion, tensors)] == [["tv1"], ["tv2", "tv3"], ["tv5"]]


def test_producers_come_first_and_results_are_right() -> None:
    fusion = built(parts)
    steps = apart(fusion, None, DEFAULT, made)
    x = np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6)
    values = {"x": x}
    for step in steps:
        values |= dict(zip(step.outputs, tf.lower(step.fusion).simulate(*(values[name] for name in step.arguments)), strict=True))
    for tv, wanted in zip(fusion.outputs, fusion.evaluate(x), strict=True):
        np.testing.assert_allclose(values[tv.name], wanted, rtol=1e-6)


def test_what_no_scheduler_makes_is_refused_with_all_reasons() -> None:
    def never(scheduled: tf.Fusion, schedule: object) -> None:
        raise KeyError("planted")

    with pytest.raises(UnsupportedError, match="no scheduler takes it") as error:
        apart(built(parts), None, DEFAULT, never)
    assert any("KeyError: 'planted'" in note for note in error.value.notes)
