"""Fault operators on kernel IR: each plants one mistake that people make in synchronization. ``python -m taskfuse.testing.faults`` prints who finds what.

An operator yields the kernels that have its fault at one place. Not every such kernel is wrong: a barrier may have been redundant. What counts
is agreement: a kernel that the static proof accepts must survive every schedule.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from taskfuse.check import Verdict, verify
from taskfuse.ir.scalar import TRUE, Const, Expr, Sym, const, lt, substitute, sym
from taskfuse.ir.types import MemoryType
from taskfuse.kir import Kernel, bodies, map_expressions, map_stmts, walk, with_bodies
from taskfuse.kir.nodes import (
    Advance,
    Arrive,
    ArriveAsync,
    AsyncCopy,
    Barrier,
    BarrierScope,
    BarrierSlot,
    Branch,
    Choose,
    Commit,
    Compute,
    CursorInit,
    Expect,
    FenceInit,
    FenceProxyAsync,
    For,
    If,
    InitBarrier,
    Queue,
    Retire,
    SetMaxNReg,
    Shuffle,
    Stmt,
    TmaLoad,
    VectorCopy,
    Wait,
    WgmmaFence,
)
from taskfuse.testing.case import seeded_case
from taskfuse.testing.outcomes import Argument, is_valid, misbehaves

Body = tuple[Stmt, ...]
Mutants = Iterator[Kernel]


@dataclass(frozen=True, slots=True)
class Operator:
    """A kind of mistake.

    Attributes:
        apply: every kernel that has the mistake at one place.
    """

    name: str
    apply: Callable[[Kernel], Mutants]


def _at(kernel: Kernel, target: Stmt, new: Stmt | Body) -> Kernel:
    """The kernel with one statement (the object itself) replaced."""
    return replace(kernel, body=map_stmts(kernel.body, lambda s: new if s is target else s))


def _drop(*kinds: type, where: Callable[[Stmt], bool] = lambda _: True) -> Callable[[Kernel], Mutants]:
    def apply(kernel: Kernel) -> Mutants:
        for s in walk(kernel):
            if isinstance(s, kinds) and where(s):
                yield _at(kernel, s, ())

    return apply


def _repeat(*kinds: type) -> Callable[[Kernel], Mutants]:
    def apply(kernel: Kernel) -> Mutants:
        for s in walk(kernel):
            if isinstance(s, kinds):
                yield _at(kernel, s, (s, replace(s)))

    return apply


def _change(kind: type, new: Callable[[Stmt], Stmt | Body | None]) -> Callable[[Kernel], Mutants]:
    def apply(kernel: Kernel) -> Mutants:
        for s in walk(kernel):
            if isinstance(s, kind):
                made = new(s)
                if made is not None and made is not s:
                    yield _at(kernel, s, made)

    return apply


def _barrier(*scopes: BarrierScope) -> Callable[[Stmt], bool]:
    return lambda s: isinstance(s, Barrier) and s.scope in scopes and s.note not in INITIAL


INITIAL = ("barriers are initialized", "the mbarriers are initialized", "the mbarrier is initialized")


def _is_initial(s: Stmt) -> bool:
    return isinstance(s, Barrier) and s.note in INITIAL


# -- statements in another place ------------------------------------------------------------------------------------------------------


def _swapped(first: type | tuple[type, ...], distance: int) -> Callable[[Kernel], Mutants]:
    """A statement moved past its neighbours in its block."""

    def apply(kernel: Kernel) -> Mutants:
        for body in _bodies(kernel):
            for k, s in enumerate(body):
                j = k + distance
                if isinstance(_inner(s), first) and 0 <= j < len(body):
                    rest = [*body[:k], *body[k + 1 :]]
                    yield _with_body(kernel, body, tuple([*rest[:j], s, *rest[j:]]))

    return apply


def _inner(s: Stmt) -> Stmt:
    """What a guard around a single statement guards."""
    while isinstance(s, If) and len(s.branches) == 1 and len(s.branches[0].body) == 1:
        s = s.branches[0].body[0]
    return s


def _bodies(kernel: Kernel) -> Iterator[Body]:
    yield kernel.body
    for s in walk(kernel):
        yield from bodies(s)


def _with_body(kernel: Kernel, old: Body, new: Body) -> Kernel:
    if kernel.body is old:
        return replace(kernel, body=new)

    def visit(body: Body) -> Body:
        if body is old:
            return new
        return tuple(with_bodies(s, tuple(visit(b) for b in inner)) if (inner := bodies(s)) else s for s in body)

    return replace(kernel, body=visit(kernel.body))


# -- expressions ----------------------------------------------------------------------------------------------------------------------


def _slot_of(stage: int, *, writes: bool) -> Callable[[Kernel], Mutants]:
    """The next slot in place of a ring's, in writes or in reads."""

    def apply(kernel: Kernel) -> Mutants:
        slots = {s.name: s.slots for s in walk(kernel) if isinstance(s, CursorInit)}
        for s in walk(kernel):
            if not isinstance(s, (AsyncCopy, Compute, Choose, VectorCopy)):
                continue
            for name, n in slots.items():
                wrong = (sym(f"{name}.slot") + stage) % n
                if n == 1:
                    continue

                def other(e: Expr, name: str = name, wrong: Expr = wrong) -> Expr:
                    return wrong if isinstance(e, Sym) and e.name == f"{name}.slot" else e

                new = map_expressions(s, other)
                if isinstance(new, Compute) and isinstance(s, Compute):
                    new = replace(new, out=s.out) if not writes else replace(new, operands=s.operands)
                if new != s:
                    yield _at(kernel, s, new)

    return apply


