"""Axes (IterDomains) and the transforms that make new axes from old ones.

A tensor's *root* axes are the iteration space of the op that makes it. Transforms lead from root axes to loop axes (and to allocation
axes). Each transform has two directions: ``backward`` computes the indices of its inputs from those of its outputs (which element a loop
accesses), ``forward`` the indices of its outputs from those of its inputs (where an element is in memory).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from math import prod

from taskfuse.ir.scalar import Expr, IntLike, Sym, ceildiv, remembered, substitute, sym, wrap, xor

_ids = itertools.count()


class AxisKind(Enum):
    """``FOREIGN``: a consumer's axis that the tensor itself lacks; it shares the consumer's loop and is never allocated."""

    ITERATION = "i"
    REDUCTION = "r"
    FOREIGN = "f"


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One axis. Identity is the object; ``id`` only orders and names it.

    Attributes:
        extent: number of index values, an integer expression over the fusion's symbols.
        kind: iteration, reduction or foreign.
        source: for a foreign root axis, the axis of the other tensor whose loop it shares.
    """

    extent: Expr
    kind: AxisKind = AxisKind.ITERATION
    source: Axis | None = None
    id: int = field(default_factory=lambda: next(_ids))

    @property
    def is_reduction(self) -> bool:
        return self.kind is AxisKind.REDUCTION

    @property
    def is_foreign(self) -> bool:
        return self.kind is AxisKind.FOREIGN


def axis(extent: IntLike, kind: AxisKind = AxisKind.ITERATION, source: Axis | None = None) -> Axis:
    """A new axis of the given extent."""
    return Axis(wrap(extent), kind, source)


