"""Padded products: when it pays, and that what is read is what was asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.target import DEFAULT
from taskfuse.torch import padding
from taskfuse.torch.compilation import GraphReport, listeners
from tests.torch.graphs import check, compiled, foreign


def expect(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """On this GPU, a product whose rows are not multiples of 16 bytes takes ``factor`` times as long."""
    target = replace(DEFAULT, torch=replace(DEFAULT.torch, unaligned_factor=factor))
    monkeypatch.setattr(padding, "present", lambda: target)


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of few elements are padded, too."""
    expect(monkeypatch, 1e9)


def scores(x: Any, w: Any) -> Any:
    return torch.log_softmax((x @ w.t()).float().view(2, 8, -1), -1) * 2


def half(*shape: int) -> Any:
    return torch.randn(shape, dtype=torch.bfloat16)


def pads(function: Any, *inputs: Any) -> int:
    return check(function, *inputs).program.source.count("constant_pad_nd_")


def test_a_product_that_a_fusion_reads() -> None:
    found = check(scores, half(16, 32), half(33, 32))
    assert any(op.startswith("aten.constant_pad_nd") for _, op, _, _ in found.ops)
    assert "clone" not in found.program.source
    assert "constant_pad" not in check(scores, half(16, 32), half(40, 32)).program.source
    assert "constant_pad" not in check(scores, torch.randn(16, 32), torch.randn(33, 32)).program.source  # of float32
    assert "constant_pad" not in check(scores, half(16, 32), half(5, 32)).program.source


def test_a_sum_over_an_odd_axis_has_zeros_in_both_factors() -> None:
    check(lambda x, w: (x @ w).exp() + 1, half(16, 33), half(33, 32))


def test_gradients_are_padded_by_the_fusion_that_makes_them() -> None:
    def gradients(g: Any, x: Any, w: Any) -> list[Any]:
        d = torch.softmax(g, -1) - 0.5 * g
        return [d @ w, d.t() @ x]

    found = check(gradients, half(16, 33), half(16, 32), half(33, 32))
    softmax = next(where for _, op, where, _ in found.ops if "_softmax" in op)
    assert any(op.startswith("aten.constant_pad_nd") and where == softmax for _, op, where, _ in found.ops)


def test_what_others_see_lies_as_torch_says() -> None:
    def function(x: Any, w: Any) -> list[Any]:
        y = x @ w.t()
        return [y, y.exp() + 1, foreign(y)]

    check(function, half(16, 32), half(33, 32))


def test_views_that_would_be_none_leave_a_product_as_it_is() -> None:
    check(lambda x, w: ((x @ w.t()).view(-1).exp() + 1) * 2, half(16, 32), half(33, 32))


def test_in_training_a_part_of_each_padded_row_is_kept() -> None:
    x, w = half(16, 32).requires_grad_(), half(33, 32).requires_grad_()
    reports: list[GraphReport] = []
    listeners.append(reports.append)
    try:
        got = torch.autograd.grad(compiled(scores)(x, w).square().sum(), (x, w))
    finally:
        listeners.remove(reports.append)
    forward, backward = reports
    assert "clone" not in forward.program.source, "the logits are kept as they are"
    assert any(tuple(n.meta["val"].shape) == (16, 40) for region, _ in backward.fusions.values() for n in region.tensors)
    for a, b in zip(got, torch.autograd.grad(scores(x, w).square().sum(), (x, w)), strict=True):
        torch.testing.assert_close(a, b, atol=2e-2, rtol=2e-2)


def test_it_pays_only_for_long_products(monkeypatch: pytest.MonkeyPatch) -> None:
    expect(monkeypatch, 5.0)
    assert "constant_pad" not in check(scores, half(16, 32), half(33, 32)).program.source