def _conditions(change: Callable[[Expr], Expr | None]) -> Callable[[Kernel], Mutants]:
    """Conditions of labelled arms, changed."""

    def apply(kernel: Kernel) -> Mutants:
        for s in walk(kernel):
            if isinstance(s, If):
                for k, b in enumerate(s.branches):
                    new = change(b.cond)
                    if b.label is not None and new is not None and new is not b.cond:
                        branches = (*s.branches[:k], replace(b, cond=new), *s.branches[k + 1 :])
                        yield _at(kernel, s, replace(s, branches=branches))

    return apply


def _shifted(by: int) -> Callable[[Expr], Expr | None]:
    def change(e: Expr) -> Expr | None:
        names = [n for n in sorted(e.free) if n.startswith("threadIdx")]
        return substitute(e, {names[-1]: sym(names[-1]) + by}) if names else None

    return change


def _unguarded(kernel: Kernel) -> Mutants:
    """Without a guard on data."""
    for s in walk(kernel):
        if (
            isinstance(s, If)
            and len(s.branches) == 1
            and s.branches[0].label is None
            and all(isinstance(t, (AsyncCopy, Compute, Choose, VectorCopy)) for t in s.branches[0].body)
        ):
            yield _at(kernel, s, s.branches[0].body)


def _restarted(kernel: Kernel) -> Mutants:
    """A cursor that starts anew in every iteration of a loop."""
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
        if not isinstance(s, For) or s.unroll or not any(isinstance(t, (Wait, Arrive)) for t in walk(s.body)):
            return None
        return replace(s, stop=s.stop + by)

    return change


def _overlaid(kernel: Kernel) -> Mutants:
    """Two Shared buffers at one place."""
    shared = [b for b in kernel.buffers if b.memory is MemoryType.Shared and isinstance(b.offset, Const)]
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
                yield _at(kernel, s, replace(s, branches=(*s.branches[:k], arm, *s.branches[k + 1 :])))


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
    assert isinstance(s, Retire)
    return replace(s, pending=s.pending + 1)


def _read_only(s: Stmt) -> Stmt | None:
    assert isinstance(s, Retire)
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
    """A barrier of the block or of named threads where a warp's would be too little."""
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
            yield _at(kernel, s, s.branches[0].body)


