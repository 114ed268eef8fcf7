"""What became of a model, in words."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.torch.compilation import listeners
from taskfuse.torch.reports import explain


def test_a_report() -> None:
    model = torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.GELU(), torch.nn.Linear(4, 4))
    found = explain(model, torch.randn(3, 4, requires_grad=True), options={"run": "reference"})
    text = str(found)
    assert [g.kind for g in found.graphs] == ["forward", "backward"]
    assert found.fusions == 3  # the gradient of the bias is one
    assert "fusion 0: native_layer_norm, gelu: 3 tensors to" in text
    assert all(g.measured[compiled.text] > 0 for g in found.graphs for _, compiled in g.fusions.values())
    assert text.count(", measured ") == 3
    assert "torch: aten.addmm.default: a matrix product" in text
    assert 0 < found.coverage < 1
    assert text.splitlines()[-1].startswith(f"{found.coverage:.0%} of the ops that compute, but for convolutions, are in 3 fusions")
    assert not listeners


def test_a_model_without_gradients() -> None:
    def model(x: Any) -> dict[str, Any]:
        return {"y": x.exp() + 1}

    found = explain(model, torch.randn(3), options={"run": "reference"})
    assert [g.kind for g in found.graphs] == ["inference"]
    assert found.coverage == 1
