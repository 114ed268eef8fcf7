"""The loop axes of one tensor, addressed as objects instead of by position."""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.ir.axes import Axis
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType
from taskfuse.testing.program import Recorder


class Loops:
    """Calls on the loop domain of ``tv``. Each makes public scheduling calls; errors of taskfuse propagate.

    :meth:`done` binds the axes, after all transforms.
    """

    def __init__(self, recorder: Recorder, tv: TensorView) -> None:
        self.recorder = recorder
        self.tv = tv
        self._bound: dict[Axis, ParallelType] = {}

    def at(self, axis: Axis) -> int:
        """The position of an axis."""
        return self.tv.loop.index(axis)

    def split(self, axis: Axis, factor: int) -> tuple[Axis, Axis]:
        """Its two parts, the outer one first."""
        place = self.at(axis)
        self.recorder.call(self.tv, "split", place, factor)
        return self.tv.loop[place], self.tv.loop[place + 1]

    def merge(self, outer: Axis, inner: Axis) -> Axis:
        """Two axes as one."""
        first, second = self.at(outer), self.at(inner)
        self.recorder.call(self.tv, "merge", first, second)
        return self.tv.loop[first - (second < first)]

    def arrange(self, axes: Sequence[Axis]) -> None:
        """All axes in the given order."""
        order = [self.at(a) for a in axes]
        if order != list(range(len(order))):
            self.recorder.call(self.tv, "reorder", order)

    def last(self, axes: Sequence[Axis]) -> None:
        """Move the given axes innermost, in this order; the others keep their order."""
        self.arrange([*(a for a in self.tv.loop if a not in axes), *axes])

    def bind(self, axis: Axis, ptype: ParallelType) -> None:
        """Let :meth:`done` bind an axis to a type."""
        self._bound[axis] = ptype

    def done(self) -> None:
        """Bind the axes."""
        for axis, ptype in self._bound.items():
            if ptype is not ParallelType.Serial:
                self.recorder.call(self.tv.axis(self.at(axis)), "parallelize", ptype)
        self._bound.clear()