def joint_kind(a: Axis, b: Axis) -> AxisKind:
    """The kind of an axis that merges ``a`` and ``b``: foreign only if both are."""
    if a.kind is b.kind:
        return a.kind
    kinds = {a.kind, b.kind} - {AxisKind.FOREIGN}
    assert len(kinds) == 1, "reduction and iteration axes do not merge"
    return kinds.pop()


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """``source`` into ``outer`` x ``inner``: index = outer * inner.extent + inner. The extents may cover more than ``source`` has."""

    source: Axis
    outer: Axis
    inner: Axis

    @property
    def inputs(self) -> tuple[Axis, ...]:
        return (self.source,)

    @property
    def outputs(self) -> tuple[Axis, ...]:
        return (self.outer, self.inner)

    def backward(self, outputs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (outputs[0] * self.inner.extent + outputs[1],)

    def forward(self, inputs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (inputs[0] // self.inner.extent, inputs[0] % self.inner.extent)


@dataclass(frozen=True, slots=True, eq=False)
class Merge:
    """``outer`` x ``inner`` into one axis, ``inner`` fastest."""

    outer: Axis
    inner: Axis
    result: Axis

    @property
    def inputs(self) -> tuple[Axis, ...]:
        return (self.outer, self.inner)

    @property
    def outputs(self) -> tuple[Axis, ...]:
        return (self.result,)

    def backward(self, outputs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (outputs[0] // self.inner.extent, outputs[0] % self.inner.extent)

    def forward(self, inputs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (inputs[0] * self.inner.extent + inputs[1],)


@dataclass(frozen=True, slots=True, eq=False)
class Swizzle:
    """The XOR swizzle: (x, y) -> (x, y ^ x), both of one power-of-two extent (or x's a divisor power). Its own inverse."""

    x: Axis
    y: Axis
    x_out: Axis
    y_out: Axis

    @property
    def inputs(self) -> tuple[Axis, ...]:
        return (self.x, self.y)

    @property
    def outputs(self) -> tuple[Axis, ...]:
        return (self.x_out, self.y_out)

    def backward(self, outputs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (outputs[0], xor(outputs[1], outputs[0]))

    def forward(self, inputs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (inputs[0], xor(inputs[1], inputs[0]))


@dataclass(frozen=True, slots=True, eq=False)
class Resize:
    """``source`` widened by ``left`` and ``right`` (negative: narrowed): result index = source index + left."""

    source: Axis
    left: Expr
    right: Expr
    result: Axis

    @property
    def inputs(self) -> tuple[Axis, ...]:
        return (self.source,)

    @property
    def outputs(self) -> tuple[Axis, ...]:
        return (self.result,)

    def backward(self, outputs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (outputs[0] - self.left,)

    def forward(self, inputs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (inputs[0] + self.left,)


RANKS = 1 << 5
"""The most ranks whose iteration symbols are kept."""
NAMES = 1 << 10
"""The most names of symbols of which it is kept whether they are iteration symbols."""
WORK = "i0"
"""The work index in the maps of :class:`Rasterize`: as in all index maps, a symbol that no dimension may have."""
CLAIMED = "claimed"
"""The map of an axis of blocks whose index a block knows only after claiming an item of work."""


@dataclass(frozen=True, slots=True, eq=False)
class Rasterize:
    """Tile axes into one work axis, defined by its backward map alone: any bijection in scalar expressions.

    Attributes:
        maps: one expression over the symbol ``i0`` per input: the input's index from the work index.
    """

    sources: tuple[Axis, ...]
    result: Axis
    maps: tuple[Expr, ...]

    @property
    def inputs(self) -> tuple[Axis, ...]:
        return self.sources

    @property
    def outputs(self) -> tuple[Axis, ...]:
        return (self.result,)

    @property
    def has_holes(self) -> bool:
        """False if the numbers of work items and of tiles are equal, so that each item has a tile."""
        return self.result.extent is not prod(s.extent for s in self.sources)

    def backward(self, outputs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(substitute(m, {WORK: outputs[0]}) for m in self.maps)


def claimed_index(extent: Expr) -> Expr:
    """The map of an axis whose indices blocks claim: a bijection that is not known otherwise."""
    return (sym(WORK) + sym(CLAIMED)) % extent


Transform = Split | Merge | Swizzle | Resize | Rasterize


def split_axes(source: Axis, factor: IntLike, inner: bool = True) -> Split:
    """Axes of a split by ``factor``: [ceildiv(N, f), f], or [f, ceildiv(N, f)] if not ``inner``."""
    f = wrap(factor)
    rest = ceildiv(source.extent, f)
    outer, inside = (rest, f) if inner else (f, rest)
    return Split(source, axis(outer, source.kind), axis(inside, source.kind))


def merge_axes(outer: Axis, inner: Axis) -> Merge:
    """The axis of a merge of ``outer`` and ``inner``."""
    return Merge(outer, inner, axis(outer.extent * inner.extent, joint_kind(outer, inner)))


def resize_axis(source: Axis, left: IntLike, right: IntLike) -> Resize:
    """The axis of a resize."""
    return Resize(source, wrap(left), wrap(right), axis(source.extent + left + right, source.kind))


@remembered(RANKS)
def iteration_symbol(position: int) -> Expr:
    """The symbol that op maps use for the index of the root axis at ``position``: ``i0``, ``i1``, ..."""
    return sym(f"i{position}")


@remembered(RANKS)
def iteration_point(rank: int) -> tuple[Expr, ...]:
    """The iteration symbols of ``rank`` root axes: ``(i0, i1, ...)``."""
    return tuple(map(iteration_symbol, range(rank)))


def value_symbol(position: int) -> Expr:
    """The symbol that the op map of a gather uses for the value at ``position`` among those that it reads: ``v0``, ``v1``, ..."""
    return sym(f"v{position}")


def is_value_symbol(name: str) -> bool:
    """True for the name of a value in an op map."""
    return name[:1] == "v" and name[1:].isdecimal()


def is_map_symbol(name: str) -> bool:
    """True for the name of an iteration symbol, of a value in an op map, or of a claimed index, which no dimension may have."""
    return (name[:1] in ("i", "v") and name[1:].isdecimal()) or name == CLAIMED


def iteration_position(index: Expr) -> int | None:
    """The position k if ``index`` is the iteration symbol ``ik``, else ``None``."""
    return _position(index.name) if isinstance(index, Sym) else None


@lru_cache(NAMES)
def _position(name: str) -> int | None:
    return int(name[1:]) if name[0] == "i" and name[1:].isdecimal() else None
