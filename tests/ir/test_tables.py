"""The range of a table, as text and with other expressions."""

from __future__ import annotations

from taskfuse.ir.scalar import const, substitute, sym
from taskfuse.ir.tables import Table

M = sym("M")


def test_text() -> None:
    assert str(Table(const(-1), M - 1)) == "-1..M - 1"


def test_other_expressions() -> None:
    table = Table(const(0), M)
    assert table.expressions == (const(0), M)
    assert table.mapped(lambda e: substitute(e, {"M": 8})) == Table(const(0), const(8))
