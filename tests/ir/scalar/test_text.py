"""The text of scalar expressions and its tokens."""

from __future__ import annotations

import pytest
from hypothesis import given

from taskfuse.errors import ParseError
from taskfuse.ir.scalar import (
    Expr,
    and_,
    ceildiv,
    const,
    eq,
    ge,
    gt,
    le,
    lt,
    maximum,
    minimum,
    ne,
    not_,
    or_,
    parse_expr,
    parse_tokens,
    select,
    sym,
    table,
    to_text,
    tokenize,
    xor,
)
from tests.ir.scalar.generated import EXPRESSIONS

S, T, N, a, b, i0, i1 = map(sym, ("S", "T", "N", "a", "b", "i0", "i1"))
ty = sym("threadIdx.y")


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (4 * S, "4*S"),
        (ty - 2 * S, "threadIdx.y - 2*S"),
        (i1 + 4 * i0, "4*i0 + i1"),
        (i0 * N + i1 - 1, "i0*N + i1 - 1"),
        (3 - i0, "3 - i0"),
        (-i0, "-i0"),
        (-(a // b), "-(a//b)"),
        (-2 * a * b - 1, "-2*a*b - 1"),
        (a // b, "a//b"),
        (a % b, "a % b"),
        (a // 4 % 8, "a//4 % 8"),
        ((a % 6) // 4, "(a % 6)//4"),
        (4 * (a // 8), "4*(a//8)"),
        (b - 2 * (a % 8), "b - 2*(a % 8)"),
        ((a + 2) // 4, "(a + 2)//4"),
        (a // (b * N), "a//(b*N)"),
        (a * b // N, "a*b//N"),
        (a * (b // N), "(b//N)*a"),
        (minimum(b, a, 3), "min(a, b, 3)"),
        (maximum(a, b + 1), "max(a, b + 1)"),
        (xor(a, b), "xor(a, b)"),
        (ceildiv(a, b), "ceildiv(a, b)"),
        (ceildiv(S, 4) - 1, "ceildiv(S, 4) - 1"),
        (ceildiv(S, 4 * T), "ceildiv(S, 4*T)"),
        (ceildiv(S, N + 1), "ceildiv(S, N + 1)"),
        (select(lt(a, b), a, -b), "select(a < b, a, -b)"),
        (table([1, -2, 3], i0 % 3), "table([1, -2, 3], i0 % 3)"),
        (lt(i0, S), "i0 < S"),
        (gt(i0, S), "i0 > S"),
        (ge(ty - S, 0), "threadIdx.y - S >= 0"),
        (lt(ty - S, S), "threadIdx.y - S < S"),
        (gt(a, 0), "a > 0"),
        (lt(0, a), "a > 0"),
        (le(S, T), "S <= T"),
        (eq(0, a), "a == 0"),
        (ne(S, a), "a != S"),
        (lt(lt(a, b), b), "(a < b) < b"),
        (lt(a, b) + 1, "(a < b) + 1"),
        (and_(lt(a, b), ne(a, 1)), "a < b && a != 1"),
        (or_(and_(lt(a, b), ne(a, 1)), gt(a, 9)), "a < b && a != 1 || a > 9"),
        (and_(or_(lt(a, b), ne(a, 1)), gt(a, 9)), "(a < b || a != 1) && a > 9"),
        (not_(and_(lt(a, b), ne(a, 1))), "!(a < b && a != 1)"),
        (and_(a, not_(b)), "a != 0 && b == 0"),
    ],
)
def test_text(e: Expr, text: str) -> None:
    assert to_text(e) == str(e) == repr(e) == text
    assert parse_expr(text) is e


def test_text_of_integers() -> None:
    assert to_text(-3) == "-3"
    assert parse_expr("0x1F - -(2)") is parse_expr("33")


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("", 1, "expected an expression, found end of text"),
        ("a +", 4, "expected an expression, found end of text"),
        ("a b", 3, "expected the end of the expression, found 'b'"),
        ("(a + 1", 7, "expected ')', found end of text"),
        ("a + `b`", 5, "unexpected character '`'"),
        ("min(a", 6, "expected ')', found end of text"),
        ("sin(a)", 1, "there is no function 'sin'"),
        ("1 + xor(a)", 5, "'xor' takes 2 arguments, not 1"),
        ("select(a, b)", 1, "'select' takes 3 arguments, not 2"),
        ("table(3, a)", 7, "expected '[', found '3'"),
        ("table([a], a)", 8, "expected an integer, found 'a'"),
        ("a < b < S", 7, "expected the end of the expression, found '<'"),
        ("1.5", 1, "expected an expression, found '1.5'"),
    ],
)
def test_errors_have_positions(text: str, column: int, reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_expr(text)
    assert str(caught.value) == f"line 1, column {column}: {reason}"
    assert caught.value.fields["line"] == 1
    assert caught.value.fields["column"] == column


def test_expressions_are_embedded_in_other_texts() -> None:
    tokens = tokenize("IF threadIdx.x < S:\n  a")
    e, position = parse_tokens(tokens, 1)
    assert e is lt(sym("threadIdx.x"), S)
    assert tokens[position].text == ":"


def test_leading_zeros_count_for_nothing() -> None:
    assert parse_expr("012") is const(12)
    assert parse_expr("0x12") is const(18)


@given(EXPRESSIONS)
def test_parse_of_text_is_the_expression(e: Expr) -> None:
    assert parse_expr(to_text(e)) is e
