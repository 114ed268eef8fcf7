"""The statements for which the proof has rules. A kernel with any other statement is outside the model."""

from __future__ import annotations

from taskfuse.kir import Kernel, walk
from taskfuse.kir.nodes import AsyncCopy, Bind, Choose, Compute, For, Gather, If, TmaLoad, TmaStore, Update, VectorCopy
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

KNOWN: frozenset[type] = frozenset(
    (
        *(For, Bind, If),
        *(Compute, Choose, Gather, Update, VectorCopy, AsyncCopy, TmaLoad, TmaStore),
        *(Wgmma, Mma, LdMatrix, StMatrix, Shuffle),
        *(Barrier, InitBarrier, Arrive, ArriveAsync, Expect, Wait, Release, Acquire, CursorInit, Advance, Commit, WaitGroup),
        *(FenceInit, FenceProxyAsync, WgmmaFence, SetMaxNReg),
    )
)
"""A class is added together with its rules: which threads execute such statements, what these access, what they order."""


def unknown(kernel: Kernel, known: frozenset[type] = KNOWN) -> Obligation | None:
    """That the proof has no rule for a statement of the kernel."""
    found = next((s for s in walk(kernel) if type(s) not in known), None)
    if found is None:
        return None
    return Obligation(Layer.STRUCTURE, type(found).__name__, Verdict.OUTSIDE, "the proof has no rule for such statements")
