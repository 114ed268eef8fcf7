"""Tables against loops over all values: what conditions leave, values at the points, and joins on keys."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.check.tables import TableJoin, Tables, ValueTable, distinct, distinct_columns, numbered, steps_of
from taskfuse.ir.scalar import evaluate, parse_expr

SPANS = {"a": (0, 3), "b": (-2, 5), "c": (1, 4)}
EXPRESSIONS = ("a", "8*a + b", "b//2", "b % 3 + 5*c", "xor(a, c)", "a*c - b", "7", "max(a, b) + c")
CONDITIONS = ("a < c", "b % 2 == 0", "a + b > 1 && c != 2", "a > 9")


def rows(conditions: list[str]) -> list[dict[str, int]]:
    """All values, one after another."""
    every = (dict(zip(SPANS, values, strict=True)) for values in product(*(range(lo, hi + 1) for lo, hi in SPANS.values())))
    return [env for env in every if all(evaluate(parse_expr(c), env) for c in conditions)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(CONDITIONS), max_size=2), st.sampled_from(EXPRESSIONS))
def test_a_table_has_the_values_that_conditions_leave(conditions: list[str], text: str) -> None:
    table = Tables().of(SPANS, map(parse_expr, conditions))
    expected = rows(conditions)
    assert table.count == len(expected)
    assert np.broadcast_to(table.values(parse_expr(text)), table.count).tolist() == [evaluate(parse_expr(text), env) for env in expected]
    assert all(table.at(k) == expected[k] for k in range(0, table.count, 7))


def test_a_table_without_symbols_has_one_point() -> None:
    assert ValueTable(()).count == 1
    assert ValueTable((), [parse_expr("1 < 2")]).count == 1
    assert ValueTable((), [parse_expr("0")]).count == 0


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from(EXPRESSIONS), min_size=1, max_size=2),
    st.lists(st.sampled_from(EXPRESSIONS), min_size=1, max_size=2),
    st.lists(st.sampled_from(CONDITIONS[:3]), max_size=1),
)
def test_a_join_finds_the_points_with_equal_keys(keys: list[str], values: list[str], conditions: list[str]) -> None:
    one, two = Tables().of(SPANS, map(parse_expr, conditions)), Tables().of(SPANS)

    def of(texts: list[str], env: dict[str, int]) -> tuple[object, ...]:
        return tuple(evaluate(parse_expr(t), env) for t in texts)

    join = TableJoin(one, two, [(one.grid(parse_expr(k)), two.grid(parse_expr(k))) for k in keys])
    mine = [(of(keys, env), of(values, env)) for env in rows(conditions)]
    theirs = [(of(keys, env), of(values, env)) for env in rows([])]
    assert join.hit.tolist() == [any(k == key for k, _ in mine) for key, _ in theirs]
    alike = all(v == value for key, value in theirs for k, v in mine if k == key)
    assert join.is_one([(one.grid(parse_expr(v)), two.grid(parse_expr(v))) for v in values]) is alike


def test_the_points_within_another_table() -> None:
    table, other = Tables().of(SPANS), Tables().of({"b": (0, 9), "c": (2, 2), "d": (0, 1)}, [parse_expr("b != d")])
    left = {(env["b"], env["c"]) for env in ({"b": b, "c": 2} for b in range(10))}
    assert [table.within(other).at(k) for k in range(table.within(other).count)] == [env for env in rows([]) if (env["b"], env["c"]) in left]
    assert table.within(Tables().of({"z": (0, 1)})) is table


def test_numbers_of_wide_columns_stay_apart() -> None:
    far = np.array([0, 1 << 61, -(1 << 61), 5])
    mine, theirs, _ = numbered([(far, far[::-1]), (far[::-1], far), (far * 0 + 3, far[::-1] * 0 + 3)])
    pairs = list(zip(far.tolist(), far[::-1].tolist(), strict=True))
    assert [[bool(a == b) for b in theirs] for a in mine] == [[p == (q[1], q[0]) for q in pairs] for p in pairs]


def test_what_occurs() -> None:
    rows = np.random.default_rng(3).integers(-2, 3, (2, 40))
    assert distinct(rows).tolist() == np.unique(rows).tolist()
    assert distinct_columns(rows).tolist() == np.unique(rows, axis=1).tolist()
    assert distinct_columns(rows[:, :0]).shape == (2, 0)
    assert distinct(rows[:, :0]).size == 0


def test_a_table_is_made_once() -> None:
    tables = Tables()
    assert tables.of(SPANS, [parse_expr("a < c")]) is tables.of(SPANS, [parse_expr("a < c")])
    assert tables.of(SPANS, [parse_expr("a < c")]) is not tables.of(SPANS)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(-9, 9),
    st.integers(0, 40),
    st.sampled_from(["x//4", "x//6 % 2 + y", "x//8*y + x//12", "x//3 < y", "max(x//10, x//4)", "x + x//4", "(x + 1)//4"]),
)
def test_values_of_which_only_quotients_matter(first: int, count: int, text: str) -> None:
    e, spans = parse_expr(text), {"x": (first, first + count), "y": (0, 2)}
    steps = steps_of(spans.keys(), [e])
    whole, part = Tables().of(spans), Tables().of(spans, (), steps)
    assert {int(v) for v in part.values(e)} == {int(v) for v in whole.values(e)}
    assert part.count == whole.count if not steps else part.count <= 3 * (count // steps["x"] + 2)
    assert bool(steps) == ("x +" not in text)
