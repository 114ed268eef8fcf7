"""The machine: runs agents and asynchronous engines in the order that the interleaving's policy picks, until all threads have exited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from taskfuse.errors import DeadlockError, SimulationError
from taskfuse.kir.channels import ring_text
from taskfuse.kir.printer import stmt_text
from taskfuse.sim.agent import Agent, Join, Signal
from taskfuse.sim.barriers import BarrierCell, SemaphoreArray, Waiter
from taskfuse.sim.block import Block
from taskfuse.sim.compiled_kernel import SimulatedKernel
from taskfuse.sim.engines import Action
from taskfuse.sim.fault import Fault, TornWarp
from taskfuse.sim.interleaving import Policy, Timing
from taskfuse.sim.lanes import Env, Lanes, LaneTable
from taskfuse.sim.observer import Observer
from taskfuse.sim.published import GlobalFences
from taskfuse.target import WARP

REPORTED_AGENTS = 24
Description = Callable[[], str]


class Machine:
    """One launch.

    Attributes:
        ready: agents that can run.
        actions: operations that engines may execute now, oldest first.
        alive: agents whose threads have not exited.
        preempted: the running agent has woken one that may run first.
        parked: joins where agents wait for the others.
        waiting: other waiting agents: the agent, the statement, and what it waits for, as text.
        scalars: values of the run-time scalars, as stored.
        counters: grid barriers.
        semaphores: counters in Global memory, by name (set by the launch).
        fences: proxy fences for Global memory.
        observer: the observer of the run, if any.
    """

    def __init__(
        self,
        compiled: SimulatedKernel,
        table: LaneTable,
        policy: Policy,
        scalars: dict[str, Any],
        max_steps: int,
        fences: GlobalFences,
        observer: Observer | None = None,
    ) -> None:
        self.observer = observer
        self.compiled = compiled
        self.table = table
        self.policy = policy
        self.scalars = scalars
        self.max_steps = max_steps
        self.steps = 0
        self.alive = 0
        self.preempted = False
        self.ready: list[Agent] = []
        self.actions: list[Action] = []
        self.parked: dict[Join, None] = {}
        self.waiting: dict[Waiter, tuple[Agent, int, Description]] = {}
        self.counters = {c.name: BarrierCell(f"grid barrier '{c.name}'") for c in compiled.kernel.counters}
        self.semaphores: dict[str, SemaphoreArray] = {}
        self._claims: dict[tuple[str, int], list[int]] = {}
        self._claimed: Counter[str] = Counter()
        self.fences = fences

    # -- agents -----------------------------------------------------------------------------------------------------------------------

    def start(self, block: Block, env: Env) -> None:
        """Start the threads of a block at the kernel's entry."""
        threads = self.table.threads
        unit = self.compiled.unit
        points = [unit * c for c in self.policy.split_points(-(-threads // unit))]
        for first, last in zip([0, *points], [*points, threads], strict=True):
            self.ready.append(Agent(self, block, self.table.span(first, last), 0, dict(env)))
            self.alive += 1

    def block(self, agent: Agent, pc: int, description: Description) -> Signal:
        """An agent waits at the statement at ``pc`` until it is woken."""
        if self.observer is not None:
            self.observer.block(agent, pc)
        self.waiting[agent] = (agent, pc, description)
        return Signal.BLOCKED

    def claimed(self, queue: str, block: int, position: int) -> int:
        """The number at a position of a block's claims: the next unclaimed one, if no thread of the block has asked for this position before."""
        mine = self._claims.setdefault((queue, block), [])
        if position == len(mine):
            mine.append(self._claimed[queue])
            self._claimed[queue] += 1
        return mine[position]

    def wake(self, agents: list[Waiter]) -> None:
        """Let blocked agents continue."""
        if self.observer is not None:
            self.observer.wake(agents)
        for agent in agents:
            self.ready.append(self.waiting.pop(agent)[0])
            self.preempted = self.policy.preempts

    def split(self, agent: Agent, parts: list[tuple[Lanes, int]], join: int) -> Signal:
        """Let the parts of an agent run independently until they reconverge at ``join``."""
        if self.compiled.unit > 1:
            parts = self._carve(parts)
        joins = (*agent.joins, Join(join, len(parts)))
        for outer in agent.joins:
            outer.live += len(parts) - 1
        (lanes, pc), *others = parts
        self.ready += [agent.part(other, start, joins) for other, start in others]
        self.alive += len(others)
        agent.lanes, agent.pc, agent.joins = lanes, pc, joins
        agent.order = (agent.block.number, lanes.first)
        return Signal.POINT

    def reconverge(self, agent: Agent, pc: int) -> Signal | None:
        """An agent reaches the join at ``pc``: it continues, or waits for the agents from which it was split."""
        while agent.joins and agent.joins[-1].pc == pc:
            join = agent.joins[-1]
            if join.live > 1 and (self.policy.parks or not agent.lanes.has_whole_units(self.compiled.unit)):
                join.parked.append(agent)
                self.parked[join] = None
                self._settle(join)
                return Signal.BLOCKED
            self._leave(agent, join)
        return None

    def _leave(self, agent: Agent, join: Join) -> None:
        if join.live == 1 and not agent.lanes.has_whole_units(self.compiled.unit):  # the rest of its warp has gone on
            agent.torn = True
        agent.joins = agent.joins[:-1]
        join.live -= 1
        self._settle(join)

    def _settle(self, join: Join) -> None:
        """If all remaining agents have arrived, merge those in equal state and let them continue."""
        if not join.parked or len(join.parked) < join.live:
            return
        self.parked.pop(join, None)
        merged: list[list[Agent]] = []
        for agent in join.parked:
            for same in merged:
                if same[0].env == agent.env:
                    same.append(agent)
                    break
            else:
                merged.append([agent])
        join.parked = []
        for same in merged:
            first = same[0]
            first.lanes = self.table.union([a.lanes for a in same])
            first.order = (first.block.number, first.lanes.first)
            first.torn = len(merged) > 1 and not first.lanes.has_whole_units(self.compiled.unit)
            self._resume(first)
            self.alive -= len(same) - 1
            for outer in first.joins:
                outer.live -= len(same) - 1

    def _resume(self, agent: Agent) -> None:
        agent.pc = agent.joins[-1].pc
        agent.joins = agent.joins[:-1]
        self.ready.append(agent)

    def _carve(self, parts: list[tuple[Lanes, int]]) -> list[tuple[Lanes, int]]:
        """The parts with whole warps in agents of their own: they need not wait for the warps that the split tears."""
        unit = self.compiled.unit
        carved: list[tuple[Lanes, int]] = []
        for lanes, pc in parts:
            if lanes.has_whole_units(unit):
                carved.append((lanes, pc))
                continue
            units = lanes.ids // unit
            sizes = np.bincount(units)
            whole = sizes[units] == unit
            carved.append((self.table.get(lanes.ids[~whole]), pc))
            if whole.any():
                carved.append((self.table.get(lanes.ids[whole]), pc))
        return carved

    def release(self, whole: bool) -> bool:
        """Let one of the agents that wait at a join continue alone, so that no deadlock is an artifact of joining.

        Args:
            whole: only an agent of whole warps.

        Returns:
            False if no agent waits at a join.
        """
        join = self._releasable() if whole else next(iter(self.parked), None)
        if join is None:
            return False
        agent = join.parked.pop(0)
        if not join.parked:
            del self.parked[join]
        agent.torn = not agent.lanes.has_whole_units(self.compiled.unit)
        self._resume(agent)
        join.live -= 1
        self._settle(join)
        return True

    def _releasable(self) -> Join | None:
        """A join where an agent of whole warps waits."""
        unit = self.compiled.unit
        for join in self.parked:
            for k, agent in enumerate(join.parked):
                if agent.lanes.has_whole_units(unit):
                    join.parked.insert(0, join.parked.pop(k))
                    return join
        return None

    # -- engines ----------------------------------------------------------------------------------------------------------------------

    def post(self, action: Action) -> None:
        """Make an operation available to its engine."""
        if self.observer is not None:
            self.observer.post(action)
        if self.policy.timing is Timing.EARLY:
            self.perform(action)
        else:
            self.actions.append(action)

    def perform(self, action: Action) -> None:
        """An engine executes an operation. Raises :class:`SimulationError`."""
        if self.observer is not None:
            self.observer.begin_part(action)
        try:
            action.execute()
        except Fault as fault:
            raise self.error(fault, action.block, action.pc, action.thread) from None
        if self.observer is not None:
            self.observer.end_part(action)

    # -- the loop ---------------------------------------------------------------------------------------------------------------------

    def run(self, blocks: Iterator[tuple[Block, Env]], resident: int) -> None:
        """Run blocks, ``resident`` at a time, until every thread has exited and every engine is idle. Raises :class:`SimulationError`."""
        for block, env in islice(blocks, resident):
            self.start(block, env)
        ready, actions, policy = self.ready, self.actions, self.policy
        while True:
            if ready:
                if actions and policy.takes_action(len(ready), len(actions)):
                    self.perform(actions.pop(policy.action(len(actions))))
                    continue
                agent = ready.pop(policy.pick(ready))
                match self._execute(agent, policy.quantum()):
                    case Signal.POINT:
                        ready.append(agent)
                    case Signal.BLOCKED:
                        pass
                    case Signal.DONE:
                        self.alive -= 1
                        if agent.block.exited == agent.block.threads:
                            for block, env in islice(blocks, 1):
                                self.start(block, env)
            elif self.release(whole=True):
                pass
            elif actions:
                self.perform(actions.pop(policy.action(len(actions))))
            elif self.release(whole=False):
                pass
            elif self.alive:
                raise self.deadlock()
            else:
                return

    def _execute(self, agent: Agent, quantum: int) -> Signal:
        code = self.compiled.code
        steps = self.steps
        limit = self.max_steps
        left = quantum
        pc = agent.pc
        self.preempted = False
        try:
            while True:
                pc = agent.pc
                agent.pc = pc + 1
                signal = code[pc](agent)
                steps += 1
                if signal is None:
                    if steps > limit:
                        raise Fault(f"more than {limit} steps", help="raise max_steps if the kernel is meant to run that long")
                elif signal is Signal.POINT:
                    left -= 1
                    if left <= 0 or self.preempted:
                        return signal
                else:
                    return signal
        except Fault as fault:
            return self._fault(fault, agent, pc)
        finally:
            self.steps = steps
            self.policy.passed += quantum - left

    def step(self, agent: Agent) -> Signal | None:
        """An agent executes one instruction. Raises :class:`SimulationError`."""
        pc = agent.pc
        agent.pc = pc + 1
        self.steps += 1
        try:
            return self.compiled.code[pc](agent)
        except Fault as fault:
            return self._fault(fault, agent, pc)

    def _fault(self, fault: Fault, agent: Agent, pc: int) -> Signal:
        """A fault of an agent ends the run, unless the agent is a part of a warp that could not wait for the rest."""
        if isinstance(fault, TornWarp) and agent.torn:
            return self._reunite(agent, pc, fault.reason)
        thread = agent.lanes.first if fault.thread is None or isinstance(fault, TornWarp) else fault.thread
        raise self.error(fault, agent.block, pc, thread) from None

    def _reunite(self, agent: Agent, pc: int, reason: str) -> Signal:
        """Parts of a warp that went on alone are one agent again at an instruction that takes all of it: those that come first wait for the last.

        A part that came to a branch alone has no join at its end, or another than the rest: the whole has the joins of one part, and leaves the others.
        """
        here = [a for a, at, _ in self.waiting.values() if at == pc and a.block is agent.block and a.env == agent.env]
        rest, warps = list[Agent](), set((agent.lanes.ids // WARP).tolist())
        while (found := next((a for a in here if a not in rest and not warps.isdisjoint((a.lanes.ids // WARP).tolist())), None)) is not None:
            rest.append(found)
            warps.update((found.lanes.ids // WARP).tolist())
        lanes = self.table.union([agent.lanes, *(a.lanes for a in rest)])
        if agent.detours or any(a.detours or not a.torn for a in rest) or not lanes.has_whole_units(WARP):
            return self.block(agent, pc, lambda: reason)
        if self.observer is not None:
            self.observer.wake(rest)
        for other in rest:
            del self.waiting[other]
        self.alive -= len(rest)
        first, *others = sorted((agent, *rest), key=lambda a: -len(a.joins))
        for join in (j for a in others for j in a.joins):
            join.live -= 1
            if join not in first.joins:
                self._settle(join)
        agent.lanes, agent.pc, agent.torn, agent.joins = lanes, pc, False, first.joins
        agent.order = (agent.block.number, lanes.first)
        return Signal.POINT

    # -- reports ----------------------------------------------------------------------------------------------------------------------

    def error(self, fault: Fault, block: Block, pc: int, thread: int) -> SimulationError:
        """The user's error for a fault of the statement at ``pc``."""
        stmt = self.compiled.sources[pc]
        label = self.compiled.labels[pc]
        who = f"block {block.index}, thread {self.table.coordinates(thread)}"
        notes = [f"in {label}: {who}" if label else who]
        if stmt is not None:
            notes.insert(0, f"statement: {stmt_text(stmt, self.compiled.kernel)}")
        location = None if stmt is None else stmt.location
        return SimulationError(kernel=self.compiled.kernel.name, reason=fault.reason, location=location, notes=(*notes, *fault.notes), help=fault.help)

    def deadlock(self) -> DeadlockError:
        """The error for a run in which the remaining threads cannot continue."""
        notes: list[str] = []
        for agent, pc, description in sorted(self.waiting.values(), key=lambda w: w[0].order):
            stmt, label = self.compiled.sources[pc], self.compiled.labels[pc]
            assert stmt is not None
            where = f"block {agent.block.index}, {threads_text(agent.lanes)}" + (f" in {label}" if label else "")
            notes.append(f"{where}: " + stmt_text(stmt, self.compiled.kernel) + f": {description()}" + ring_text(self.compiled.kernel, stmt))
        if len(notes) > REPORTED_AGENTS:
            notes[REPORTED_AGENTS:] = [f"and {len(notes) - REPORTED_AGENTS} more"]
        return DeadlockError(kernel=self.compiled.kernel.name, reason="no thread can continue", notes=tuple(notes))


def threads_text(lanes: Lanes) -> str:
    """The threads of an agent, printed."""
    ids = lanes.ids
    if lanes.count == 1:
        return f"thread {lanes.first}"
    if isinstance(lanes.where, slice):
        return f"threads {lanes.first}-{int(ids[-1])}"
    return f"{lanes.count} threads from {lanes.first} to {int(ids[-1])}"
