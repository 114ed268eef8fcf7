"""The tree of a kernel: what vanishes from it, and what is known in each of its places."""

import pytest

from taskfuse.check.statement_tree import Node, StatementTree, conjuncts, linear_thread
from taskfuse.ir.scalar import TRUE, parse_expr
from taskfuse.kir.nodes import Compute, For, If
from tests.check.structured import structure

SET = "r[0] = copy(1.0)"


def tree(body: str) -> StatementTree:
    return structure(body).tree


def the_one(body: str) -> Node:
    (found,) = [n for n in tree(body).leaves() if isinstance(n.stmt, Compute)]
    return found


def said(node: Node) -> list[str]:
    return [str(c) for c in node.conditions]


@pytest.mark.parametrize("body", ["FOR i in 0..0:\n  {}", "FOR i in N..1:\n  {}", "IF threadIdx.x >= 64:\n  {}", "IF blockIdx.x > 3:\n  {}", "IF N < 1:\n  {}"])
def test_what_nobody_executes_is_not_there(body: str) -> None:
    assert tree(body.format(SET)).nodes == []


def test_one_iteration_is_no_loop() -> None:
    (node,) = tree("FOR i in 2..3:\n  r[i] = copy(1.0)").nodes
    assert node.text == "r[2] = copy(1.0)"
    assert node.loops == ()


@pytest.mark.parametrize("condition", ["threadIdx.x < 64", "blockIdx.x < 4 && N >= 1", "threadIdx.x // 32 < 2"])
def test_an_arm_that_everybody_takes_is_no_arm(condition: str) -> None:
    (node,) = tree(f"IF {condition}:\n  {SET}\nELSE:\n  r[1] = copy(2.0)").nodes
    assert node.text == SET
    assert node.conditions == ()


def test_paths_lead_from_the_outside_in() -> None:
    node = the_one(f"SYNC block\nFOR i in 0..N:\n  IF threadIdx.x < 32 && i < 3:  # first\n    SYNC warp\n    {SET}")
    loop, arm, last = node.path
    assert (type(loop.stmt), type(arm.stmt), last) == (For, If, node)
    assert [(n.number, n.index) for n in node.path] == [(1, 1), (2, 0), (4, 1)]
    assert node.loops == (loop,)
    assert sorted(said(node)) == ["i < 3", "threadIdx.x < 32"]
    assert node.role == "first"
    assert node.block.owner is arm
    assert node.context.ranges.of(parse_expr("threadIdx.x")) == (0, 31)
    assert node.context.ranges.of(parse_expr("i")) == (0, 2)


@pytest.mark.parametrize(
    ("first", "second", "known"),
    [
        ("threadIdx.x < 32", None, ["threadIdx.x >= 32"]),
        ("threadIdx.x < 32", "threadIdx.x >= 40", ["threadIdx.x >= 40"]),
        ("threadIdx.x < 32", "threadIdx.x % 2 == 0", ["threadIdx.x % 2 == 0", "threadIdx.x >= 32"]),
    ],
)
def test_an_arm_is_where_those_before_it_do_not_hold(first: str, second: str | None, known: list[str]) -> None:
    head = "ELSE" if second is None else f"ELSE IF {second}"
    node = the_one(f"IF {first}:\n  SYNC warp\n{head}:\n  {SET}")
    assert said(node) == known


def test_loops_that_run() -> None:
    found = [
        n
        for n in tree("FOR i in 0..N:\n  SYNC block\nFOR i in 1..N:\n  SYNC block\nIF N > 4:\n  FOR i in 4..N:\n    SYNC block").nodes
        if isinstance(n.stmt, For)
    ]
    assert [n.runs() for n in found] == [True, False, True]


def test_conjunctions_are_split() -> None:
    assert conjuncts(TRUE) == ()
    assert [str(c) for c in conjuncts(parse_expr("a < 1 && b < 2"))] == ["a < 1", "b < 2"]
    assert [str(c) for c in conjuncts(parse_expr("a < 1 || b < 2"))] == ["a < 1 || b < 2"]


def test_threads_are_numbered_x_first() -> None:
    number = linear_thread(structure(SET, "(8, 4, 2)").tree.kernel)
    assert str(number) == str(parse_expr("threadIdx.x + 8*threadIdx.y + 32*threadIdx.z"))


def test_an_index_of_extent_1_counts_nothing() -> None:
    assert str(linear_thread(structure(SET, "(8, 1, 2)").tree.kernel)) == str(parse_expr("threadIdx.x + 8*threadIdx.z"))
