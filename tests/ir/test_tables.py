"""The range of a table, as text and with other expressions."""

from __future__ import annotations

from taskfuse.ir.scalar import const, substitute, sym
from taskfuse.ir.tables import TableRange

M = sym("M")


def test_text() -> None:
    assert str(TableRange(const(-1), M - 1)) == "-1..M - 1"


def test_other_expressions() -> None:
    table = TableRange(const(0), M)
    assert table.expressions == (const(0), M)
    assert table.mapped(lambda e: substitute(e, {"M": 8})) == TableRange(const(0), const(8))
