"""Keys of axes: when two loops could be the same loop.

The key of an axis is its derivation from root axes, where root axes of different tensors that an op map identifies count as one. Two
loops are one iff their axes have equal keys *and* both lie left of inline positions that join their tensors (schedule/joins.py): equal
keys are necessary, never sufficient.
"""

from __future__ import annotations

from taskfuse.ir.axes import Axis, Merge, Rasterize, Resize, Split, Swizzle, Transform, iteration_position
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, Expr, Facts, FloorDiv, const, is_multiple
from taskfuse.ir.storage import has_code, reads_of
from taskfuse.ir.tensor import TensorView

Key = int


class Keys:
    """The keys of all axes of a fusion, for its present schedule.

    Keys are small integers, interned per instance: compare them only within one instance.
    """

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self._facts: Facts = fusion.facts()
        self._parent: dict[Axis, Axis] = {}
        self._derivation: dict[Axis, tuple[Transform, int]] = {}
        self._interned: dict[tuple[object, ...], Key] = {}
        self._keys: dict[Axis, Key] = {}
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
            return self._intern(("root", head.id))
        transform, position = made
        inputs = tuple(self.key(x) for x in transform.inputs)
        match transform:
            case Split(source=source, outer=outer, inner=inner):
                if inner.extent is const(1) and outer.extent is source.extent:
                    return inputs[0] if position == 0 else self._intern(("unit",))
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

    def _divides(self, split: Split) -> bool:
        return is_multiple(split.source.extent, split.inner.extent, self._facts)

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
