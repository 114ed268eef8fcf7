"""Sets of threads: constant blocks against an enumeration, symbolic ones by their counts."""

from __future__ import annotations

from itertools import product

import pytest

from taskfuse.check.threads import Threads
from taskfuse.ir.scalar import Expr, evaluate, parse_expr, sym
from tests.check.structured import structure

COPY = "y[0, 0] = copy(x[0, 0])"
CONSTANT, SYMBOLIC = "(8, 4, 3)", "(32, N, 1)"


def made(block: str = CONSTANT, body: str = COPY) -> Threads:
    return structure(body, block).threads


def conditions(*texts: str) -> tuple[Expr, ...]:
    return tuple(parse_expr(t) for t in texts)


def chosen(*texts: str) -> list[int]:
    """The linear ids of the threads of the constant block, one by one."""
    found: list[int] = []
    for z, y, x in product(range(3), range(4), range(8)):
        env = {"threadIdx.x": x, "threadIdx.y": y, "threadIdx.z": z}
        if all(evaluate(parse_expr(t), env) for t in texts):
            found.append(x + 8 * y + 32 * z)
    return found


SETS = [
    (),
    ("threadIdx.x < 3",),
    ("threadIdx.z == 1",),
    ("threadIdx.z != 1", "threadIdx.y < 4"),
    ("threadIdx.x + 8*threadIdx.y + 32*threadIdx.z < 64",),
    ("threadIdx.x == 0", "threadIdx.y == 0", "threadIdx.z == 2"),
    ("threadIdx.x > 7",),
    ("threadIdx.x == threadIdx.y",),
]


