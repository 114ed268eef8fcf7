"""Registers that take terms: which loops their place says, which elements a reader reads, and which statements touch them."""

import pytest

from taskfuse.check.statement_tree import Node, StatementTree
from taskfuse.check.values.accumulators import Term, determined, disjoint, is_determined, is_read, read_places, touches
from taskfuse.check.values.claims import Place
from taskfuse.ir.scalar import Expr, parse_expr
from taskfuse.kir import parse_kernel
from taskfuse.kir.nodes import For

TEXT = """\
KERNEL k(x: float32[4, 8]) -> (y: float32[4])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL t: float32[4, 2]

FOR a in 0..2:
  FOR k in 0..8:
    t[a, 0] = add(t[a, 0], x[a, k])
FOR b in 0..4:
  IF b < 3:
    y[b] = copy(t[b, 1])
"""
TREE = StatementTree.of(parse_kernel(TEXT))
ADDS, READS = TREE.leaves()


def place(node: Node, *index: str, points: tuple[tuple[str, int], ...] = ()) -> Place:
    return Place(node, "t", tuple(map(parse_expr, index)), "y", (), points)


def test_loops_that_the_place_says() -> None:
    term = Term(ADDS, place(ADDS, "a", "0"), (parse_expr("a"), parse_expr("k")), ())
    assert determined(term, []) == {"a"}
    assert determined(term, list(ADDS.loops[:1])) == set()
    assert {n.stmt.var: is_determined(n, term) for n in ADDS.loops if isinstance(n.stmt, For)} == {"a": True, "k": False}


@pytest.mark.parametrize(("index", "found"), [((2, 1), True), ((3, 1), False), ((3, 0), False)])
def test_elements_that_a_condition_keeps_from_a_reader(index: tuple[int, int], found: bool) -> None:
    assert is_read(place(READS, "b", "1"), index) is found


def test_elements_that_an_index_names_are_listed() -> None:
    assert read_places(place(READS, "b//2", "b % 2")) == {(0, 0), (0, 1), (1, 0)}
    assert read_places(place(READS, "b", "1")) is None
    assert read_places(place(READS, "unknown//2", "1")) is None


def test_a_sum_of_symbols_says_of_no_symbol_what_it_is() -> None:
    assert is_read(place(READS, "b + 1", "1"), (4, 1))


@pytest.mark.parametrize(
    ("one", "two", "apart"),
    [(("a", "0"), ("a", "1"), True), (("0", "0"), ("1", "0"), True), (("a", "0"), ("1", "0"), False), (("a", "0"), ("a",), False)],
)
def test_registers_that_are_apart(one: tuple[str, ...], two: tuple[str, ...], apart: bool) -> None:
    assert disjoint(place(ADDS, *one), place(ADDS, *two)) is apart


def test_an_instruction_that_writes_several_registers_touches_all_of_them() -> None:
    points: tuple[tuple[str, int], ...] = (("r", 2),)
    index: tuple[Expr, ...] = (parse_expr("0"), parse_expr("r"))
    two = Place(ADDS, "t", index, "y", (), points)
    assert not disjoint(two, place(ADDS, "0", "1"))
    assert disjoint(two, place(ADDS, "1", "0"))


def test_a_statement_touches_what_it_reads_and_writes() -> None:
    assert touches(ADDS, place(ADDS, "1", "0"))
    assert not touches(ADDS, place(ADDS, "1", "1"))
    assert not touches(READS, Place(READS, "x", (), "y", ()))
