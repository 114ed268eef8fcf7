"""Biases of products that torch computes: fusions add them, unless something else reads the sum."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.torch import product_groups
from tests.calls import always
from tests.torch.graphs import check, foreign


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fusion is made around a product."""
    monkeypatch.setattr(product_groups, "product_times", always(None))


SHAPES = (4, 8), (16, 8), (16,)


def operands(dtype: Any = torch.float32) -> list[Any]:
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=dtype) for shape in SHAPES]


def activated(x: Any, w: Any, bias: Any) -> Any:
    return torch.tanh(torch.addmm(bias, x, w.t()).view(2, 2, 16)) * 2


def test_the_fusion_that_reads_a_product_adds_its_bias() -> None:
    found = check(activated, *operands(), fusions=1)
    assert {op for _, op, where, _ in found.ops if where == "left to torch"} == {"aten.mm.default"}
    (region, _) = next(iter(found.fusions.values()))
    assert [n.name for n in region.tensors if n.op == "placeholder"], "the bias is an input of the fusion"


def test_sums_of_16_bit_floats_are_rounded_once() -> None:
    assert "addmm" in check(activated, *operands(torch.bfloat16)).program.source


def test_sums_that_others_read_are_torchs() -> None:
    def seen(x: Any, w: Any, bias: Any) -> list[Any]:
        y = torch.addmm(bias, x, w.t())
        return [y, torch.tanh(y)]

    def crossing(x: Any, w: Any, bias: Any) -> Any:
        y = torch.addmm(bias, x, w.t())
        return foreign(y) + y

    def scaled(x: Any, w: Any, bias: Any) -> Any:
        return torch.tanh(torch.addmm(bias, x, w.t(), beta=2))

    for function in (seen, crossing, scaled):
        assert "addmm" in check(function, *operands()).program.source
