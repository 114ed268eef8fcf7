"""Threads and blocks whose terms a reader has: a set of each kind once, and none that has terms of another element."""

import numpy as np
import pytest
from numpy.typing import NDArray

from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.values.accumulators import Term
from taskfuse.check.values.block_threads import BlockThreads
from taskfuse.check.values.claims import Place
from taskfuse.check.values.cross_thread_reductions import Joined
from taskfuse.check.values.joined_terms import in_blocks, members_of, row_spans, thread_atoms
from taskfuse.check.values.solve import Open
from taskfuse.ir.scalar import Expr, const, parse_expr
from taskfuse.kir import parse_kernel
from tests.visits import KNOWN

TEXT = """\
KERNEL k(x: float32[2, 8]) -> (y: float32[2])
  GRID (1, 1, 1)  BLOCK (4, 2, 1)
  LOCAL acc: float32[]

acc = add(acc, x[threadIdx.y, threadIdx.x])
IF threadIdx.x == 0:
  y[threadIdx.y] = copy(acc)
"""
TREE = StatementTree.of(parse_kernel(TEXT))
ADDS, READS = TREE.leaves()
THREADS = np.arange(8)
FOUR_BY_TWO = BlockThreads.of(TREE.kernel, (), {})
ROWS = THREADS[:, None] // 4 == THREADS[None, :] // 4
"""Each thread has the partial results of its row."""


def sets(members: NDArray[np.bool_], point: str, element: str, assumed: tuple[Expr, ...] = ()) -> list[list[tuple[int, int]]]:
    """The threads of each set, as x and y."""
    term = Term(ADDS, Place(ADDS, "acc", (), "y", (parse_expr(element),)), (parse_expr(element), parse_expr(point)), ())
    joined = Joined(FOUR_BY_TWO, members, {}, {}, assumed)
    found = members_of(joined, [term], [1], Place(READS, "acc", (), "y", (parse_expr(element),)))
    return [list(zip(rows["threadIdx.x"].tolist(), rows["threadIdx.y"].tolist(), strict=True)) for rows in found]


def test_sets_that_take_the_same_points_are_one() -> None:
    (one,) = sets(ROWS, "threadIdx.x", "threadIdx.y")
    assert [x for x, _ in one] == [0, 1, 2, 3]


def test_sets_that_take_other_points_are_several() -> None:
    found = sets(ROWS, "threadIdx.x + 4*threadIdx.y", "threadIdx.y")
    assert sorted(found) == [[(x, y) for x in range(4)] for y in range(2)]


def test_terms_of_another_element() -> None:
    with pytest.raises(Open, match=r"thread 0 has terms of another element: threadIdx\.x of the threads that it joins differs"):
        sets(ROWS, "threadIdx.x", "threadIdx.x")


def test_what_is_assumed_of_a_thread_is_assumed_of_all_that_it_joins() -> None:
    with pytest.raises(Open, match=r"threadIdx.x < 2 of the threads that it joins differs"):
        sets(ROWS, "threadIdx.x", "threadIdx.y", (parse_expr("threadIdx.x < 2"),))


def test_a_reader_that_has_nothing() -> None:
    with pytest.raises(Open, match="thread 4 reads a result that has no terms"):
        sets(ROWS & (THREADS < 4), "threadIdx.x", "threadIdx.y")


def test_other_blocks_are_those_of_the_loop_that_joined_them() -> None:
    b, n = parse_expr("b"), parse_expr("N")
    joined = Joined(FOUR_BY_TWO, ROWS, {"blockIdx.x": b}, {"b": (const(0), n)}, ())
    spans = {"blockIdx.x": (const(0), n), "i": (parse_expr("blockIdx.x"), const(8))}
    assert in_blocks(joined, {**spans}, [parse_expr("i < 2*blockIdx.x")], {"blockIdx.x": n}, KNOWN) == (
        {"i": (b, const(8)), "b": (const(0), n)},
        [parse_expr("i < 2*b")],
    )


def test_blocks_that_are_not_all_that_were_joined_are_a_condition() -> None:
    b, n = parse_expr("b"), parse_expr("N")
    joined = Joined(FOUR_BY_TWO, ROWS, {"blockIdx.x": b}, {"b": (const(0), n)}, ())
    grid = {"blockIdx.x": n}
    _, conditions = in_blocks(joined, {"blockIdx.x": (const(1), n)}, [], grid, KNOWN)
    assert conditions == [parse_expr("1 <= b")]  # b < N is known
    _, conditions = in_blocks(joined, {"blockIdx.x": (const(-1), n - 1)}, [], grid, KNOWN)
    assert conditions == [parse_expr("b < N - 1")]


def test_rows_and_atoms() -> None:
    assert row_spans(None) == {}
    assert row_spans({"threadIdx.x": np.array([1, 3])}) == {"threadIdx.x": (const(0), const(4))}
    assert thread_atoms(parse_expr("4*i + threadIdx.x//2 + N"), {"threadIdx.x", "threadIdx.y"}) == {parse_expr("threadIdx.x//2")}
    assert thread_atoms(parse_expr("i + N"), {"threadIdx.x"}) == set()
    assert thread_atoms(parse_expr("threadIdx.x + threadIdx.z"), {"threadIdx.x"}) == {parse_expr("threadIdx.x")}
