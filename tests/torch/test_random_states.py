"""Attention without dropout draws no random numbers: its states are zeros, and the rest of it is one fusion."""

from typing import Any

import pytest

from tests.calls import always

torch = pytest.importorskip("torch")

from taskfuse.torch import product_groups
from taskfuse.torch.random_states import is_state
from tests.torch.graphs import report, traced

ops: Any = torch.ops.aten


def attended(q: Any, k: Any, v: Any) -> list[Any]:
    """What torch keeps for the gradients of FlashAttention."""
    found = ops._scaled_dot_product_flash_attention(q, k, v)
    return [found[0], found[1], found[6], found[7]]


def operands() -> list[Any]:
    torch.manual_seed(0)
    return [torch.randn(1, 2, n, 32).to(torch.bfloat16) for n in (64, 96, 96)]


@pytest.mark.parametrize("is_fused", [False, True])
def test_states_are_zeros_where_attention_is_fused(is_fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_groups, "attention_times", always((1.0, 2.0) if is_fused else (2.0, 1.0)))
    q, k, v = operands()
    found = report(attended, q, k, v)
    line = next(line for line in found.ops if "attention" in line[1])
    assert line[2].startswith("fusion") == is_fused, line
    if not is_fused:
        assert not any("full" in op for _, op, _, _ in found.ops)
        return
    (region, _), *rest = found.fusions.values()
    assert not rest
    assert len(region.fusion.outputs) == 2, "the result and the logarithms of sums"
    y, sums, *states = found.program([q, k, v])
    scores = q.double() @ k.double().transpose(2, 3) * 32**-0.5
    torch.testing.assert_close(y.double(), scores.softmax(3) @ v.double(), atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(sums.double(), scores.logsumexp(3), atol=1e-4, rtol=1e-4)
    assert [(s.dtype, tuple(s.shape), int(s.sum(dtype=torch.int64))) for s in states] == [(torch.uint64, (2,), 0), (torch.uint64, (), 0)]


def test_which_results_are_states() -> None:
    graph = traced(attended, *operands()).graph
    found = [is_state(n) for n in graph.nodes if "getitem" in n.name and n.users]
    assert found == [False, False, True, True]
