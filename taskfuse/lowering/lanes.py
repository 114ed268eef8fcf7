"""The distribution of the digits of a thread index over warps: the index arithmetic of shuffles (law 9, docs/tasks-and-groups.md).

The lane of a thread is its linear id ``x + Dx * (y + Dy * z)`` modulo 32. A digit that moves the linear id by a power of two ``step``, in
aligned groups of a power of two values, is some bits of the lane: the threads of a group then differ by exclusive-ors with ``step``,
``2 * step``, and so on, in their lanes and by the same multiples of the digit's stride in their indices.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.ir.axes import Axis
from taskfuse.ir.scalar import Const, Expr, ceildiv, const, ge, is_multiple, le, prove, simplify
from taskfuse.ir.tasks import Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import THREAD_TYPES, ParallelType
from taskfuse.lowering.domains import digits, product
from taskfuse.lowering.thread_ranges import ThreadRanges
from taskfuse.target import WARP

ONE = const(1)


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """The distribution of the values of one digit over warps.

    Attributes:
        lanes: values ``lanes * k`` to ``lanes * k + lanes - 1`` are in one warp (a power of two; 1: no bit of the lane belongs to the digit).
        step: lanes between consecutive values, if ``lanes`` is more than 1.
    """

    axis: Axis
    ptype: ParallelType
    lanes: int
    step: int

    @property
    def masks(self) -> tuple[int, ...]:
        """The exclusive-ors that reach every lane of a group, largest first."""
        return tuple(self.step << k for k in reversed(range(self.lanes.bit_length() - 1)))

    @property
    def groups(self) -> Expr:
        """The number of groups that the digit's values make."""
        return simplify(ceildiv(self.axis.extent, self.lanes))


@dataclass(frozen=True, slots=True, eq=False)
class WarpReduction:
    """A reduction across threads: shuffles in warps, then one partial result per group of lanes.

    Attributes:
        spreads: of every reduced digit.
        slots: number of partial results after the shuffles, per element of the result.
        is_local: after the shuffles every thread of the thread range has the result.
    """

    spreads: tuple[Spread, ...]
    slots: Expr
    is_local: bool

    @property
    def masks(self) -> tuple[int, ...]:
        """The masks of all shuffles, in order."""
        return tuple(m for s in self.spreads for m in s.masks)


def spread(ranges: ThreadRanges, task: Task, tv: TensorView, ptype: ParallelType, axis: Axis) -> Spread:
    """The distribution of a digit of ``tv`` over the warps of its task's thread range, which is made of whole warps."""
    own = digits(tv, ptype)
    place = THREAD_TYPES.index(ptype)
    stride = simplify(product(own[own.index(axis) + 1 :]), ranges.facts)
    step = stride
    for p in THREAD_TYPES[:place]:
        step = step * ranges.launch[p]
    step = simplify(step, ranges.facts)
    if not isinstance(stride, Const) or not isinstance(step, Const) or step.value < 1 or step.value & (step.value - 1):
        return Spread(axis, ptype, 1, 1)
    is_highest = all(ranges.launch[p] is ONE for p in THREAD_TYPES[place + 1 :])
    index_range = ranges.range(task, ptype)
    reaches = axis.extent
    if axis is own[0] and all(a.is_reduction for a in own) and prove(le(index_range.extent * step, stride * WARP), ranges.facts):
        reaches = ceildiv(index_range.extent, stride)  # one more step or two give the result to all of the thread range

    def fits(lanes: int) -> bool:
        """True if groups of this many values are aligned in the linear id, and in the digit."""
        unit = stride * lanes
        aligned = is_multiple(index_range.start, unit, ranges.facts)
        aligned = aligned and (is_highest or is_multiple(ranges.launch[ptype], unit, ranges.facts))
        if axis is own[0]:  # nothing wraps: a last group that is not full is filled up by threads past the digit's end
            return aligned and not prove(le(reaches, lanes // 2), ranges.facts)
        return aligned and is_multiple(axis.extent, lanes, ranges.facts)

    lanes = 1
    while 2 * lanes * step.value <= WARP and fits(2 * lanes):
        lanes *= 2
    return Spread(axis, ptype, lanes, step.value)


def warp_reduction(ranges: ThreadRanges, task: Task, tv: TensorView) -> WarpReduction | None:
    """How warps reduce ``tv``; ``None`` if its thread range is not provably made of whole warps, or more partial results than a warp has lanes would remain."""
    reduced = [(p, a) for p in reversed(THREAD_TYPES) for a in digits(tv, p) if a.is_reduction]
    if not ranges.is_aligned(task) or not all(prove(ge(a.extent, 1), ranges.facts) for _, a in reduced):
        return None
    spreads = tuple(spread(ranges, task, tv, p, a) for p, a in reduced)
    slots = ONE
    for s in spreads:
        slots = slots * s.groups
    slots = simplify(slots, ranges.facts)
    if not prove(le(slots, WARP), ranges.facts):
        return None
    return WarpReduction(spreads, slots, slots is ONE and all(_is_covered(ranges, task, tv, s) for s in spreads))


def _is_covered(ranges: ThreadRanges, task: Task, tv: TensorView, s: Spread) -> bool:
    """True if no thread of the thread range that takes the result lies past the groups of a digit: one past the end of an index that only reduces does."""
    own = digits(tv, s.ptype)
    if s.axis is not own[0] or not all(a.is_reduction for a in own):
        return True
    return prove(le(ranges.range(task, s.ptype).extent, product(own[1:]) * s.lanes), ranges.facts)
