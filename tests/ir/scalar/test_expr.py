"""The scalar IR's canonical forms, facts, simplification, proof and evaluation, by example."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from taskfuse.ir.scalar import (
    FALSE,
    TRUE,
    Const,
    Expr,
    Facts,
    Sym,
    and_,
    bounds,
    ceildiv,
    compile_expr,
    const,
    eq,
    evaluate,
    free_symbols,
    ge,
    gt,
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
    xor,
)

S, T, N, M = map(sym, ("S", "T", "N", "M"))
i0, i1, x, y, o = map(sym, ("i0", "i1", "x", "y", "o"))
tx, ty = sym("threadIdx.x"), sym("threadIdx.y")
DIMS = Facts().with_range("S", 0, None).with_range("T", 0, None).with_range("N", 0, None).with_range("M", 0, None)


def nest(**ranges: tuple[int, int | Expr]) -> Facts:
    facts = DIMS
    for name, (lo, hi) in ranges.items():
        facts = facts.with_range(name, lo, hi)
    return facts


# Canonical forms


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (x + y - x, y),
        (S * (i0 + 1), i0 * S + S),
        ((x + y) * (x - y), x * x - y * y),
        (3 - x + 2 * x - 3, x),
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
def test_equal_by_construction(a: Expr, b: Expr) -> None:
    assert a is b


def test_division_by_zero_and_table_index_out_of_range_have_no_value() -> None:
    for e in (x // 0, x % 0, const(5) // const(0), table([1, 2], 2)):
        assert simplify(e) is e
        with pytest.raises((ZeroDivisionError, IndexError)):
            evaluate(e, {"x": 1})
    with pytest.raises(IndexError, match=r"^table index 2 is outside \[0, 2\)$"):
        evaluate(table([1, 2], x), {"x": 2})
    assert evaluate(select(gt(S, 0), x // S, -1), {"x": 1, "S": 0}) == -1


def test_nodes_survive_copying_and_pickling_as_themselves() -> None:
    e = select(lt(i0, S), table([1, 2, 3], x % 3), minimum(S, T.ceildiv(4)))
    assert copy.deepcopy(e) is e
    assert pickle.loads(pickle.dumps(e)) is e


def test_an_expression_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match=r"^a symbolic expression has no truth value: ask prove\(condition, facts\)$"):
        bool(lt(x, y))


@pytest.mark.parametrize("name", ["", "3x", "a b", "a.", "a-b", ".a"])
def test_symbol_names_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match="is not a symbol name: letters, digits and _, in parts joined by dots"):
        sym(name)


def test_constructors_reject_nothing_to_choose_from() -> None:
    with pytest.raises(ValueError, match="minimum and maximum need at least one argument"):
        minimum()
    with pytest.raises(ValueError, match="a table needs at least one value"):
        table([], x)


def test_free_symbols_and_substitution() -> None:
    e = select(lt(i0, S), 4 * i0 + tx, xor(tx, 3))
    assert free_symbols(e) == {"i0", "S", "threadIdx.x"}
    assert substitute(e, {"i0": 5, "S": 7}) is tx + 20
    assert substitute(x + 2 * y, {"x": y, "y": x}) is 2 * x + y  # all at once
    assert substitute(e, {"q": 1}) is e


# Simplification


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
        ("8*(x//4) + x % 4", "8*(x//4) + x % 4"),
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


# Proof

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
    ],
)
def test_prove_claims_no_more_than_holds(text: str, facts: Facts) -> None:
    assert not prove(parse_expr(text), facts)


def test_bounds_and_multiples() -> None:
    facts = nest(i0=(0, 7), i1=(-2, 3)).with_multiple("S", 4).with_multiple("S", 6)
    assert bounds(2 * i0 - i1 + 1, facts) == (-2, 17)
    assert bounds(i0 * i1, facts) == (-14, 21)
    assert bounds(i0 - S, facts) == (None, 7)
    assert bounds(x, facts) == (None, None)
    assert bounds(i0 // 2 % 3, facts) == (0, 2)
    assert bounds(xor(i0, 8), facts) == (0, 15)
    assert bounds(S, facts.with_assumption(gt(S, 1))) == (12, None)
    assert bounds(table([9, 1, 5], i0 // 4), facts) == (1, 9)
    assert is_multiple(S * x + 24, 12, facts)
    assert not is_multiple(S + 6, 12, facts)
    assert is_multiple(N * x, N, facts)
    assert is_multiple(S // 4, 3, facts)
    assert is_multiple(minimum(S, 24), 12, facts)


def test_facts_are_immutable_and_shared() -> None:
    facts = DIMS.with_range("i0", 0, S - 1)
    assert DIMS.with_range("i0", 0, S - 1) is facts
    assert facts.with_range("i0", 0, S - 1) is facts
    assert facts.with_assumption(lt(x, 3)) is facts.with_assumption(lt(x, 3))
    assert facts.with_assumption(1) is facts
    assert not prove(lt(i0, S), DIMS)


def test_a_range_cannot_depend_on_itself() -> None:
    with pytest.raises(ValueError, match="the range of 'S' depends on 'S'"):
        DIMS.with_range("i0", 0, S - 1).with_range("S", 0, i0)


# Evaluation


def test_evaluation_on_arrays_tolerates_lanes_without_a_value() -> None:
    e = select(gt(S, 0), x // S, -1) + table([1, 2], x)
    env = {"x": np.array([0, 1, 5]), "S": np.array([2, 0, 1])}
    for result in (evaluate(e, env), compile_expr(e, ["x", "S"])(env["x"], env["S"])):
        assert np.asarray(result)[:2].tolist() == [1, 1]


def test_conditions_evaluate_to_booleans_and_count_as_integers() -> None:
    cond = and_(lt(x, 3), ne(x, 1))
    assert is_boolean(cond)
    assert evaluate(cond, {"x": 0}) is True
    lanes = np.arange(4)
    for e in (cond, not_(cond), or_(lt(x, 1), gt(x, 2))):
        assert np.asarray(evaluate(e, {"x": lanes})).dtype == np.bool_
        assert compile_expr(e, ["x"])(lanes).dtype == np.bool_
    twice = lt(x, 3) + lt(x, 2)
    assert np.asarray(evaluate(twice, {"x": lanes})).tolist() == compile_expr(twice, ["x"])(lanes).tolist() == [2, 2, 1, 0]


def test_compiled_functions_are_cached_and_check_their_arguments() -> None:
    e = x // 4 * 8 + x // 4
    assert compile_expr(e, ["x"]) is compile_expr(e, ["x"])
    assert compile_expr(e, ["y", "x"])(0, 9) == 18
    assert compile_expr(3, [])() == 3
    with pytest.raises(ValueError, match=r"^no argument for 'S', 'x'$"):
        compile_expr(x + y * S, ["y"])


def test_leaves() -> None:
    assert isinstance(const(3), Const)
    assert isinstance(x, Sym)
    assert sym("i2").key < sym("i10").key < sym("S").key


def test_a_false_condition_on_arrays_keeps_a_division_of_plain_integers_by_zero_from_raising() -> None:
    x, y, n = sym("x"), sym("y"), sym("n")
    for quotient in (y % n, y // n):
        compiled = compile_expr(and_(lt(x, n), lt(quotient, 2)), ("x", "y", "n"))
        assert not compiled(np.array([0, 1]), 3, 0).any()
        assert compiled(0, 3, 0) is False
