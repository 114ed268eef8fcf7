"""Substitution."""

from __future__ import annotations

from hypothesis import given

from taskfuse.ir.scalar import Expr, evaluate, lt, select, substitute, xor
from tests.ir.scalar.generated import EXPRESSIONS, POINTS
from tests.ir.scalar.nests import S, i0, tx, x, y


def test_substitution_is_of_all_symbols_at_once() -> None:
    e = select(lt(i0, S), 4 * i0 + tx, xor(tx, 3))
    assert substitute(e, {"i0": 5, "S": 7}) is tx + 20
    assert substitute(x + 2 * y, {"x": y, "y": x}) is 2 * x + y  # all at once
    assert substitute(e, {"q": 1}) is e


@given(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS, POINTS)
def test_substitution_commutes_with_evaluation(e: Expr, a: Expr, b: Expr, point: dict[str, int]) -> None:
    inner = {**point, "i0": int(evaluate(a, point)), "i1": int(evaluate(b, point))}
    assert evaluate(substitute(e, {"i0": a, "i1": b}), point) == evaluate(e, inner)
