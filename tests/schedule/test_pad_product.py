"""pad_product: the math stays; copies have k last and zeros past its end; proved; refused with a reason."""

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


def product(layout: str, batch: tuple[int, ...] = ()) -> tuple[tf.Fusion, tf.TensorView]:
    """A product of 6 x 11 by 11 x 5, as layers have it, or both factors transposed; the first one is computed."""
    with tf.Fusion("product") as fusion:
        a = tf.define_tensor([*batch, *((6, 11) if layout[0] == "m" else (11, 6))], name="a")
        b = tf.define_tensor([*batch, *((11, 5) if layout[1] == "k" else (5, 11))], name="b")
        y = tf.matmul(tf.relu(a if layout[0] == "m" else a.mT), b if layout[1] == "k" else b.mT)
        fusion.add_output(tf.exp(y))
    return fusion, y


def arguments(fusion: tf.Fusion) -> list[np.ndarray]:
    return [RNG.uniform(-1, 1, tuple(int(str(e)) for e in tv.shape)).astype(np.float32) for tv in fusion.inputs]


@pytest.mark.parametrize("layout", ["mk", "mn", "kk", "kn"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_the_math_stays_and_is_proved(layout: str, batch: tuple[int, ...]) -> None:
    fusion, y = product(layout, batch)
    given = arguments(fusion)
    (wanted,) = evaluate(fusion, given, MODULAR)
    left, right = y.pad_product(16, [0, 1])
    assert [int(str(tv.shape[-1])) for tv in (left, right)] == [16, 16]
    assert [int(str(tv.shape[-2])) for tv in (left, right)] == [6, 5]
    assert np.array_equal(evaluate(fusion, given, MODULAR)[0], wanted)
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    fusion.inline_most()
    kernel = tf.lower(fusion)
    assert kernel.verify().verdict is Verdict.PROVED
    assert is_proved(rewritings(kernel))
    assert np.allclose(kernel.simulate(*given, seed=0)[0], fusion.evaluate(*given)[0], rtol=1e-5)


def test_one_factor_turned() -> None:
    fusion, y = product("mk")
    given = arguments(fusion)
    (wanted,) = evaluate(fusion, given, MODULAR)
    (turned,) = y.pad_product(11, [1])
    assert [int(str(e)) for e in turned.shape] == [5, 11]
    assert np.array_equal(evaluate(fusion, given, MODULAR)[0], wanted)


def split(tv: tf.TensorView) -> None:
    tv.split(0, 2)
    tv.pad_product(16, [0, 1])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda tv: tv.pad_product(8, [0, 1]), "11 elements of k cannot become 8"),
        (lambda tv: tv.pad_product(16, [1]), r"operands \[1\] are copied"),
        (lambda tv: tv.pad_product(16, []), r"operands \[\] are copied"),
        (lambda tv: tv.fusion.outputs[0].pad_product(16, [0, 1]), "is not a reduction"),
        (split, "call pad_product before split"),
    ],
)
def test_refusals(call: Callable[[tf.TensorView], object], text: str) -> None:
    _, y = product("mk")
    with pytest.raises(ScheduleError, match=text):
        call(y)


def test_sums_of_other_functions_are_refused() -> None:
    with tf.Fusion("squares") as fusion:
        y = tf.sum(tf.square(tf.define_tensor([4, 11])), 1)
        fusion.add_output(tf.exp(y))
    with pytest.raises(ScheduleError, match="is not a sum over one axis of products of two tensors"):
        y.pad_product(16, [0, 1])
