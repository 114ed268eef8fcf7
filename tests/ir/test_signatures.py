"""Calls as people know them from NumPy and torch: what fits no parameter, or is no tensor, is an error that says what to write; some of it works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import CallError, TaskfuseError
from taskfuse.ir.signatures import checked

TF: Any = tf
ARRAY: Any = np.ones((4, 4), np.float32)
OUT = "help: results are new tensors: give out= to the call of what tf.compile returns"
CHOOSE = "help: choose first: tf.sum(tf.where(condition, x, 0)); of an elementwise function, tf.where(condition, result, otherwise)"
INPUT = "help: declare an input with tf.define_tensor, and give the array to the call"

REFUSED: dict[str, tuple[Callable[[Any], object], str, str]] = {
    "a result": (lambda x: TF.sum(x, 1, out=x), "sum: got an unexpected keyword argument 'out'", OUT),
    "a result of a method": (lambda x: x.sum(1, out=x), "sum: got an unexpected keyword argument 'out'", OUT),
    "a reduction of NumPy": (np.sum, "sum: got an unexpected keyword argument 'out'", OUT),
    "a choice": (lambda x: TF.mean(x, 1, where=x > 0), "mean: got an unexpected keyword argument 'where'", CHOOSE),
    "a choice of an operator": (lambda x: TF.add(x, x, where=x > 0), "add: got an unexpected keyword argument 'where'", CHOOSE),
    "any other": (lambda x: TF.softmax(x, stable=True), "softmax: got an unexpected keyword argument 'stable'", "help: its parameters are x, axis"),
    "too many": (lambda x: TF.exp(x, x), "exp: too many positional arguments", "help: its parameters are x"),
    "any other of a method": (lambda x: x.clip(nothing=1), "clip: got an unexpected keyword argument 'nothing'", "help: its parameters are min, max"),
    "a number as a matrix": (lambda x: 2 @ x, "matmul: takes a tensor, not int", "help: make constants with tf.full, inputs with tf.define_tensor"),
    "an array as a matrix": (lambda x: ARRAY @ x, "matmul: takes a tensor, not ndarray", INPUT),
    "an array on the left": (lambda x: ARRAY + x, "add: an array [4, 4] is not an operand", INPUT),
    "an array on the right": (lambda x: x**ARRAY, "pow: an array [4, 4] is not an operand", INPUT),
    "a function of NumPy": (lambda x: np.spacing(x), "np.spacing: it takes no tensors of taskfuse", "help: tensors have no such op"),
    "a reduction by a function": (
        lambda x: np.add.reduce(x),
        "np.add.reduce: it takes no tensors of taskfuse",
        "help: use tf.sum, tf.max or another reduction",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    call, message, help = REFUSED[name]
    with tf.Fusion("spoken"), pytest.raises(TaskfuseError) as caught:
        call(tf.define_tensor([4, 4], name="x"))
    assert caught.value.message == message
    assert help in str(caught.value).splitlines()
    assert ("test_signatures.py" in str(caught.value)) is (call is not np.sum)  # NumPy's own line makes that call
    if "parameters" in help or "out=" in help:
        assert isinstance(caught.value, CallError)
        assert isinstance(caught.value, TypeError)


def test_what_numpy_says_works() -> None:
    """Universal functions, scalars of NumPy on the left, and ``ddof``."""
    x = np.random.default_rng(0).uniform(1, 2, (3, 4)).astype(np.float32)

    def build(a: Any) -> list[Any]:
        return [np.exp(a), np.float32(2) * a, np.maximum(a, 1.5), a.var(1, ddof=1), np.add(a, a)]

    with tf.Fusion("numpy") as fusion:
        for out in [*build(tf.define_tensor([3, 4], name="x")), tf.std(fusion.inputs[0], axis=1, ddof=1)]:
            fusion.add_output(out)
    for found, wanted in zip(fusion.evaluate(x), [*build(x), x.std(axis=1, ddof=1)], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_an_error_inside_is_left_alone() -> None:
    def broken(x: Any) -> Any:
        return x + "1"

    with pytest.raises(TypeError, match="unsupported operand") as caught:
        checked(broken)(1)
    assert not isinstance(caught.value, TaskfuseError)
