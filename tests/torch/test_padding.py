"""Padded products: when it pays, and that what is read is what was asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.target import DEFAULT
from taskfuse.torch import padding
from taskfuse.torch.compilation import GraphReport, listeners, program_of
from tests.torch.graphs import REFERENCE, check, compiled, foreign, traced


def expect(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """On this GPU, a product whose rows are not multiples of 16 bytes takes ``factor`` times as long."""
    target = replace(DEFAULT, torch=replace(DEFAULT.torch, unaligned_factor=factor))
    monkeypatch.setattr(padding, "present", lambda: target)


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of few elements are padded, too."""
    expect(monkeypatch, 1e9)


def scores(x: Any, w: Any) -> Any:
    return torch.log_softmax((x @ w.t()).float().view(2, x.shape[0] // 2, -1), -1) * 2


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
    """Also where the number of rows is a symbol: the graphs serve others."""
    w = half(33, 32).requires_grad_()
    run, reports = compiled(scores), list[GraphReport]()
    listeners.append(reports.append)
    try:
        for rows in (16, 24):
            x = half(rows, 32).requires_grad_()
            torch._dynamo.mark_dynamic(x, 0)
            got = torch.autograd.grad(run(x, w).square().sum(), (x, w))
            for a, b in zip(got, torch.autograd.grad(scores(x, w).square().sum(), (x, w)), strict=True):
                torch.testing.assert_close(a, b, atol=2e-2, rtol=2e-2)
    finally:
        listeners.remove(reports.append)
    forward, backward = reports
    assert "clone" not in forward.program.source, "the logits are kept as they are"
    kept = [tuple(n.meta["val"].shape) for region, _ in backward.fusions.values() for n in region.tensors]
    assert any(len(shape) == 2 and shape[1] == 40 for shape in kept)


def test_it_pays_only_for_long_products(monkeypatch: pytest.MonkeyPatch) -> None:
    expect(monkeypatch, 5.0)
    assert "constant_pad" not in check(scores, half(16, 32), half(33, 32)).program.source


def constant(*shape: int) -> Any:
    """A matrix of a graph whose other extents are symbols."""
    return (torch.arange(torch.Size(shape).numel()).view(shape) % 7 - 3).to(torch.bfloat16)


def loss(x: Any) -> Any:
    y = (x.reshape(-1, 32) @ constant(33, 32).t()).view(x.shape[0], x.shape[1], 33)
    return torch.log_softmax(y[:, :-1].reshape(-1, 33).float(), -1).sum(0)


def seen(x: Any) -> Any:
    return x @ constant(33, 32).t()


def symbolic_gradients(g: Any, x: Any) -> list[Any]:
    d = torch.softmax(g, -1) - 0.5 * g
    return [d @ constant(33, 32), d.t() @ x]


def columns(x: Any, y: Any) -> Any:
    return (x @ y).exp() + 1


SYMBOLIC: dict[str, tuple[Any, tuple[Any, ...], tuple[Any, ...], int]] = {
    "rows": (loss, (half(3, 5, 32),), (half(4, 9, 32),), 1),
    "rows that others see": (seen, (half(16, 32),), (half(9, 32),), 1),
    "gradients": (symbolic_gradients, (half(16, 33), half(16, 32)), (half(11, 33), half(11, 32)), 2),
    "rows whose length is a symbol": (columns, (half(16, 32), half(32, 33)), (half(9, 32), half(32, 35)), 0),
}


def pads_of(found: GraphReport) -> int:
    return sum(op.startswith("aten.constant_pad_nd") for _, op, _, _ in found.ops)


@pytest.mark.parametrize("name", SYMBOLIC)
def test_other_extents_may_be_symbols(name: str) -> None:
    """A product is padded for all of their values, and no guard is added."""
    function, inputs, others, pads = SYMBOLIC[name]
    graph = traced(function, *inputs, symbolic=True)
    env = graph.graph.find_nodes(op="placeholder")[0].meta["val"].fake_mode.shape_env
    before = [guard.expr for guard in env.guards]
    found: list[GraphReport] = []
    listeners.append(found.append)
    try:
        program = program_of(graph, "inference", REFERENCE)
    finally:
        listeners.remove(found.append)
    assert [guard.expr for guard in env.guards] == before
    assert pads_of(found[0]) == pads
    assert ("clone" in program.source) == (name == "rows that others see")
    for given in (inputs, others):
        found_by_torch = function(*given)
        want: list[Any] = [*found_by_torch] if isinstance(found_by_torch, list) else [found_by_torch]
        for a, b in zip(program(list(given)), want, strict=True):
            assert a.stride() == b.stride()
            torch.testing.assert_close(a, b, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize(("columns", "pads"), [(32, 1), (35, 0)])
def test_rows_of_a_symbol_are_taken_as_long_as_in_the_first_call(columns: int, pads: int) -> None:
    """Where they are odd, padded rows of the other matrix would gain nothing."""
    found = check(lambda x, y: (x[:, :33].t() @ y).exp() + 1, half(16, 40), half(16, columns), symbolic=True)
    assert pads_of(found) == pads
