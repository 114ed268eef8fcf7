"""A recorded run: lanes, spans on them, completed phases, and flows from arrivals to waits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from taskfuse.errors import SimulationError


class SpanKind(Enum):
    """The kind of a span: a statement is executed, threads wait, or an engine executes an operation."""

    STATEMENT = "statement"
    WAIT = "wait"
    OPERATION = "operation"


@dataclass(frozen=True, slots=True)
class Lane:
    """A row: threads of a block that advance together, or an engine.

    Attributes:
        block: linear block id.
        name: the innermost task or group whose code they run, or the engine's work.
        threads: their ids, as text; empty for an engine.
    """

    block: int
    name: str
    threads: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """An interval from step ``start`` to step ``end``.

    Attributes:
        lane: number of the lane.
        name: the statement.
        slot: slot of the mbarrier that the lane last waited for, -1 before the first wait.
    """

    lane: int
    kind: SpanKind
    name: str
    start: int
    end: int
    slot: int = -1


@dataclass(frozen=True, slots=True)
class PhaseCompletion:
    """A phase of an mbarrier is complete: ``barrier`` is its name, ``slot`` its number, ``step`` when."""

    block: int
    barrier: str
    slot: int
    step: int


@dataclass(frozen=True, slots=True)
class Flow:
    """The arrival that completed a phase, and a wait that this phase released: lane and step of each."""

    name: str
    source: tuple[int, int]
    target: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded run. Time counts the statements and operations of all agents and engines, in the order of the interleaving.

    Attributes:
        kernel: its name.
        blocks: index of each block that ran.
        spans: in the order of their ends. Spans of one lane do not overlap.
        error: the error that ended the run, if any.
    """

    kernel: str
    steps: int
    blocks: tuple[tuple[int, int, int], ...]
    lanes: tuple[Lane, ...]
    spans: tuple[Span, ...]
    completions: tuple[PhaseCompletion, ...]
    flows: tuple[Flow, ...]
    error: SimulationError | None = None
