"""Fault operators on kernel IR: each plants one typical mistake of synchronization.

An operator yields the kernels that have its fault at one place. Not every such kernel is wrong: a barrier may be redundant.
:mod:`taskfuse.testing.faults` reports which check finds which fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import TRUE, Const, Expr, Mod, Sym, const, lt, substitute, sym
from taskfuse.kir import Kernel, map_expressions, map_stmts, walk
from taskfuse.kir.nodes import AsyncCopy, Branch, Choose, Compute, For, GatherCopy, If, Stmt, TmaLoad, VectorCopy
from taskfuse.kir.operands import BarrierSlot, Queue
from taskfuse.kir.products import Shuffle
from taskfuse.kir.synchronization import (
    Acquire,
    Advance,
    Arrive,
    ArriveAsync,
    Barrier,
    BarrierScope,
    Commit,
    Cursor,
    CursorInit,
    Expect,
    FenceInit,
    FenceProxyAsync,
    InitBarrier,
    SetMaxNReg,
    Wait,
    WaitGroup,
    WgmmaFence,
)
from taskfuse.testing.block_operators import BLOCK_OPERATORS
from taskfuse.testing.mutations import Edit, Mutants, Operator, at, change, drop, moved, repeat
from taskfuse.testing.scope_operators import SCOPE_OPERATORS


def _barrier(*scopes: BarrierScope) -> Callable[[Stmt], bool]:
    return lambda s: isinstance(s, Barrier) and s.scope in scopes and s.note not in INITIAL


INITIAL = ("barriers are initialized", "the mbarriers are initialized", "the mbarrier is initialized")


def _is_initial(s: Stmt) -> bool:
    return isinstance(s, Barrier) and s.note in INITIAL


# -- expressions ----------------------------------------------------------------------------------------------------------------------


def _slot_of(stage: int, *, writes: bool) -> Edit:
    """The next slot in place of the right one of a ring (or of a ring that a role fills ahead), in writes or in reads."""

    def apply(kernel: Kernel) -> Mutants:
        slots = {s.name: s.slots for s in walk(kernel) if isinstance(s, CursorInit)}
        for s in walk(kernel):
            if not isinstance(s, (AsyncCopy, Compute, Choose, GatherCopy, VectorCopy)):
                continue
            for name, n in slots.items():
                slot = Cursor(name).slot
                if n == 1:
                    continue

                def other(e: Expr, slot: Expr = slot, n: int = n) -> Expr:
                    match e:
                        case Sym() if e is slot:
                            return (slot + stage) % n
                        case Mod(a, Const(value=slots)) if slots == n and not slot.free.isdisjoint(a.free):
                            return (a + stage) % n
                        case _:
                            return e

                new = map_expressions(s, other)
                if isinstance(new, Compute) and isinstance(s, Compute):
                    new = replace(new, out=s.out) if not writes else replace(new, operands=s.operands)
                if new != s:
                    yield at(kernel, s, new)

    return apply


def _conditions(change: Callable[[Expr], Expr | None]) -> Edit:
    """Change the conditions of labelled arms."""

    def apply(kernel: Kernel) -> Mutants:
        for s in walk(kernel):
            if isinstance(s, If):
                for k, b in enumerate(s.branches):
                    new = change(b.cond)
                    if b.label is not None and new is not None and new is not b.cond:
                        branches = (*s.branches[:k], replace(b, cond=new), *s.branches[k + 1 :])
                        yield at(kernel, s, replace(s, branches=branches))

    return apply


def _shifted(by: int) -> Callable[[Expr], Expr | None]:
    def change(e: Expr) -> Expr | None:
        names = [n for n in sorted(e.free) if n.startswith("threadIdx")]
        return substitute(e, {names[-1]: sym(names[-1]) + by}) if names else None

    return change


def _unguarded(kernel: Kernel) -> Mutants:
    """Drop a guard on data."""
    for s in walk(kernel):
        if (
            isinstance(s, If)
            and len(s.branches) == 1
            and s.branches[0].label is None
            and all(isinstance(t, (AsyncCopy, Compute, Choose, GatherCopy, VectorCopy)) for t in s.branches[0].body)
        ):
            yield at(kernel, s, s.branches[0].body)


def _restarted(kernel: Kernel) -> Mutants:
    """A cursor that restarts in every iteration of a loop."""
    starts = {s.name: s for s in walk(kernel) if isinstance(s, CursorInit)}
    for s in walk(kernel):
        if isinstance(s, For):
            for name, start in starts.items():
                if any(isinstance(t, Advance) and t.cursor == name for t in walk(s.body)):
                    moved = replace(kernel, body=map_stmts(kernel.body, lambda t, start=start: () if t is start else t))
                    yield replace(
                        moved,
                        body=map_stmts(
                            moved.body,
                            lambda t, v=s.var, name=name, start=start: (
                                replace(t, body=(replace(start), *t.body)) if isinstance(t, For) and t.var == v and _advances(t, name) else t
                            ),
                        ),
                    )


def _advances(loop: For, name: str) -> bool:
    return any(isinstance(t, Advance) and t.cursor == name for t in walk(loop.body))


def _trips(by: int) -> Callable[[Stmt], Stmt | None]:
    def change(s: Stmt) -> Stmt | None:
        if not isinstance(s, For) or s.unroll or not any(isinstance(t, (Wait, Arrive, Acquire)) for t in walk(s.body)):
            return None
        return replace(s, stop=s.stop + by)

    return change


def _overlaid(kernel: Kernel) -> Mutants:
    """Two Shared buffers at one address."""
    shared = [b for b in kernel.buffers if MEDIA[b.memory].is_placed and isinstance(b.offset, Const)]
    for i, a in enumerate(shared):
        for b in shared[i + 1 :]:
            yield replace(kernel, buffers=tuple(replace(c, offset=a.offset) if c is b else c for c in kernel.buffers))


def _foreign_barrier(kernel: Kernel) -> Mutants:
    """A barrier of the whole block inside a role."""
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    for s in walk(kernel):
        if isinstance(s, If) and len(s.branches) > 1:
            for k, b in enumerate(s.branches):
                arm = replace(b, body=(Barrier(BarrierScope.BLOCK, threads), *b.body))
                yield at(kernel, s, replace(s, branches=(*s.branches[:k], arm, *s.branches[k + 1 :])))


def _recount(change: Callable[[Expr], Expr]) -> Callable[[Stmt], Stmt | None]:
    def apply(s: Stmt) -> Stmt | None:
        assert isinstance(s, InitBarrier)
        count = change(s.count)
        return None if isinstance(count, Const) and count.value < 1 else replace(s, count=count)

    return apply


def _parity(s: Stmt) -> Stmt:
    assert isinstance(s, CursorInit)
    return replace(s, parity=1 - s.parity)


def _stages(by: int) -> Callable[[Stmt], Stmt | None]:
    def apply(s: Stmt) -> Stmt | None:
        assert isinstance(s, CursorInit)
        return replace(s, slots=s.slots + by) if s.slots + by >= 1 else None

    return apply


def _pending(s: Stmt) -> Stmt:
    assert isinstance(s, WaitGroup)
    return replace(s, pending=s.pending + 1)


def _read_only(s: Stmt) -> Stmt | None:
    assert isinstance(s, WaitGroup)
    return replace(s, read_only=True) if s.queue is Queue.BULK and not s.read_only else None


def _bytes(by: int) -> Callable[[Stmt], Stmt]:
    def apply(s: Stmt) -> Stmt:
        assert isinstance(s, Expect)
        return replace(s, bytes=s.bytes + by)

    return apply


def _plain(s: Stmt) -> Stmt:
    assert isinstance(s, Expect)
    return Arrive(s.barrier)


def _at_once(s: Stmt) -> Stmt:
    assert isinstance(s, ArriveAsync)
    return Arrive(s.barrier)


def _unconditional(s: Stmt) -> Stmt | None:
    assert isinstance(s, AsyncCopy)
    return replace(s, valid=TRUE) if s.valid is not TRUE else None


def _narrow(s: Stmt) -> Stmt | None:
    """A warp barrier in place of a block barrier or a named barrier."""
    assert isinstance(s, Barrier)
    return (
        replace(s, scope=BarrierScope.WARP, threads=const(32), id=None, counter=None)
        if s.scope in (BarrierScope.BLOCK, BarrierScope.NAMED) and s.note not in INITIAL
        else None
    )


def _one_id(s: Stmt) -> Stmt | None:
    assert isinstance(s, Barrier)
    return replace(s, id=const(1)) if s.scope is BarrierScope.NAMED and s.id is not const(1) else None


def _more_threads(s: Stmt) -> Stmt | None:
    assert isinstance(s, Barrier)
    return replace(s, threads=s.threads + 32) if s.scope is BarrierScope.NAMED else None


def _everyone(kernel: Kernel) -> Mutants:
    """An arrival by every thread of a warp instead of one."""
    for s in walk(kernel):
        if (
            isinstance(s, If)
            and len(s.branches) == 1
            and s.branches[0].label is None
            and len(s.branches[0].body) == 1
            and isinstance(s.branches[0].body[0], Arrive)
        ):
            yield at(kernel, s, s.branches[0].body)


def _advance(by: int) -> Callable[[Stmt], Stmt]:
    def apply(s: Stmt) -> Stmt:
        assert isinstance(s, Advance)
        return replace(s, count=s.count + by)

    return apply


def _wrong_order(s: Stmt) -> Stmt | None:
    assert isinstance(s, Arrive)
    return replace(s, barrier=BarrierSlot(s.barrier.name, const(0))) if s.barrier.name.endswith("order") and s.barrier.slot is not const(0) else None


def _budget(s: Stmt) -> Stmt:
    assert isinstance(s, SetMaxNReg)
    return replace(s, registers=s.registers + 104)


def _half(s: Stmt) -> Stmt:
    return If((Branch(lt(sym("threadIdx.x") % 32, 16), (s,)),))


def _other_slot(s: Stmt) -> Stmt | None:
    assert isinstance(s, Arrive)
    return replace(s, barrier=BarrierSlot(s.barrier.name, const(0))) if s.barrier.name.endswith(("full", "empty")) and s.barrier.slot is not const(0) else None


OPERATORS: tuple[Operator, ...] = (
    Operator("drop arrive", drop(Arrive)),
    Operator("repeat arrive", repeat(Arrive)),
    Operator("arrive by all threads", _everyone),
    Operator("arrive at slot 0", change(Arrive, _other_slot)),
    Operator("drop wait", drop(Wait)),
    Operator("flip parity", change(CursorInit, _parity)),
    Operator("cursor starts anew", _restarted),
    Operator("drop advance", drop(Advance)),
    Operator("advance by one more", change(Advance, _advance(1))),
    Operator("one slot more in a cursor", change(CursorInit, _stages(1))),
    Operator("one slot less in a cursor", change(CursorInit, _stages(-1))),
    Operator("write the next slot", _slot_of(1, writes=True)),
    Operator("read the next slot", _slot_of(1, writes=False)),
    Operator("count one more", change(InitBarrier, _recount(lambda c: c + 1))),
    Operator("count one less", change(InitBarrier, _recount(lambda c: c - 1))),
    Operator("count threads for warps", change(InitBarrier, _recount(lambda c: c * 32))),
    Operator("drop init", drop(InitBarrier)),
    Operator("drop barrier after init", drop(Barrier, where=_is_initial)),
    Operator("drop mbarrier_init fence", drop(FenceInit)),
    Operator("drop block barrier", drop(Barrier, where=_barrier(BarrierScope.BLOCK))),
    Operator("drop warp barrier", drop(Barrier, where=_barrier(BarrierScope.WARP))),
    Operator("drop named barrier", drop(Barrier, where=_barrier(BarrierScope.NAMED))),
    Operator("drop grid barrier", drop(Barrier, where=_barrier(BarrierScope.GRID))),
    Operator("drop cluster barrier", drop(Barrier, where=_barrier(BarrierScope.CLUSTER))),
    Operator("warp barrier for a larger one", change(Barrier, _narrow)),
    Operator("block barrier inside a role", _foreign_barrier),
    Operator("one id for all named barriers", change(Barrier, _one_id)),
    Operator("named barrier of more threads", change(Barrier, _more_threads)),
    Operator("arrive earlier", moved(Arrive, -1)),
    Operator("arrive much earlier", moved(Arrive, -2)),
    Operator("wait later", moved(Wait, 1)),
    Operator("barrier later", moved(Barrier, 1)),
    Operator("barrier earlier", moved(Barrier, -1)),
    Operator("advance earlier", moved(Advance, -1)),
    Operator("one trip more", change(For, _trips(1))),
    Operator("one trip less", change(For, _trips(-1))),
    Operator("role begins one thread early", _conditions(_shifted(1))),
    Operator("role begins a warp late", _conditions(_shifted(-32))),
    Operator("drop guard", _unguarded),
    Operator("overlay buffers", _overlaid),
    Operator("expect more bytes", change(Expect, _bytes(128))),
    Operator("expect fewer bytes", change(Expect, _bytes(-128))),
    Operator("arrive without bytes", change(Expect, _plain)),
    Operator("drop expect", drop(Expect)),
    Operator("drop load", drop(TmaLoad)),
    Operator("drop async arrive", drop(ArriveAsync)),
    Operator("repeat async arrive", repeat(ArriveAsync)),
    Operator("arrive at once for copies", change(ArriveAsync, _at_once)),
    Operator("async arrive earlier", moved(ArriveAsync, -1)),
    Operator("copy later", moved(AsyncCopy, 1)),
    Operator("copy what is not there", change(AsyncCopy, _unconditional)),
    Operator("drop proxy fence", drop(FenceProxyAsync)),
    Operator("drop wgmma fence", drop(WgmmaFence)),
    Operator("drop wait_group", drop(WaitGroup)),
    Operator("wait for one less", change(WaitGroup, _pending)),
    Operator("wait for sources only", change(WaitGroup, _read_only)),
    Operator("wait_group later", moved(WaitGroup, 1)),
    Operator("proxy fence later", moved(FenceProxyAsync, 1)),
    Operator("drop commit", drop(Commit)),
    Operator("commit later", moved(Commit, 1)),
    Operator("shuffle in half a warp", change(Shuffle, _half)),
    Operator("turn to instance 0", change(Arrive, _wrong_order)),
    Operator("registers of one warpgroup more", change(SetMaxNReg, _budget)),
    *BLOCK_OPERATORS,
    *SCOPE_OPERATORS,
)
"""Every operator, with the name that reports use."""
