"""Segmentations: the kernels of a fusion in the order in which they run, as Python, and the reasons for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from taskfuse.ir.fusion import Fusion
from taskfuse.schedulers.beside import arguments_of, outputs_of
from taskfuse.schedulers.budget import Ended
from taskfuse.schedulers.schedule import SANE, Chosen, Scheduler

_ENDED: Final = {
    Ended.WORK: "the search for segments ended at its budget of work: tf.compile(fusion, budget=...) gives it more",
    Ended.CLOCK: "the search for segments ended at its budget of processor seconds: tf.compile(fusion, budget=...) gives it more",
}
_CALL: Final = re.compile(r"\.(?!tensor\()(\w+)\(")
"""Names of scheduling calls in a line of code."""


@dataclass(frozen=True, slots=True)
class SegmentStep:
    """One kernel of a :class:`Segmentation`.

    Attributes:
        fusion: what it computes, scheduled.
        schedule: its schedule, with the reasons.
        tensors: names of the tensors of the whole that it computes.
        scheduler: what schedules it, also with other parameters; ``None``: its members' schedulers did.
        views: names of the views that it takes as inputs.
        members: the steps joined in it, if it is a horizontal fusion.
        call: the Python that joins them.
    """

    fusion: Fusion
    schedule: Chosen[Any]
    tensors: tuple[str, ...]
    scheduler: Scheduler | None
    views: tuple[str, ...] = ()
    members: tuple[SegmentStep, ...] = ()
    call: str = ""

    @property
    def parts(self) -> tuple[SegmentStep, ...]:
        """Its members; itself, if it has none."""
        return self.members or (self,)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of its arguments, in the whole."""
        return arguments_of([part.fusion for part in self.parts])

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of its outputs, in the whole."""
        return outputs_of([part.fusion for part in self.parts])


@dataclass(frozen=True, slots=True)
class Segmentation:
    """The kernels of a fusion, in the order in which they run.

    Attributes:
        name: of the fusion.
        steps: the kernels.
        crossing: the tensors that go from one to another through memory, and their bytes.
        whole: why one kernel does not compute the whole; empty if one does.
        chunked: scans that are split before the fusion is segmented, and the elements of their chunks.
        moved: the calls that bring views out of the way of products, and cut long sums of products, before the fusion is segmented, as Python.
        whole_fusion: what is segmented, with the names that ``steps`` speak of; ``None``: there is one kernel.
        dropped: forms of the fusion and sets of tensors that could not be used or become one kernel, with the reasons.
        ended: what ended the search before all was tried, if anything did.
        bound: microseconds that no kernels of the fusion take less than; 0 if that is not known.
        launch_us: microseconds of a launch.
    """

    name: str
    steps: tuple[SegmentStep, ...]
    crossing: tuple[tuple[str, float], ...] = ()
    whole: str = ""
    chunked: tuple[tuple[str, int], ...] = ()
    moved: tuple[str, ...] = ()
    whole_fusion: Fusion | None = None
    dropped: tuple[str, ...] = ()
    ended: Ended | None = None
    bound: float = 0.0
    launch_us: float = 0.0

    @property
    def is_segmented(self) -> bool:
        """Whether the kernels compute segments: one segment may be all, without the views and inputs that nothing needs."""
        return bool(self.whole)

    @property
    def scheduler(self) -> str:
        """Name of the scheduler, if there is one kernel."""
        return self.steps[0].schedule.scheduler if len(self.steps) == 1 else "segmented"

    @property
    def us(self) -> float:
        """Microseconds that the cost models expect."""
        return sum(step.schedule.us for step in self.steps)

    @property
    def counted_us(self) -> float:
        """Microseconds by the counted work of the kernels, as far as they were made."""
        return sum(step.schedule.us if step.schedule.count is None else step.schedule.count.us for step in self.steps)

    @property
    def is_hurried(self) -> bool:
        """Whether the search was ended by its budget."""
        return self.ended is not None

    @property
    def is_far(self) -> bool:
        """Whether a kernel is far from its roofline, so that ``us`` is what was counted of it."""
        return any(step.schedule.is_far for step in self.steps)

    @property
    def code(self) -> str:
        """The segmentation and the scheduling calls, as Python: ``fusion`` is the unscheduled fusion; several kernels end in ``tf.compile(segmented)``."""
        if not self.is_segmented:
            return self.steps[0].schedule.code
        parts = [part for step in self.steps for part in step.parts]
        segments, views = _lists([p.tensors for p in parts]), _lists([p.views for p in parts])
        taken = f", views={views}" if any(p.views for p in parts) else ""
        chunked = [f"fusion.tensor({name!r}).chunk_scan({length})" for name, length in self.chunked]
        lines = ["import taskfuse as tf", "", *chunked, *self.moved, f"segmented = tf.segment(fusion, {segments}{taken})"]
        for k, part in enumerate(parts):
            lines += [f"fusion = segmented.segments[{k}]", *part.schedule.code.splitlines()]
        if len(parts) > len(self.steps):
            lines += ["", "# side by side", "kernels = []"]
            number = 0
            for step in self.steps:
                own = f"segmented.segments[{number}:{number + len(step.parts)}]"
                lines.append(f"kernels.append({step.call.format(own)})" if step.members else f"kernels.append(segmented.segments[{number}])")
                number += len(step.parts)
        return "\n".join(lines) + "\n"

    def explain(self) -> str:
        """The kernels, the reasons for them, and the cuts."""
        if not self.is_segmented:
            return "\n".join([self.steps[0].schedule.explain(), *self.dropped, *([_ENDED[self.ended]] if self.ended else [])])
        lines = [f"{len(self.steps)} kernel{'s' if len(self.steps) > 1 else ''}, {self.us:.1f} us expected; {self.whole}"]
        if self.us > SANE * self.bound > 0:
            crossing = 2e-6 * sum(size for _, size in self.crossing)
            lines.append(
                f"{self.us / self.bound:.1f} times the roofline of {self.bound:.1f} us, which has one launch and no cuts: launches take "
                f"{len(self.steps) * self.launch_us:.1f} us, and {crossing:.1f} MB are written and read again at the cuts"
            )
        lines += [f"{name} is scanned in chunks of {length}, whose totals another kernel scans" for name, length in self.chunked]
        lines += [f"cut at {name}: {size / 1e6:.1f} MB" for name, size in self.crossing]
        calls = [name for line in self.moved for name in _CALL.findall(line)]
        lines += [f"it is rewritten before, by {len(calls)} calls: {', '.join(dict.fromkeys(calls))}"] * bool(calls)
        if self.ended is not None:
            lines.append(_ENDED[self.ended])
        lines += self.dropped
        for step in self.steps:
            taken = f" of the views {', '.join(step.views)}" if step.views else ""
            lines += ["", f"{step.fusion.name} computes {', '.join(step.tensors)}{taken}: {step.schedule.us:.1f} us", step.schedule.explain()]
        return "\n".join(lines)


def _lists(names: Sequence[Sequence[str]]) -> str:
    """Lists of names as Python."""
    return str([list(part) for part in names])
