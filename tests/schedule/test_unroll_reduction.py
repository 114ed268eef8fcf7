"""unroll_reduction: the math stays, for every function; what it makes is computed in the loops of its reader, and proved; refused with a reason."""

from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check import Verdict
from taskfuse.check.rewrites.verify import rewritings
from taskfuse.errors import ScheduleError
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR
from tests.check.rewrites.rewritten import is_proved

RNG = np.random.default_rng(0)


def squares(rows: int = 5, columns: int = 6, coordinates: int = 3) -> tuple[tf.Fusion, tf.TensorView, tf.TensorView]:
    """The least of the squared distances of each point from some others."""
    with tf.Fusion("squares") as fusion:
        a, b = (tf.define_tensor([n, coordinates], name=name) for n, name in ((rows, "a"), (columns, "b")))
        y = tf.sum(tf.square(tf.expand_dims(a, 1) - tf.expand_dims(b, 0)), 2)
        least = tf.min(y, 1)
        fusion.add_output(least)
    return fusion, y, least


@pytest.mark.parametrize("op", ["sum", "max", "prod"])
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2)])
def test_the_math_stays(op: str, axes: tuple[int, ...]) -> None:
    with tf.Fusion("rows") as fusion:
        y = getattr(tf, op)(tf.define_tensor([4, 3, 2], name="x"), axis=axes)
        fusion.add_output(y)
    given = [RNG.uniform(0.5, 1.5, (4, 3, 2)).astype(np.float32)]
    (wanted,) = evaluate(fusion, given, MODULAR)
    y.unroll_reduction()
    assert not any(a.is_reduction for a in y.root)
    assert np.array_equal(evaluate(fusion, given, MODULAR)[0], wanted)
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)


def test_terms_that_are_functions_of_pairs() -> None:
    fusion, y, _ = squares()
    given = [RNG.random(tuple(int(str(e)) for e in tv.shape), np.float32) for tv in fusion.inputs]
    (wanted,) = evaluate(fusion, given, MODULAR)
    (first,) = y.unroll_reduction()
    assert first.ndim == 2
    assert np.array_equal(evaluate(fusion, given, MODULAR)[0], wanted)


def test_it_is_computed_in_the_loops_of_its_reader_and_proved() -> None:
    fusion, y, least = squares(33, 20)
    y.unroll_reduction()
    assert least.is_output
    fusion.inline_most()
    kernel = tf.lower(fusion)
    assert kernel.verify().verdict is Verdict.PROVED
    assert is_proved(rewritings(kernel))
    given = [RNG.random(tuple(int(str(e)) for e in tv.shape), np.float32) for tv in fusion.inputs]
    assert np.allclose(kernel.simulate(*given, seed=0)[0], fusion.evaluate(*given)[0], rtol=1e-6)


def narrow(tv: tf.TensorView) -> None:
    with tf.Fusion("narrow") as fusion:
        z = tf.sum(tf.define_tensor([4, 3], dtype=tf.bfloat16), 1, dtype=tf.float32)
        fusion.add_output(z)
    z.unroll_reduction()


def scheduled(tv: tf.TensorView) -> None:
    tv.split(0, 2)
    tv.unroll_reduction()


REFUSED: list[tuple[Callable[[tf.TensorView], object], str]] = [
    (lambda tv: tv.unroll_reduction(), "it has 17 terms"),
    (lambda tv: tv.fusion.outputs[0].unroll_reduction(), "is not a reduction"),
    (scheduled, "call unroll_reduction before split"),
    (narrow, "its terms are rounded to float32, which its operands or its arithmetic are not"),
]


@pytest.mark.parametrize(
    ("call", "text"),
    REFUSED,
)
def test_refusals(call: Callable[[tf.TensorView], object], text: str) -> None:
    with tf.Fusion("long") as fusion:
        y = tf.sum(tf.define_tensor([4, 17]), 1)
        fusion.add_output(tf.relu(y))
    with pytest.raises(ScheduleError, match=text):
        call(y)
