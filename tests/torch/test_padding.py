"""Padded rows: where nobody else sees them, and of what."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch.graphs import check, foreign


def scores(x: Any, w: Any) -> Any:
    return torch.log_softmax((x @ w.t()).float().view(2, 8, -1), -1) * 2


def test_a_product_that_fusions_read_has_padded_rows() -> None:
    x, w = torch.randn(16, 4), torch.randn(33, 4)
    source = check(scores, x, w, fusions=1).program.source
    assert "out=empty" in source
    assert "(16, 33, ), (36, 1, )" in source
    assert "out=empty" not in check(scores, x, torch.randn(32, 4), fusions=1).program.source
    assert "out=empty" not in check(scores, x, torch.randn(5, 4), fusions=1).program.source  # three of eight would be padding


def test_batches() -> None:
    source = check(lambda x, w: torch.bmm(x, w).exp() + 1, torch.randn(3, 5, 4), torch.randn(3, 4, 33), fusions=1).program.source
    assert "(3, 5, 33, ), (180, 36, 1, )" in source


def test_what_others_see_lies_as_torch_says() -> None:
    x, w = torch.randn(16, 4), torch.randn(33, 4)

    def function(x: Any, w: Any) -> list[Any]:
        y = x @ w.t()
        return [y, y.exp() + 1]

    assert "out=empty" not in check(function, x, w).program.source
    assert "out=empty" not in check(lambda x, w: foreign(x @ w.t()), x, w).program.source
    assert "out=empty" not in check(lambda x, w: ((x @ w.t()).view(-1).exp() + 1).cumsum(0) * 2, x, w).program.source  # rows in one row


def test_a_fusion_writes_padded_rows_for_products() -> None:
    def gradients(g: Any, x: Any, w: Any) -> list[Any]:
        d = torch.softmax(g, -1) - 0.5 * g
        return [d @ w, d.t() @ x]

    source = check(gradients, torch.randn(16, 33), torch.randn(16, 4), torch.randn(33, 4), fusions=1).program.source
    assert "(33, 16, ), (1, 36, ), 0" in source
    assert "sub = laid" not in source
