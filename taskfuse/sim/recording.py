"""``timeline``: a run, recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from taskfuse.errors import SimulationError
from taskfuse.ir.signatures import at_least, checked_first
from taskfuse.ir.values import NATIVE, Values
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.nodes import AsyncCopy, Bind, For, If, TmaLoad, TmaStore
from taskfuse.kir.printer import stmt_text
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import ArriveAsync
from taskfuse.reports.recording import Flow, Lane, PhaseCompletion, Span, SpanKind
from taskfuse.reports.timeline import Timeline
from taskfuse.sim.agent import Agent, Instruction, Signal
from taskfuse.sim.barriers import MbarrierCell
from taskfuse.sim.engines import Action
from taskfuse.sim.fault import Fault
from taskfuse.sim.interleaving import Interleaving
from taskfuse.sim.launch import Argument, prepare
from taskfuse.sim.machine import threads_text
from taskfuse.sim.observer import Observer
from taskfuse.sim.simulate import run
from taskfuse.target import WARP

if TYPE_CHECKING:
    from taskfuse.sim.barriers import SemaphoreCell, Waiter
    from taskfuse.sim.block import Block
    from taskfuse.sim.compiled_kernel import SimulatedKernel

ENGINES = {TmaLoad: "TMA load", TmaStore: "TMA store", Wgmma: "tensor core", AsyncCopy: "async copy", ArriveAsync: "async arrival"}


@partial(checked_first, but=("args",))
def timeline(
    kernel: Kernel,
    args: Sequence[Argument],
    *,
    seed: int = 0,
    interleaving: Interleaving | None = None,
    choices: Sequence[int] | None = None,
    in_step: int = WARP,
    values: Values = NATIVE,
    max_steps: int = 1_000_000,
    extents: Mapping[str, int] | None = None,
) -> Timeline:
    """Run a kernel and record its steps. Arguments as for :func:`taskfuse.sim.simulate`; a run that fails is recorded up to its error.

    Raises:
        CallError: an option of another type, or below its least value.
        InputError: arguments that do not fit the kernel's parameters.
    """
    at_least("timeline", 1, in_step=in_step, max_steps=max_steps)
    launch = prepare(kernel, args, values, extents)
    recording = _Recording(launch.code)
    launch.code = recording.recorded()
    error: SimulationError | None = None
    try:
        run(launch, seed, interleaving, choices, in_step, max_steps, recording)
        launch.results()
    except SimulationError as e:
        error = e
    return recording.timeline(error)


class _Row:
    """A lane that is being recorded: its name, its threads, and the slot of the mbarrier that it waited for last."""

    __slots__ = ("block", "name", "order", "size", "slot", "threads")

    def __init__(self, block: int, order: tuple[int, ...], name: str, threads: str) -> None:
        self.block = block
        self.order = order
        self.name = name
        self.threads = threads
        self.size = 0
        self.slot = -1


def _place(barrier: MbarrierCell | SemaphoreCell) -> tuple[str, int]:
    """The array of a barrier (of the blocks' ring, if they have rings of their own), and its slot."""
    name, _, index = barrier.name[:-1].rpartition("[")
    blocks, _, slot = index.rpartition(", ")
    return f"{name}[{blocks}]" if blocks else name, int(slot)


class _Recording(Observer):
    """Records a run. Time is the number of statements executed and operations done so far."""

    def __init__(self, compiled: SimulatedKernel) -> None:
        self.compiled = compiled
        self.time = 0
        self.blocks: dict[int, tuple[int, int, int]] = {}
        self.rows: dict[tuple[Any, ...], _Row] = {}
        self.spans: list[tuple[_Row, Span]] = []
        self.completions: list[PhaseCompletion] = []
        self.flows: list[tuple[_Row, int, _Row, int, str]] = []
        self.texts: dict[int, str] = {}
        self.current: tuple[_Row, int] | None = None  # who is doing something, since when
        self.waits: dict[Waiter, tuple[_Row, int, int]] = {}
        self.operations: dict[Action, tuple[_Row, int, int]] = {}
        self.parts: defaultdict[Action, int] = defaultdict(int)  # of operations in flight, that engines have still to do
        self.busy: dict[_Row, Action] = {}
        self.arrivals: dict[tuple[MbarrierCell | SemaphoreCell, int], tuple[_Row, int]] = {}
        self.pending: list[tuple[MbarrierCell | SemaphoreCell, int, int]] = []  # and the block

    # -- statements -----------------------------------------------------------------------------------------------------------------------

    def recorded(self) -> SimulatedKernel:
        """The kernel, with instructions that record who executes them."""
        found, compiled = copy(self.compiled), self.compiled
        found.code = [
            instruction if source is None or isinstance(source, For | If | Bind) else self._noted(pc, instruction)
            for pc, (instruction, source) in enumerate(zip(compiled.code, compiled.sources, strict=True))
        ]
        return found

    def _noted(self, pc: int, instruction: Instruction) -> Instruction:
        def execute(agent: Agent) -> Signal | None:
            row, start = self._row(agent, pc), self.time
            self.current = (row, start)
            self.time += 1
            try:
                signal = instruction(agent)
            except Fault:
                self._span(row, SpanKind.STATEMENT, self._text(pc), start, start + 1)
                raise
            if signal is Signal.BLOCKED and agent.pc == pc:
                self.time = start  # nothing was done: it will try again
            else:
                self._span(row, SpanKind.STATEMENT, self._text(pc), start, start + 1)
                self._complete(start)
            return signal

        return execute

    def _row(self, agent: Agent, pc: int) -> _Row:
        label = self.compiled.labels[pc]
        key = (agent.block.number, agent.lanes.first)
        row = self.rows.get(key)
        if row is None:
            self.blocks.setdefault(agent.block.number, agent.block.index)
            row = self.rows[key] = _Row(agent.block.number, (0, agent.lanes.first), "", "")
        if (label is not None and label != row.name) or agent.lanes.count > row.size:
            row.name, row.threads, row.size = label or row.name, threads_text(agent.lanes), agent.lanes.count
        return row

    def _text(self, pc: int) -> str:
        found = self.texts.get(pc)
        if found is None:
            stmt = self.compiled.sources[pc]
            found = self.texts[pc] = "" if stmt is None else stmt_text(stmt, self.compiled.kernel).split("  # ")[0]
        return found

    def _span(self, row: _Row, kind: SpanKind, name: str, start: int, end: int) -> None:
        if end > start:
            self.spans.append((row, Span(0, kind, name, start, end, row.slot)))

    # -- waits and arrivals -----------------------------------------------------------------------------------------------------------------

    def block(self, agent: Waiter, pc: int) -> None:
        row = self.rows[agent.order[0], agent.lanes.first]  # the statement that waits has made it
        self.waits[agent] = (row, pc, self.time - 1 if agent.pc == pc else self.time)

    def wake(self, agents: Iterable[Waiter]) -> None:
        for agent in agents:
            row, pc, since = self.waits.pop(agent)
            self._span(row, SpanKind.WAIT, self._text(pc), since, self.time)

    def count(self, barrier: MbarrierCell | SemaphoreCell, arrivals: int) -> None:
        if self.current is not None:
            self.arrivals[barrier, barrier.phases] = self.current
            block = barrier.block if isinstance(barrier, MbarrierCell) else self.current[0].block
            self.pending.append((barrier, barrier.phases, block))

    def _complete(self, step: int) -> None:
        """Note the phases that a step has completed."""
        for barrier, phase, block in self.pending:
            if barrier.phases > phase:
                name, slot = _place(barrier)
                self.completions.append(PhaseCompletion(block, name, slot, step))
        self.pending.clear()

    def passed(self, barrier: MbarrierCell) -> None:
        self._follows(barrier, barrier.phases - 1)

    def acquired(self, semaphore: SemaphoreCell, phases: int) -> None:
        self._follows(semaphore, phases - 1)

    def _follows(self, barrier: MbarrierCell | SemaphoreCell, phase: int) -> None:
        """A wait for the end of a phase is over."""
        assert self.current is not None
        row, now = self.current
        row.slot = _place(barrier)[1]
        source = self.arrivals.get((barrier, phase))
        if source is not None:
            self.flows.append((*source, row, now, barrier.name))

    # -- operations -------------------------------------------------------------------------------------------------------------------------

    def issue(self, operation: Action) -> None:
        assert self.current is not None
        source = self.compiled.sources[operation.pc]
        assert isinstance(source, TmaLoad | TmaStore | Wgmma | AsyncCopy | ArriveAsync)
        row = self._engine(operation.target, ENGINES[type(source)])
        row.slot = self.current[0].slot
        self.busy[row] = operation
        self.operations[operation] = (row, self.time, row.slot)

    def _engine(self, block: Block, name: str) -> _Row:
        """The first row of an engine that has nothing in flight."""
        for number in range(len(self.operations) + 1):
            key = (block.number, name, number)
            row = self.rows.get(key)
            if row is None:
                row = self.rows[key] = _Row(block.number, (1, list(ENGINES.values()).index(name), number), name, "")
            if row not in self.busy:
                return row
        raise AssertionError("one more row than operations is free")

    def post(self, operation: Action) -> None:
        self.parts[operation] += 1

    def begin_part(self, operation: Action) -> None:
        row, _, slot = self.operations[operation]
        row.slot = slot
        self.current = (row, self.time)
        self.time += 1

    def end_part(self, operation: Action) -> None:
        row, since, slot = self.operations[operation]
        self._span(row, SpanKind.OPERATION, self._text(operation.pc), since, self.time)
        self._complete(self.time - 1)
        self.operations[operation] = (row, self.time, slot)
        self.parts[operation] -= 1
        if not self.parts[operation]:
            del self.parts[operation], self.operations[operation], self.busy[row]

    # -- the end ----------------------------------------------------------------------------------------------------------------------------

    def timeline(self, error: SimulationError | None) -> Timeline:
        """The recording; spans of waiting agents and of operations in flight end here."""
        self.time += bool(self.waits)
        for row, pc, since in self.waits.values():
            self._span(row, SpanKind.WAIT, self._text(pc), since, self.time)
        for operation, (row, since, _) in self.operations.items():
            self._span(row, SpanKind.OPERATION, self._text(operation.pc), since, self.time)
        used = {id(row): row for row, _ in self.spans}
        rows = sorted(used.values(), key=lambda r: (r.block, r.order))
        numbers = {row: k for k, row in enumerate(rows)}
        places = {block: k for k, block in enumerate(sorted(self.blocks))}
        return Timeline(
            self.compiled.kernel.name,
            self.time,
            tuple(self.blocks[block] for block in places),
            tuple(Lane(places[row.block], row.name, row.threads) for row in rows),
            tuple(replace(span, lane=numbers[row]) for row, span in self.spans),
            tuple(replace(c, block=places[c.block]) for c in self.completions),
            tuple(Flow(name, (numbers[a], at), (numbers[b], to)) for a, at, b, to, name in self.flows if a in numbers and b in numbers),
            error,
        )
