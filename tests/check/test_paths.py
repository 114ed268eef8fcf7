"""What every execution passes between two statements: after the first, in between, before the second; across a back edge; and where threads meet."""

import pytest

from taskfuse.check.paths import PathRegion, Paths, SyncPoint, SyncPoints, common_loops
from taskfuse.check.statement_tree import Node
from taskfuse.check.structure import Structure
from taskfuse.kir.nodes import Compute, For
from taskfuse.kir.synchronization import Barrier
from tests.check.structured import nodes, structure

A, B = "r[0] = copy(1.0)", "r[1] = copy(2.0)"


def ends(body: str) -> tuple[Structure, Paths, Node, Node]:
    """The two statements that compute, and the paths around them."""
    found = structure(body)
    a, b = nodes(found, Compute)
    return found, Paths(found.tree), a, b


def forward(body: str) -> list[tuple[str, PathRegion]] | None:
    _, paths, a, b = ends(body)
    steps = paths.forward(a, b)
    return None if steps is None else [(s.node.text, s.region) for s in steps]


@pytest.mark.parametrize(
    ("body", "passed"),
    [
        (f"{A}\nSYNC block\n{B}", [("SYNC block", PathRegion.BETWEEN)]),
        (f"SYNC block\n{A}\nSYNC warp\n{B}\nSYNC block", [("SYNC warp", PathRegion.BETWEEN)]),
        (f"IF blockIdx.x < 2:\n  {A}\n  SYNC warp\nSYNC block\n{B}", [("SYNC warp", PathRegion.AFTER), ("SYNC block", PathRegion.BETWEEN)]),
        (f"{A}\nIF blockIdx.x < 2:\n  SYNC warp\n  {B}", [("SYNC warp", PathRegion.BEFORE)]),
        (f"{A}\nFOR i in 0..4:\n  SYNC warp\n{B}", [("SYNC warp", PathRegion.BETWEEN)]),
        (f"{A}\nFOR i in 1..N:\n  SYNC warp\n{B}", []),  # it may have no iteration
        (f"{A}\nIF threadIdx.x < 32:\n  SYNC warp\n{B}", [("SYNC warp", PathRegion.BETWEEN)]),  # of its threads
        (f"{A}\nIF blockIdx.x < 2:\n  SYNC block\n{B}", []),  # of some blocks alone
        (f"IF blockIdx.x < 2:\n  {A}\nIF blockIdx.x < 2:\n  SYNC block\n{B}", [("SYNC block", PathRegion.BETWEEN)]),  # of those where it was
    ],
)
def test_forward(body: str, passed: list[tuple[str, PathRegion]]) -> None:
    assert forward(body) == passed


def test_control_never_goes_back_or_from_one_arm_to_another() -> None:
    _, paths, a, b = ends(f"{A}\nSYNC block\n{B}")
    assert paths.forward(b, a) is None
    assert paths.forward(a, a) is None
    assert forward(f"IF blockIdx.x < 2:\n  {A}\n  SYNC block\nELSE:\n  {B}") is None


LOOP = f"FOR i in 0..N:\n  SYNC block\n  {A}\n  SYNC warp\n  {B}\n  SYNC named 1, 64"


def test_around_a_loop() -> None:
    """What follows the first one, whole iterations, what precedes the second one."""
    found, paths, a, b = ends(LOOP)
    (loop,) = common_loops(a, b)
    assert isinstance(loop.stmt, For)
    assert [s.node.text for s in paths.around(b, a, loop)] == ["SYNC named 1, 64", "SYNC block"]
    assert [s.node.text for s in paths.around(a, b, loop)] == ["SYNC warp", "SYNC named 1, 64", "SYNC block", "SYNC warp"]
    whole = ["SYNC block", "SYNC warp", "SYNC named 1, 64"]
    assert [s.node.text for s in paths.body(loop)] == whole
    assert [s.node.text for s in paths.around(b, a, loop, 2)] == ["SYNC named 1, 64", *whole, *whole, "SYNC block"]
    assert paths.passed(b, a, 0) is None
    assert [s.node.text for s in paths.passed(b, a, 1) or ()] == ["SYNC named 1, 64", "SYNC block"]
    assert [s.node.text for s in paths.again(b, a, a.block, 1)] == ["SYNC named 1, 64", *whole, "SYNC block"]
    assert [s.node.text for s in paths.rest(a, a.block)] == ["SYNC warp", "SYNC named 1, 64"]
    assert [s.node.text for s in paths.start(b, b.block)] == ["SYNC block", "SYNC warp"]
    assert all(paths.holds(n) for n in (loop, *nodes(found, Barrier)))
    assert not paths.holds(a)


