"""Members of ``tf.horizontal`` that have no schedule: ``tf.schedulers.auto`` schedules them, with parameters that suit a common block.

A block of the joint kernel has the most threads of any member along x, y and z each, so members that are fast alone may not fit together: 256
threads along x beside 8 along y are 2048. Several boxes of threads are therefore tried. In each, a member takes the fastest candidate of its scheduler that
fits; of the boxes that all members fit, the joint estimate (:mod:`taskfuse.schedulers.horizontal_cost`) picks one. Boxes along x alone come first; the next
height is tried if some member fits none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from taskfuse.ir.fusion import Fusion
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.auto import SCHEDULERS, auto
from taskfuse.schedulers.horizontal_cost import HorizontalCost, Load, horizontal_cost, load
from taskfuse.schedulers.schedule import Block
from taskfuse.target import MAX_THREADS, WARP, Target


@dataclass(frozen=True, slots=True)
class Member:
    """A fusion with a schedule, and the load of its kernel."""

    fusion: Fusion
    load: Load


def schedule_members(name: str, fusions: Mapping[str, Fusion], sizes: Mapping[str, Mapping[str, int]], target: Target) -> tuple[list[Fusion], HorizontalCost]:
    """The members of a horizontal fusion, those without a schedule as scheduled copies, and the expected cost.

    Args:
        name: of the joint kernel.
        fusions: by the names of the members.
        sizes: values of all dimensions of each, for the cost models.

    Raises:
        UnsupportedError: no scheduler takes one of them as one kernel.
        TaskError, ScheduleError, LoweringError: one of them cannot be lowered by itself.
    """
    choices = [(_Scheduled if f.has_schedule else _Unscheduled)(member, f, sizes[member], target) for member, f in fusions.items()]
    alone = [c.first.load for c in choices]

    def expected(members: list[Member]) -> HorizontalCost:
        return horizontal_cost(name, [m.load for m in members], alone)

    tried = [[c.first for c in choices]]
    if not all(isinstance(c, _Scheduled) for c in choices):
        tried += _boxed(choices)
    best, found = min(((members, expected(members)) for members in tried), key=lambda pair: _rank(pair[1]))
    return [m.fusion for m in best], found


def _rank(expected: HorizontalCost) -> tuple[bool, bool, float]:
    """The key by which choices are compared: whether it launches, whether registers spill, the time."""
    return bool(expected.obstacles), bool(expected.spilled), expected.together


def _boxed(choices: Sequence[_Scheduled | _Unscheduled]) -> Iterator[list[Member]]:
    """The members in each box of the least height that all of them fit."""
    height, fits = 1, False
    while not fits and height * WARP <= MAX_THREADS:
        width = MAX_THREADS // height
        while width >= WARP:
            found = [c.within((width, height, 1)) for c in choices]
            if all(m is not None for m in found):
                fits = True
                yield [m for m in found if m is not None]
            width //= 2
        height *= 2


class _Scheduled:
    """A member that its author scheduled, with the same block in any box."""

    def __init__(self, name: str, fusion: Fusion, sizes: Mapping[str, int], target: Target) -> None:
        self.first = Member(fusion, load(name, fusion, sizes, target))

    def within(self, box: Block) -> Member | None:
        return self.first


class _Unscheduled:
    """A member whose parameters depend on the box.

    Attributes:
        first: the schedule that it would have alone.
    """

    def __init__(self, name: str, fusion: Fusion, sizes: Mapping[str, int], target: Target) -> None:
        self._name, self._fusion, self._sizes, self._target = name, fusion, sizes, target
        copy, _ = copy_fusion(fusion)
        found = auto(copy, sizes=sizes, target=target)
        self.first = Member(copy, load(name, copy, sizes, target))
        self._scheduler = next(s for s in SCHEDULERS if s.__name__ == found.scheduler)
        self._made = {repr(found.config): self.first}
        alone = [(a.config, a.block) for a in sorted(found.alternatives, key=lambda a: a.us) if a.block is not None and not a.is_cooperative]
        self._candidates = alone or [(found.config, self.first.load.block)]

    def within(self, box: Block) -> Member | None:
        """The fastest candidate whose blocks fit ``box`` and do not wait for one another, or ``None``."""
        for config, block in self._candidates:
            if all(own <= most for own, most in zip(block, box, strict=True)):
                return self._make(config)
        return None

    def _make(self, config: object) -> Member:
        known = self._made.get(repr(config))
        if known is None:
            copy, _ = copy_fusion(self._fusion)
            self._scheduler(copy, config, sizes=self._sizes, target=self._target)
            known = self._made[repr(config)] = Member(copy, load(self._name, copy, self._sizes, self._target))
        return known
