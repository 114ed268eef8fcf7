"""How the threads of a role say that they are done: each for itself, or one for those that it has met."""

from __future__ import annotations

from enum import Enum

from taskfuse.testing.small.text import Head, Text


class Signal(Enum):
    """How the threads of a role arrive."""

    ALL = "every thread"
    WARP = "a lane after SYNC warp"
    NAMED = "a thread after SYNC named"
    MET = "a thread after all have met at an mbarrier"


def signal(t: Text, how: Signal, lanes: int, ident: int, barrier: str) -> None:
    """The arrival of a role of one row at ``barrier``."""
    match how:
        case Signal.ALL:
            t.add(f"ARRIVE {barrier}")
            return
        case Signal.WARP:
            t.add("SYNC warp")
            with t.block("IF threadIdx.x % 32 == 0" if lanes > 32 else "IF threadIdx.x == 0"):
                t.add(f"ARRIVE {barrier}")
        case Signal.NAMED:
            t.add(f"SYNC named {ident}, {lanes}")
            with t.block("IF threadIdx.x == 0"):
                t.add(f"ARRIVE {barrier}")
        case Signal.MET:
            t.add(*met(ident))
            with t.block("IF threadIdx.x == 0"):
                t.add(f"ARRIVE {barrier}")


def declare(h: Head, lanes: int, ident: int) -> None:
    """An mbarrier at which a role of one row meets: a part of a warp has no barrier of its own."""
    h.mbarriers[f"meet{ident}"] = 1, lanes
    h.cursors[f"meet{ident}.q"] = 1


def met(ident: int) -> tuple[str, ...]:
    """All threads of a role meet there."""
    return f"ARRIVE meet{ident}[0]", f"WAIT meet{ident}[0] parity meet{ident}.q.parity", f"meet{ident}.q.advance(1)"


def arrivals(how: Signal, lanes: int) -> int:
    """How many arrivals that makes."""
    return {Signal.ALL: lanes, Signal.WARP: -(-lanes // 32), Signal.NAMED: 1, Signal.MET: 1}[how]


def signals(lanes: int) -> list[Signal]:
    """The ways that a role of so many lanes can go."""
    return [Signal.ALL, Signal.WARP, Signal.NAMED] if lanes % 32 == 0 else [Signal.ALL, Signal.MET]
