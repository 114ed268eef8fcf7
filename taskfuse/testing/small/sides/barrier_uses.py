"""Rings in which an mbarrier has one use more, another use, or the same under other conditions or in another loop.

A ring, a turn and a ring that is filled ahead each say which uses of their mbarriers there are. What is put in here fits one of them or none, and is taken from
the kernel itself: its slots, parities, trips and conditions, at another place. Counts and bytes may change with it, so that sums agree again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from taskfuse.ir.scalar import TRUE, Expr, const, eq, lt, maximum, sym, xor
from taskfuse.kir import Kernel, map_stmts, walk
from taskfuse.kir.nodes import Branch, For, If, Stmt, TmaLoad
from taskfuse.kir.operands import BarrierSlot
from taskfuse.kir.synchronization import Advance, Arrive, ArriveAsync, Cursor, CursorInit, Expect, InitBarrier, Wait
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.mutations import all_bodies, at, with_body
from taskfuse.testing.small.pingpong import distributed
from taskfuse.testing.small.pipeline import Pipeline
from taskfuse.testing.small.prefetch import prefetched
from taskfuse.testing.small.sides.engines import ring_bytes
from taskfuse.testing.small.sides.exchanges import rings
from taskfuse.testing.small.sides.side import Side
from taskfuse.testing.small.text import Small

Use = Arrive | ArriveAsync | Expect | Wait | TmaLoad
USES = (Arrive, ArriveAsync, Expect, Wait, TmaLoad)
TRIED = 12
"""Kernels that are drawn until one has an mbarrier, and more than one launch if it should."""
BYTES = 128


def barrier_uses(c: Chooser) -> Side:
    """A kernel with one or two such edits."""
    start = _ring(c)
    kernel = start.kernel
    for _ in range(c.pick((1, 1, 2))):
        kernel = _Edit(c, kernel).apply()
    return Side(kernel, "uses of mbarriers", None, start.extents)


def _ring(c: Chooser) -> Small | Side:
    """A kernel with mbarriers; mostly one of a symbolic extent."""
    symbolic = c.chance(70)
    for _ in range(TRIED):
        made = c.pick((lambda: Pipeline(c).make(), lambda: distributed(c), lambda: prefetched(c), lambda: ring_bytes(c), lambda: rings(c)))()
        if made.kernel.mbarriers and (made.kernel.extents or not symbolic):
            return made
    return distributed(c)


class _Edit:
    """An edit of a kernel, from what it has."""

    def __init__(self, c: Chooser, kernel: Kernel) -> None:
        self.c = c
        self.kernel = kernel
        stmts = list(walk(kernel))
        self.uses: list[Use] = [s for s in stmts if isinstance(s, USES)]
        self.inits = [s for s in stmts if isinstance(s, InitBarrier)]
        self.loads = [s for s in stmts if isinstance(s, TmaLoad)]
        self.loops = [s for s in stmts if isinstance(s, For)]
        self.slots: list[Expr] = list(dict.fromkeys(u.barrier.slot for u in self.uses))
        self.parities: list[Expr] = list(dict.fromkeys(u.parity for u in self.uses if isinstance(u, Wait)))
        self.conditions: list[Expr] = list(dict.fromkeys(b.cond for s in stmts if isinstance(s, If) for b in s.branches if b.cond is not TRUE))

    def apply(self) -> Kernel:
        """The kernel with it; the kernel itself if it has no use of an mbarrier."""
        if not self.uses:
            return self.kernel
        if self.loads and self.c.chance(40):
            return self._loaded_in_pieces()
        return self.c.pick((self._one_more, self._one_more, self._one_more, self._another, self._under, self._second_cursor))()

    def _one_more(self) -> Kernel:
        """One more use, mostly where its mbarrier has others, which the mbarrier's count may allow for."""
        name = self.c.pick(self.uses).barrier.name
        kernel, use = self._recounted(name), self._new(name)
        bodies = [body for body in all_bodies(kernel) if body]
        near = [body for body in bodies if any(isinstance(s, USES) and s.barrier.name == name for s in body)]
        body = self.c.pick(near if near and self.c.chance(70) else bodies)
        k = self.c.integer(0, len(body))
        return with_body(kernel, body, (*body[:k], self._wrapped(use), *body[k:]))

    def _second_cursor(self) -> Kernel:
        """One use by another cursor, which starts and advances beside the one that it has."""
        use = self.c.pick(self.uses)
        cursor = Cursor.at(use.barrier.slot)
        if cursor is None:
            return self.kernel
        own, name = replace(cursor, name=f"{cursor.name}.again"), use.barrier.name

        def twice(s: Stmt) -> tuple[Stmt, ...]:
            match s:
                case CursorInit(name=cursor.name):
                    return s, replace(s, name=own.name)
                case Advance(cursor=cursor.name):
                    return s, replace(s, cursor=own.name)
                case _ if s is use:
                    again = replace(use, barrier=BarrierSlot(name, own.slot))
                    again = replace(again, parity=own.parity) if isinstance(again, Wait) else again
                    return (again,) if self.c.chance(30) else (use, again)
                case _:
                    return (s,)

        kernel = self._recounted(name)
        return replace(kernel, body=map_stmts(kernel.body, twice))

    def _another(self) -> Kernel:
        """One use with another slot, parity or number of bytes."""
        use = self.c.pick(self.uses)
        match use:
            case Wait() if self.c.chance(60):
                return at(self.kernel, use, replace(use, parity=self._parity()))
            case Expect() if self.c.chance(60):
                return at(self.kernel, use, replace(use, bytes=self._bytes(use.bytes)))
            case _:
                return at(self.kernel, use, replace(use, barrier=self._slot(use.barrier.name)))

    def _under(self) -> Kernel:
        """One use under a condition or in a loop of its own."""
        use = self.c.pick(self.uses)
        return at(self._recounted(use.barrier.name), use, self._wrapped(use))

    def _loaded_in_pieces(self) -> Kernel:
        """A load in a loop, and as many bytes as another number of trips would bring."""
        load = self.c.pick(self.loads)
        trips = self._trips()
        others = (trips, maximum(trips, 0), maximum(trips, 1), self._trips())
        expected = self.c.pick(others)
        kernel = at(self.kernel, load, self._loop(trips, load))
        mine = [s for s in walk(kernel) if isinstance(s, Expect) and s.barrier.name == load.barrier.name]
        for s in mine:
            kernel = at(kernel, s, replace(s, bytes=s.bytes * expected))
        return kernel

    def _new(self, name: str) -> Stmt:
        """A wait or an arrival at an mbarrier."""
        slot = self._slot(name)
        match self.c.integer(0, 5):
            case 0 | 1:
                return Arrive(slot)
            case 2:
                return Wait(slot, self._parity())
            case 3:
                return Expect(slot, self._bytes(const(0)))
            case 4:
                return ArriveAsync(slot)
            case _:
                return self.c.pick(self.uses)

    def _recounted(self, name: str) -> Kernel:
        """More arrivals in a phase of an mbarrier, or as many as before."""
        kernel, more = self.kernel, self.c.pick((0, 0, 1, 1, 2, self.kernel.block[0], None))
        for init in self.inits:
            if init.barrier.name == name and more != 0:
                kernel = at(kernel, init, replace(init, count=init.count + (init.count if more is None else more)))
        return kernel

    def _slot(self, name: str) -> BarrierSlot:
        return BarrierSlot(name, self.c.pick((*self.slots, const(0), self.c.pick(self.slots) + 1, *self._variables())))

    def _parity(self) -> Expr:
        found = (*self.parities, const(0), const(1), *(v % 2 for v in self._variables()))
        chosen = self.c.pick(found)
        return xor(chosen, 1) if self.c.chance(25) else chosen

    def _bytes(self, now: Expr) -> Expr:
        trips = self._trips()
        return self.c.pick((const(0), const(BYTES), now + BYTES, trips * BYTES, maximum(trips, 1) * BYTES))

    def _trips(self) -> Expr:
        """A number of trips, which may be none."""
        of: Sequence[Expr] = (*(sym(e.name) for e in self.kernel.extents), *self._variables(), *(loop.stop for loop in self.loops), const(self.c.integer(0, 2)))
        e = self.c.pick(of)
        return self.c.pick((e, e, e // 2, maximum(e - self.c.integer(1, 2), 0), maximum(self.c.integer(1, 2) - e, 0), e + 1))

    def _variables(self) -> list[Expr]:
        return [sym(loop.var) for loop in self.loops]

    def _wrapped(self, s: Stmt) -> Stmt:
        """A statement, often for some threads, in some iterations, or more than once."""
        match self.c.integer(0, 4):
            case 0:
                return s
            case 1:
                return self._loop(self._trips(), s)
            case _:
                return If((Branch(self._condition(), (s,)),))

    def _condition(self) -> Expr:
        thread, lanes = sym("threadIdx.x"), self.kernel.block[0]
        own = (eq(thread, self.c.integer(0, 3)), lt(thread, self._trips()), eq(thread % 32, 0), eq(thread, lanes - 1))
        return self.c.pick((*self.conditions, *own))

    def _loop(self, trips: Expr, s: Stmt) -> For:
        return For(f"j{len(self.loops)}", const(0), trips, const(1), unroll=False, body=(s,))