def _advance(by: int) -> Callable[[Stmt], Stmt]:
    def apply(s: Stmt) -> Stmt:
        assert isinstance(s, Advance)
        return replace(s, count=s.count + by)

    return apply


def _wrong_turn(s: Stmt) -> Stmt | None:
    assert isinstance(s, Arrive)
    return replace(s, barrier=BarrierSlot(s.barrier.name, const(0))) if s.barrier.name.endswith("turns") and s.barrier.slot is not const(0) else None


def _budget(s: Stmt) -> Stmt:
    assert isinstance(s, SetMaxNReg)
    return replace(s, registers=s.registers + 104)


def _half(s: Stmt) -> Stmt:
    return If((Branch(lt(sym("threadIdx.x") % 32, 16), (s,)),))


def _other_slot(s: Stmt) -> Stmt | None:
    assert isinstance(s, Arrive)
    return replace(s, barrier=BarrierSlot(s.barrier.name, const(0))) if s.barrier.name.endswith(("full", "empty")) and s.barrier.slot is not const(0) else None


@dataclass(slots=True)
class Kills:
    """Who finds the mutants of one operator.

    Attributes:
        mutants: valid kernels that are not the original.
        refuted: by the static proof, with a counterexample.
        outside: not accepted by it.
        accepted: proved, and every schedule agrees: the fault is none there.
        escaped: proved, and a schedule fails: a hole in the proof.
        schedules: mutants that at least one of the simulator's schedulers fails.
    """

    mutants: int = 0
    refuted: int = 0
    outside: int = 0
    accepted: int = 0
    escaped: int = 0
    schedules: int = 0


