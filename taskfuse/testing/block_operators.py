"""Fault operators on synchronization between blocks: clusters, and rings between blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Expr, const
from taskfuse.kir import Kernel, map_stmts, walk
from taskfuse.kir.clusters import ranks, reached
from taskfuse.kir.nodes import Compute, Stmt, TmaLoad, VectorCopy
from taskfuse.kir.operands import Access, Operand
from taskfuse.kir.synchronization import Acquire, Arrive, Barrier, BarrierScope, InitBarrier, MbarrierScope, Release, Wait
from taskfuse.testing.mutations import Edit, Mutants, Operator, all_bodies, at, change, drop, inner, moved, repeat, with_body

# -- clusters -------------------------------------------------------------------------------------------------------------------------


def _block_for_cluster(kernel: Kernel) -> Mutants:
    """A block barrier in place of a cluster barrier."""
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    for s in walk(kernel):
        if isinstance(s, Barrier) and s.scope is BarrierScope.CLUSTER:
            yield at(kernel, s, replace(s, scope=BarrierScope.BLOCK, threads=threads))


def _own_block(s: Stmt) -> Stmt | None:
    """An arrival, or a copy, that does not reach the other blocks of the cluster."""
    assert isinstance(s, Arrive | TmaLoad)
    return replace(s, across=()) if s.across else None


def _counts_one_block(kernel: Kernel) -> Mutants:
    """An mbarrier that other blocks arrive at counts its own block's arrivals only."""
    arrived = {s.barrier.name: reached(kernel.cluster, s.across) for s in walk(kernel) if isinstance(s, Arrive) and s.across}
    for name, blocks in arrived.items():

        def recounted(s: Stmt, name: str = name, blocks: Expr = blocks) -> Stmt:
            return replace(s, count=s.count // blocks) if isinstance(s, InitBarrier) and s.barrier.name == name else s

        yield replace(kernel, body=map_stmts(kernel.body, recounted))


def _empty_of_one_block(kernel: Kernel) -> Mutants:
    """A slot counts as empty when its own block has read it: consumers release it only in their own block."""
    for counted in _counts_one_block(kernel):
        yield replace(counted, body=map_stmts(counted.body, lambda s: replace(s, across=()) if isinstance(s, Arrive) else s))


def _of_another_rank(step: int | None) -> Edit:
    """Elements of another block of the cluster: the one ``step`` further, or always those of the block itself."""

    def apply(kernel: Kernel) -> Mutants:
        return (mutant for mutant in mutants(kernel) if mutant != kernel)

    def mutants(kernel: Kernel) -> Mutants:
        spread = {b.name: b.shape[0] for b in kernel.buffers if MEDIA[b.memory].is_by_rank}
        own = ranks(kernel.cluster, ())[0] if spread else const(0)

        def moved_to(e: Expr, blocks: Expr) -> Expr:
            return own if step is None else (e + step) % blocks

        def elsewhere(o: Operand) -> Operand:
            if not isinstance(o, Access) or o.buffer not in spread:
                return o
            rank, *rest = o.index
            return replace(o, index=(moved_to(rank, spread[o.buffer]), *rest))

        for s in walk(kernel) if spread else ():
            match s:
                case Compute(out=out, operands=operands):
                    yield at(kernel, s, replace(s, out=elsewhere(out)))
                    for k, o in enumerate(operands):
                        yield at(kernel, s, replace(s, operands=(*operands[:k], elsewhere(o), *operands[k + 1 :])))
                case VectorCopy(out=out, source=source):
                    yield at(kernel, s, replace(s, out=elsewhere(out)))
                    yield at(kernel, s, replace(s, source=elsewhere(source)))
                case _:
                    pass

    return apply


def _in_block(s: Stmt) -> Stmt | None:
    """An arrival, or a wait, that publishes nothing to other blocks of the cluster."""
    assert isinstance(s, Arrive | Wait)
    return replace(s, scope=MbarrierScope.BLOCK) if s.scope is MbarrierScope.CLUSTER else None


# -- semaphores -----------------------------------------------------------------------------------------------------------------------


def _phases(n: int) -> Callable[[Stmt], Stmt]:
    """A wait for a later or an earlier phase."""

    def apply(s: Stmt) -> Stmt:
        assert isinstance(s, Acquire)
        return replace(s, phases=s.phases + n)

    return apply


def _first_ring(s: Stmt) -> Stmt:
    """All blocks use the first block's ring."""
    assert isinstance(s, (Acquire, Release))
    slot = s.semaphore
    return replace(s, semaphore=replace(slot, index=(*(const(0) for _ in slot.index[:-1]), slot.index[-1]))) if len(slot.index) > 1 else s


def _semaphore_count(n: int) -> Edit:
    """A phase that needs more or fewer releases."""

    def apply(kernel: Kernel) -> Mutants:
        for k, s in enumerate(kernel.semaphores):
            yield replace(kernel, semaphores=(*kernel.semaphores[:k], replace(s, count=s.count + n), *kernel.semaphores[k + 1 :]))

    return apply


def _beside(kind: type, distance: int) -> Edit:
    """Drop the barrier before or after a statement."""

    def apply(kernel: Kernel) -> Mutants:
        for body in all_bodies(kernel):
            for k, s in enumerate(body):
                j = k + distance
                if isinstance(inner(s), kind) and 0 <= j < len(body) and isinstance(body[j], Barrier):
                    yield with_body(kernel, body, (*body[:j], *body[j + 1 :]))

    return apply


BLOCK_OPERATORS: tuple[Operator, ...] = (
    Operator("block barrier for the cluster's", _block_for_cluster),
    Operator("arrive at one block only", change(Arrive, _own_block)),
    Operator("copy to one block only", change(TmaLoad, _own_block)),
    Operator("count one block of a cluster", _counts_one_block),
    Operator("slot empty in one block", _empty_of_one_block),
    Operator("access the next block", _of_another_rank(1)),
    Operator("access the own block", _of_another_rank(None)),
    Operator("arrive in the scope of a block", change(Arrive, _in_block)),
    Operator("wait in the scope of a block", change(Wait, _in_block)),
    Operator("drop acquire", drop(Acquire)),
    Operator("acquire one phase less", change(Acquire, _phases(-1))),
    Operator("acquire one phase more", change(Acquire, _phases(1))),
    Operator("acquire later", moved(Acquire, 1)),
    Operator("drop barrier after acquire", _beside(Acquire, 1)),
    Operator("drop release", drop(Release)),
    Operator("repeat release", repeat(Release)),
    Operator("release earlier", moved(Release, -1)),
    Operator("drop barrier before release", _beside(Release, -1)),
    Operator("semaphore of one release more", _semaphore_count(1)),
    Operator("semaphore of one release less", _semaphore_count(-1)),
    Operator("all blocks use the first ring", change((Acquire, Release), _first_ring)),
)
