"""Attention with torch's ops: values, what is left to torch and why."""

from typing import Any

import pytest

from tests.calls import Of, always

torch = pytest.importorskip("torch")

from taskfuse.torch import product_groups
from taskfuse.torch.compilation import listeners
from taskfuse.torch.importer import refusal
from taskfuse.torch.product_groups import JOINED
from tests.torch.graphs import check, compiled, report, traced

flash: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def half(*shape: int) -> Any:
    """Values that are exact in bfloat16."""
    return (torch.randn(shape) * 4).round().div(4).to(torch.bfloat16)


def reason(function: Of[Any, Any], *inputs: Any) -> str | None:
    """Why the attention of a function has no fusion."""
    node = next(n for n in traced(function, *inputs).graph.nodes if n.target is flash)
    return refusal(node, {})


@pytest.mark.parametrize("mask", [False, True])
def test_values_are_those_of_torch(mask: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_groups, "attention_times", always((1.0, 2.0)))  # of so few elements torch's is faster
    torch.manual_seed(0)
    q, k, v = half(1, 2, 64, 32), half(1, 2, 96, 32), half(1, 2, 96, 32)
    inputs = [q, k, v, torch.where(torch.rand(64, 96) > 0.3, 0.0, -torch.inf).to(torch.bfloat16)][: 3 + mask]

    def function(q: Any, k: Any, v: Any, bias: Any = None) -> Any:
        return flash(q, k, v, is_causal=not mask, attn_mask=bias, scale=0.25)[0]

    found = report(function, *inputs)
    assert found.ops[0][2].startswith("fusion"), found.ops
    (got,) = found.program(list(inputs))
    want = function(*inputs)
    assert got.stride() == want.stride()
    exact = function(*(x.double() for x in inputs))  # probabilities are rounded to bfloat16 on the way
    assert (got - exact).square().mean().sqrt() < 2 * (want - exact).square().mean().sqrt() + 1e-3


def test_scores_that_are_not_kept_in_registers_are_torchs() -> None:
    found = check(lambda q: flash(q, q, q)[0], torch.randn(1, 2, 8, 16))
    assert next(line[3] for line in found.ops if "attention" in line[1]) == JOINED["_scaled_dot_product_flash_attention_for_cpu"]


@pytest.mark.parametrize("is_causal", [False, True])
def test_logarithms_of_sums_that_gradients_need(is_causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_groups, "attention_times", always((1.0, 2.0)))
    torch.manual_seed(0)
    inputs = [half(1, 2, 64, 32), half(1, 2, 96, 32), half(1, 2, 96, 32)]

    def function(q: Any, k: Any, v: Any) -> Any:
        return list(flash(q, k, v, is_causal=is_causal))

    found = report(function, *inputs)
    assert len(found.fusions) == 1
    got, want = found.program(list(inputs)), function(*inputs)
    assert [x.shape for x in got] == [x.shape for x in want]
    torch.testing.assert_close(got[1], want[1], atol=1e-3, rtol=1e-4)


def test_training_goes_through_a_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward by a fusion, gradients by torch's op from what it has made."""
    monkeypatch.setattr(product_groups, "attention_times", always((1.0, 2.0)))
    torch.manual_seed(0)
    inputs = [half(1, 2, 64, 32) for _ in range(3)]

    def loss(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).float().square().mean()

    reports: list[Any] = []
    listeners.append(reports.append)
    try:
        found = [x.clone().requires_grad_() for x in inputs]
        compiled(loss)(*found).backward()
    finally:
        listeners.remove(reports.append)
    wanted = [x.double().requires_grad_() for x in inputs]
    loss(*wanted).backward()
    forward = next(r for r in reports if r.kind == "forward")
    assert any("attention" in op and where.startswith("fusion") for _, op, where, _ in forward.ops)
    for x, y in zip(found, wanted, strict=True):
        assert (x.grad - y.grad).norm() < 2e-2 * y.grad.norm()


