"""One legal run of a launch, many threads at a time.

Threads at one place execute its statement together, those of all blocks. They split where conditions or trip counts differ, and rejoin where they reach
the same place; threads at an earlier place in the text run first, and later ones wait for them. Where no group can continue as a whole, its threads
that can do so. A kernel whose order is proved reads the same in every run, so one run is enough; asynchronous operations end as soon as they are
issued, which is legal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from taskfuse.check.flags import all_of, any_of
from taskfuse.check.refuted import Refuted, WorkBudget
from taskfuse.check.values.barriers import LaunchBarriers
from taskfuse.check.values.lanes import ExecutedLanes, ExecutedLaunch, ExecutionFrame, Number
from taskfuse.check.values.terms import Bools
from taskfuse.kir import Kernel, bodies, stmt_text
from taskfuse.kir.nodes import Bind, For, If, Stmt
from taskfuse.kir.products import LdMatrix, Mma, Shuffle, StMatrix, Wgmma
from taskfuse.kir.synchronization import Acquire, Advance, Arrive, ArriveAsync, Barrier, BarrierScope, Cursor, CursorInit, Expect, InitBarrier, Release, Wait
from taskfuse.target import WARP

WAITING = (Barrier, Wait, Acquire)
TOGETHER = (Shuffle, Wgmma, Mma, LdMatrix, StMatrix)
"""The statements that whole warps execute."""

WIDE = 1 << 15
"""The most threads, counted once per iteration, that are executed together, unless one iteration has more."""


def every(found: Any) -> bool:
    """True if a condition holds for all threads: a number, or one for each."""
    return bool(found.all()) if isinstance(found, np.ndarray) else bool(found)


def no(found: Any) -> bool:
    """True if a condition holds for no thread."""
    return not found.any() if isinstance(found, np.ndarray) else not found


class LaunchExecution:
    """The threads of a launch.

    Args:
        execute: the effect of a statement that neither branches nor synchronizes.
        apart: true of a statement that never reads its own earlier writes: iterations with only such statements may be executed at once.
    """

    def __init__(
        self,
        kernel: Kernel,
        launch: ExecutedLaunch,
        barriers: LaunchBarriers,
        budget: WorkBudget,
        execute: Callable[[Stmt, ExecutedLanes], None],
        apart: Callable[[Stmt], bool],
    ) -> None:
        self.kernel = kernel
        self.launch = launch
        self.barriers = barriers
        self.budget = budget
        self.execute = execute
        self.apart = apart
        self.slots: dict[str, int] = {}
        self._waits: dict[int, bool] = {}
        self._collects: dict[int, bool] = {}
        self._alone: dict[int, bool] = {}
        for stmt in kernel.body:
            self._look(stmt)

    def run(self) -> None:
        """Run the launch to its end. Raises :class:`Refuted` if no thread can continue, or at a fault."""
        waiting = [ExecutedLanes(self.launch, self.launch.everybody, {}, [ExecutionFrame(self.kernel.body, 0, "")])] if len(self.launch.everybody) else []
        while waiting:
            waiting = self._merged(waiting)
            chosen = self._next(waiting)
            waiting = [lanes for lanes in waiting if lanes is not chosen] + self._advance(chosen)

    # -- scheduling --------------------------------------------------------------------------------------------------------------------

    @staticmethod
    def _merged(waiting: list[ExecutedLanes]) -> list[ExecutedLanes]:
        """Groups of threads, merged where they are at one place, in the order of the text."""
        if len(waiting) == 1:
            return waiting
        places: dict[tuple[tuple[int, ...], bool], ExecutedLanes] = {}
        for lanes in waiting:
            key = (lanes.place, lanes.waits)
            places[key] = places[key].joined(lanes) if key in places else lanes
        return [places[key] for key in sorted(places)]

    def _next(self, waiting: list[ExecutedLanes]) -> ExecutedLanes:
        """The threads to run next: a group that can continue as a whole; or its threads that can; or a part of a warp, if no other thread can join it."""
        part: tuple[ExecutedLanes, Bools] | None = None
        for lanes in waiting:
            ready = self._ready(lanes)
            if all_of(ready):
                if lanes.waits:
                    self._pass(lanes)
                return lanes
            if part is None and any_of(ready):
                part = lanes, ready
        if part is not None:
            lanes, ready = part
            rest, chosen = lanes.some(~ready), lanes.some(ready)
            waiting[waiting.index(lanes)] = rest
            self._pass(chosen)
            return chosen
        for lanes in waiting:
            stmt = self._at(lanes)
            if isinstance(stmt, Barrier) and stmt.scope is BarrierScope.WARP:
                self._pass(lanes)
                return lanes
        raise self._stuck(waiting)

    def _ready(self, lanes: ExecutedLanes) -> Bools:
        """Which threads can continue; one value if it is that of all."""
        if not lanes.waits:
            return np.ones(1, np.bool_)
        stmt = self._at(lanes)
        if isinstance(stmt, WAITING):
            return np.atleast_1d(np.asarray(self.barriers.ready(stmt, lanes), np.bool_))
        warps = lanes.ids // WARP
        first, count = np.unique(warps, return_counts=True)
        return np.isin(warps, first[count == WARP])

    @staticmethod
    def _at(lanes: ExecutedLanes) -> Stmt:
        frame = lanes.stack[-1]
        return frame.body[frame.at]

    def _stuck(self, waiting: list[ExecutedLanes]) -> Refuted:
        notes: list[str] = []
        for lanes in waiting:
            role = f" in {lanes.role}" if lanes.role else ""
            more = f" and {len(lanes) - 1} more wait" if len(lanes) > 1 else " waits"
            notes.append(f"{self.launch.thread(int(lanes.ids[0]))}{role}{more}: " + stmt_text(self._at(lanes), self.kernel))
        return Refuted("deadlock", "no thread can continue", *notes)

    # -- control flow -------------------------------------------------------------------------------------------------------------------

    def _look(self, stmt: Stmt) -> None:
        """Note what a statement and those inside it do: wait or move cursors; need whole warps; or are one statement whose executions are apart."""
        waits, collects = isinstance(stmt, (*WAITING, CursorInit, Advance)), isinstance(stmt, TOGETHER)
        inside = [inner for body in bodies(stmt) for inner in body]
        for inner in inside:
            self._look(inner)
            waits, collects = waits or self._waits[id(inner)], collects or self._collects[id(inner)]
        self._waits[id(stmt)], self._collects[id(stmt)] = waits, collects
        self._alone[id(stmt)] = self._alone[id(inside[0])] if len(inside) == 1 else not inside and self.apart(stmt)

    def _advance(self, lanes: ExecutedLanes) -> list[ExecutedLanes]:
        """Run threads until they wait, diverge, or reach a place that others may reach. Returns the rest of them."""
        while lanes.stack:
            frame = lanes.stack[-1]
            parted: list[ExecutedLanes] | None = None
            if frame.at == len(frame.body):
                parted = self._leave(lanes, frame)
            else:
                self.budget.spend(0)
                stmt = frame.body[frame.at]
                match stmt:
                    case _ if not self._waits[id(stmt)]:
                        if self._collects[id(stmt)] and not lanes.whole_warps:
                            lanes.waits = True
                            return [lanes]
                        self._inside(stmt, lanes)
                        frame.at += 1
                    case Bind(body=body):
                        lanes.stack.append(ExecutionFrame(body, 0, frame.role))
                    case If():
                        parted = self._branch(stmt, lanes, frame)
                    case For():
                        self._enter(stmt, lanes)
                        lanes.stack.append(ExecutionFrame(stmt.body, 0, frame.role, loop=stmt))
                        parted = self._loop(stmt, lanes)
                    case CursorInit() | Advance():
                        self._cursor(stmt, lanes)
                        frame.at += 1
                    case Barrier() | Wait() | Acquire():
                        self.barriers.arrive(stmt, lanes)
                        if not every(self.barriers.ready(stmt, lanes)):
                            return [lanes]
                        self._pass(lanes)
                    case _:
                        raise AssertionError(type(stmt))
            if parted is not None:
                return parted
        return []

    def _pass(self, lanes: ExecutedLanes) -> None:
        """Threads go on after their wait."""
        lanes.waits = False
        if isinstance(self._at(lanes), WAITING):
            lanes.stack[-1].at += 1

    @staticmethod
    def _leave(lanes: ExecutedLanes, frame: ExecutionFrame) -> list[ExecutedLanes] | None:
        """Threads leave a list of statements, and may rejoin those that they diverged from."""
        if frame.loop is not None:
            var = lanes.own[frame.loop.var]
            lanes.own[frame.loop.var] = var + lanes.own[f"step {len(lanes.stack) - 1}"]
            return LaunchExecution._loop(frame.loop, lanes)
        lanes.stack.pop()
        if lanes.stack:
            lanes.stack[-1].at += 1
        return [lanes] if frame.splits else None

    @staticmethod
    def _enter(stmt: For, lanes: ExecutedLanes) -> None:
        """The bounds of a loop that is entered."""
        start, stop, step = (lanes.value(e) for e in (stmt.start, stmt.stop, stmt.step))
        depth = len(lanes.stack)
        lanes.own |= {stmt.var: start, f"stop {depth}": stop, f"step {depth}": step}

    @staticmethod
    def _loop(stmt: For, lanes: ExecutedLanes) -> list[ExecutedLanes] | None:
        """Threads before an iteration: those that have one enter it, the others continue after the loop."""

        def left(some: ExecutedLanes) -> ExecutedLanes:
            some.stack.pop()
            for name in (stmt.var, f"stop {len(some.stack)}", f"step {len(some.stack)}"):
                del some.own[name]
            some.stack[-1].at += 1
            return some

        frame = lanes.stack[-1]
        active = lanes.own[stmt.var] < lanes.own[f"stop {len(lanes.stack) - 1}"]
        if every(active):
            frame.at = 0
            return None
        if no(active):
            left(lanes)
            return [lanes] if frame.splits else None
        where = np.asarray(active)
        gone, stay = left(lanes.some(~where)), lanes.some(where)
        stay.stack[-1].at, stay.stack[-1].splits = 0, True
        return [stay, gone]

    def _branch(self, stmt: If, lanes: ExecutedLanes, frame: ExecutionFrame) -> list[ExecutedLanes] | None:
        """Threads at a chain of conditions enter their arms."""
        parts: list[ExecutedLanes] = []
        for k, where in self._arms(stmt, lanes):
            arm = None if k < 0 else stmt.branches[k]
            inner = None if arm is None else ExecutionFrame(arm.body, k + 1, arm.label or frame.role, splits=where is not None)
            some = lanes if where is None else lanes.some(where)
            if inner is None:
                some.stack[-1].at += 1
            else:
                some.stack.append(inner)
            parts.append(some)
        return None if parts[0] is lanes else parts

    @staticmethod
    def _arms(stmt: If, lanes: ExecutedLanes) -> list[tuple[int, Bools | None]]:
        """The arms that threads take, and which threads: ``None`` for all. Arm -1 stands for none."""
        found: list[tuple[int, Bools | None]] = []
        left: Bools | None = None
        for k, arm in enumerate((*stmt.branches, None)):
            holds = arm is None or lanes.holds(arm.cond)
            if holds is False:
                continue
            if holds is True:
                return [*found, (k if arm is not None else -1, left)]
            mine = holds if left is None else holds & left
            if any_of(mine):
                found.append((k, None if all_of(mine) else mine))
            left = ~holds if left is None else left & ~holds
            if not any_of(left):
                break
        return found

    def _cursor(self, stmt: CursorInit | Advance, lanes: ExecutedLanes) -> None:
        match stmt:
            case CursorInit(name=name, slots=slots, slot=slot, parity=parity):
                self.slots[name] = slots
                lanes.own |= dict(zip(Cursor(name).symbols, (slot, parity, 0), strict=True))
            case Advance(cursor=name, count=count):
                slots, (slot, parity, phase) = self.slots[name], Cursor(name).symbols
                at = lanes.own[slot] + lanes.value(count)
                around = at // slots
                lanes.own[slot] = at % slots
                lanes.own[parity] = lanes.own[parity] ^ (around & 1)
                lanes.own[phase] = lanes.own[phase] + around

    # -- statements without waits ------------------------------------------------------------------------------------------------------

    def _inside(self, stmt: Stmt, lanes: ExecutedLanes) -> None:
        """Threads execute a statement from beginning to end."""
        try:
            match stmt:
                case Bind(body=body):
                    self._list(body, lanes)
                case If(branches=branches):
                    for k, where in self._arms(stmt, lanes):
                        if k >= 0:
                            some = lanes if where is None else lanes.part((id(stmt), k), where)
                            some.stack.append(ExecutionFrame((), 0, branches[k].label or lanes.role))
                            self._list(branches[k].body, some)
                            some.stack.pop()
                case For(var=var, body=body):
                    start, stop, step = (lanes.value(e) for e in (stmt.start, stmt.stop, stmt.step))
                    if self._alone[id(stmt)] and isinstance(start, int) and isinstance(stop, int) and isinstance(step, int) and step > 0:
                        trips = np.arange(start, stop, step)
                        inside = self._executions(body, lanes, frozenset((var,)))
                        some = 0 if inside is None else WIDE // max(1, len(lanes) * inside)
                        if some or inside == 1:  # else one iteration after another, each of them in parts
                            some = max(1, some)
                            for first in range(0, len(trips), some):
                                self._list(body, lanes.in_iterations(var, trips[first : first + some]))
                            return
                    at: Number = start
                    while True:
                        active = at < stop
                        if no(active):
                            break
                        lanes.own[var] = at
                        self._list(body, lanes if every(active) else lanes.some(np.asarray(active)))
                        at = at + step
                    lanes.own.pop(var, None)
                case InitBarrier() | Arrive() | ArriveAsync() | Expect() | Release():
                    self.barriers.act(stmt, lanes)
                case _:
                    if isinstance(stmt, TOGETHER) and not lanes.whole_warps:
                        raise Refuted(stmt_text(stmt, self.kernel).split(" ")[0], "a part of a warp executes it", self.launch.thread(int(lanes.ids[0])))
                    self.execute(stmt, lanes)
        except Refuted as found:
            raise found.quoting(stmt_text(stmt, self.kernel)) from None

    def _executions(self, body: tuple[Stmt, ...], lanes: ExecutedLanes, around: frozenset[str]) -> int | None:
        """How often the one statement of a body is executed in an iteration of the loops around it; ``None`` if that depends on threads or on these loops.

        Args:
            around: the variables of the loops around.
        """
        (stmt,) = body
        if not isinstance(stmt, For):
            inside_arms = tuple(inner for arm in bodies(stmt) for inner in arm)
            return self._executions(inside_arms, lanes, around) if inside_arms else 1
        bounds = (stmt.start, stmt.stop, stmt.step)
        if any(not e.free.isdisjoint(around) for e in bounds):
            return None
        start, stop, step = (lanes.value(e) for e in bounds)
        inside = self._executions(stmt.body, lanes, around | {stmt.var})
        if inside is None or not (isinstance(start, int) and isinstance(stop, int) and isinstance(step, int)) or step < 1:
            return None
        return len(range(start, stop, step)) * inside

    def _list(self, body: tuple[Stmt, ...], lanes: ExecutedLanes) -> None:
        for stmt in body:
            self.budget.spend(0)
            self._inside(stmt, lanes)
