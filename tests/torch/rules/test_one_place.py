"""Sums with one term that is not zero."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.ir.expr import Reduction
from tests.calls import Of
from tests.torch.graphs import check


def gradient(row: Any, place: Any, factor: Any) -> Any:
    """That of a loss of classes with respect to logarithms of weights."""
    given = torch.zeros_like(row).scatter(1, place, -1.0) * factor
    return given - torch.exp(row) * given.sum(1, keepdim=True)


def reductions(function: Of[Any, Any], *inputs: Any) -> int:
    """How many a fusion has whose values are torch's."""
    return sum(isinstance(e, Reduction) for region, _ in check(function, *inputs).fusions.values() for e in region.fusion.exprs())


def test_a_sum_of_one_term_is_no_reduction() -> None:
    row, place = torch.randn(6, 33), torch.tensor([0, 5, -1, 32, -33, 7])[:, None] % 33
    factor = torch.tensor([1.0, 0.0, float("inf"), float("nan"), -2.0, 1e-40])[:, None]
    assert reductions(gradient, row, place, factor) == 0
    assert reductions(lambda row, place: (torch.zeros_like(row).scatter(1, place, 2.0) + 0.0).sum(1), row, place) == 0
    assert reductions(lambda row, place: torch.tanh(torch.zeros_like(row).scatter(1, place, 2.0).abs()).sum(1), row, place) == 0


def test_a_sum_whose_terms_differ_is_a_reduction() -> None:
    row, place = torch.randn(6, 33), torch.randint(33, (6, 1))
    assert reductions(lambda row, place: (torch.ones_like(row).scatter(1, place, 2.0) * 3).sum(1), row, place) == 1, "no term is zero"
    assert reductions(lambda row, place: (torch.zeros_like(row).scatter(1, place, 2.0) * row).sum(1), row, place) == 1, "a factor differs from term to term"
    assert reductions(lambda row, place: torch.exp(torch.zeros_like(row).scatter(1, place, 2.0)).sum(1), row, place) == 1, "a function of zero is not zero"
    two = torch.randint(33, (6, 2))
    assert reductions(lambda row, two: torch.zeros_like(row).scatter(1, two, 2.0).sum(1), row, two) >= 1, "two terms"
    assert reductions(lambda row, place: torch.zeros_like(row).scatter(1, place, 2.0).sum(0), row, place) == 1, "other rows"
