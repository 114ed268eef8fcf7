"""Canonical sums, products, quotients and remainders."""

from __future__ import annotations

import pytest

from taskfuse.ir.scalar import (
    Expr,
    ceildiv,
    const,
    evaluate,
    gt,
    select,
    simplify,
    table,
)
from tests.ir.scalar.nests import M, N, S, i0, i1, x, y


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (x + y - x, y),
        (S * (i0 + 1), i0 * S + S),
        ((x + y) * (x - y), x * x - y * y),
        (3 - x + 2 * x - 3, x),
        (const(5) - 5 + x + 0, x),
        (x + const(2) - 2, const(0) + x),
        (x // 1, x),
        (x % 1, const(0)),
        (0 // x, const(0)),
        (x * 0, const(0)),
        ((4 * x + y) // 4, x + y // 4),
        ((4 * x + y) % 4, y % 4),
        ((4 * x + 2) // 8, x // 2),
        ((4 * x + 3) % 8, 4 * (x % 2) + 3),
        ((x + 9) // 4, (x + 1) // 4 + 2),
        (x // -4, (-x) // 4),
        (x % -4, -((-x) % 4)),
        (x // 4 // 8, x // 32),
        (ceildiv(ceildiv(S, 4), 8), ceildiv(S, 32)),
        (x % 8 % 4, x % 4),
        (x % 4 % 8, x % 4),
        ((x % 8 + y) % 4, (x + y) % 4),
        (x % 8 // 4, x // 4 % 2),
        ((i0 * N + i1) // N, i0 + i1 // N),
        ((i0 * N + i1) % N, i1 % N),
        ((i0 * N) // (M * N), i0 // M),
        ((x * N) % (M * N), x % M * N),
        (ceildiv(S + N, N), ceildiv(S, N) + 1),
        ((S - 1) // N, ceildiv(S, N) - 1),
    ],
)
def test_equal_polynomials_are_one(a: Expr, b: Expr) -> None:
    assert a is b


def test_division_by_zero_and_table_index_out_of_range_have_no_value() -> None:
    for e in (x // 0, x % 0, const(5) // const(0), table([1, 2], 2)):
        assert simplify(e) is e
        with pytest.raises((ZeroDivisionError, IndexError)):
            evaluate(e, {"x": 1})
    with pytest.raises(IndexError, match=r"^table index 2 is outside \[0, 2\)$"):
        evaluate(table([1, 2], x), {"x": 2})
    assert evaluate(select(gt(S, 0), x // S, -1), {"x": 1, "S": 0}) == -1
