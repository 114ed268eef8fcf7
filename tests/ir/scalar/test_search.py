"""The prover, by example: what it proves, and that it claims no more than holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.ir.scalar import Expr, Facts, and_, ceildiv, eq, evaluate, ge, gt, le, lt, ne, not_, or_, parse_expr, prove, search, simplify, sym
from tests.ir.scalar.generated import EXPRESSIONS, NEST, NEST_POINTS
from tests.ir.scalar.nests import DIMS, M, N, S, T, i0, nest, o, ty, x, y

SPLIT = nest(o=(0, S.ceildiv(4) - 1), i0=(0, 3))
MERGED = nest(m=(0, (S * T).ceildiv(128) - 1), l=(0, 127))
RASTER = nest(m=(0, M * N - 1))  # tiles in columns of groups of 8 rows, the last group shorter
RING = nest(S=(1, 99), i0=(0, S - 1))
HEIGHT = "min(8, M - 8*(m//(8*N)))"


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("i0 < S", nest(i0=(0, S - 1))),
        ("o*4 + i0 < S", SPLIT.with_multiple("S", 4)),
        ("o*4 < S", SPLIT),
        ("o*4 + i0 < S + 3", SPLIT),
        ("o*4 < S - i0", SPLIT.with_assumption(lt(4 * o + i0, S))),
        ("threadIdx.y - S < S", Facts().with_assumption(lt(ty - S, S))),
        ("threadIdx.y < 2*S", Facts().with_assumption(lt(ty - S, S))),
        ("threadIdx.y >= S", Facts().with_assumption(ge(ty - S, 0))),
        ("threadIdx.y != S", Facts().with_assumption(gt(ty - S, 0))),
        ("(m*128 + l)//T < S", MERGED.with_assumption(parse_expr("m*128 + l < S*T"))),
        ("(m*128 + l) % T < T", MERGED),
        (f"{HEIGHT} > 0", RASTER),
        (f"8*(m//(8*N)) + m % (8*N) % {HEIGHT} < M", RASTER),
        (f"8*(m//(8*N)) + m % (8*N) % {HEIGHT} >= 0", RASTER),
        (f"m % (8*N)//{HEIGHT} < N", RASTER),
        ("(i0 + 1) % S < S", RING),
        ("(i0 + S) % S == i0", RING),
        ("i0*S + i0 < S*S", RING),
        ("S - i0 >= 1 && min(128, S - i0) <= S", RING),
        ("(i0*N + i1)*S + o < M*N*S", nest(i0=(0, M - 1), i1=(0, N - 1), o=(0, S - 1))),
        ("i1 < S", nest(i0=(0, S - 1), i1=(0, i0))),
        ("2*i0 + w < S", nest(w=(0, 1), i0=(0, ceildiv(S - sym("w"), 2) - 1))),
        ("ceildiv(S, 128)*128 >= S && ceildiv(S, 128)*128 < S + 128", DIMS),
        ("ceildiv(S, T)*T >= S && ceildiv(S, T)*T <= S + T - 1", DIMS),
        ("ceildiv(S, 2) + S//2 == S", DIMS),
        ("x < T", Facts().with_assumption(lt(x, S)).with_assumption(le(S, T))),
        ("x < N", Facts().with_assumption(and_(lt(x, S), le(S, T), le(T, N)))),
        ("4*x + 3 < S", DIMS.with_multiple("S", 4).with_assumption(lt(4 * x, S))),
        ("select(i0 < T, i0, 0) <= S", RING.with_range("T", 0, None)),
        ("max(i0, T) < S", RING.with_assumption(lt(T, S))),
        ("xor(lane//8 % 8, lane % 8)*8 + lane//8*64 < 1024", nest(lane=(0, 127))),
        ("xor(i0, i1) <= i0 + i1", nest(i0=(0, S), i1=(0, T))),
        ("x < 3 || x >= 3", Facts()),
        ("x < S || x >= S - 1", Facts()),
        ("x != 5", Facts().with_assumption(eq(x % 2, 0))),
        ("S >= 1", DIMS.with_assumption(ne(S, 0))),
        ("!(x < 3 && y < 3)", Facts().with_assumption(ge(x, 3))),
        ("x < 3 && y < 3", Facts().with_assumption(not_(or_(ge(x, 3), ge(y, 3))))),
        ("(i0 < S)*2 <= 2", Facts()),
        ("i0 < 0", nest(i0=(0, -1))),
        ("16*(x//16) + 160*y + 8*(x//2 % 2) + 2*(x//4 % 4) + x % 2 < 4096", nest(x=(0, 31), y=(0, 99)).with_assumption(lt(x + 160 * y, 4096))),
        ("16*(x//16) + 32*y + 2*(x//4 % 4) + x % 2 < 80", nest(x=(0, 31), y=(0, 99)).with_assumption(lt(x + 32 * y, 80))),
    ],
)
def test_prove(text: str, facts: Facts) -> None:
    assert prove(parse_expr(text), facts)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("i0 < S", nest(i0=(0, S))),
        ("o*4 + i0 < S", SPLIT),
        ("o*4 + i0 < S + 2", SPLIT),
        ("(m*128 + l)//T < S", MERGED),
        (f"8*(m//(8*N)) + m % (8*N) % {HEIGHT} < M - 1", RASTER),
        ("(i0*N + i1)*S + o + 1 < M*N*S", nest(i0=(0, M - 1), i1=(0, N - 1), o=(0, S - 1))),
        ("x < y", Facts()),
        ("x < S", Facts().with_assumption(le(x, S))),
        ("S >= 1", DIMS),
        ("S >= 1", nest(i0=(0, S - 1))),  # says nothing outside the loop over i0
        ("x == y", Facts().with_assumption(le(x, y))),
        ("16*(x//16) + 32*y + 8*(x//2 % 2) + 2*(x//4 % 4) + x % 2 < 85", nest(x=(0, 31), y=(0, 99)).with_assumption(lt(x + 32 * y, 85))),
    ],
)
def test_prove_claims_no_more_than_holds(text: str, facts: Facts) -> None:
    assert not prove(parse_expr(text), facts)


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


def test_a_sum_of_bounded_symbols_needs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constant bounds say all of it, unless a bound is symbolic or an assumed form has one of its symbols."""
    asked: list[Expr] = []

    def search(self: object, form: Expr, assumptions: int) -> bool:
        asked.append(form)
        return False

    monkeypatch.setattr("taskfuse.ir.scalar.search._Search.prove", search)
    facts = nest(x=(0, 31), y=(0, 31))
    assert not prove(ge(x, 2 * y), facts)
    assert not asked
    assert not prove(ge(x, y), facts.with_assumption(lt(y, x)))
    assert not prove(ge(x, i0), facts.with_range("i0", 0, S))
    assert {x - y, x - i0} <= set(asked)


