"""Fault operators on scopes and proxies: who sees what, of which thread, through which path to memory."""

from __future__ import annotations

from dataclasses import replace

from taskfuse.ir.scalar import eq, sym
from taskfuse.ir.types import MemoryType
from taskfuse.kir import Kernel, walk
from taskfuse.kir.nodes import AtomicUpdate, Branch, Compute, If, Stmt, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Queue
from taskfuse.kir.synchronization import Arrive, Barrier, BarrierScope, Commit, Expect, FenceProxyAsync, Wait, WaitGroup
from taskfuse.testing.mutations import Mutants, Operator, at, change, moved

STORES = (AtomicUpdate, Compute, VectorCopy)


def _other_memory(s: Stmt) -> Stmt:
    """A fence of the other memory."""
    assert isinstance(s, FenceProxyAsync)
    return replace(s, memory=MemoryType.Shared if s.memory is MemoryType.Global else MemoryType.Global)


def _by_first(s: Stmt) -> Stmt:
    """A statement of one thread in each row, in place of all threads."""
    return If((Branch(eq(sym("threadIdx.x"), 0), (s,)),))


def _first_awaits(s: Stmt) -> Stmt | None:
    """One thread waits, and the others do not hear of it."""
    assert isinstance(s, Wait | WaitGroup)
    return None if isinstance(s, WaitGroup) and s.queue is Queue.WGMMA else _by_first(s)


def _fewer_peers(s: Stmt) -> Stmt | None:
    """Blocks that differ in one of several types alone."""
    assert isinstance(s, Arrive | TmaLoad)
    return replace(s, across=s.across[1:]) if len(s.across) > 1 else None


def _block_for_grid(kernel: Kernel) -> Mutants:
    """A barrier of the block, or of its cluster, in place of one of the grid."""
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    x, y, z = kernel.cluster
    for s in walk(kernel):
        if isinstance(s, Barrier) and s.scope is BarrierScope.GRID:
            yield at(kernel, s, replace(s, scope=BarrierScope.BLOCK, threads=threads, counter=None))
            yield at(kernel, s, replace(s, scope=BarrierScope.CLUSTER, threads=threads * (x * y * z), counter=None))


def _stored(s: Stmt) -> Stmt | None:
    """A box that is stored, in place of one that is combined with what is there."""
    assert isinstance(s, TmaStore)
    return replace(s, combine=None) if s.combine is not None else None


SCOPE_OPERATORS: tuple[Operator, ...] = (
    Operator("fence of the other memory", change(FenceProxyAsync, _other_memory)),
    Operator("proxy fence earlier", moved(FenceProxyAsync, -1)),
    Operator("proxy fence by few threads", change(FenceProxyAsync, _by_first)),
    Operator("expect earlier", moved(Expect, -1)),
    Operator("expect later", moved(Expect, 1)),
    Operator("store later", moved(STORES, 1)),
    Operator("store earlier", moved(STORES, -1)),
    Operator("load earlier", moved(TmaLoad, -1)),
    Operator("load later", moved(TmaLoad, 1)),
    Operator("box stored later", moved(TmaStore, 1)),
    Operator("commit earlier", moved(Commit, -1)),
    Operator("wait_group earlier", moved(WaitGroup, -1)),
    Operator("few threads wait", change((Wait, WaitGroup), _first_awaits)),
    Operator("reach fewer blocks", change((Arrive, TmaLoad), _fewer_peers)),
    Operator("block barrier for the grid's", _block_for_grid),
    Operator("store a box that is to be combined", change(TmaStore, _stored)),
)
"""Every operator, with the name that reports use."""
