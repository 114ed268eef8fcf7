"""The statement classes for which the proof has rules, and rules that hold for a whole class. A kernel with any other statement is outside the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from taskfuse.kir import Kernel, walk
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Bind, Choose, Compute, For, GatherCopy, If, Stmt, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Queue
from taskfuse.kir.products import LdMatrix, Mma, Shuffle, StMatrix, Wgmma
from taskfuse.kir.synchronization import (
    Acquire,
    Advance,
    Arrive,
    ArriveAsync,
    Barrier,
    Commit,
    CursorInit,
    Expect,
    FenceInit,
    FenceProxyAsync,
    InitBarrier,
    Release,
    SetMaxNReg,
    Wait,
    WaitGroup,
    WgmmaFence,
)
from taskfuse.reports.certificate import Layer, Obligation, Verdict
from taskfuse.target import WARP, WARPGROUP


@dataclass(frozen=True, slots=True)
class Rules:
    """The proof's rules for the statements of one class. Their accesses follow from their fields (:mod:`taskfuse.kir.fields`).

    Attributes:
        together: number of consecutive threads that execute a statement together, so that the threads of a warp wait for each other there; 0: independently.
        orders: whether it may order the statements before it and after it: paths keep such statements.
    """

    together: int = 0
    orders: bool = False


RULES: Mapping[type[Stmt], Rules] = {
    **dict.fromkeys((For, Bind, If), Rules()),
    **dict.fromkeys((Compute, Choose, GatherCopy, AtomicUpdate, VectorCopy, AsyncCopy, TmaStore), Rules()),
    **dict.fromkeys((InitBarrier, CursorInit), Rules()),
    **dict.fromkeys((TmaLoad, Barrier, Arrive, ArriveAsync, Expect, Wait, Release, Acquire, Advance), Rules(orders=True)),
    **dict.fromkeys((FenceInit, FenceProxyAsync), Rules(orders=True)),
    **dict.fromkeys((Mma, LdMatrix, StMatrix, Shuffle), Rules(WARP, orders=True)),
    **dict.fromkeys((Wgmma, WgmmaFence, SetMaxNReg, Commit, WaitGroup), Rules(WARPGROUP, orders=True)),
}
"""To add a class, also add its effects on barriers, queues and other accesses to the layers."""

KNOWN: frozenset[type] = frozenset(RULES)
ORDERING: frozenset[type] = frozenset(kind for kind, rules in RULES.items() if rules.orders)


def together(stmt: Stmt) -> int:
    """Number of consecutive threads that execute a statement together; 0: each thread independently."""
    if isinstance(stmt, (Commit, WaitGroup)) and stmt.queue is not Queue.WGMMA:
        return 0
    return RULES[type(stmt)].together


def unknown(kernel: Kernel, known: frozenset[type] = KNOWN) -> Obligation | None:
    """The obligation for a statement without rules."""
    kinds = {type(s) for s in walk(kernel)}
    if kinds <= known:
        return None
    found = next(s for s in walk(kernel) if type(s) not in known)
    return Obligation(Layer.STRUCTURE, type(found).__name__, Verdict.OUTSIDE, "the proof has no rule for such statements")
