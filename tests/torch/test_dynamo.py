"""``torch.compile(backend="taskfuse")``: training, mutation, views, autocast, symbolic extents, threads, errors."""

from __future__ import annotations

import io
import threading
import warnings
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from taskfuse.torch.compilation import GraphReport, listeners
from taskfuse.torch.dynamo import backend
from tests.torch.graphs import compiled


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def test_a_training_step_and_inference() -> None:
    model, x = MLP(), torch.randn(4, 8, requires_grad=True)
    found: list[Any] = []
    listeners.append(found.append)
    run = compiled(model, least=1)
    y = run(x)
    got = torch.autograd.grad(y.square().sum(), [x, *model.parameters()])
    want = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
    listeners.remove(found.append)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)
    assert [r.kind for r in found] == ["forward", "backward"]
    assert all(r.fusions for r in found)
    with torch.no_grad():
        torch.testing.assert_close(run(x), model(x))


def test_gradients_inside_a_compiled_function() -> None:
    """Dynamo is on where the backward graph runs, and must not trace it."""
    model, x = MLP(), torch.randn(4, 8)
    kinds: list[str] = []

    def step(x: Any) -> Any:
        model(x).square().sum().backward()
        return x * 2

    def seen(report: GraphReport) -> None:
        kinds.append(report.kind)
        assert len(kinds) <= 3

    listeners.append(seen)
    try:
        y = compiled(step)(x)
    finally:
        listeners.remove(seen)
    got = [p.grad for p in model.parameters()]
    want = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    assert kinds == ["forward", "backward", "inference"]
    torch.testing.assert_close([y, *got], [x * 2, *want])


def test_the_name_is_known_to_torch() -> None:
    """By the entry point, where the package is installed with it; by the function everywhere."""
    from importlib.metadata import entry_points

    points = [p for p in entry_points(group="torch_dynamo_backends") if p.name == "taskfuse"]
    if points:
        assert points[0].load() is backend


def test_inputs_that_are_written_to_and_results_that_are_views() -> None:
    def function(x: Any, y: Any) -> Any:
        y.add_(x.exp() * 2)
        return x.t(), (y + 1) * 2, y

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    theirs = y.clone()
    want = function(x, theirs)
    got = compiled(function)(x, y)
    torch.testing.assert_close(y, theirs)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)
    assert got[0].data_ptr() == x.data_ptr()
    assert got[2] is y


def test_inputs_of_any_strides_and_places() -> None:
    def function(x: Any) -> Any:
        return (x.exp() + 1) * x.sum(-1, keepdim=True)

    run, whole = compiled(function), torch.randn(7, 9)
    for x in (whole, whole.t(), whole[1:, 1:], whole[::2, ::3], whole[:, :1].expand(7, 5)):
        got, want = run(x), function(x)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()


def test_numbers_dtypes_and_none() -> None:
    def function(x: Any, n: Any, flag: Any, scale: Any) -> Any:
        return None, x * n + scale, (x > 0) & flag, x.long() // 2 + n, scale * 2

    x, flag, scale = torch.randn(5) * 4, torch.tensor([True, False, True, True, False]), torch.tensor(1.5, dtype=torch.float64)
    run = compiled(function)
    for n in (3, 4, 5):
        for a, b in zip(run(x, n, flag, scale), function(x, n, flag, scale), strict=True):
            if b is None:
                assert a is None
            else:
                torch.testing.assert_close(a, b)


def test_a_changing_float_is_a_number_on_the_host() -> None:
    run = compiled(lambda x, f: (x * f).exp() + f)
    for f in (0.25, 0.5, 0.75):
        x = torch.randn(4)
        torch.testing.assert_close(run(x, f), (x * f).exp() + f)


def test_one_graph_serves_many_extents() -> None:
    found: list[GraphReport] = []
    listeners.append(found.append)
    options = {"strict": True, "run": "reference", "cache": False}
    run = torch.compile(lambda x: torch.softmax(x * 2, -1) + x.shape[0], backend=backend, dynamic=True, options=options)
    for rows in (3, 5, 9):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(run(x), torch.softmax(x * 2, -1) + rows)
    listeners.remove(found.append)
    assert len(found) == 1


def test_autocast() -> None:
    model, x = MLP(), torch.randn(4, 8)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        torch.testing.assert_close(compiled(model)(x), model(x), atol=2e-2, rtol=2e-2)


def test_an_exported_model_is_compiled_as_it_was_saved() -> None:
    model, x, found = MLP(), torch.randn(4, 8), list[GraphReport]()
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=2)},)), file)
    file.seek(0)
    run = compiled(torch.export.load(file).module(), least=1)
    listeners.append(found.append)
    for more in (x, torch.randn(9, 8)):
        with torch.no_grad():
            torch.testing.assert_close(run(more), model(more))
    listeners.remove(found.append)
    assert found
    assert all(r.fusions for r in found)


def test_gradient_checkpointing() -> None:
    """What is computed again comes after states of random numbers, of which torch's metadata says nothing."""
    model = MLP()

    def attention(t: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(t, t, t)

    def function(x: Any) -> Any:
        h = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
        q = h.view(1, 2, 2, 8)
        return torch.utils.checkpoint.checkpoint(attention, q, use_reentrant=False)

    results: list[Any] = []
    for run in (function, compiled(function)):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
        y = run(x)
        results.append([y, *torch.autograd.grad(y.square().sum(), [x, *model.parameters()])])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def test_random_numbers_are_those_of_torch() -> None:
    def function(x: Any) -> Any:
        return torch.nn.functional.dropout(x * 2 + 1, 0.5), torch.rand_like(x) * 2 + 1

    x, run = torch.randn(64), compiled(function)
    torch.manual_seed(1)
    want = function(x)
    torch.manual_seed(1)
    for a, b in zip(run(x), want, strict=True):
        torch.testing.assert_close(a, b)


def test_threads() -> None:
    model = MLP()
    run, x = compiled(model), torch.randn(4, 8)
    with torch.no_grad():
        want = run(x)
    failed: list[object] = []

    def work() -> None:
        with torch.no_grad():
            for _ in range(5):
                if not torch.equal(run(x), want):
                    failed.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_what_goes_wrong_is_raised_or_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("of the test")

    monkeypatch.setattr("taskfuse.torch.dynamo.program_of", broken)
    x = torch.randn(3)
    with pytest.raises(Exception, match="of the test"):
        compiled(lambda x: x.exp() + 1)(x)
    torch._dynamo.reset()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run = torch.compile(lambda x: x.exp() + 1, backend=backend, options={"cache": False})
        torch.testing.assert_close(run(x), x.exp() + 1)
    assert any("of the test" in str(w.message) for w in seen)


def test_dynamo_may_trace_again() -> None:
    """AOTAutograd asks for it by an exception, where a float becomes a constant."""
    layer, x = nn.LayerNorm(4), torch.randn(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = torch.compile(layer, backend=backend, dynamic=True, options={"run": "reference", "cache": False})
        torch.testing.assert_close(run(x), layer(x))


def test_tensors_on_the_host_are_left_to_torch() -> None:
    found: list[GraphReport] = []
    listeners.append(found.append)
    x = torch.randn(3)
    torch.testing.assert_close(torch.compile(lambda x: x.exp() + 1, backend=backend, options={"strict": True, "cache": False})(x), x.exp() + 1)
    listeners.remove(found.append)
    assert not found[0].fusions
    assert "it is on cpu" in str(found[0].ops)
