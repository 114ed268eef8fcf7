"""The questions that one asks of expressions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from taskfuse.ir.scalar import Expr, Facts, and_, evaluate, ge, is_multiple, le, lt, minimum, not_, or_, parse_expr, prove, sym, unsafe_divisor
from tests.ir.scalar.generated import EXPRESSIONS, NEST, NEST_POINTS
from tests.ir.scalar.nests import DIMS, N, S, x


def test_multiples() -> None:
    facts = DIMS.with_multiple("S", 4).with_multiple("S", 6)
    assert is_multiple(S * x + 24, 12, facts)
    assert not is_multiple(S + 6, 12, facts)
    assert is_multiple(N * x, N, facts)
    assert is_multiple(S // 4, 3, facts)
    assert is_multiple(minimum(S, 24), 12, facts)


@settings(deadline=None)
@given(EXPRESSIONS, NEST_POINTS)
def test_values_are_the_multiples_that_they_are_said_to_be(e: Expr, points: list[dict[str, int]]) -> None:
    for k in (2, 3, 4):
        if is_multiple(e, k, NEST):
            assert all(evaluate(e, point) % k == 0 for point in points)


def test_a_divisor_that_may_be_zero_is_found_wherever_it_stands() -> None:
    m = sym("M")
    facts = DIMS.with_range("N", 1, None)
    assert unsafe_divisor(7 // N + m % N, facts) is None
    assert unsafe_divisor(m // 4, facts) is None
    assert unsafe_divisor(N + 3 * (N // m), facts) is m
    assert unsafe_divisor(N % (N - 1), facts) is N - 1


def test_constant_divisors_decide_a_multiple_without_rewriting(monkeypatch: pytest.MonkeyPatch) -> None:
    def simplify(e: Expr, facts: Facts) -> Expr:
        raise AssertionError(f"{e} is simplified under {facts}")

    monkeypatch.setattr("taskfuse.ir.scalar.queries.simplify", simplify)
    facts = Facts().with_multiple("N", 8)
    assert is_multiple(4 * minimum(128 * (x // S) + 2 * S, N - 2), 8, facts)
    assert is_multiple(0, 8, facts)


def test_a_condition_about_tables_that_fails_somewhere_is_not_simplified(monkeypatch: pytest.MonkeyPatch) -> None:
    def simplify(e: Expr, facts: Facts) -> Expr:
        raise AssertionError(f"{e} is simplified under {facts}")

    first, second = (parse_expr(f"clamp(t[{i} of 8], 0, 50)") for i in (2, 5))
    facts = Facts().with_assumption(lt(second, 30))
    assert prove(lt(first + second, 90), facts)
    monkeypatch.setattr("taskfuse.ir.scalar.queries.simplify", simplify)
    assert not prove(lt(first + second, 40), facts)
    assert not prove(or_(lt(first, 20), lt(second, 10)), facts)


def test_a_condition_about_tables_is_asked_once_under_what_is_known_of_its_symbols() -> None:
    i, length = sym("i"), parse_expr("clamp(t[3 of 9], 0, N)")
    alone = Facts().with_range("i", 0, None).with_assumption(lt(2 * i, length))
    for name in "jk":
        facts = alone.with_range(name, 0, None).with_assumption(lt(i, 2 * sym(name)))
        assert prove(lt(i, length), facts)
        assert lt(i, length) in alone.strong_memo
        assert lt(i, length) not in facts.strong_memo
        assert prove(lt(2 * i, length + sym(name)), facts)  # not from these


def test_a_known_disjunction_holds_in_one_of_its_cases() -> None:
    i, j, n = sym("i"), sym("j"), sym("n")
    facts = Facts().with_range("i", 0, 99).with_range("j", 0, 99).with_assumption(or_(lt(8 * i + 7, n), le(8 * i + 7, j)))
    assert prove(or_(lt(8 * i + 3, n), le(8 * i + 5, j)), facts)
    assert prove(not_(and_(ge(8 * i, n), lt(j, 8 * i))), facts)
    assert not prove(or_(lt(8 * i + 8, n), le(8 * i + 7, j)), facts)
    assert not prove(lt(8 * i, n), facts)
