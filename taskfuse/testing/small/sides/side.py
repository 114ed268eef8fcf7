"""A kernel with a side condition, whether it is right, and its executing threads: shapes of blocks, and conditions that select some of their threads.

Python evaluates a condition for each thread to find the selected set, so the generator knows what it has made without the checker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from taskfuse.kir import Kernel, parse_kernel
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.text import Text

Thread = tuple[int, int, int]
AXES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
NAME = re.compile(r"[A-Za-z_][\w.]*")
KNOWN: dict[str, str] = {"threadIdx.x": "x", "threadIdx.y": "y", "threadIdx.z": "z", "xor": "xor", "max": "max", "min": "min"}
SHAPES: tuple[Thread, ...] = (
    (32, 1, 1),
    (8, 8, 1),
    (32, 2, 1),
    (15, 1, 1),
    (48, 1, 1),
    (16, 3, 1),
    (64, 1, 1),
    (8, 4, 2),
    (4, 4, 4),
    (12, 4, 1),
    (1, 32, 1),
    (1, 1, 1),
    (16, 2, 1),
    (32, 3, 1),
)
"""Blocks: whole warps, parts of one, and warps across rows."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A block."""

    extents: Thread

    @property
    def threads(self) -> int:
        """How many."""
        x, y, z = self.extents
        return x * y * z

    @property
    def text(self) -> str:
        """The block, as the text of ``BLOCK``."""
        x, y, z = self.extents
        return f"({x}, {y}, {z})"

    @property
    def linear(self) -> str:
        """The number of a thread, as an expression."""
        x, y, z = self.extents
        parts = ["threadIdx.x"] * (x > 1) + [f"{x}*threadIdx.y"] * (y > 1) + [f"{x * y}*threadIdx.z"] * (z > 1)
        return " + ".join(parts) or "0"

    @property
    def first(self) -> str:
        """The condition of the first thread."""
        return " && ".join(f"{a} == 0" for a, n in zip(AXES, self.extents, strict=True) if n > 1) or "threadIdx.x == 0"

    def all(self) -> list[Thread]:
        """Threads in the order of their numbers."""
        dx, dy, dz = self.extents
        return [(x, y, z) for z in range(dz) for y in range(dy) for x in range(dx)]

    def number(self, t: Thread) -> int:
        """The linear number."""
        return t[0] + self.extents[0] * (t[1] + self.extents[1] * t[2])

    def selected(self, condition: str, values: Mapping[str, int] | None = None) -> list[Thread]:
        """The threads for which a condition holds."""
        return [t for t in self.all() if holds(condition, t, values or {})]

    def are_whole_warps(self, threads: Sequence[Thread]) -> bool:
        """True if they are all threads of some warps."""
        chosen = {self.number(t) for t in threads}
        return all((k in chosen) == (k // 32 * 32 in chosen) for k in range(self.threads))


def holds(condition: str, t: Thread, values: Mapping[str, int]) -> bool:
    """The value of a condition."""
    return bool(number(condition, t, values))


def number(e: str, t: Thread, values: Mapping[str, int]) -> int:
    """The value of an expression for a thread."""
    return _function(e)(*t, values)


@cache
def _function(e: str) -> Callable[[int, int, int, Mapping[str, int]], int]:
    """An expression as a function of a thread and of what else has a value."""
    text = NAME.sub(lambda m: KNOWN.get(m[0], f"v[{m[0]!r}]"), e).replace("&&", " and ").replace("||", " or ")
    made: Callable[[int, int, int, Mapping[str, int]], int] = eval(f"lambda x, y, z, v: int({text})", {"xor": int.__xor__})
    return made


def shape(c: Chooser) -> Shape:
    """A block."""
    return Shape(c.pick(SHAPES))


def condition(c: Chooser, of: Shape, others: Sequence[str] = ()) -> str:
    """A condition on threads; ``others``: what else has a value here."""
    parts = [_atom(c, of, others) for _ in range(c.pick((1, 1, 1, 2, 2, 3)))]
    return (" || " if len(parts) > 1 and c.chance(20) else " && ").join(parts)


def _atom(c: Chooser, of: Shape, others: Sequence[str]) -> str:
    axes = [(a, n) for a, n in zip(AXES, of.extents, strict=True) if n > 1] or [("threadIdx.x", 1)]
    u, n = c.pick(axes)
    v, _ = c.pick(axes)
    k = c.integer(0, n) if c.chance(8) else c.integer(0, n - 1)
    m = c.pick((2, 3, 4, 8, 16, 32))
    forms = [f"{u} == {k}", f"{u} < {k + 1}", f"{u} >= {k}", f"{u} % {m} == {c.integer(0, m - 1)}", f"{u}//{m} == {c.integer(0, max(n - 1, 0) // m)}"]
    forms += [f"{u} != {k}", f"({of.linear})//32 == {c.integer(0, (of.threads - 1) // 32)}", f"({of.linear}) % {m} == {c.integer(0, m - 1)}"]
    forms += [f"{of.linear} < {c.pick((1, 16, 31, 32, of.threads))}", f"{u} > {k - 1}"]
    if v != u:
        forms += [f"{u} == {v}", f"{u} == {v} + {c.integer(0, 2)}", f"{u} + {v} == {k}", f"{u} < {v}", f"{u} == {v}//2", f"{u} % {m} == {v}"]
    for e in others:
        forms += [f"{u} == {e}", f"{u} == {e}", f"{u} % 2 == {e} % 2", f"{u} >= {e}"]
    return c.pick(forms)


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