def test_a_form_that_is_negative_at_a_sample_has_no_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[Expr] = []
    kind: Any = vars(search)["_Search"]
    tell_apart = kind._cases

    def counted(self: Any, cond: Expr, yes: Expr, no: Expr, assumptions: int) -> bool:
        found = tell_apart(self, cond, yes, no, assumptions)
        cases.extend([] if self.steps.refuted else [cond])
        return found

    monkeypatch.setattr(kind, "_cases", counted)
    facts = nest(x=(0, 7), y=(0, 7))
    distance = parse_expr("select(x < y, y - x, x - y)")
    assert not search.nonnegative(distance - 1, facts)
    assert not cases
    assert search.nonnegative(distance, facts)
    assert len(cases) == 1


def test_only_remainders_that_are_divided_again_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    named: Any = vars(search)["_without_remainders"]
    facts = nest(x=(0, N * M - 1)).with_range("N", 1, None)
    for divided in ((x % N) // M, (x % N) % M, 2 * y + ((x % N + y) // M)):
        found = named(divided, facts)
        assert found is not None
        assert "'remainder.0" in found[0].free
    monkeypatch.delattr(search, "rebuild")
    for other in (x % N, y + x % N, (x % 4) // M, x // N % 4 + x % M):
        assert named(other, facts) is None
