"""Horizontal fusion of segments: segments of one fusion that do not depend on one another share a launch, as members of a horizontal group on blocks.

A segment may run in any level between its operands and its readers; it goes where most are that it can share a launch with. The segments of a level
that are so small that launches matter are joined (:func:`taskfuse.schedulers.horizontal.horizontal`). All have blocks of one box; kernels whose threads may
stand anywhere in a block have them arranged for it. The joint kernel is kept if it is proved, and faster by its counted work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple

from taskfuse.errors import TaskfuseError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tasks import Group
from taskfuse.schedulers.horizontal import horizontal
from taskfuse.schedulers.schedule import Arrangeable, Block, Chosen, Option
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


def levels(needs: Sequence[AbstractSet[int]], fits: Callable[[int, int], bool]) -> list[int]:
    """A level for each of several segments, greater than the levels of its producers; as many levels as the longest chain has segments.

    Args:
        needs: for each segment its producers, which come before it.
        fits: whether two of them may share a launch; segments that may gather in one level where that is free.
    """
    first = [0] * len(needs)
    for k, own in enumerate(needs):
        first[k] = 1 + max((first[j] for j in own), default=-1)
    last = [max(first, default=0)] * len(needs)
    for k in reversed(range(len(needs))):
        for j in needs[k]:
            last[j] = min(last[j], last[k] - 1)
    there = [(k, first[k]) for k in range(len(needs)) if first[k] == last[k]]
    found = list[int]()
    for k, own in enumerate(needs):
        least = 1 + max((found[j] for j in own), default=-1)
        alike = Counter(level for j, level in there if fits(j, k))
        best = max(range(least, last[k] + 1), key=lambda level: (alike[level], -level))
        if first[k] != last[k]:
            there.append((k, best))
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


class Place(NamedTuple):
    """A segment in a joint kernel.

    Attributes:
        segment: its number.
        config: parameters other than its own, of which its blocks fit; ``None``: its own.
    """

    segment: int
    config: Arrangeable | None = None


def is_joinable(fusion: Fusion, schedule: Chosen[Any], launch_us: float) -> bool:
    """Whether a segment may share a launch: one that is small enough, of known blocks. Those whose blocks wait for one another stand alone, and so do those
    with roles: what a role has of registers is proved for all blocks alike."""
    has_roles = any(isinstance(node, Group) for node in fusion.tasks.nodes)
    return schedule.us <= SMALL * launch_us and not schedule.option.is_cooperative and not has_roles and schedule.option.block is not None


def fit_together(a: Chosen[Any], b: Chosen[Any]) -> bool:
    """Whether two kernels that may share launches have blocks that fit one box."""
    return _Bin(a).adds(1, b)


def groups(fusions: Sequence[Fusion], schedules: Sequence[Chosen[Any]], level: Sequence[int], launch_us: float) -> list[list[Place]]:
    """The segments of each level that may share a launch and have similar blocks, or may have them, where there are two or more."""
    found: dict[int, list[_Bin]] = {}
    for k, (fusion, schedule) in enumerate(zip(fusions, schedules, strict=True)):
        if is_joinable(fusion, schedule, launch_us):
            own = found.setdefault(level[k], [])
            if not any(b.adds(k, schedule) for b in own):
                own.append(_Bin(schedule, k))
    return [b.places for _, bins in sorted(found.items()) for b in bins if len(b.places) > 1]


class _Bin:
    """Segments whose blocks fit into one box: it stays about as large as the largest of them, as idle threads of a member have a cost, too."""

    def __init__(self, first: Chosen[Any], number: int = 0) -> None:
        assert first.option.block is not None
        self.places = [Place(number)]
        self._configs: list[object] = [first.config]
        self._blocks = [first.option.block]
        self._box = first.option.block

    def adds(self, k: int, schedule: Chosen[Any]) -> bool:
        """Add a segment if its blocks fit: as they are; else arranged like those that are there; else if these can be arranged like its own."""
        block, config = schedule.option.block, schedule.config
        assert block is not None
        if (box := self._with(block)) is not None:
            self._add(Place(k), config, block, box)
            return True
        if isinstance(config, Arrangeable) and (own := config.in_box(self._box)) is not None and (box := self._with(own.block)) is not None:
            self._add(Place(k, own), own, own.block, box)
            return True
        there = [c.in_box(block) if isinstance(c, Arrangeable) else None for c in self._configs]
        moved = [c for c in there if c is not None]
        if len(moved) < len(there) or prod(block) * IDLE < max(prod(c.block) for c in moved):
            return False
        self.places = [Place(p.segment, c) for p, c in zip(self.places, moved, strict=True)]
        self._configs = list[object](moved)
        self._blocks = [c.block for c in moved]
        self._add(Place(k), config, block, block)
        return True

    def _add(self, place: Place, config: object, block: Block, box: Block) -> None:
        self.places.append(place)
        self._configs.append(config)
        self._blocks.append(block)
        self._box = box

    def _with(self, block: Block) -> Block | None:
        """The box with another block; ``None`` if it is much larger than the largest of them."""
        x, y, z = map(max, self._box, block)
        return (x, y, z) if x * y * z <= min(MAX_THREADS, IDLE * max(map(prod, (*self._blocks, block)))) else None
