"""An access is over before a later one begins: barriers, batches that are waited for, fences."""

import pytest

from taskfuse.check.access_order import AccessOrder, common_conditions, fence_text, needs_fence
from taskfuse.check.paths import Paths
from taskfuse.check.statement_tree import BLOCKS
from taskfuse.check.structure import Structure
from taskfuse.ir.scalar import parse_expr
from taskfuse.kir.operands import Queue
from tests.check.structured import structure, uses

GENERIC = "s[0, threadIdx.x] = copy(x[0, threadIdx.x])\n{between}\ny[0, threadIdx.x] = copy(s[0, 63 - threadIdx.x])"
COPY = "COPY.async s[0, threadIdx.x] <- x[0, threadIdx.x] width 1\nCOMMIT copy\n{between}\ny[0, threadIdx.x] = copy(s[0, threadIdx.x])"


def order(found: Structure) -> tuple[AccessOrder, Paths]:
    paths = found.paths
    return AccessOrder(found.threads, found.barriers, found.rings, paths), paths


def missing(body: str) -> str:
    """What is missing between the first and the last use of s."""
    found = structure(body)
    made, paths = order(found)
    a, *_, b = uses(found)
    steps = paths.forward(a.node, b.node)
    assert steps is not None
    return made.missing(steps, a, b, BLOCKS)


@pytest.mark.parametrize(
    ("between", "why"),
    [
        ("SYNC block", ""),
        ("SYNC warp", "nothing orders them"),
        ("PASS", "nothing orders them"),
        ("IF N > 3:\n  SYNC block", "nothing orders them"),
    ],
)
def test_a_barrier_of_both_threads(between: str, why: str) -> None:
    assert missing(GENERIC.format(between=between)) == why


@pytest.mark.parametrize(("between", "retired"), [("WAIT_GROUP copy <= 0", True), ("WAIT_GROUP copy <= 1", False), ("SYNC block", False)])
def test_an_asynchronous_copy_ends_at_a_wait_for_its_batch(between: str, retired: bool) -> None:
    found = structure(COPY.format(between=between))
    made, paths = order(found)
    a, b = uses(found)
    steps = paths.forward(a.node, b.node)
    assert steps is not None
    assert (made.waited_for(steps, Queue.COPY, a) is not None) is retired
    assert (made.over(steps, a, b) is not None) is retired


def test_generic_writes_need_a_fence_for_engines() -> None:
    found = structure(COPY.format(between="WAIT_GROUP copy <= 0"))
    write, read = uses(found)
    assert not needs_fence(write, read)
    assert fence_text(write) == "FENCE proxy.async"


def test_conditions_of_the_innermost_block_around_both() -> None:
    found = structure("IF threadIdx.x < 32:\n  s[0, 0] = copy(1.0)\n  IF N > 3:\n    s[0, 1] = copy(1.0)")
    a, b = (u.node for u in uses(found))
    assert common_conditions(a, b) == {parse_expr("threadIdx.x < 32")}


def test_threads_that_may_make_both() -> None:
    found = structure(GENERIC.format(between="SYNC block"))
    made, _ = order(found)
    a, b = uses(found)
    pairs = made.pairs(a, b, frozenset())
    assert pairs is not None
    assert not pairs.empty
