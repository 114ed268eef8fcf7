"""Waits for the asynchronous copies of each thread."""

from taskfuse.kir import walk
from taskfuse.kir.nodes import AsyncCopy, Stmt
from taskfuse.kir.synchronization import ArriveAsync, BarrierScope, Commit, FenceProxyAsync, WaitGroup
from tests.lowering.copying import CASES
from tests.lowering.running import scopes


def asynchronous(name: str) -> list[Stmt]:
    return [s for s in walk(CASES.lowered(name)[1]) if isinstance(s, AsyncCopy | ArriveAsync | Commit | WaitGroup | FenceProxyAsync)]


def test_what_waits_for_copies() -> None:
    assert [type(s) for s in asynchronous("two roles")] == [AsyncCopy, ArriveAsync]
    assert [type(s) for s in asynchronous("one role")] == [AsyncCopy, Commit, WaitGroup, AsyncCopy, Commit, WaitGroup]  # before, in and after the loop
    assert [type(s) for s in asynchronous("one role, one slot")] == [AsyncCopy, Commit, WaitGroup]
    assert [type(s) for s in asynchronous("through")][:4] == [AsyncCopy, Commit, WaitGroup, FenceProxyAsync]
    assert scopes(CASES.lowered("one role")[1]) == [BarrierScope.BLOCK]  # the ring makes the second barrier of an iteration unnecessary
    assert scopes(CASES.lowered("one role, one slot")[1]) == [BarrierScope.BLOCK, BarrierScope.BLOCK]


def test_copies_next_to_each_other_share_a_retire() -> None:
    assert [type(s) for s in asynchronous("two tiles, one slot")] == [AsyncCopy, AsyncCopy, Commit, WaitGroup]
    assert [type(s) for s in asynchronous("two tiles")] == [AsyncCopy, AsyncCopy, Commit, WaitGroup] * 2
