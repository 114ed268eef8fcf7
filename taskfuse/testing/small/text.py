"""The text of a small kernel: declarations, a body, the facts about its one symbolic extent, and how the threads of a role signal that they are done."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from taskfuse.kir import Kernel, parse_kernel
from taskfuse.testing.chooser import Chooser

EXTENT = "N"
TRIED = (0, 1, 2, 3, 4)
"""Values of ``N`` at which a kernel with a symbolic trip count runs; mostly it has no others."""
ROW = 32
"""Elements of a row that TMA copies: the 128 bytes to which its addresses in Shared memory are aligned."""


@dataclass(frozen=True, slots=True)
class Small:
    """A small kernel.

    Attributes:
        kind: the generator that made it.
        extents: the launches to look at; one without extents if all trip counts are constants.
    """

    kernel: Kernel
    kind: str
    extents: tuple[dict[str, int], ...]


class Text:
    """Lines of a body, indented."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def add(self, *lines: str) -> None:
        """Add lines at the current indentation."""
        self.lines += ["  " * self._depth + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """Lines that are added inside the context belong to ``head``."""
        self.add(head + ":")
        self._depth += 1
        at = len(self.lines)
        yield
        if len(self.lines) == at:
            self.add("PASS")
        self._depth -= 1

    @contextmanager
    def blocks(self, heads: list[str]) -> Generator[None]:
        """Blocks in each other."""
        if heads:
            with self.block(heads[0]), self.blocks(heads[1:]):
                yield
        else:
            yield


@dataclass(slots=True)
class Head:
    """Declarations.

    Attributes:
        lanes, rows, depth: threads of a block along ``threadIdx.x``, ``.y``, ``.z``.
        grid, cluster: blocks along ``x`` and ``y``.
        inputs, outputs, maps, storage: their declarations.
        mbarriers: by name, slots and arrivals per phase.
        cursors: by name, slots of those that all threads have, in phase 0.
        dim: what is declared of ``N``; empty: all trip counts are constants.
    """

    lanes: int
    rows: int
    depth: int = 1
    grid: tuple[int, int] = (1, 1)
    cluster: tuple[int, int] = (1, 1)
    inputs: list[str] = field(default_factory=list[str])
    outputs: list[str] = field(default_factory=list[str])
    maps: list[str] = field(default_factory=list[str])
    storage: list[str] = field(default_factory=list[str])
    mbarriers: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    cursors: dict[str, int] = field(default_factory=dict[str, int])
    dim: str = ""

    def small(self, kind: str, body: Text) -> Small:
        """The kernel with these declarations."""
        lines = [f"KERNEL small({', '.join(self.inputs)}) -> ({', '.join(self.outputs)})"]
        if self.dim:
            lines.append(f"  DIM {self.dim}")
        lines += [f"  TENSORMAP {m}" for m in self.maps]
        cluster = "" if self.cluster == (1, 1) else f"  CLUSTER ({self.cluster[0]}, {self.cluster[1]}, 1)"
        lines.append(f"  GRID ({self.grid[0]}, {self.grid[1]}, 1)  BLOCK ({self.lanes}, {self.rows}, {self.depth}){cluster}")
        lines += [f"  {s}" for s in self.storage]
        if self.mbarriers:
            lines.append("  MBARRIER " + ", ".join(f"{name}[{slots}]" for name, (slots, _) in self.mbarriers.items()))
        kernel = parse_kernel("\n".join([*lines, "", *body.lines, ""]))
        return Small(kernel, kind, tuple({EXTENT: n} for n in TRIED) if self.dim else ({},))

    def initialize(self, t: Text) -> None:
        """One thread initializes the mbarriers, before a barrier of all that use them."""
        if not self.mbarriers:
            return
        with t.block("IF threadIdx.x == 0 && threadIdx.y == 0" + (" && threadIdx.z == 0" if self.depth > 1 else "")):
            for name, (slots, count) in self.mbarriers.items():
                with t.block(f"FOR i in 0..{slots}"):
                    t.add(f"INIT {name}[i] count {count}")
            if self.maps:
                t.add("FENCE mbarrier_init")
        t.add(f"SYNC {'block' if self.cluster == (1, 1) else 'cluster'}  # barriers are initialized")
        t.add(*(f"{name} = CURSOR(slots {slots}, slot 0, parity 0)" for name, slots in self.cursors.items()))


def dim(c: Chooser) -> str:
    """What is declared of ``N``; empty where all trip counts are constants, which is seen more often."""
    return f"{EXTENT} max {TRIED[-1]}" if c.chance(12) else EXTENT if c.chance(2) else ""


class ArrivalSignal(Enum):
    """How the threads of a role arrive."""

    ALL = "every thread"
    WARP = "a lane after SYNC warp"
    NAMED = "a thread after SYNC named"
    MET = "a thread after all have met at an mbarrier"


def signal(t: Text, how: ArrivalSignal, lanes: int, ident: int, barrier: str) -> None:
    """The arrival of a role of one row at ``barrier``."""
    match how:
        case ArrivalSignal.ALL:
            t.add(f"ARRIVE {barrier}")
            return
        case ArrivalSignal.WARP:
            t.add("SYNC warp")
            with t.block("IF threadIdx.x % 32 == 0" if lanes > 32 else "IF threadIdx.x == 0"):
                t.add(f"ARRIVE {barrier}")
        case ArrivalSignal.NAMED:
            t.add(f"SYNC named {ident}, {lanes}")
            with t.block("IF threadIdx.x == 0"):
                t.add(f"ARRIVE {barrier}")
        case ArrivalSignal.MET:
            t.add(*met(ident))
            with t.block("IF threadIdx.x == 0"):
                t.add(f"ARRIVE {barrier}")


def declare(h: Head, lanes: int, ident: int) -> None:
    """An mbarrier that synchronizes a role of one row: a part of a warp has no barrier of its own."""
    h.mbarriers[f"meet{ident}"] = 1, lanes
    h.cursors[f"meet{ident}.q"] = 1


def met(ident: int) -> tuple[str, ...]:
    """A barrier of all threads of a role."""
    return f"ARRIVE meet{ident}[0]", f"WAIT meet{ident}[0] parity meet{ident}.q.parity", f"meet{ident}.q.advance(1)"


def arrivals(how: ArrivalSignal, lanes: int) -> int:
    """How many arrivals that makes."""
    return {ArrivalSignal.ALL: lanes, ArrivalSignal.WARP: -(-lanes // 32), ArrivalSignal.NAMED: 1, ArrivalSignal.MET: 1}[how]


def signals(lanes: int) -> list[ArrivalSignal]:
    """The ways that a role with this many lanes can go."""
    return [ArrivalSignal.ALL, ArrivalSignal.WARP, ArrivalSignal.NAMED] if lanes % 32 == 0 else [ArrivalSignal.ALL, ArrivalSignal.MET]
