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

from taskfuse.count import Count
from taskfuse.errors import TaskfuseError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tasks import Group
from taskfuse.schedulers.horizontal import side_by_side
from taskfuse.schedulers.schedule import Arrangeable, Block, Chosen, Option
from taskfuse.target import MAX_THREADS, WARP, Target

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
        best = least = 1 + max((found[j] for j in own), default=-1)
        if least < last[k]:
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
        found = side_by_side(fusions, name, shared)
    except TaskfuseError:
        return None
    if len(found.arguments) != len(arguments_of(fusions)) or len(found.outputs) != len(outputs_of(fusions)):
        return None
    option = Option(Beside(tuple(f.name for f in fusions), tuple(s.scheduler for s in schedules)), sum(s.us for s in schedules))
    schedule = Chosen(SCHEDULER, name, option, (option,), False, "", notes=tuple(s.explain().splitlines()[0] for s in schedules))
    return JoinedSegments(found, schedule, f"tf.horizontal({{}}, name={name!r}, shared={shared}, force=True)")


class JointPlace(NamedTuple):
    """A segment in a joint kernel.

    Attributes:
        segment: its number.
        config: parameters other than its own, of which its blocks fit; ``None``: its own.
    """

    segment: int
    config: Arrangeable | None = None


def is_joinable(fusion: Fusion, schedule: Chosen[Any], target: Target) -> bool:
    """Whether a segment may share a launch: one that is small enough, of known blocks. Those whose blocks wait for one another stand alone, and so do those
    with roles: what a role has of registers is proved for all blocks alike."""
    has_roles = any(isinstance(node, Group) for node in fusion.tasks.nodes)
    return schedule.us <= SMALL * target.launch_us and not schedule.option.is_cooperative and not has_roles and schedule.option.block is not None


def fit_together(a: Chosen[Any], b: Chosen[Any], target: Target) -> bool:
    """Whether two kernels that may share launches have blocks that fit one box."""
    return _Bin(0, a, target).adds(1, b)


def groups(fusions: Sequence[Fusion], schedules: Sequence[Chosen[Any]], level: Sequence[int], target: Target) -> list[list[JointPlace]]:
    """The segments of each level that may share a launch and have similar blocks, or may have them, where there are two or more."""
    found: dict[int, list[_Bin]] = {}
    for k, (fusion, schedule) in enumerate(zip(fusions, schedules, strict=True)):
        if is_joinable(fusion, schedule, target):
            own = found.setdefault(level[k], [])
            if not any(b.adds(k, schedule) for b in own):
                own.append(_Bin(k, schedule, target))
    return [b.places for _, bins in sorted(found.items()) for b in bins if len(b.places) > 1]


class _Member(NamedTuple):
    """A segment in a bin: its place, its schedule, its parameters there, and the shape of its blocks."""

    place: JointPlace
    schedule: Chosen[Any]
    config: object
    block: Block

    @property
    def blocks(self) -> int:
        """Blocks of its grid; 0 while that is not known."""
        return 0 if self.schedule.count is None else self.schedule.count.launch.blocks

    def arranged(self, config: Arrangeable) -> _Member:
        """The same with other parameters, of as many threads."""
        return _Member(JointPlace(self.place.segment, config), self.schedule, config, config.block)


class _Bin:
    """Segments whose blocks fit into one box."""

    def __init__(self, number: int, first: Chosen[Any], target: Target) -> None:
        self._target = target
        self._members = [_member(number, first)]

    @property
    def places(self) -> list[JointPlace]:
        """The segments, and how their blocks are arranged."""
        return [m.place for m in self._members]

    def adds(self, k: int, schedule: Chosen[Any]) -> bool:
        """Add a segment if its blocks fit: as they are; else arranged like those that are there; else if these can be arranged like its own."""
        new, there = _member(k, schedule), self._members
        box, config = _box(there), schedule.config
        own = config.in_lines(box[0]) if isinstance(config, Arrangeable) else None
        moved = [m.arranged(c) for m in there if isinstance(m.config, Arrangeable) and (c := m.config.in_lines(new.block[0])) is not None]
        ways = [[*there, new], [] if own is None else [*there, new.arranged(own)], [*moved, new] if len(moved) == len(there) else []]
        found = next((members for members in ways if members and self._fits(members)), None)
        if found is not None:
            self._members = found
        return found is not None

    def _fits(self, members: Sequence[_Member]) -> bool:
        """Whether the box is about as large as the largest block; and as each, where blocks with idle threads would not run all at once: those take turns. And
        whether what the members do together leaves a gain."""
        target, threads = self._target, prod(_box(members))
        room = target.sms * target.limits.warps * WARP
        if threads > min(MAX_THREADS, IDLE * max(prod(m.block) for m in members)):
            return False
        if any(threads > IDLE * prod(m.block) and m.blocks * threads > room for m in members):
            return False
        return _least_us([m.schedule.count for m in members], target) <= GAIN * sum(m.schedule.us for m in members)


def _member(number: int, schedule: Chosen[Any]) -> _Member:
    assert schedule.option.block is not None
    return _Member(JointPlace(number), schedule, schedule.config, schedule.option.block)


def _box(members: Sequence[_Member]) -> Block:
    x, y, z = (max(sides) for sides in zip(*(m.block for m in members), strict=True))
    return x, y, z


def _least_us(counts: Sequence[Count | None], target: Target) -> float:
    """Microseconds that a joint kernel takes at least: its members keep the multiprocessors busy one after another. 0 if one is not counted."""
    found = [c for c in counts if c is not None]
    if len(found) < len(counts):
        return 0.0
    cycles = max(sum(c.instructions for c in found) * WARP / target.lanes, sum(c.lookups for c in found), sum(c.products for c in found))
    return target.kernel_us(cycles / target.cycles_per_us)
