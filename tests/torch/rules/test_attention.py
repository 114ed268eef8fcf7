"""Attention with torch's ops: values, what is left to torch and why."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.torch import product_groups
from taskfuse.torch.importer import refusal
from taskfuse.torch.product_groups import JOINED
from tests.torch.graphs import check, report, traced

flash: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def half(*shape: int) -> Any:
    """Values that are exact in bfloat16."""
    return (torch.randn(shape) * 4).round().div(4).to(torch.bfloat16)


def reason(function: Any, *inputs: Any) -> str | None:
    """Why the attention of a function has no fusion."""
    node = next(n for n in traced(function, *inputs).graph.nodes if n.target is flash)
    return refusal(node, {})


@pytest.mark.parametrize("mask", [False, True])
def test_values_are_those_of_torch(mask: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_groups, "attention_times", lambda *_: (1.0, 2.0))  # of so few elements torch's is faster
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


def test_what_gradients_need_is_torchs() -> None:
    q = half(1, 2, 64, 32)
    assert reason(lambda q: flash(q, q, q)[0], q) is None
    assert reason(lambda q: list(flash(q, q, q)), q) == "its result 1 is read"
    assert reason(lambda q: flash(q, q, q, 0.5)[0], q) == "it drops elements at random"
