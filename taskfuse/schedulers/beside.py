"""Horizontal fusion of segments: segments of one fusion that do not depend on one another share a launch, as members of a horizontal group on blocks.

A segment may run in any level between its operands and its readers; it goes where most of its kind are. The segments of a level
that are so small that launches matter are joined (:func:`taskfuse.schedulers.horizontal.horizontal`). The joint kernel is kept if it is proved, and
faster by its counted work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from taskfuse.errors import TaskfuseError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tasks import Group
from taskfuse.schedulers.horizontal import horizontal
from taskfuse.schedulers.schedule import Block, Chosen, Option
from taskfuse.target import MAX_THREADS

SMALL: Final = 18.0
"""In launches: a kernel that takes longer than this gains little."""
IDLE: Final = 2
"""The most threads of a common block, relative to the largest member."""
GAIN: Final = 0.95
"""The most time of the joint kernel, relative to the kernels in sequence."""
SCHEDULER: Final = "horizontal"
"""The name of such a schedule."""


@dataclass(frozen=True, slots=True)
class Beside:
    """The parameters of a joint kernel.

    Attributes:
        members: names of the fusions.
        schedulers: of each.
    """

    members: tuple[str, ...]
    schedulers: tuple[str, ...]

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        return f"{len(self.members)} side by side on blocks: " + ", ".join(f"{m} by {s}" for m, s in zip(self.members, self.schedulers, strict=True))


def levels(needs: Sequence[AbstractSet[int]], kinds: Sequence[object]) -> list[int]:
    """A level for each of several segments, greater than the levels of its producers; as many levels as the longest chain has segments.

    Args:
        needs: for each segment its producers, which come before it.
        kinds: segments of one kind gather in one level where that is free.
    """
    first = [0] * len(needs)
    for k, own in enumerate(needs):
        first[k] = 1 + max((first[j] for j in own), default=-1)
    last = [max(first, default=0)] * len(needs)
    for k in reversed(range(len(needs))):
        for j in needs[k]:
            last[j] = min(last[j], last[k] - 1)
    there = Counter((kinds[k], first[k]) for k in range(len(needs)) if first[k] == last[k])
    found = list[int]()
    for k, own in enumerate(needs):
        least = 1 + max((found[j] for j in own), default=-1)
        best = max(range(least, last[k] + 1), key=lambda level: (there[kinds[k], level], -level))
        if first[k] != last[k]:
            there[kinds[k], best] += 1
        found.append(best)
    return found


def shared_names(fusions: Sequence[Fusion]) -> list[str]:
    """The names that segments of one fusion share: inputs, scalars and dimensions, run-time integers included."""
    names = Counter(name for f in fusions for name in dict.fromkeys((*(tv.name for tv in f.inputs), *(s.name for s in f.scalars), *f.dims)))
    return [name for name, count in names.items() if count > 1]


def arguments_of(fusions: Sequence[Fusion]) -> tuple[str, ...]:
    """The names of the arguments of a joint kernel, in the segments."""
    names = [*(tv.name for f in fusions for tv in f.inputs), *(s.name for f in fusions for s in f.scalars), *(i for f in fusions for i in f.integers)]
    return tuple(dict.fromkeys(names))


def outputs_of(fusions: Sequence[Fusion]) -> tuple[str, ...]:
    """The names of its outputs."""
    return tuple(tv.name for f in fusions for tv in f.outputs)


@dataclass(frozen=True, slots=True)
class JoinedSegments:
    """A horizontal fusion of segments.

    Attributes:
        fusion: scheduled.
        schedule: its schedule; the time is that of all members in sequence.
        call: the call that makes it, as Python, with braces for the list of its members.
    """

    fusion: Fusion
    schedule: Chosen[Beside]
    call: str


def joined(name: str, fusions: Sequence[Fusion], schedules: Sequence[Chosen[Any]]) -> JoinedSegments | None:
    """Scheduled fusions, joined; ``None`` if they cannot be.

    Args:
        name: of the new fusion.
        fusions: segments of one fusion, none of which needs another.
    """
    shared = shared_names(fusions)
    try:
        found = horizontal(fusions, name=name, shared=shared, force=True)
    except TaskfuseError:
        return None
    if len(found.arguments) != len(arguments_of(fusions)) or len(found.outputs) != len(outputs_of(fusions)):
        return None
    option = Option(Beside(tuple(f.name for f in fusions), tuple(s.scheduler for s in schedules)), sum(s.us for s in schedules))
    schedule = Chosen(SCHEDULER, name, option, (option,), False, "", notes=tuple(s.explain().splitlines()[0] for s in schedules))
    return JoinedSegments(found, schedule, f"tf.horizontal({{}}, name={name!r}, shared={shared}, force=True)")


def groups(fusions: Sequence[Fusion], schedules: Sequence[Chosen[Any]], level: Sequence[int], launch_us: float) -> list[list[int]]:
    """The segments of each level that are small enough and have similar blocks, where there are two or more.

    Those whose blocks wait for one another stand alone, and so do those with roles: what a role has of registers is proved for all blocks alike.
    """
    found: dict[int, list[_Bin]] = {}
    for k, (fusion, schedule) in enumerate(zip(fusions, schedules, strict=True)):
        has_roles = any(isinstance(node, Group) for node in fusion.tasks.nodes)
        block = schedule.option.block
        if schedule.us > SMALL * launch_us or schedule.option.is_cooperative or has_roles or block is None:
            continue
        own = found.setdefault(level[k], [])
        fits = next((b for b in own if b.takes(block)), None)
        if fits is None:
            own.append(_Bin([k], block))
        else:
            fits.segments.append(k)
            fits.box = _hull(fits.box, block)
    return [b.segments for _, bins in sorted(found.items()) for b in bins if len(b.segments) > 1]


@dataclass(slots=True)
class _Bin:
    """Pieces whose blocks fit into one box."""

    segments: list[int]
    box: Block

    def takes(self, block: Block) -> bool:
        """Whether the box stays about as large as the largest of them: idle threads of a member have a cost, too."""
        return prod(_hull(self.box, block)) <= min(MAX_THREADS, IDLE * max(prod(self.box), prod(block)))


def _hull(a: Block, b: Block) -> Block:
    x, y, z = map(max, a, b)
    return x, y, z
