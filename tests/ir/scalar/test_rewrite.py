"""Properties of the scalar IR on random expressions: text, numbers, simplification and proof."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.ir.scalar import (
    Compare,
    Expr,
    Facts,
    and_,
    bounds,
    compile_expr,
    const,
    eq,
    evaluate,
    free_symbols,
    is_boolean,
    is_multiple,
    le,
    lt,
    maximum,
    minimum,
    ne,
    not_,
    or_,
    parse_expr,
    prove,
    select,
    simplify,
    substitute,
    sym,
    table,
    to_text,
    xor,
)

NAMES = ("i0", "i1", "threadIdx.x", "S", "T")


def combine(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    small = st.integers(-9, 9)
    divisors = st.one_of(st.sampled_from([2, 3, 4, 8, -4]).map(const), st.sampled_from(["S", "T"]).map(sym), st.just(4 * sym("S")))
    conditions = st.builds(lambda make, a, b: make(a, b), st.sampled_from([lt, le, eq, ne]), inner, inner)
    return st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a, k: a * k, inner, small),
        st.builds(lambda a, k: a + k, inner, small),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(lambda a, b: a // b, inner, divisors),
        st.builds(lambda a, b: a % b, inner, divisors),
        st.builds(lambda a, b: a.ceildiv(b), inner, divisors),
        st.builds(lambda a, b: (a // b) * b + a % b, inner, divisors),
        st.builds(minimum, inner, inner),
        st.builds(maximum, inner, inner),
        st.builds(xor, inner, inner),
        conditions,
        st.builds(and_, conditions, conditions),
        st.builds(or_, conditions, conditions),
        st.builds(not_, inner),
        st.builds(select, conditions, inner, inner),
        st.builds(lambda a: table([3, -1, 4, 1, 5], a % 5), inner),
    )


LEAVES = st.one_of(st.sampled_from(NAMES).map(sym), st.integers(-9, 9).map(const))
EXPRESSIONS = st.recursive(LEAVES, combine, max_leaves=8)
NONZERO = st.integers(-6, 6).filter(bool)
POINTS = st.fixed_dictionaries({"i0": st.integers(-9, 9), "i1": st.integers(-9, 9), "threadIdx.x": st.integers(-9, 9), "S": NONZERO, "T": NONZERO})


@given(EXPRESSIONS)
def test_parse_of_text_is_the_expression(e: Expr) -> None:
    assert parse_expr(to_text(e)) is e


@given(EXPRESSIONS, st.lists(POINTS, min_size=2, max_size=6))
def test_evaluate_and_compile_agree_on_integers_and_arrays(e: Expr, points: list[dict[str, int]]) -> None:
    values = [evaluate(e, point) for point in points]
    compiled = compile_expr(e, NAMES)
    assert values == [compiled(*(point[name] for name in NAMES)) for point in points]
    columns = {name: np.array([point[name] for point in points], dtype=np.int64) for name in NAMES}
    for result in (evaluate(e, columns), compiled(*columns.values())):
        np.testing.assert_array_equal(np.broadcast_to(result, len(points)), values)
        if is_boolean(e) and free_symbols(e):
            assert np.asarray(result).dtype == np.bool_


@given(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS, POINTS)
def test_substitution_commutes_with_evaluation(e: Expr, a: Expr, b: Expr, point: dict[str, int]) -> None:
    inner = {**point, "i0": int(evaluate(a, point)), "i1": int(evaluate(b, point))}
    assert evaluate(substitute(e, {"i0": a, "i1": b}), point) == evaluate(e, inner)


# Facts of a loop nest: i0 in [0, S-1], i1 in [0, ceildiv(T, 4)-1], threadIdx.x in [0, 7], S >= 1, T a multiple of 2.
NEST = (
    Facts()
    .with_range("S", 1, None)
    .with_range("T", 0, None)
    .with_multiple("T", 2)
    .with_range("i0", 0, sym("S") - 1)
    .with_range("i1", 0, sym("T").ceildiv(4) - 1)
    .with_range("threadIdx.x", 0, 7)
)


@st.composite
def nest_points(draw: st.DrawFn) -> dict[str, int]:
    s, t = draw(st.integers(1, 9)), 2 * draw(st.integers(1, 6))
    return {"S": s, "T": t, "i0": draw(st.integers(0, s - 1)), "i1": draw(st.integers(0, -(-t // 4) - 1)), "threadIdx.x": draw(st.integers(0, 7))}


NEST_POINTS = st.lists(nest_points(), min_size=8, max_size=8)


@settings(deadline=None)
@given(EXPRESSIONS, NEST_POINTS)
def test_simplify_keeps_the_value(e: Expr, points: list[dict[str, int]]) -> None:
    simple = simplify(e, NEST)
    low, high = bounds(e, NEST)
    for point in points:
        value = evaluate(e, point)
        assert evaluate(simple, point) == value
        assert low is None or low <= value
        assert high is None or value <= high
    for k in (2, 3, 4):
        if is_multiple(e, k, NEST):
            assert all(evaluate(e, point) % k == 0 for point in points)


@settings(deadline=None)
@given(EXPRESSIONS, EXPRESSIONS, st.sampled_from([lt, le, eq, ne]), NEST_POINTS)
def test_prove_is_sound(a: Expr, b: Expr, make: Any, points: list[dict[str, int]]) -> None:
    cond = make(a, b)
    if prove(cond, NEST):
        assert all(evaluate(cond, point) for point in points)


@settings(deadline=None)
@given(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS, NEST_POINTS)
def test_assumptions_are_used_soundly(a: Expr, b: Expr, e: Expr, points: list[dict[str, int]]) -> None:
    assumption = lt(a, b)
    facts = NEST.with_assumption(assumption)
    simple, claim = simplify(e, facts), lt(a, b + e)
    proved = prove(claim, facts)
    for point in points:
        if evaluate(assumption, point):
            assert evaluate(simple, point) == evaluate(e, point)
            assert evaluate(claim, point) or not proved


INDICES = st.recursive(
    st.sampled_from(NAMES).map(sym),
    lambda inner: st.builds(lambda a, b, k: a * k + b, inner, inner, st.sampled_from([1, 2, 4, sym("S"), sym("T")])),
    max_leaves=4,
)


@settings(deadline=None)
@given(INDICES, st.sampled_from([2, 4, 8, 16, sym("S"), sym("T"), 4 * sym("S"), sym("S") + 1]), NEST_POINTS)
def test_index_arithmetic_is_simplified_soundly(a: Expr, divisor: Any, points: list[dict[str, int]]) -> None:
    quotient, remainder = a // divisor, a % divisor
    simple = simplify(quotient, NEST), simplify(remainder, NEST)
    for point in points:
        assert tuple(evaluate(e, point) for e in simple) == (evaluate(quotient, point), evaluate(remainder, point))
    assert simplify(quotient * divisor + remainder, NEST) is simplify(a, NEST)


@given(EXPRESSIONS, EXPRESSIONS)
def test_comparison_and_negation_are_opposite(a: Expr, b: Expr) -> None:
    for cond in (lt(a, b), le(a, b), eq(a, b), ne(a, b)):
        assert not_(not_(cond)) is cond
        if isinstance(cond, Compare):
            assert and_(cond, not_(cond)) is const(0)
            assert or_(cond, not_(cond)) is const(1)
