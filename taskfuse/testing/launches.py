"""Launches at which a campaign runs a kernel on an oracle, counted by how they end: a launch that decides nothing is no evidence.

A campaign notes every launch in a ``Counter[str]`` that its log keeps; a key names the oracle and the ending (:func:`key`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

TOOL_FAILS = "fails:"


class Ending(Enum):
    """How a launch ends. DECIDED: it says whether the kernel is right. The others decide nothing. LONG: it exceeds a limit of steps, or of states.
    REFUSED: there is no such launch, as the block would have too many threads or bytes, or the oracle takes none that large.
    RAISES: the oracle itself fails, which is a failure of the campaign."""

    DECIDED = "decided"
    LONG = "too long"
    REFUSED = "refused"
    RAISES = "raises"


class Oracle(Enum):
    """What runs a kernel."""

    EXPLORATION = "exploration"
    SIMULATOR = "simulator"
    MACHINE = "second machine"


class NoVerdict(Exception):
    """A launch decides nothing. Its text says why."""

    ending: ClassVar[Ending]


class LongRun(NoVerdict):
    """It exceeds the limit of steps."""

    ending = Ending.LONG


class RefusedLaunch(NoVerdict):
    """There is no such launch."""

    ending = Ending.REFUSED


Launches = Counter[str]


def key(oracle: Oracle, ending: Ending) -> str:
    """The key under which a launch is counted."""
    return f"{oracle.value}: {ending.value}"


def count(launches: Mapping[str, int], *endings: Ending) -> int:
    """How many launches have one of some endings, on all oracles."""
    wanted = {e.value for e in endings}
    return sum(n for at, n in launches.items() if at.partition(": ")[2] in wanted)


def is_idle(launches: Mapping[str, int]) -> bool:
    """True if no launch decided anything."""
    return not count(launches, Ending.DECIDED)


def fails(tool: str, error: BaseException) -> str:
    """The text of an error of a tool: of the checker, or of an oracle."""
    return f"{tool} {TOOL_FAILS} {type(error).__name__}: {error}".split("\n")[0]


def table(launches: Mapping[str, int]) -> list[str]:
    """A line per oracle, a column per ending."""
    lines = [f"{'launches':16}" + "".join(f"{e.value:>10}" for e in Ending)]
    used = [o for o in Oracle if any(launches.get(key(o, e)) for e in Ending)]
    return lines + [f"{o.value:16}" + "".join(f"{launches.get(key(o, e), 0):10}" for e in Ending) for o in used]
