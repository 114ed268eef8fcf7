"""Offsets of elements."""

import itertools

import pytest

from taskfuse.cuda.storage import joined
from taskfuse.ir.scalar import Expr, Facts, const, evaluate, sym

X, N, M, K = (sym(name) for name in "XNMK")
POSITIVE = Facts().with_range("N", 1, None).with_range("M", 1, None).with_range("K", 1, None)


@pytest.mark.parametrize(
    ("index", "shape", "expected"),
    [
        ((X // M, X % M), (N, M), [X]),
        ((X // (M * K), X // K % M, X % K), (N, M, K), [X]),
        ((X // 35, X // 7 % 5, X % 7), (K, const(5), const(7)), [X]),
        ((K, X // M, X % M), (K, N, M), [K, X]),
        ((X // M, X % M, K), (N, M, K), [X, K]),
        ((X, X % M), (N, M), [X, X % M]),
        ((X // M, (X + 1) % M), (N, M), [X // M, (X + 1) % M]),
        ((X // K, X % M), (N, M), [X // K, X % M]),
        ((X // M, X % M), (N, K), [X // M, X % M]),
        ((X // 7, 4 * (X % 7) + 1), (N, const(28)), [4 * X + 1]),
        ((X // 7, 4 * (X % 5) + 1), (N, const(28)), [X // 7, 4 * (X % 5) + 1]),
        ((), (), []),
    ],
)
def test_what_an_index_was_divided_into_is_one(index: tuple[Expr, ...], shape: tuple[Expr, ...], expected: list[Expr]) -> None:
    found = joined(index, shape, lambda: POSITIVE)
    assert [i for i, _ in found] == expected
    for x, n, m, k in itertools.product((0, 5, 34, 35, 99), (1, 4), (1, 5), (1, 7)):
        values = {"X": x, "N": n, "M": m, "K": k}
        offsets = [0, 0]
        for which, places in enumerate((list(zip(index, shape, strict=True)), found)):
            for i, extent in places:
                offsets[which] = offsets[which] * int(evaluate(extent, values)) + int(evaluate(i, values))
        assert offsets[0] == offsets[1]
