"""Simplification, by example and on random expressions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.ir.scalar import Expr, Facts, evaluate, parse_expr, simplify, sym
from taskfuse.ir.scalar.rewrite import Rewriter
from tests.ir.scalar.generated import EXPRESSIONS, INDICES, NEST, NEST_POINTS
from tests.ir.scalar.nests import M, N, nest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(i0*N + i1)//N", "i0"),
        ("(i0*N + i1) % N", "i1"),
        ("((o*M + i0)*N + i1)//N", "o*M + i0"),
        ("((o*M + i0)*N + i1)//(M*N)", "o"),
        ("((o*M + i0)*N + i1)//N % M", "i0"),
        ("((o*M + i0)*N + i1) % (M*N)", "i0*N + i1"),
        ("(x*32 + lane)//32", "x"),
        ("(x*32 + lane) % 64", "32*(x % 2) + lane"),
        ("(x*128 + lane)//32", "4*x"),
        ("lane % 32", "lane"),
        ("lane//32", "0"),
        ("(lane + 32)//32", "1"),
        ("x % N % N", "x % N"),
        ("x//M//N", "x//(M*N)"),
        ("(x//N)*N + x % N", "x"),
        ("3*(x//8)*8 + 3*(x % 8) + 1", "3*x + 1"),
        ("7*((x//7 + 5*o)//7) + (x//7 + 5*o) % 7", "5*o + x//7"),
        ("49*((x//7 + 5*o)//7) + 7*((x//7 + 5*o) % 7) + x % 7", "35*o + x"),
        ("8*(x//3) + (32*x + lane)//12 % 8", "(32*x + lane)//12"),  # x//3 is (32*x + lane)//12//8
        ("8*(x//4) + x % 4", "8*(x//4) + x % 4"),
        ("7*((8*(x % 49) + lane)//7) + (8*x + lane) % 7", "8*(x % 49) + lane"),
        ("7*((8*(x % 48) + lane)//7) + (8*x + lane) % 7", "7*((8*(x % 48) + lane)//7) + (8*x + lane) % 7"),  # 8*48 is no multiple of 7
        ("4*(x//8 % 2) + 0*x + (x//4 % 2)", "4*(x//8 % 2) + x//4 % 2"),
        ("(x//8 % 4)*8 + x % 8", "x % 32"),
        ("(x//N % M)*N + x % N", "x % (M*N)"),
        ("K % 8", "0"),
        ("K//8*8", "K"),
        ("(K + lane)//8", "K//8 + lane//8"),
        ("(K + lane) % 8", "lane % 8"),
        ("ceildiv(K, 8)", "K//8"),
        ("(i0*(N + 1) + i1)//(N + 1)", "i0"),
        ("min(i1, N)", "i1"),
        ("max(i1, N, 0)", "N"),
        ("i1 < N", "1"),
        ("i1 >= N", "0"),
        ("i1 + x < N + x", "1"),
        ("i1 + x < M + x", "i1 < M"),
        ("lane == 40", "0"),
        ("2*x == 2*y + 1", "0"),
        ("8*x == K + 4", "0"),
        ("select(i1 < N, x, y)", "x"),
        ("select(x < 4, min(x, 4), max(x, 4))", "x"),
        ("x < 4 && x < 8", "x < 4"),
        ("x < 8 && x < 4", "x < 4"),
        ("x < 4 || x < 8", "x < 8"),
        ("lane >= 0 && x < 4", "x < 4"),
        ("xor(lane, 0)", "lane"),
        ("xor(xor(lane//8, lane), lane//8)", "lane"),
        ("table([4, 4, 4, 5], two)", "4"),
        ("one + x", "x + 1"),
        ("ceildiv(x, N)*N - (ceildiv(x, N) - 1)*N", "N"),
    ],
)
def test_simplify(text: str, expected: str) -> None:
    facts = nest(i1=(0, N - 1), i0=(0, M - 1), lane=(0, 31), two=(0, 2), one=(1, 1)).with_range("K", 0, None).with_multiple("K", 8)
    result = simplify(parse_expr(text), facts)
    assert result is parse_expr(expected)
    assert simplify(result, facts) is result


@settings(deadline=None)
@given(EXPRESSIONS, NEST_POINTS)
def test_simplify_keeps_the_value(e: Expr, points: list[dict[str, int]]) -> None:
    simple = simplify(e, NEST)
    for point in points:
        assert evaluate(simple, point) == evaluate(e, point)


@settings(deadline=None)
@given(INDICES, st.sampled_from([2, 4, 8, 16, sym("S"), sym("T"), 4 * sym("S"), sym("S") + 1]), NEST_POINTS)
def test_index_arithmetic_is_simplified_soundly(a: Expr, divisor: Any, points: list[dict[str, int]]) -> None:
    quotient, remainder = a // divisor, a % divisor
    simple = simplify(quotient, NEST), simplify(remainder, NEST)
    for point in points:
        assert tuple(evaluate(e, point) for e in simple) == (evaluate(quotient, point), evaluate(remainder, point))
    assert simplify(quotient * divisor + remainder, NEST) is simplify(a, NEST)


class Undoing(Rewriter):
    """Two rules, each of which makes what the other one takes."""

    def _step(self, e: Expr) -> Expr:
        return N // 2 if e is M // 2 else M // 2


def test_rules_that_undo_each_other_end_and_it_is_said() -> None:
    facts = Facts()
    assert simplify(N + M, facts) is not None
    assert not facts.family.is_circular
    assert Undoing.of(facts.with_range("k", 0, 3))(sym("k") // 2) in (M // 2, N // 2)
    assert facts.family.is_circular
