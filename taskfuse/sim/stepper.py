"""Runs in which the caller makes every choice: at each interleaving point, which agent or engine continues.

An agent executes one instruction that others may observe (``SimulatedKernel.points``), then runs up to the next such instruction. A wait that would block
is not a choice, so every choice makes progress. The choices at a point are the agents in the order of their threads, then the engines' operations,
oldest first; a single choice is taken and not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from taskfuse.errors import SimulationError
from taskfuse.sim.agent import Agent, Signal
from taskfuse.sim.block import Block
from taskfuse.sim.engines import Action
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import Env
from taskfuse.sim.machine import Machine

Option = Agent | Action


class Stepper:
    """A machine under control, all blocks of the launch resident."""

    def __init__(self, machine: Machine, blocks: Iterator[tuple[Block, Env]]) -> None:
        self.machine = machine
        for block, env in blocks:
            machine.start(block, env)

    def options(self) -> list[Option]:
        """The agents and operations that can continue; none at the end of the run. Raises :class:`SimulationError`."""
        machine, guards = self.machine, self.machine.compiled.guards
        while True:
            self._settle()
            able = [a for a in machine.ready if (guard := guards.get(a.pc)) is None or guard(a)]
            able.sort(key=lambda a: a.order)
            if able or machine.actions:
                return [*able, *machine.actions]
            if machine.release(whole=True) or machine.release(whole=False):
                continue
            if not machine.alive:
                return []
            for agent in [*machine.ready]:
                machine.step(agent)  # it blocks, and can say for what
            raise machine.deadlock()

    def take(self, option: Option) -> None:
        """Execute one of the options. Raises :class:`SimulationError`."""
        machine = self.machine
        if not isinstance(option, Agent):
            machine.actions.remove(option)
            machine.perform(option)
            return
        match machine.step(option):
            case Signal.BLOCKED:
                machine.ready.remove(option)
            case Signal.DONE:
                machine.ready.remove(option)
                machine.alive -= 1
            case _:
                pass

    def _settle(self) -> None:
        """Every agent goes up to its next interleaving point."""
        machine, points = self.machine, self.machine.compiled.points
        at = 0
        while at < len(machine.ready):
            agent = machine.ready[at]
            while not points[agent.pc]:
                if machine.steps >= machine.max_steps:
                    raise machine.error(Fault(f"more than {machine.max_steps} steps"), agent.block, agent.pc, agent.lanes.first)
                if machine.step(agent) is Signal.BLOCKED:
                    machine.ready.remove(agent)
                    break
            else:
                at += 1

    def replay(self, choices: Sequence[int]) -> None:
        """Run to the end: first ``choices``, then always the first option. Raises :class:`SimulationError`."""
        left = list(reversed(choices))
        while options := self.options():
            choice = left.pop() if left and len(options) > 1 else 0
            if not 0 <= choice < len(options):
                name = self.machine.compiled.kernel.name
                raise SimulationError(kernel=name, reason=f"choice {choice} is taken where there are {len(options)}")
            self.take(options[choice])
        if left:
            reason = f"{len(choices)} choices are given, and it has {len(choices) - len(left)}"
            raise SimulationError(kernel=self.machine.compiled.kernel.name, reason=reason)