def test_what_gradients_need_of_masks_is_torchs() -> None:
    q = half(1, 2, 64, 32)
    assert reason(lambda q: flash(q, q, q)[0], q) is None
    assert reason(lambda q: list(flash(q, q, q)), q) is None
    assert reason(lambda q: list(flash(q, q, q, attn_mask=q[0, 0, :, :1].expand(64, 64))), q) == "its result 1 is read"
    assert reason(lambda q: flash(q, q, q, 0.5)[0], q) == "it drops elements at random"


backward: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


@pytest.mark.parametrize(("queries", "keys", "is_causal", "mask"), [(64, 96, False, False), (96, 96, True, False), (64, 96, False, True)])
def test_gradients_are_those_of_torch(queries: int, keys: int, is_causal: bool, mask: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_groups, "gradient_times", always((1.0, 2.0)))
    torch.manual_seed(0)
    inputs = [half(1, 2, queries, 32), half(1, 2, queries, 32), half(1, 2, keys, 32), half(1, 2, keys, 32)]
    bias = [torch.where(torch.rand(queries, keys) > 0.3, 0.0, -torch.inf).to(torch.bfloat16)] * mask
    out, sums = flash(*inputs[1:], is_causal=is_causal, attn_mask=bias[0] if mask else None)

    def function(*args: Any) -> Any:
        return list(backward(*args[:6], 0.0, is_causal, attn_mask=args[6] if mask else None))

    args = [*inputs, out, sums, *bias]
    found = report(function, *args)
    assert len(found.fusions) == 1
    got, want = found.program(list(args)), function(*args)
    exact = function(*(x.double() for x in args))
    for mine, theirs, right in zip(got, want, exact, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        assert (mine - right).square().mean().sqrt() < 2 * (theirs - right).square().mean().sqrt() + 1e-3


def test_gradients_that_are_torchs() -> None:
    q, sums = half(1, 2, 64, 32), torch.zeros(1, 2, 64)
    node = next(n for n in traced(lambda q, s: list(backward(q, q, q, q, q, s, 0.5, False)), q, sums).graph.nodes if n.target is backward)
    assert refusal(node, {}) == "it drops elements at random"


@pytest.mark.parametrize("is_causal", [False, True])
def test_training_goes_through_fusions(is_causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and gradients."""
    monkeypatch.setattr(product_groups, "attention_times", always((1.0, 2.0)))
    monkeypatch.setattr(product_groups, "gradient_times", always((1.0, 2.0)))
    torch.manual_seed(0)
    inputs = [half(1, 2, 64, 32) for _ in range(3)]

    def loss(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal).float().square().mean()

    reports: list[Any] = []
    listeners.append(reports.append)
    try:
        found = [x.clone().requires_grad_() for x in inputs]
        compiled(loss)(*found).backward()
    finally:
        listeners.remove(reports.append)
    wanted = [x.double().requires_grad_() for x in inputs]
    loss(*wanted).backward()
    for kind in ("forward", "backward"):
        lines = [line for r in reports if r.kind == kind for line in r.ops if "attention" in line[1]]
        assert lines
        assert all(where.startswith("fusion") for _, _, where, _ in lines)
    for x, y in zip(found, wanted, strict=True):
        assert (x.grad - y.grad).norm() < 2e-2 * y.grad.norm()


def test_fewer_heads_of_keys_than_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_groups, "attention_times", always((1.0, 2.0)))
    torch.manual_seed(0)
    q, k, v = half(1, 4, 32, 16), half(1, 2, 32, 16), half(1, 2, 32, 16)
    found = report(lambda q, k, v: flash(q, k, v, is_causal=True)[0], q, k, v)
    assert found.ops[0][2].startswith("fusion"), found.ops
    (got,) = found.program([q, k, v])
    want = torch.nn.functional.scaled_dot_product_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), is_causal=True)
    torch.testing.assert_close(got, want, rtol=2**-6, atol=2**-6)
