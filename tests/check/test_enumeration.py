"""Pairs of threads by enumeration, against all pairs."""

from __future__ import annotations

from itertools import product

import pytest

from taskfuse.check.accesses import Use
from taskfuse.check.enumeration import AccessTable, Pairs, extremes, named
from taskfuse.check.structure import Structure
from taskfuse.check.threads import Threads
from taskfuse.ir.scalar import evaluate, parse_expr, sym
from tests.check.structured import structure, uses

HEAD = """\
KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N min 1
  GRID (4, 1, 1)  BLOCK (8, 4, 1)
  SHARED s: float32[64] align 16

"""
LITERAL = HEAD.replace("{", "{{").replace("}", "}}")
YES = frozenset({"threadIdx.z", "blockIdx.x", "blockIdx.y", "blockIdx.z"})


def two(first: str, second: str) -> tuple[Structure, Use, Use]:
    found = structure(f"s[{first}] = copy(1.0)\nSYNC block\ny[0] = copy(s[{second}])", head=LITERAL)
    a, b = uses(found)
    return found, a, b


def pairs(first: str, second: str) -> tuple[Threads, Pairs]:
    found, a, b = two(first, second)
    made = Pairs.of(a, b, YES, {})
    assert made is not None
    return found.threads, made


def meeting(first: str, second: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """All pairs of threads that touch one element, one by one."""
    threads = list(product(range(8), range(4)))

    def at(e: str, t: tuple[int, int]) -> int:
        return int(evaluate(parse_expr(e), {"threadIdx.x": t[0], "threadIdx.y": t[1]}))

    return [(t, u) for t in threads for u in threads if at(first, t) == at(second, u)]


LINEAR = "threadIdx.x + 8*threadIdx.y"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (LINEAR, LINEAR),
        (LINEAR, "31 - threadIdx.x - 8*threadIdx.y"),
        ("xor(threadIdx.x, threadIdx.y) + 8*threadIdx.y", "xor(threadIdx.x, threadIdx.y) + 8*threadIdx.y"),
        ("threadIdx.x", "threadIdx.x"),
        ("threadIdx.y", "threadIdx.y"),
        ("xor(threadIdx.x, 1) + 8*threadIdx.y", LINEAR),
    ],
)
def test_what_all_pairs_have_in_common(first: str, second: str) -> None:
    threads, found = pairs(first, second)
    met = meeting(first, second)
    assert not found.empty
    assert found.one_thread(YES) is all(t == u for t, u in met)
    for axis, name in enumerate(("threadIdx.x", "threadIdx.y")):
        assert found.agree(sym(name)) is all(t[axis] == u[axis] for t, u in met)
    assert found.agree(parse_expr("threadIdx.x // 2")) is all(t[0] // 2 == u[0] // 2 for t, u in met)
    assert found.one_warp(threads, YES)  # the block is one


def test_accesses_that_never_meet() -> None:
    _, found = pairs(LINEAR, "threadIdx.x + 8*threadIdx.y + 32")
    assert found.empty
    assert meeting(LINEAR, "threadIdx.x + 8*threadIdx.y + 32") == []


def test_values_that_are_unknown_are_no_pairs() -> None:
    _, a, b = two("threadIdx.x % N", LINEAR)
    made = Pairs.of(a, b, YES, {})
    assert made is None or not made.one_thread(YES)
    assert AccessTable.of(a, (0,)) is None


def test_a_table_is_made_once() -> None:
    _, a, b = two(LINEAR, LINEAR)
    tables: dict[tuple[int, tuple[int, ...]], AccessTable | None] = {}
    Pairs.of(a, b, YES, tables)
    count = len(tables)
    Pairs.of(a, b, YES, tables)
    assert len(tables) == count
    table = next(iter(tables.values()))
    assert table is not None
    assert table.count == 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [("xor(threadIdx.x, threadIdx.y)", (0, 7)), ("threadIdx.x * threadIdx.y - 3", (-3, 18)), ("threadIdx.x - N", None), ("7", (7, 7))],
)
def test_extremes(text: str, expected: tuple[int, int] | None) -> None:
    found, _, _ = two("threadIdx.x", "threadIdx.x")
    assert extremes(parse_expr(text), found.tree.root.context) == expected


def test_conditions_narrow_the_values() -> None:
    found = structure("IF threadIdx.x < 3 && threadIdx.y == threadIdx.x:\n  s[threadIdx.x*threadIdx.y] = copy(1.0)", head=LITERAL)
    (use,) = uses(found)
    assert extremes(parse_expr("threadIdx.x * threadIdx.y"), use.context) == (0, 4)


def test_a_place_that_is_never_reached_has_no_values() -> None:
    context = two("threadIdx.x", "threadIdx.x")[0].tree.root.context.under((parse_expr("threadIdx.x * threadIdx.y == 11"),))
    assert extremes(parse_expr("threadIdx.x * threadIdx.y"), context) == (0, 0)


def test_divisions_by_what_is_no_constant_have_names_with_their_extremes() -> None:
    found, _, _ = two("threadIdx.x", "threadIdx.x")
    new, context = named(parse_expr("N + threadIdx.x % (threadIdx.y + 1)"), found.tree.root.context)
    assert "N" in new.free
    assert not new.free & {"threadIdx.x", "threadIdx.y"}
    assert context.ranges.of(new - sym("N")) == (0, 3)


def test_divisions_by_constants_or_unknown_values_stay() -> None:
    found, _, _ = two("threadIdx.x", "threadIdx.x")
    for text in ("threadIdx.x % 4", "threadIdx.x // N", "3"):
        assert named(parse_expr(text), found.tree.root.context)[0] == parse_expr(text)
