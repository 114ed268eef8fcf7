"""Agents: sets of threads that execute together.

All threads of a block start as one agent (or as a few pieces, depending on the interleaving). Where threads diverge, the agent splits; where they reconverge,
the parts may merge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from taskfuse.sim.block import Block
from taskfuse.sim.lanes import Env, Lanes


class Signal(Enum):
    """The result of an instruction for the machine; ``None``: continue."""

    POINT = "others may run now"
    BLOCKED = "the agent waits"
    DONE = "the agent's threads have exited"


@dataclass(slots=True)
class Detour:
    """Divergent lanes of one agent, executed part by part up to the join.

    Attributes:
        join: where the parts reconverge.
        everyone: the lanes that continue there.
        rest: parts that have not run yet, and where they start.
    """

    join: int
    everyone: Lanes
    rest: list[tuple[Lanes, int]]


@dataclass(slots=True, eq=False)
class Join:
    """Agents that were split from one and may merge again.

    Attributes:
        pc: where they reconverge.
        live: agents that have not passed ``pc``.
        parked: agents that wait there.
    """

    pc: int
    live: int
    parked: list[Agent] = field(default_factory=lambda: list[Agent]())


class AgentHost(Protocol):
    """The interface of the machine to agents (:class:`taskfuse.sim.machine.Machine`)."""

    def block(self, agent: Agent, pc: int, description: Callable[[], str]) -> Signal:
        """An agent waits at the statement at ``pc`` until it is woken."""
        ...

    def split(self, agent: Agent, parts: list[tuple[Lanes, int]], join: int) -> Signal:
        """Let the parts of an agent run independently until they reconverge at ``join``."""
        ...

    def reconverge(self, agent: Agent, pc: int) -> Signal | None:
        """An agent reaches the join at ``pc``: it continues, or waits for the agents from which it was split."""
        ...


class Agent:
    """Threads of one block with one program counter.

    Attributes:
        host: the machine that runs it.
        order: position among all agents: (block, first thread).
        env: uniform symbols: extents, block indices, loop variables, cursors.
        missing: warps (or warpgroups) that must be complete before it continues.
        torn: it continued with a part of a warp, because no other agent could run.
    """

    __slots__ = ("block", "detours", "env", "host", "joins", "lanes", "missing", "order", "pc", "torn")

    def __init__(self, host: AgentHost, block: Block, lanes: Lanes, pc: int, env: Env, joins: tuple[Join, ...] = ()) -> None:
        self.host = host
        self.block = block
        self.lanes = lanes
        self.pc = pc
        self.env = env
        self.joins = joins
        self.detours: list[Detour] = []
        self.missing = 0
        self.torn = False
        self.order = (block.number, lanes.first)

    def part(self, lanes: Lanes, pc: int, joins: tuple[Join, ...]) -> Agent:
        """An agent for some of the threads."""
        made = Agent(self.host, self.block, lanes, pc, dict(self.env), joins)
        made.torn = self.torn
        return made


Instruction = Callable[[Agent], Signal | None]
"""A compiled statement: a function of the agent that executes it."""
