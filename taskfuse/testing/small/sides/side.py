"""A kernel with a side condition, and whether it is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from taskfuse.kir import Kernel, parse_kernel
from taskfuse.testing.small.sides.shapes import Shape
from taskfuse.testing.small.text import Text

SIDE = "side"


@dataclass(frozen=True, slots=True)
class Side:
    """A kernel with a side condition.

    Attributes:
        kind: what the condition is about.
        right: whether the kernel is right, as its generator knows; ``None``: it does not know.
        extents: the launches to look at.
    """

    kernel: Kernel
    kind: str
    right: bool | None
    extents: tuple[dict[str, int], ...] = ({},)


@dataclass(slots=True)
class Declared:
    """Declarations of such a kernel; ``x`` and ``y`` are given unless there are others."""

    of: Shape
    lines: list[str] = field(default_factory=list[str])
    inputs: list[str] = field(default_factory=list[str])
    outputs: list[str] = field(default_factory=list[str])
    dims: str = ""
    maps: list[str] = field(default_factory=list[str])
    grid: str = "(1, 1, 1)"
    block: str = ""
    after: str = ""

    def side(self, kind: str, t: Text, right: bool | None, extents: Sequence[dict[str, int]] = ({},)) -> Side:
        """The kernel."""
        n = self.of.threads
        inputs, outputs = self.inputs or [f"x: float32[{n}]"], self.outputs or [f"y: float32[{n}]"]
        head = [f"KERNEL {SIDE}({', '.join(inputs)}) -> ({', '.join(outputs)})"]
        head += [f"  DIM {self.dims}"] if self.dims else []
        head += [f"  TENSORMAP {m}" for m in self.maps]
        head.append(f"  GRID {self.grid}  BLOCK {self.block or self.of.text}{self.after}")
        head += [f"  {line}" for line in self.lines]
        return Side(parse_kernel("\n".join([*head, "", *t.lines, ""])), kind, right, tuple(extents))
