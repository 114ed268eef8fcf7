"""``torch.compile(backend="taskfuse")`` on a GPU: kernels, training, CUDA graphs, streams, odd addresses, symbolic extents, ops of fusions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.calls import Of

pytest.importorskip("torch")

import torch

import taskfuse as tf
from taskfuse.torch import backend, explain, library

pytestmark = [  # what torch itself raises: where it is first compiled, and where it reserves memory for graphs
    pytest.mark.filterwarnings("ignore:`torch.jit.*` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning"),
]


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def compiled(model: Of[Any, Any], **options: Any) -> Any:
    return torch.compile(model, backend=backend, options={"strict": True, **options})


def mlp(dtype: Any) -> Any:
    parts = torch.nn.LayerNorm(256), torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256), torch.nn.LayerNorm(256), torch.nn.SiLU()
    return torch.nn.Sequential(*parts).cuda().to(dtype)


@pytest.mark.parametrize("cudagraphs", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_and_inference(dtype: Any, cudagraphs: bool) -> None:
    model = mlp(dtype)
    run = compiled(model, cudagraphs=cudagraphs, least=1)
    tolerance = {"atol": 2e-2, "rtol": 2e-2} if dtype is torch.bfloat16 else {"atol": 1e-4, "rtol": 1e-4}
    for _ in range(3):
        x = torch.randn(64, 256, device="cuda", dtype=dtype, requires_grad=True)
        torch.compiler.cudagraph_mark_step_begin()
        got = torch.autograd.grad(run(x).float().square().mean(), [x, *model.parameters()])
        want = torch.autograd.grad(model(x).float().square().mean(), [x, *model.parameters()])
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, **tolerance)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(64, 256, device="cuda", dtype=dtype)
            torch.compiler.cudagraph_mark_step_begin()
            torch.testing.assert_close(run(x), model(x), **tolerance)


def test_inputs_of_any_strides_and_addresses() -> None:
    def function(x: Any) -> Any:
        return (x.exp() + 1) * x.sum(-1, keepdim=True)

    run, whole = compiled(function), torch.randn(65, 129, device="cuda")
    for x in (whole, whole.t(), whole[1:, 1:], whole[::2, ::3], whole.flatten()[1:8193].view(64, 128)):
        # sums of floats depend on the order of their terms, and cancel: both are compared with float64
        exact, terms = function(x.double()), (x.exp() + 1).double() * x.double().abs().sum(-1, keepdim=True)
        for got in (run(x), function(x)):
            assert ((got - exact).abs() <= 1e-6 * terms).all()
        assert run(x).stride() == function(x).stride()


def test_calls_after_the_first_are_bound() -> None:
    """By the addresses of their arguments alone, also for odd ones, and for kernels that exchange tensors."""

    def function(x: Any, w: Any) -> Any:
        y = torch.softmax(x * w, -1)
        return y - y.sum(0), (y.exp() + 1).t()

    run, w = compiled(function), torch.randn(192, device="cuda")
    for k in range(6):
        whole = torch.randn(64 * 192 + 1, device="cuda")
        x = whole[k % 2 : 64 * 192 + k % 2].view(64, 192)
        torch.testing.assert_close(run(x, w), function(x, w))
        assert [y.stride() for y in run(x, w)] == [y.stride() for y in function(x, w)]


def test_the_current_stream() -> None:
    run, x = compiled(lambda x: (x.exp() + 1).sin()), torch.randn(1 << 20, device="cuda")
    run(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = torch.zeros_like(x)
        for _ in range(20):
            y = y + run(x + y * 0)
    stream.synchronize()
    torch.testing.assert_close(y, 20 * (x.exp() + 1).sin(), rtol=1e-4, atol=1e-4)


def test_symbolic_extents_and_numbers() -> None:
    run = torch.compile(lambda x, f: torch.softmax(x * f, -1) + x.shape[0], backend=backend, dynamic=True, options={"strict": True})
    for rows, f in ((3, 0.5), (17, 1.5), (256, 2.5)):
        x = torch.randn(rows, 96, device="cuda")
        torch.testing.assert_close(run(x, f), torch.softmax(x * f, -1) + rows)


def test_products_of_matrices() -> None:
    model = mlp(torch.bfloat16)
    x = torch.randn(128, 256, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model, products=True)(x), model(x), atol=3e-2, rtol=3e-2)


def test_a_report_counts_kernels() -> None:
    found = explain(mlp(torch.bfloat16), torch.randn(64, 256, device="cuda", dtype=torch.bfloat16), options={"least": 1})
    assert found.kernels >= found.fusions > 0
    assert "expected" in str(found)


def test_an_op_of_a_fusion() -> None:
    with tf.Fusion("gpu_op") as fusion:
        x, w = tf.define_tensor(["N", "M"], name="x"), tf.define_tensor(["M"], name="w")
        fusion.add_output(tf.exp(x) * w, name="y")
    op: Any = library(fusion, namespace="taskfuse_gpu_test")
    x, w = torch.randn(33, 64, device="cuda"), torch.randn(64, device="cuda")
    torch.testing.assert_close(op(x, w), x.exp() * w)
    torch.library.opcheck(op.default, (x, w))
    torch.testing.assert_close(compiled(lambda x, w: op(x + 1, w) * 2 + 1)(x, w), (x + 1).exp() * w * 2 + 1)