OPERATORS: tuple[Operator, ...] = (
    Operator("drop arrive", _drop(Arrive)),
    Operator("repeat arrive", _repeat(Arrive)),
    Operator("arrive by all threads", _everyone),
    Operator("arrive at slot 0", _change(Arrive, _other_slot)),
    Operator("drop wait", _drop(Wait)),
    Operator("flip parity", _change(CursorInit, _parity)),
    Operator("cursor starts anew", _restarted),
    Operator("drop advance", _drop(Advance)),
    Operator("advance by one more", _change(Advance, _advance(1))),
    Operator("one slot more in a cursor", _change(CursorInit, _stages(1))),
    Operator("one slot less in a cursor", _change(CursorInit, _stages(-1))),
    Operator("write the next slot", _slot_of(1, writes=True)),
    Operator("read the next slot", _slot_of(1, writes=False)),
    Operator("count one more", _change(InitBarrier, _recount(lambda c: c + 1))),
    Operator("count one less", _change(InitBarrier, _recount(lambda c: c - 1))),
    Operator("count threads for warps", _change(InitBarrier, _recount(lambda c: c * 32))),
    Operator("drop init", _drop(InitBarrier)),
    Operator("drop barrier after init", _drop(Barrier, where=_is_initial)),
    Operator("drop mbarrier_init fence", _drop(FenceInit)),
    Operator("drop block barrier", _drop(Barrier, where=_barrier(BarrierScope.BLOCK))),
    Operator("drop warp barrier", _drop(Barrier, where=_barrier(BarrierScope.WARP))),
    Operator("drop named barrier", _drop(Barrier, where=_barrier(BarrierScope.NAMED))),
    Operator("drop grid barrier", _drop(Barrier, where=_barrier(BarrierScope.GRID))),
    Operator("warp barrier for a larger one", _change(Barrier, _narrow)),
    Operator("block barrier inside a role", _foreign_barrier),
    Operator("one id for all named barriers", _change(Barrier, _one_id)),
    Operator("named barrier of more threads", _change(Barrier, _more_threads)),
    Operator("arrive earlier", _swapped(Arrive, -1)),
    Operator("arrive much earlier", _swapped(Arrive, -2)),
    Operator("wait later", _swapped(Wait, 1)),
    Operator("barrier later", _swapped(Barrier, 1)),
    Operator("barrier earlier", _swapped(Barrier, -1)),
    Operator("advance earlier", _swapped(Advance, -1)),
    Operator("one trip more", _change(For, _trips(1))),
    Operator("one trip less", _change(For, _trips(-1))),
    Operator("role begins one thread early", _conditions(_shifted(1))),
    Operator("role begins a warp late", _conditions(_shifted(-32))),
    Operator("drop guard", _unguarded),
    Operator("overlay buffers", _overlaid),
    Operator("expect more bytes", _change(Expect, _bytes(128))),
    Operator("expect fewer bytes", _change(Expect, _bytes(-128))),
    Operator("arrive without bytes", _change(Expect, _plain)),
    Operator("drop expect", _drop(Expect)),
    Operator("drop load", _drop(TmaLoad)),
    Operator("drop async arrive", _drop(ArriveAsync)),
    Operator("repeat async arrive", _repeat(ArriveAsync)),
    Operator("arrive at once for copies", _change(ArriveAsync, _at_once)),
    Operator("async arrive earlier", _swapped(ArriveAsync, -1)),
    Operator("copy later", _swapped(AsyncCopy, 1)),
    Operator("copy what is not there", _change(AsyncCopy, _unconditional)),
    Operator("drop proxy fence", _drop(FenceProxyAsync)),
    Operator("drop wgmma fence", _drop(WgmmaFence)),
    Operator("drop retire", _drop(Retire)),
    Operator("retire one less", _change(Retire, _pending)),
    Operator("retire sources only", _change(Retire, _read_only)),
    Operator("retire later", _swapped(Retire, 1)),
    Operator("proxy fence later", _swapped(FenceProxyAsync, 1)),
    Operator("drop commit", _drop(Commit)),
    Operator("commit later", _swapped(Commit, 1)),
    Operator("shuffle in half a warp", _change(Shuffle, _half)),
    Operator("turn to instance 0", _change(Arrive, _wrong_turn)),
    Operator("registers of one warpgroup more", _change(SetMaxNReg, _budget)),
)
"""Every operator, with the name that reports use."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the kill table over the kernels of random cases. Returns the exit status: 1 if a wrong kernel was proved."""
    parser = argparse.ArgumentParser(
        prog="python -m taskfuse.testing.faults", description="Plant faults in the kernels of random cases and see who finds them."
    )
    parser.add_argument("--cases", type=int, default=20, metavar="N", help="how many cases (default: 20)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed (default: 0)")
    parser.add_argument("--mutants", type=int, default=2, metavar="K", help="most mutants per operator and kernel (default: 2)")
    options = parser.parse_args(arguments)
    table = {op.name: Kills() for op in OPERATORS}
    for seed in range(options.seed, options.seed + options.cases):
        case = seeded_case(seed)
        if case.kernel is None:
            continue
        for op in OPERATORS:
            for mutant in islice(op.apply(case.kernel), options.mutants):
                if is_valid(mutant):
                    _count(table[op.name], mutant, case.arguments())
    print(f"{'operator':34} mutants refuted outside harmless escaped schedules")
    for name, k in table.items():
        print(f"{name:34} {k.mutants:7} {k.refuted:7} {k.outside:7} {k.accepted:8} {k.escaped:7} {k.schedules:9}")
    return 1 if any(k.escaped for k in table.values()) else 0


def _count(kills: Kills, mutant: Kernel, arguments: Sequence[Argument]) -> None:
    kills.mutants += 1
    failure = misbehaves(mutant, arguments)
    kills.schedules += failure is not None
    match verify(mutant).verdict:
        case Verdict.REFUTED:
            kills.refuted += 1
        case Verdict.OUTSIDE:
            kills.outside += 1
        case Verdict.PROVED if failure is None:
            kills.accepted += 1
        case Verdict.PROVED:
            kills.escaped += 1


if __name__ == "__main__":
    sys.exit(main())