@pytest.mark.parametrize(("condition", "passed"), [("i >= 1", True), ("i >= 2", False), ("i + 1 < N", False)])
def test_a_later_iteration_is_not_the_first(condition: str, passed: bool) -> None:
    _, paths, a, b = ends(f"FOR i in 0..N:\n  IF {condition}:\n    SYNC block\n  {A}\n  {B}")
    assert [s.node.text for s in paths.around(b, a, a.loops[0])] == ["SYNC block"] * passed


@pytest.mark.parametrize(("condition", "passed"), [("i + 1 < N", True), ("i + 2 < N", False), ("i >= 1", False)])
def test_an_iteration_with_a_later_one_is_not_the_last(condition: str, passed: bool) -> None:
    _, paths, a, b = ends(f"FOR i in 0..N:\n  {A}\n  {B}\n  IF {condition}:\n    SYNC block")
    assert [s.node.text for s in paths.around(b, a, a.loops[0])] == ["SYNC block"] * passed


def test_to_and_from_the_ends_of_the_kernel() -> None:
    _, paths, a, b = ends(f"SYNC block\nFOR i in 0..N:\n  {A}\n  SYNC warp\n  {B}\nSYNC named 1, 64")
    assert [s.node.text for s in paths.from_start(b)] == ["SYNC block", "SYNC warp"]
    assert [s.node.text for s in paths.to_end(a)] == ["SYNC warp", "SYNC named 1, 64"]


@pytest.mark.parametrize(
    ("body", "apart"),
    [
        (f"{A}\nSYNC block\n{B}", True),
        (f"SYNC block\n{A}\n{B}\nSYNC block", False),
        (f"FOR i in 0..N:\n  {A}\n  SYNC block\n  {B}", False),  # the next iteration's first one is not apart from this one's second
        (f"FOR i in 0..N:\n  {A}\n  SYNC block\n  {B}\n  SYNC block", True),
        (f"IF blockIdx.x < 2:\n  {A}\n  SYNC block\n{B}", True),
        (f"{A}\nIF blockIdx.x < 2:\n  SYNC block\n{B}", False),
    ],
)
def test_threads_that_meet_in_between(body: str, apart: bool) -> None:
    found, _, a, b = ends(body)
    points = SyncPoints([SyncPoint(n, frozenset(), frozenset({"blockIdx.x"})) for n in nodes(found, Barrier)])
    assert points.separate(a, b, frozenset({"blockIdx.x", "i"})) is apart
    assert points.separate(b, a, frozenset({"blockIdx.x", "i"})) is apart
    assert not points.separate(a, b, frozenset({"i"})), "threads of different blocks do not meet"
    assert not points.separate(a, a, frozenset({"blockIdx.x", "i"}))


def test_only_those_who_pass_it_meet() -> None:
    found, _, a, b = ends(f"IF threadIdx.x < 32:\n  {A}\n  SYNC warp\n  {B}")
    (warp,) = nodes(found, Barrier)
    mine = frozenset(a.conditions)
    assert SyncPoints([SyncPoint(warp, mine, frozenset())]).separate(a, b, frozenset())
    found, _, c, d = ends(f"{A}\nSYNC block\n{B}")
    (block,) = nodes(found, Barrier)
    assert not SyncPoints([SyncPoint(block, mine, frozenset())]).separate(c, d, frozenset())
