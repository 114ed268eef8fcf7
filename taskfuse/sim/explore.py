"""Every interleaving of a small kernel.

A depth-first search over the choices of :mod:`taskfuse.sim.stepper`. A state is not stored: to go back to one, the run that led there is
repeated, which costs less than copying memories. Two ways:

- **Reduced** (the default): after each run, the search goes back to every race in it (:mod:`taskfuse.sim.happens_before`) and takes the other
  order (dynamic partial-order reduction; Flanagan and Godefroid, POPL 2005; Abdulla et al., "Optimal dynamic partial order reduction", POPL
  2014). *Why that is enough*: take any run u, and an explored one, E, that agrees with it as long as possible; let e be the step of E after
  that. Kernels branch on indices alone, never on what they read from memory, so every thread takes the same steps in all runs and u takes e
  too, unless it fails before. If no step that u takes before e depends on e, then e moves to the front of them without changing the end of
  u, and u so changed agrees with E longer. Otherwise let d be the first that does. In E it comes after e, and nothing that must come before
  d comes after e, for u has done it without e: a race (e, d), so that the other order was explored from the same state, too. Runs are finite,
  so this ends with an explored run that is equivalent to u. The tests compare the verdicts of both searches on hundreds of kernels with
  faults. A kernel that puts everything that conflicts in order has one kind of run, however many interleavings.
- **Not reduced**: all choices at every state, but a state that was seen before is not explored again (:mod:`taskfuse.sim.state`). It relies
  on no dependence, and says how many states there are.

Threads that start together (``in_step``) take their steps together until they part; orders among them are not explored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from taskfuse.errors import SimulationError
from taskfuse.ir.signatures import at_least, checked_first
from taskfuse.ir.values import NATIVE, Values
from taskfuse.kir.kernel import Kernel
from taskfuse.reports.exploration import Exploration, Failure
from taskfuse.sim.agent import Agent
from taskfuse.sim.happens_before import HappensBefore, Name, Race
from taskfuse.sim.interleaving import InStep
from taskfuse.sim.lanes import Lanes
from taskfuse.sim.launch import Argument, Array, SimulatedLaunch, prepare
from taskfuse.sim.state import state
from taskfuse.sim.stepper import Option, Stepper
from taskfuse.target import WARP


@dataclass(slots=True)
class _Point:
    """A state on the present path.

    Attributes:
        names: the agents and operations that could continue, by choice; lanes: the threads of each, ``None`` for an engine.
        choice: the one that the present path takes.
        todo: choices still to explore, each with the agents that should take the steps after it.
        done: those explored, the present one included.
    """

    names: list[Name]
    lanes: list[Lanes | None]
    choice: int
    todo: dict[int, list[Name]] = field(default_factory=lambda: dict[int, list[Name]]())
    done: set[int] = field(default_factory=lambda: set[int]())

    def find(self, name: Name) -> int | None:
        """The choice in which a given agent or engine takes a step, if there is one."""
        for k, (at, lanes) in enumerate(zip(self.names, self.lanes, strict=True)):
            if at == name or (len(name) == 2 and lanes is not None and at[0] == name[0] and name[1] in lanes.ids):
                return k
        return None


@partial(checked_first, but=("args",))
def explore(
    kernel: Kernel,
    args: Sequence[Argument],
    *,
    limit: int = 50_000,
    reduce: bool = True,
    in_step: int = WARP,
    values: Values = NATIVE,
    max_steps: int = 1_000_000,
    extents: Mapping[str, int] | None = None,
) -> Exploration:
    """Run a kernel under every interleaving, until one fails.

    Args:
        kernel, args, values, extents: as for :func:`taskfuse.sim.simulate`. All blocks of the grid run at the same time.
        limit: the most states to visit.
        reduce: run only one of the interleavings that differ only in the order of independent steps.
        in_step: threads that start together; 32 is a warp.
        max_steps: the most statements of all agents together in one run.

    Raises:
        CallError: an option of another type, or below its least value.
        InputError: arguments that do not fit the kernel's parameters.
    """
    at_least("explore", 1, limit=limit, in_step=in_step, max_steps=max_steps)
    if kernel.queues:
        reason = "which block claims which number is a choice that is not explored"
        raise SimulationError(kernel=kernel.name, reason=reason, notes=("simulate it with many seeds",))
    return _Exploration(prepare(kernel, args, values, extents), limit, reduce, in_step, max_steps).run()


class _Exploration:
    def __init__(self, launch: SimulatedLaunch, limit: int, reduce: bool, in_step: int, max_steps: int) -> None:
        self.launch = launch
        self.limit = limit
        self.reduce = reduce
        self.in_step = in_step
        self.max_steps = max_steps
        self.masks: dict[tuple[object, ...], int] = {}
        self.known: set[int] = set()
        self.path: list[_Point] = []
        self.states = 0
        self.interleavings = 0
        self.outputs: tuple[Array, ...] | None = None

    def run(self) -> Exploration:
        hints: list[Name] = []
        while True:
            failure = self._run(hints)
            self.interleavings += 1
            if failure is not None or self.states >= self.limit:
                return self._result(failure, complete=False)
            while self.path and not self.path[-1].todo:
                self.path.pop()
            if not self.path:
                return self._result(None, complete=True)
            point = self.path[-1]
            point.choice, hints = point.todo.popitem()
            point.done.add(point.choice)

    def _result(self, failure: Failure | None, complete: bool) -> Exploration:
        return Exploration(self.launch.kernel.name, self.states, self.interleavings, complete, failure, self.in_step)

    def _run(self, hints: list[Name]) -> Failure | None:
        """One run: along the path, then by the hints, then the first choice always."""
        order = HappensBefore(self.masks)
        machine = self.launch.machine(InStep(max(1, self.in_step // self.launch.code.unit)), self.max_steps, order)
        stepper = Stepper(machine, self.launch.blocks(machine))
        depth = 0
        try:
            while options := stepper.options():
                if depth == len(self.path) and not self._visit(stepper, options, order, hints):
                    return None
                option = options[self.path[depth].choice]
                depth += 1
                order.begin(option)
                stepper.take(option)
                order.end(option)
            outputs = self.launch.results()
        except SimulationError as error:
            return Failure(self._schedule(depth), error)
        if self.outputs is None:
            self.outputs = outputs
        for param, first, now in zip(self.launch.kernel.outputs, self.outputs, outputs, strict=True):
            if first.tobytes() != now.tobytes():
                return Failure(self._schedule(depth), None, param.name)
        if self.reduce:
            order.finish()
            for race in order.races:
                self._reverse(race, order)
        return None

    def _visit(self, stepper: Stepper, options: list[Option], order: HappensBefore, hints: list[Name]) -> bool:
        """Add a state to the path; false if it need not be explored further."""
        if not self.reduce:
            code = state(stepper.machine, order)
            if code in self.known:
                return False
            self.known.add(code)
        if self.states >= self.limit:
            return False
        self.states += 1
        names = [order.name(o) for o in options]
        point = _Point(names, [o.lanes if isinstance(o, Agent) else None for o in options], 0)
        if self.reduce:
            while hints:
                hint = hints.pop(0)
                if (wanted := point.find(hint)) is not None:
                    point.choice = wanted
                    break
        else:
            point.todo = {k: [] for k in range(len(options) - 1, 0, -1)}
        point.done.add(point.choice)
        self.path.append(point)
        return True

    def _reverse(self, race: Race, order: HappensBefore) -> None:
        """See to it that the second step of a race is tried before the first."""
        steps = order.steps
        names = [steps[k].name for k in range(race.first + 1, race.second) if race.needed >> k & 1 and not steps[k].past >> race.first & 1]
        names.append(steps[race.second].name)
        point = self.path[race.first]
        choice = point.find(names[0])
        for k in range(len(point.names)) if choice is None else (choice,):
            if k not in point.done and k not in point.todo:
                point.todo[k] = names[1:]

    def _schedule(self, depth: int) -> tuple[int, ...]:
        """The choices of the present path."""
        choices = [point.choice for point in self.path[:depth] if len(point.names) > 1]
        while choices and not choices[-1]:
            choices.pop()
        return tuple(choices)
