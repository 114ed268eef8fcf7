"""What the symbols around a store run over: loops, threads and blocks, and the conditions that choose among their values."""

import pytest

from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.values.claims import Instructions, Place
from taskfuse.check.values.equivalent_visits import apart
from taskfuse.check.values.runs import Visits, below, stores
from taskfuse.check.values.solve import Open
from taskfuse.ir.scalar import Expr, parse_expr
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.kir.operands import WritingStmt
from tests.visits import box, expressions, visited
from tests.visits import visits as points

TEXT = """\
KERNEL k(x: float32[N, 64]) -> (y: float32[N, 64])
  DIM N
  GRID (4, 1, 1)  BLOCK (64, 1, 1)
  DEFINE y: float32[N, 64] = copy(x[i0, i1])

{}:
  y[{}, threadIdx.x] = copy(x[{}, threadIdx.x])  ~ value y[{}, threadIdx.x]
"""


def kernel(head: str, row: str) -> Kernel:
    return parse_kernel(TEXT.format(head, row, row, row))


def visits(head: str, row: str, *, each: bool = False, needed: str = "1") -> Visits:
    tree = StatementTree.of(kernel(head, row))
    (node,) = [n for n in tree.leaves() if isinstance(n.stmt, WritingStmt)]
    assert isinstance(node.stmt, WritingStmt)
    assert node.stmt.holds is not None
    place: Place = Instructions(tree.kernel).written(node, node.stmt.holds)
    shape: tuple[Expr, ...] = (parse_expr("N"), parse_expr("64"))
    return stores(tree, place, shape, parse_expr(needed), each=each)


def spans(v: Visits) -> dict[str, tuple[str, str]]:
    return {name: (str(a), str(b)) for name, (a, b) in v.spans.items() if str(b) != "1"}


def test_loops_threads_and_blocks() -> None:
    found = spans(visits("FOR i in 0..ceildiv(N - blockIdx.x, 4)", "4*i + blockIdx.x"))
    assert found.keys() == {"i", "blockIdx.x", "threadIdx.x"}
    assert found["blockIdx.x"] == ("0", "4")


def test_a_condition_that_excludes_what_does_not_exist_is_none() -> None:
    assert visits("IF 2*blockIdx.x < N", "blockIdx.x").conditions
    assert visits("IF blockIdx.x < N", "blockIdx.x").conditions == ()


def test_what_is_needed_of_elements_is_asked_of_them_as_conditions_say_them() -> None:
    row = "blockIdx.x - 8*(threadIdx.x//32)"
    head = "IF threadIdx.x < 32 && 2*blockIdx.x < N"
    assert len(visits(head, row).conditions) == 1
    assert visits(head, row, needed="2*i0 < N").conditions == ()
    assert len(visits(head, row, needed="2*i0 < N + 1").conditions) == 1


def test_a_loop_that_stores_again_counts_only_where_each_execution_does() -> None:
    assert "i" not in spans(visits("FOR i in 0..3", "blockIdx.x"))
    assert spans(visits("FOR i in 0..3", "blockIdx.x", each=True))["i"] == ("0", "3")


def test_work_that_blocks_take_in_turn_is_one_loop() -> None:
    found = spans(visits("FOR w in blockIdx.x % 4..N step 4", "w"))
    assert found.get("w", ("", ""))[1] == "N" or "blockIdx.x" in found
    assert "w" in found


def test_threads_that_a_condition_selects_are_rows() -> None:
    v = visits("IF threadIdx.x % 3 == 1", "blockIdx.x")
    assert v.rows is not None
    assert v.rows["threadIdx.x"].tolist() == list(range(1, 64, 3))
    dense = apart(visits("IF threadIdx.x >= 8", "blockIdx.x"))
    assert dense.rows is None
    with pytest.raises(Open, match="it is executed under N % 2 == 0 only"):
        visits("IF N % 2 == 0", "blockIdx.x")


BELOW = [("a < n", "a", "n"), ("a <= n", "a", "n + 1"), ("a + 3 < n", "a", "n - 3"), ("a < n//4", "4*a", "n - 3")]


@pytest.mark.parametrize(("condition", "number", "bound"), BELOW)
def test_what_a_number_is_below(condition: str, number: str, bound: str) -> None:
    found = below(parse_expr(condition), parse_expr(number))
    assert found is parse_expr(bound)
    assert below(parse_expr("a == n"), parse_expr("a")) is None


WALKS: dict[str, tuple[Visits, list[str], bool, bool]] = {  # and whether each point is visited once, and at least once
    "loops": (points(["j", "i"], i="N", j=4), ["4", "N"], True, True),
    "an axis of one": (points(["0", "i"], i="N", k=(2, 3)), ["1", "N"], True, True),
    "again": (points(["i"], i="N", k=2), ["N"], False, True),
    "never": (points(["i"], i="N", k=0), ["N"], False, False),
    "maybe never": (points(["i"], i="N", k="N - 3"), ["N"], False, False),
    "short": (points(["i"], i="N - 1"), ["N"], False, False),
    "not from 0": (points(["i"], i=(1, "N")), ["N"], False, False),
    "behind the end": (points(["i"], i="N"), ["2"], False, False),
    "one loop, two axes": (points(["i", "i"], i="N"), ["N", "N"], False, False),
    "an end that runs": (points(["i", "j"], i=3, j="i"), ["3", "i"], False, False),
    "a condition": (points(["i"], ["i != 1"], i="N"), ["N"], False, False),
    "another point": (points(["0"], i=2), ["2"], False, False),
}


@pytest.mark.parametrize("name", WALKS)
def test_loops_that_walk_a_box_point_by_point(name: str) -> None:
    v, texts, once, some = WALKS[name]
    extents = expressions(texts)
    assert (v.walks(extents, again=False), v.walks(extents, again=True)) == (once, some)
    if some:
        found = visited([v], {"N": 3})
        assert found.keys() == set(box(extents, {"N": 3}))
        assert not once or set(found.values()) == {1}
