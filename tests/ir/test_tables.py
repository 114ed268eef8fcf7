"""What is known of a table, as text and with other expressions."""

from __future__ import annotations

import pytest

from taskfuse.ir.scalar import const, substitute, sym
from taskfuse.ir.tables import Table

M = sym("M")


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (Table(const(0), M), "0..M"),
        (Table(const(0), M, nondecreasing=True), "0..M nondecreasing"),
        (Table(const(-1), M - 1, first=const(0)), "-1..M - 1 first 0"),
        (Table(const(0), M, nondecreasing=True, first=const(0), last=M), "0..M nondecreasing first 0 last M"),
    ],
)
def test_text(table: Table, text: str) -> None:
    assert str(table) == text


def test_other_expressions() -> None:
    table = Table(const(0), M, nondecreasing=True, last=M)
    assert table.expressions == (const(0), M, M)
    assert table.mapped(lambda e: substitute(e, {"M": 8})) == Table(const(0), const(8), nondecreasing=True, last=const(8))
