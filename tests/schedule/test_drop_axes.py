"""drop_axes: a tensor without the axes that its elements do not depend on; the math stays, and is proved; refused with a reason."""

from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check import Verdict
from taskfuse.check.rewrites.verify import rewritings
from taskfuse.errors import ScheduleError
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR
from taskfuse.schedule.drop_axes import free_axes
from tests.check.rewrites.rewritten import is_proved

RNG = np.random.default_rng(0)


def expanded(rows: int | str = 6, is_output: bool = False) -> tuple[tf.Fusion, tf.TensorView]:
    """One row, expanded to several before it is multiplied."""
    with tf.Fusion("expanded") as fusion:
        x, w = tf.define_tensor([1, 8], name="x"), tf.define_tensor([8, 5], name="w")
        y = tf.matmul(tf.broadcast_to(x, [rows, 8]), w)
        fusion.add_output(y if is_output else tf.exp(y))
        fusion.add_output(tf.define_tensor([rows, 5], name="z") + 1)
    return fusion, y


def arguments(fusion: tf.Fusion) -> list[np.ndarray]:
    return [RNG.uniform(-1, 1, tuple(6 if str(e) == "M" else int(str(e)) for e in tv.shape)).astype(np.float32) for tv in fusion.inputs]


@pytest.mark.parametrize("rows", [6, "M"])
@pytest.mark.parametrize("is_output", [False, True])
def test_the_math_stays_and_is_proved(rows: int | str, is_output: bool) -> None:
    fusion, y = expanded(rows, is_output)
    given = arguments(fusion)
    wanted = evaluate(fusion, given, MODULAR)
    new = y.drop_axes()
    assert [str(e) for e in new.shape] == ["5"]
    assert fusion.is_view(y) is not is_output
    for a, b in zip(evaluate(fusion, given, MODULAR), wanted, strict=True):
        assert np.array_equal(a, b)
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    kernel = tf.lower(fusion)
    assert kernel.verify().verdict is Verdict.PROVED
    assert is_proved(rewritings(kernel))
    assert np.allclose(kernel.simulate(*given, seed=0)[0], fusion.evaluate(*given)[0], rtol=1e-5)


@pytest.mark.parametrize("padded", [False, True])
def test_what_is_recomputed_at_the_points_of_a_product(padded: bool) -> None:
    """It depends on the axes of its factor alone."""
    with tf.Fusion("product") as fusion:
        x, w = tf.define_tensor([6, 7 if padded else 8], name="x"), tf.define_tensor([8, 5], name="w")
        made = tf.pad(x, [(0, 0), (1, 0)]) if padded else tf.exp(x)
        y = tf.matmul(made, w)
        fusion.add_output(tf.exp(y))
    given = arguments(fusion)
    wanted = evaluate(fusion, given, MODULAR)
    (wide,) = made.recompute([y])
    assert [str(e) for e in wide.shape] == ["6", "5", "8"]
    assert [str(e) for e in wide.drop_axes().shape] == ["6", "8"]
    assert np.array_equal(evaluate(fusion, given, MODULAR)[0], wanted[0])
    kernel = tf.lower(fusion)
    assert kernel.verify().verdict is Verdict.PROVED
    assert is_proved(rewritings(kernel))


def constant_rows() -> tuple[tf.Fusion, tf.TensorView]:
    """A tensor of three axes of which two change nothing."""
    with tf.Fusion("rows") as fusion:
        x = tf.define_tensor([5], name="x")
        y = tf.exp(tf.broadcast_to(tf.reshape(x, [1, 5, 1]), [2, 5, 4]))
        fusion.add_output(y * tf.define_tensor([2, 5, 4], name="z"))
    return fusion, y


@pytest.mark.parametrize(("axes", "left"), [((), ["5"]), ((2,), ["2", "5"]), ((-1,), ["2", "5"]), ((0,), ["5", "4"]), ((2, 0), ["5"])])
def test_some_axes_alone(axes: tuple[int, ...], left: list[str]) -> None:
    fusion, y = constant_rows()
    given = arguments(fusion)
    wanted = evaluate(fusion, given, MODULAR)
    assert [str(e) for e in y.drop_axes(*axes).shape] == left
    assert np.array_equal(evaluate(fusion, given, MODULAR)[0], wanted[0])
    kernel = tf.lower(fusion)
    assert kernel.verify().verdict is Verdict.PROVED
    assert is_proved(rewritings(kernel))


def split(tv: tf.TensorView) -> None:
    tv.split(0, 2)
    tv.drop_axes()


def whole(tv: tf.TensorView) -> None:
    with tf.Fusion("whole"):
        (tf.define_tensor([4, 8]) @ tf.define_tensor([8, 5])).drop_axes()


REFUSED: list[tuple[Callable[[tf.TensorView], object], str]] = [
    (whole, "its elements depend on all of its axes"),
    (split, "call drop_axes before split"),
    (lambda tv: tv.fusion.inputs[0].drop_axes(), "is neither a reduction nor elementwise"),
    (lambda tv: tv.drop_axes(1), "its elements depend on axis 1"),
    (lambda tv: tv.drop_axes(7), "axis 7 is out of range"),
]


@pytest.mark.parametrize(
    ("call", "text"),
    REFUSED,
)
def test_refusals(call: Callable[[tf.TensorView], object], text: str) -> None:
    _, y = expanded()
    with pytest.raises(ScheduleError, match=text):
        call(y)


def test_a_part_of_an_assembled_tensor_is_stored() -> None:
    with tf.Fusion("parts") as fusion:
        x, y = tf.define_tensor([1, 4], name="x"), tf.define_tensor([2, 4], name="y")
        fusion.add_output(tf.cat([tf.broadcast_to(tf.exp(x), [3, 4]), y], 0, "scatter"))
    part = next(e.output for e in fusion.exprs() if free_axes(fusion, e))
    given = [RNG.uniform(-1, 1, shape).astype(np.float32) for shape in ((1, 4), (2, 4))]
    part.drop_axes()
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    assert np.array_equal(kernel.simulate(*given)[0], fusion.evaluate(*given)[0])
