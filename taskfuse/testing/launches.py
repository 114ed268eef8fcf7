"""Launches at which a campaign runs a kernel on an oracle, counted by their endings: an undecided launch proves nothing.

A campaign counts every launch in a ``Counter[str]`` that its log keeps; a key names the oracle and the ending (:func:`key`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

TOOL_FAILS = "fails:"


class Ending(Enum):
    """The ending of a launch. DECIDED: it shows whether the kernel is right. The others decide nothing. LONG: it exceeds a limit of steps, or of states.
    REFUSED: the launch is impossible, since the block would have too many threads or bytes, or exceeds the oracle's limits. RAISES: the oracle itself fails,
    which is a failure of the campaign.
    """

    DECIDED = "decided"
    LONG = "too long"
    REFUSED = "refused"
    RAISES = "raises"


class Oracle(Enum):
    """The executor of a kernel."""

    EXPLORATION = "exploration"
    SIMULATOR = "simulator"
    MACHINE = "second machine"


class NoVerdict(Exception):
    """An undecided launch. Its text gives the reason."""

    ending: ClassVar[Ending]


class LongRun(NoVerdict):
    """It exceeds the limit of steps."""

    ending = Ending.LONG


class RefusedLaunch(NoVerdict):
    """The launch is impossible."""

    ending = Ending.REFUSED


Launches = Counter[str]


def key(oracle: Oracle, ending: Ending) -> str:
    """The key under which a launch is counted."""
    return f"{oracle.value}: {ending.value}"


def count(launches: Mapping[str, int], *endings: Ending) -> int:
    """The number of launches with some endings, on all oracles."""
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