@pytest.mark.parametrize("texts", SETS)
def test_a_set_of_a_constant_block(texts: tuple[str, ...]) -> None:
    threads, given, ids = made(), conditions(*texts), chosen(*texts)
    count = threads.count(given)
    assert count is not None
    assert evaluate(count, {}) == len(ids)
    assert threads.everyone(given) is (len(ids) == 96)
    assert threads.at_least_one(given) is bool(ids)
    assert threads.at_most_one(given) is (len(ids) <= 1)
    assert threads.exactly_one(given) is (len(ids) == 1)
    warps = [sum(i // 32 == w for i in ids) for w in range(3)]
    assert threads.whole_warps(given) is all(n in (0, 32) for n in warps)
    assert threads.complete_warps(given) is threads.whole_warps(given)
    assert threads.whole_groups(given, 16) is all(sum(i // 16 == g for i in ids) in (0, 16) for g in range(6))


@pytest.mark.parametrize("a", SETS)
@pytest.mark.parametrize("b", SETS)
def test_two_sets_of_a_constant_block(a: tuple[str, ...], b: tuple[str, ...]) -> None:
    threads, one, two = made(), set(chosen(*a)), set(chosen(*b))
    assert threads.same(conditions(*a), conditions(*b)) is (one == two)
    assert threads.implies(conditions(*a), conditions(*b)) is (one <= two)
    assert threads.disjoint(conditions(*a), conditions(*b)) is not bool(one & two)
    warps = {i // 32 for i in one} <= {i // 32 for i in two}
    assert threads.covers_warps(conditions(*a), conditions(*b)) is warps
    values = {i % 8 for i in one} <= {i % 8 for i in two}
    assert threads.covers_values(sym("threadIdx.x"), conditions(*a), conditions(*b)) is values


@pytest.mark.parametrize(
    ("around", "holds"),
    [
        ("IF threadIdx.x < 4", False),
        ("IF threadIdx.x < 4:\n  IF blockIdx.x < N", False),
        ("IF threadIdx.x < 4:\n  IF threadIdx.x + blockIdx.x < 3", True),
        ("IF threadIdx.x < 4:\n  FOR i in threadIdx.x..3", True),
    ],
)
def test_what_else_a_context_says_of_threads(around: str, holds: bool) -> None:
    depth = "  " * (around.count("\n") + 1)
    found = structure(f"{around}:\n{depth}{COPY}", CONSTANT)
    (node,) = found.tree.leaves()
    assert found.threads.implies(node.conditions, conditions("threadIdx.x < 3"), node.context) is holds


def test_conditions_by_what_they_depend_on() -> None:
    split = made().split(conditions("threadIdx.x < N", "blockIdx.x < 2", "threadIdx.x < blockIdx.x", "threadIdx.y < k", "k < 3"))
    assert split.threads == conditions("threadIdx.x < N")
    assert split.uniform == conditions("blockIdx.x < 2", "k < 3")
    assert split.varying == conditions("threadIdx.x < blockIdx.x", "threadIdx.y < k")


def test_a_part_that_depends_on_more_is_not_exactly_one() -> None:
    """Which thread it is may change, and that none is."""
    threads = made("(32, 1, 1)")
    assert threads.exactly_one(conditions("threadIdx.x == 3"))
    assert not threads.exactly_one(conditions("threadIdx.x == 3", "threadIdx.x == k"))
    assert threads.at_most_one(conditions("threadIdx.x == 3", "threadIdx.x == k"))


def test_the_last_warp_of_a_block_may_be_short() -> None:
    threads = made("(48, 1, 1)")
    last = conditions("threadIdx.x >= 32")
    assert threads.complete_warps(last)
    assert not threads.whole_warps(last)
    assert not threads.complete_warps(conditions("threadIdx.x >= 33"))


def test_indices_that_warps_agree_on() -> None:
    assert made("(32, 4, 1)").alike(32) == {"threadIdx.y", "threadIdx.z"}
    assert made("(32, 4, 1)").alike(128) == {"threadIdx.z"}
    assert made("(16, 4, 1)").alike(32) == {"threadIdx.z"}
    assert made("(16, 3, 2)").alike(32) == frozenset()


@pytest.mark.parametrize(
    ("text", "warp", "group"), [("threadIdx.y", True, False), ("threadIdx.x // 32", True, False), ("threadIdx.z", True, True), ("7", True, True)]
)
def test_one_value_in_a_group(text: str, warp: bool, group: bool) -> None:
    threads = made("(32, 4, 2)")
    assert threads.one_value(parse_expr(text), 32, threads.alike(32)) is warp
    assert threads.one_value(parse_expr(text), 128, threads.alike(128)) is (group or text == "threadIdx.x // 32")


def test_one_value_part_by_part_where_more_is_unknown() -> None:
    threads = made("(32, 4, 2)")
    assert threads.one_value(parse_expr("k + threadIdx.x // 32"), 32, threads.alike(32))
    assert not threads.one_value(parse_expr("k + threadIdx.x // 16"), 32, threads.alike(32))


def test_threads_of_one_warp() -> None:
    found = structure(COPY, "(32, 4, 1)")
    threads, context = found.threads, found.tree.root.context
    assert threads.one_warp(conditions("threadIdx.y == 2"), context, frozenset())
    assert threads.one_warp((), context, frozenset({"threadIdx.y"}))
    assert not threads.one_warp((), context, frozenset({"threadIdx.x"}))
    assert not threads.one_warp(conditions("threadIdx.y < 2"), context, frozenset())


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((), "32*N"),
        (("threadIdx.y == 0",), "32"),
        (("threadIdx.x < 5",), "5*N"),
        (("threadIdx.y != 0", "threadIdx.x == 1"), "N - 1"),
        (("threadIdx.y < N - 1",), "32*N - 32"),
        (("threadIdx.x < threadIdx.y",), None),
    ],
)
def test_counts_of_a_symbolic_block(texts: tuple[str, ...], expected: str | None) -> None:
    found = made(SYMBOLIC).count(conditions(*texts))
    assert (found is None) if expected is None else found is parse_expr(expected)


def test_somebody_and_everybody_of_a_symbolic_block() -> None:
    threads = made(SYMBOLIC)
    assert threads.at_least_one(conditions("threadIdx.y < N"))
    assert not threads.at_least_one(conditions("threadIdx.y == 1"))  # N may be 1
    assert threads.everyone(conditions("threadIdx.y < N"))
    assert not threads.everyone(conditions("threadIdx.y < N - 1"))
    assert threads.whole_warps(conditions("threadIdx.y < 2"))
    assert not threads.whole_warps(conditions("threadIdx.x < 2"))
    assert not threads.whole_groups((), 32)  # of constant blocks alone
