"""The schedule of one tensor: the data that scheduling calls set."""

from __future__ import annotations

from dataclasses import dataclass, field

from taskfuse.ir.atoms import Atom
from taskfuse.ir.axes import Axis, Transform
from taskfuse.ir.types import MemoryType, ParallelType


@dataclass(slots=True)
class TensorSchedule:
    """The schedule of one tensor.

    Attributes:
        loop: the loop domain, outermost first.
        transforms: all transforms between root, loop and allocation axes, in creation order.
        ptypes: the parallel type of an axis; an axis that is absent is Serial.
        inline: number of outer loop axes shared with every consumer.
        memory: its memory type; ``None``: lowering chooses the nearest that its readers can access.
        allocation: the explicit allocation domain, outermost first; ``None``: the loop axes.
        stages: depth of the circular buffer; 1: none.
        ring: tensors with the same name here share the slots of one circular buffer, one after another; "": a circular buffer of its own.
        atom: the instruction that executes the atom axes; ``None``: scalar.
        atom_axes: the loop axes that the atom covers.
        in_flight: batches of the atom that may be unfinished while the next one is issued.
        pipeline_stage: the trips by which its code runs behind other code of its loop: 0 or 1.
        turns: the thread index type on which the instances of its role execute its code one after another; ``None``: they do not.
    """

    loop: list[Axis]
    transforms: list[Transform] = field(default_factory=list["Transform"])
    ptypes: dict[Axis, ParallelType] = field(default_factory=dict["Axis", ParallelType])
    inline: int = 0
    memory: MemoryType | None = None
    allocation: tuple[Axis, ...] | None = None
    stages: int = 1
    ring: str = ""
    atom: Atom | None = None
    atom_axes: tuple[Axis, ...] = ()
    in_flight: int = 0
    pipeline_stage: int = 0
    turns: ParallelType | None = None

    def ptype(self, axis: Axis) -> ParallelType:
        """The parallel type of ``axis``."""
        return self.ptypes.get(axis, ParallelType.Serial)

    def is_untouched(self, root: tuple[Axis, ...]) -> bool:
        """Whether it is that of a tensor with this root domain on which no scheduling call was made."""
        return (
            not (self.transforms or self.ptypes or self.inline or self.ring or self.in_flight or self.pipeline_stage)
            and self.memory is self.allocation is self.atom is self.turns is None
            and self.stages == 1
            and tuple(self.loop) == root
        )

    def copied(self, ring: str | None = None) -> TensorSchedule:
        """A schedule that shares no list or dict with this one; ``ring``: the name of its ring there."""
        return TensorSchedule(
            list(self.loop),
            list(self.transforms),
            dict(self.ptypes),
            self.inline,
            self.memory,
            self.allocation,
            self.stages,
            self.ring if ring is None else ring,
            self.atom,
            self.atom_axes,
            self.in_flight,
            self.pipeline_stage,
            self.turns,
        )
