"""Calls as people know them from NumPy and torch: what fits no parameter, or is no tensor, is an error that says what to write; some of it works."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import CallError, LaunchError, TaskfuseError
from taskfuse.ir.signatures import checked, checked_first

TF: Any = tf
ARRAY: Any = np.ones((4, 4), np.float32)
OUT = "help: results are new tensors: give out= to the call of what tf.compile returns"
CHOOSE = "help: choose first: tf.sum(tf.where(condition, x, 0)); of an elementwise function, tf.where(condition, result, otherwise)"
INPUT = "help: declare an input with tf.define_tensor, and give the array to the call"

REFUSED: dict[str, tuple[Callable[[Any], object], str, str]] = {
    "a result": (lambda x: TF.sum(x, 1, out=x), "sum: got an unexpected keyword argument 'out'", OUT),
    "a result of a method": (lambda x: x.sum(1, out=x), "sum: got an unexpected keyword argument 'out'", OUT),
    "a reduction of NumPy": (np.sum, "np.sum: it takes no tensors of taskfuse", "help: call tf.sum; its parameters are x, axis, keepdims, dtype"),
    "a choice of NumPy": (
        lambda x: np.where(x > 0, 1, -1),
        "np.where: it takes no tensors of taskfuse",
        "help: call tf.where; its parameters are condition, a, b",
    ),
    "a list of NumPy": (
        lambda x: np.concatenate([x, x]),
        "np.concatenate: it takes no tensors of taskfuse",
        "help: call tf.cat; its parameters are tensors, dim, form",
    ),
    "linear algebra of NumPy": (
        lambda x: np.linalg.norm(x),
        "np.linalg.norm: it takes no tensors of taskfuse",
        "help: call tf.vector_norm; its parameters are x, ord, axis, keepdims",
    ),
    "another function of NumPy": (lambda x: np.histogram(x), "np.histogram: it takes no tensors of taskfuse", "help: tensors have no such op"),
    "a question of NumPy": (np.shape, "np.shape: it takes no tensors of taskfuse", "help: ask x.shape and x.ndim"),
    "a scan by a function": (
        lambda x: np.maximum.accumulate(x),
        "np.maximum.accumulate: it takes no tensors of taskfuse",
        "help: call tf.cummax; its parameters are x, axis, exclusive",
    ),
    "another scan by a function": (
        lambda x: np.add.accumulate(x),
        "np.add.accumulate: it takes no tensors of taskfuse",
        "help: use tf.cumsum, tf.cummax or another scan",
    ),
    "pairs": (lambda x: np.add.outer(x, x), "np.add.outer: it takes no tensors of taskfuse", "help: add axes: x[:, None] and y[None, :]"),
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
    assert "test_signatures.py" in str(caught.value)
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


def scaled() -> tf.Kernel:
    """A kernel with a symbolic extent."""
    with tf.Fusion("scaled") as fusion:
        fusion.add_output(tf.define_tensor(["N"], name="x") * 2)
    return tf.lower(fusion)


X = np.ones(5, np.float32)
MISTAKEN: dict[str, tuple[Callable[[Any], object], str, str]] = {
    "a choice by its name": (lambda k: k.simulate(X, interleaving="random"), "simulate: interleaving: 'random'", "give Interleaving.ROUND_ROBIN or"),
    "no integer": (lambda k: k.simulate(X, seed=1.5), "simulate: seed: 1.5", "give an integer"),
    "too few blocks": (lambda k: k.simulate(X, resident=0), "simulate: resident is 0", "give at least 1"),
    "too few states": (lambda k: k.explore(X, limit=0), "explore: limit is 0", "give at least 1"),
    "a parameter that is not there": (
        lambda k: k.timeline(X, until=3),
        "timeline: got an unexpected keyword argument 'until'",
        "its parameters are kernel, args, seed",
    ),
    "other numbers": (lambda k: k.simulate(X, values="modular"), "simulate: values: 'modular'", "give Values"),
    "a variant by its name": (lambda k: k.cuda_source(variant="rows"), "cuda_source: variant: 'rows'", "give Variant or None"),
    "an architecture as a number": (lambda k: k.ptx(arch=90), "ptx: arch: 90", "give a string"),
    "one extent": (lambda k: k.verify(5), "verify: extents: 5", "give a mapping or None"),
    "an extent by its place": (lambda k: k.launch_shape(5), "launch_shape: too many positional arguments", "it takes no arguments"),
    "no text": (lambda _: TF.parse_kernel(None), "parse_kernel: text: None", "give a string"),
    "no text of a fusion": (lambda _: TF.parse_fusion(3), "parse_fusion: text: 3", "give a string"),
    "no fusion": (TF.widened, "widened: fusion: Kernel(", "give Fusion"),
    "less than no time": (lambda k: TF.compile(k, budget=-1), "compile: budget is -1", "give at least 0"),
    "a yes that is a word": (lambda k: TF.compile(k, specialize="no"), "compile: specialize: 'no'", "give True or False"),
}


@pytest.mark.parametrize("name", MISTAKEN)
def test_arguments_of_other_types(name: str) -> None:
    call, message, help = MISTAKEN[name]
    with pytest.raises(CallError) as caught:
        call(scaled())
    assert caught.value.message.startswith(message)
    assert caught.value.help is not None
    assert caught.value.help.startswith(help)
    assert "test_signatures.py" in str(caught.value)


def test_which_arguments_fit() -> None:
    def typed(
        number: float, flag: bool, choice: Literal["a", 1], names: Sequence[str], sizes: Mapping[str, int], anything: Any, either: int | None = None
    ) -> object:
        return number, flag, choice, names, sizes, anything, either

    call: Callable[..., object] = checked_first(typed)
    fitting: list[Any] = [1.5, True, "a", ["x"], {"N": 1}, object()]
    wrong: dict[str, Any] = {"number": "1", "flag": 1, "choice": "b", "names": "x", "sizes": [1]}
    others: list[list[Any]] = [[2, False, 1, (), {}, None], [np.float32(2), np.bool_(1), "a", np.zeros(2), {}, 3, np.int64(3)], [*fitting, None]]
    for right in others:
        assert call(*right) is not None
    for place, (name, value) in enumerate(wrong.items()):
        with pytest.raises(CallError, match=rf"^typed: {name}: .* is not of type ") as caught:
            call(*fitting[:place], value, *fitting[place + 1 :])
        assert caught.value.help is not None
        assert caught.value.help.startswith("give 'a' or 1" if name == "choice" else "give a number" if name == "number" else "give ")


@pytest.mark.parametrize("call", ["simulate", "verify", "launch_shape"])
def test_extents_that_are_not_there(call: str) -> None:
    kernel: Any = scaled()
    calls: dict[str, Callable[[dict[str, object]], object]] = {
        "simulate": lambda extents: kernel.simulate(X, extents=extents),
        "verify": kernel.verify,
        "launch_shape": lambda extents: kernel.launch_shape(**extents),
    }
    with pytest.raises(LaunchError, match="it has no extent M\n") as caught:
        calls[call]({"M": 5})
    assert caught.value.help == "its extents are N"
    with pytest.raises(TaskfuseError, match=r"N is '5', which is no integer|extents: {'N': '5'} is not of type"):
        calls[call]({"N": "5"})
