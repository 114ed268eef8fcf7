"""Canonical conditions and choices."""

from __future__ import annotations

import pytest
from hypothesis import given

from taskfuse.ir.scalar import FALSE, TRUE, Compare, Expr, and_, const, eq, ge, le, lt, maximum, minimum, ne, not_, or_, select, table, xor
from tests.ir.scalar.generated import EXPRESSIONS
from tests.ir.scalar.nests import x, y


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (minimum(x, y, x + 1), minimum(y, x)),
        (maximum(x, maximum(y, 3), 1), maximum(x, y, 3)),
        (xor(xor(x, y), x), y),
        (xor(x, xor(3, xor(y, 3))), xor(x, y)),
        (not_(lt(x, y)), ge(x, y)),
        (not_(eq(x, y)), ne(y, x)),
        (not_(not_(and_(lt(x, 1), lt(y, 1)))), and_(lt(x, 1), lt(y, 1))),
        (lt(x, x + 1), TRUE),
        (eq(2 * x, 2 * y + 1), FALSE),
        (and_(lt(x, 3), lt(x, 3), 1), lt(x, 3)),
        (and_(lt(x, 3), ge(x, 3)), FALSE),
        (or_(lt(x, 3), ge(x, 3)), TRUE),
        (and_(), TRUE),
        (or_(), FALSE),
        (and_(x), ne(x, 0)),
        (eq(lt(x, y), 0), ge(x, y)),
        (select(lt(x, y), 1, 0), lt(x, y)),
        (select(lt(x, y), lt(x, 1), 0), and_(lt(x, y), lt(x, 1))),
        (select(1, x, y), x),
        (select(x, y, y), y),
        (table([5, 6], 1), const(6)),
        (table([7, 7], x), const(7)),
    ],
)
def test_equal_conditions_and_choices_are_one(a: Expr, b: Expr) -> None:
    assert a is b


def test_constructors_reject_nothing_to_choose_from() -> None:
    with pytest.raises(ValueError, match="minimum and maximum need at least one argument"):
        minimum()
    with pytest.raises(ValueError, match="a table needs at least one value"):
        table([], x)


@given(EXPRESSIONS, EXPRESSIONS)
def test_comparison_and_negation_are_opposite(a: Expr, b: Expr) -> None:
    for cond in (lt(a, b), le(a, b), eq(a, b), ne(a, b)):
        assert not_(not_(cond)) is cond
        if isinstance(cond, Compare):
            assert and_(cond, not_(cond)) is const(0)
            assert or_(cond, not_(cond)) is const(1)
