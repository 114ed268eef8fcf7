"""Tensors as objects: what they say of themselves, what they are not, and axes to be scheduled."""

from collections.abc import Callable
from typing import Any

import pytest

import taskfuse as tf
from taskfuse.errors import FusionError, ScheduleError, ShapeError, SymbolError


def tensors() -> tuple[tf.Fusion, tf.TensorView, tf.TensorView]:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor(["S", 4], name="x")
        y = tf.sin(x)
        fusion.add_output(y)
    return fusion, x, y


def test_what_a_tensor_says_of_itself() -> None:
    fusion, x, y = tensors()
    assert (repr(x), x.is_input, x.is_output, x.ndim, x.task) == ("x: float32[S, 4]", True, False, 2, None)
    assert (y.is_input, y.is_output, [e.output for e in x.uses]) == (False, True, [y])
    assert y.named("z") is y
    assert fusion.tensor("z") is y


REFUSED: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda x: [*x], FusionError, "x is one tensor, not a sequence"),
    (lambda x: len(x), SymbolError, "the value of S is not known"),
    (lambda x: len(tf.sum(x)), FusionError, "is 0-d, which has no length"),
    (lambda x: x.sum(0, dim=1), ShapeError, "axis= and dim= are both given"),
    (lambda x: x.position(2, "split"), ScheduleError, r"axis 2 is out of range: the loop domain has 2 axes"),
    (lambda x: x.position("0", "split"), ScheduleError, "'0' is not a position of an axis"),
    (lambda x: x.nothing, AttributeError, "a tensor has no attribute 'nothing'"),
]


@pytest.mark.parametrize(
    ("ask", "kind", "reason"),
    REFUSED,
)
def test_what_a_tensor_is_not(ask: Callable[[Any], object], kind: type[Exception], reason: str) -> None:
    fusion, x, _ = tensors()
    with fusion, pytest.raises(kind, match=reason):
        ask(x)


def test_both_spellings_of_parameters() -> None:
    fusion, x, _ = tensors()
    with fusion:
        assert [tv.ndim for tv in (x.sum(1), x.sum(dim=1), x.sum(), x.sum(1, keepdims=True), x.sum(dim=1, keepdim=True))] == [1, 1, 0, 2, 2]
        assert x.T.shape == x.permute(1, 0).shape == x.permute([1, 0]).shape == x.mT.shape
        assert x.reshape(-1).shape == x.reshape([-1]).shape == x.flatten().shape


def test_axes_count_from_the_end_and_are_equal_by_what_they_are() -> None:
    _, x, y = tensors()
    assert x.position(-1, "split") == 1
    assert y.axis(0) == y.axis(-2)
    assert len({y.axis(0), y.axis(-2), y.axis(1)}) == 2
    assert y.axis(0) != x.axis(0)
    assert y.axis(1).parallelize(tf.ParallelType.TIDx).ptype is tf.ParallelType.TIDx
    assert y.axis(0).ptype is tf.ParallelType.Serial
