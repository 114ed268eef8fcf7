"""Keys of axes: when two loops could be the same loop.

The key of an axis is its derivation from root axes, where root axes of different tensors that an op map identifies count as one. What splits by constants
make of an axis is a *digit* of it, ``i // divisor % extent``, in whichever steps they make it; so is the axis of a tensor that is read at ``i // divisor``. Two
loops are one iff their axes have equal keys *and* both lie left of inline positions that join their tensors (schedule/joins.py): equal
keys are necessary, never sufficient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from taskfuse.ir.axes import Axis, Merge, Rasterize, Resize, Split, Swizzle, Transform, iteration_position
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, ZERO, Const, Expr, Facts, FloorDiv, const, is_multiple, simplify
from taskfuse.ir.storage import has_code, reads_of
from taskfuse.ir.tensor import TensorView

Key = int
Base = TypeVar("Base")


@dataclass(frozen=True, slots=True)
class IndexDigit(Generic[Base]):
    """``i // divisor % extent`` of an axis.

    Attributes:
        base: the axis, or its key.
        is_first: the quotient is less than ``extent`` anyway.
    """

    base: Base
    divisor: int
    extent: Expr
    is_first: bool

    def part(self, split: Split, position: int, facts: Facts) -> IndexDigit[Base] | None:
        """What a split of this one makes: the quotients at position 0, the rests at 1; ``None`` if that is no digit."""
        n = split.inner.extent
        if not isinstance(n, Const) or not (self.is_first or is_multiple(split.source.extent, n, facts)):
            return None
        if position == 0:
            return IndexDigit(self.base, self.divisor * n.value, split.outer.extent, self.is_first)
        return IndexDigit(self.base, self.divisor, n, False)


def quotient(tv: TensorView, index: Expr, extent: Expr, facts: Facts) -> tuple[Axis, int] | None:
    """A root axis of ``tv`` and the number that divides it, if ``index`` is the quotient, and takes all values below ``extent``."""
    match index:
        case FloorDiv(a=whole, b=Const(divisor)) if (position := iteration_position(whole)) is not None:
            axis = tv.root[position]
            return (axis, divisor) if simplify(extent * divisor - axis.extent, facts) is ZERO else None
        case _:
            return None


class Keys:
    """The keys of all axes of a fusion, for its present schedule.

    Keys are small integers, interned per instance: compare them only within one instance.
    """

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.facts: Facts = fusion.facts()
        self._parent: dict[Axis, Axis] = {}
        self._derivation: dict[Axis, tuple[Transform, int]] = {}
        self._interned: dict[tuple[object, ...], Key] = {}
        self._keys: dict[Axis, Key] = {}
        self._digits: dict[Key, IndexDigit[Key]] = {}
        self._quotients: list[tuple[Axis, Axis, int]] = []
        for tv in fusion.tensors():
            for a in tv.root:
                if a.source is not None:
                    self._join(a, a.source)
            self.add_loops(tv)
        for expr in fusion.exprs():
            if has_code(fusion, expr):
                self._join_reads(expr.output)

    def add_loops(self, tv: TensorView) -> None:
        """Record how the loop axes of a tensor are derived. Keys of other axes stay."""
        self.add_transforms(tv.schedule.transforms)
        for a in tv.schedule.loop:
            self._join_foreign(a)

    def add_transforms(self, transforms: list[Transform]) -> None:
        """Record how axes are derived."""
        for t in transforms:
            for k, out in enumerate(t.outputs):
                self._derivation[out] = (t, k)
            for source in t.inputs:
                self._join_foreign(source)

    def _join_foreign(self, a: Axis) -> None:
        if a.source is not None and a not in self._derivation:
            self._join(a, a.source)

    def _join_reads(self, tv: TensorView) -> None:
        for read in reads_of(self.fusion, tv):
            for inner, index in zip(read.tensor.logical, read.index, strict=True):
                position = iteration_position(index)
                if position is not None and tv.root[position].extent is inner.extent:
                    self._join(tv.root[position], inner)
                elif (tile := tile_axis(tv, index, inner.extent)) is not None:
                    self._join(tile, inner)
                elif (whole := quotient(tv, index, inner.extent, self.facts)) is not None:
                    self._quotients.append((inner, *whole))

    def _find(self, a: Axis) -> Axis:
        root = a
        while (up := self._parent.get(root)) is not None:
            root = up
        while (up := self._parent.get(a)) is not None and up is not root:
            self._parent[a] = root
            a = up
        return root

    def _join(self, a: Axis, b: Axis) -> None:
        x, y = self._find(a), self._find(b)
        if x is y:
            return
        if x in self._derivation and y not in self._derivation:
            self._parent[y] = x
        else:
            self._parent[x] = y

    def key(self, a: Axis) -> Key:
        """The key of an axis."""
        known = self._keys.get(a)
        if known is None:
            known = self._keys[a] = self._compute(a)
        return known

    def _intern(self, parts: tuple[object, ...]) -> Key:
        return self._interned.setdefault(parts, len(self._interned))

    def _compute(self, a: Axis) -> Key:
        head = self._find(a)
        made = self._derivation.get(a) or self._derivation.get(head)
        if made is None:
            for inner, whole, divisor in self._quotients:
                if self._find(inner) is head and self._find(whole) is not head:
                    return self._digit(IndexDigit(self.key(whole), divisor, a.extent, True))
            return self._intern(("root", head.id))
        transform, position = made
        inputs = tuple(self.key(x) for x in transform.inputs)
        match transform:
            case Split(source=source, outer=outer, inner=inner):
                if inner.extent is const(1) and outer.extent is source.extent:
                    return inputs[0] if position == 0 else self._intern(("unit",))
                whole = self._digits.get(inputs[0], IndexDigit(inputs[0], 1, source.extent, True))
                if (part := whole.part(transform, position, self.facts)) is not None:
                    return self._digit(part)
                return self._intern(("split", inputs, source.extent, outer.extent, inner.extent, position))
            case Merge(outer=outer, inner=inner):
                if outer.extent is ONE or inner.extent is ONE:  # the other one
                    return inputs[outer.extent is ONE]
                x, y = self._derivation.get(outer), self._derivation.get(inner)
                if x is not None and y is not None and x[0] is y[0] and isinstance(x[0], Split) and (x[1], y[1]) == (0, 1) and self._divides(x[0]):
                    return self.key(x[0].source)
                return self._intern(("merge", inputs, inner.extent))
            case Swizzle():
                return self._intern(("swizzle", inputs, position))
            case Resize(left=left, right=right):
                return self._intern(("resize", inputs, left, right))
            case Rasterize(maps=maps):
                return self._intern(("raster", inputs, maps))

    def _digit(self, digit: IndexDigit[Key]) -> Key:
        key = self._intern(("digit", digit.base, digit.divisor, digit.extent))
        self._digits[key] = digit
        return key

    def _divides(self, split: Split) -> bool:
        return is_multiple(split.source.extent, split.inner.extent, self.facts)

    def equal(self, a: Axis, b: Axis) -> bool:
        """True if the axes have equal keys."""
        return self.key(a) == self.key(b)


def tile_axis(tv: TensorView, index: Expr, extent: Expr) -> Axis | None:
    """The loop axis over the tiles of a root axis of ``tv``, if ``index`` is the number of its tile: ``i // n`` of an axis ``i`` that is split by ``n``.

    Args:
        extent: how many tiles the tensor has that is read at ``index``.
    """
    if not isinstance(index, FloorDiv) or (position := iteration_position(index.a)) is None:
        return None
    for t in tv.schedule.transforms:
        if isinstance(t, Split) and t.source is tv.root[position] and t.inner.extent is index.b and t.outer.extent is extent:
            return t.outer
    return None
