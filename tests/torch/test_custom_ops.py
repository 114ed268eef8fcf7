"""A fusion as an op of torch: opcheck, gradients, vmap, inside a compiled model."""

from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.torch.custom_ops import library
from tests.torch.graphs import compiled


@cache
def scaled_exp() -> Any:
    with tf.Fusion("scaled_exp") as forward:
        x, w, a = tf.define_tensor(["N", "M"], name="x"), tf.define_tensor(["M"], name="w"), tf.define_scalar(tf.float32, name="a")
        forward.add_output(tf.exp(x * a) * w, name="y")
    with tf.Fusion("scaled_exp_gradients") as backward:
        x, w, y, g = (tf.define_tensor(list(shape), name=name) for name, shape in (("x", "NM"), ("w", "M"), ("y", "NM"), ("grad_y", "NM")))
        a = tf.define_scalar(tf.float32, name="a")
        backward.add_output(g * y * a, name="grad_x")
        backward.add_output(tf.sum(g * tf.exp(x * a), 0), name="grad_w")
    return library(forward, namespace="taskfuse_test", backward=backward)


def reference(x: Any, w: Any, a: float) -> Any:
    return torch.exp(x * a) * w


def inputs(*shape: int) -> Any:
    torch.manual_seed(0)
    return torch.randn(*shape, requires_grad=True), torch.randn(shape[-1], requires_grad=True), 0.5


@pytest.mark.parametrize("turned", [False, True])
def test_opcheck(turned: bool) -> None:
    x, w, a = inputs(3, 4)
    if turned:
        x = x.detach().t().contiguous().t().requires_grad_()
    torch.library.opcheck(scaled_exp().default, (x, w, a))


def test_values_and_gradients() -> None:
    args = inputs(3, 4)
    got, want = scaled_exp()(*args), reference(*args)
    torch.testing.assert_close(got, want)
    for a, b in zip(torch.autograd.grad(got.sum(), args[:2]), torch.autograd.grad(want.sum(), args[:2]), strict=True):
        torch.testing.assert_close(a, b)


def test_vmap() -> None:
    x, w, a = torch.randn(2, 3, 4), torch.randn(4), 0.5
    for rows in (x, x[:0]):
        torch.testing.assert_close(torch.vmap(lambda r: scaled_exp()(r, w, a))(rows), torch.exp(rows * a) * w)


def test_inside_a_compiled_model() -> None:
    torch._dynamo.reset()
    args = inputs(5, 4)
    op = scaled_exp()
    run = compiled(lambda x, w, a: torch.nn.functional.gelu(op(x + 1, w, a) * 2))
    torch.testing.assert_close(run(*args), torch.nn.functional.gelu(reference(args[0] + 1, *args[1:]) * 2))


def test_several_results_integers_and_strides() -> None:
    with tf.Fusion("several") as fusion:
        x = tf.define_tensor(["N", "M"], name="x")
        n = tf.define_integer("n", max="M")
        fusion.add_output(tf.exp(x), strides=[1, "N"])
        fusion.add_output(tf.copy(x[:, :n]))
        fusion.add_output(tf.exp(x[::2, 1:]))
    op: Any = library(fusion, namespace="taskfuse_test")
    y, part, others = op(torch.ones(2, 3), 2)
    assert y.stride() == (1, 2)
    assert (part.shape, others.shape) == ((2, 2), (1, 2))
    torch.library.opcheck(op.default, (torch.ones(2, 3), 2))


def test_the_package_has_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tf, "torch")
    package: Any = tf
    assert package.torch.library is library


def test_what_is_refused() -> None:
    with tf.Fusion("into") as fusion:
        x = tf.define_tensor([4], name="x")
        fusion.add_output(x * 2, into=x)
    with pytest.raises(UnsupportedError, match="written into an input"):
        library(fusion, namespace="taskfuse_test")
    with tf.Fusion("plain") as fusion, tf.Fusion("wrong") as backward:
        pass
    with fusion:
        fusion.add_output(tf.define_tensor([4], name="x") * 2, name="y")
    with backward:
        backward.add_output(tf.define_tensor([4], name="z") * 2, name="grad_x")
    with pytest.raises(UnsupportedError, match="'z' is not a name that it can have"):
        library(fusion, namespace="taskfuse_test", backward=backward)
