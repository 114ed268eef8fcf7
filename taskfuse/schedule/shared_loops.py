"""Shared loops: inline positions join the loops of producers and consumers.

``p.inline_at(c)`` joins the first ``c`` loop axes of ``p`` with those at the same positions of every reader, which is legal if each read
of ``p`` maps them onto each other (:func:`mismatch`). The joined axes form one loop; chains of joins go through producers and consumers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from taskfuse.ir.axes import Axis, Merge, Rasterize, Resize, Split, Swizzle, Transform, iteration_position
from taskfuse.ir.expr import MathExpr, Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE
from taskfuse.ir.storage import has_code, storage_reads, storage_uses
from taskfuse.ir.tasks import Group
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.keys import IndexDigit, Keys, quotient, tile_axis


class Correspondence:
    """Whether axes of a producer and of a consumer run over the same values for one read."""

    def __init__(self, keys: Keys, producer: TensorView, consumer: TensorView, read: Read) -> None:
        self._keys = keys
        self._made = (_derivations(producer), _derivations(consumer))
        self._root: dict[Axis, Axis] = {}
        self._quotients: dict[Axis, tuple[Axis, int]] = {}
        for own, index in zip(producer.logical, read.index, strict=True):
            position = iteration_position(index)
            if position is not None and consumer.root[position].extent is own.extent:
                self._root[own] = consumer.root[position]
            elif (tile := tile_axis(consumer, index, own.extent)) is not None:
                self._root[own] = tile
            elif (whole := quotient(consumer, index, own.extent, keys.facts)) is not None:
                self._quotients[own] = whole
        self._logical = set(producer.logical)

    def same(self, a: Axis, b: Axis) -> bool:
        """True if axis ``a`` of the producer has the value of axis ``b`` of the consumer whenever the consumer reads it."""
        a, b = _joined_with_one(a, self._made[0]), _joined_with_one(b, self._made[1])
        if a in self._logical:
            return self._root.get(a) is b
        if self._same_digit(self._digit(a, self._made[0]), self._digit(b, self._made[1])):
            return True
        x, y = self._made[0].get(a), self._made[1].get(b)
        if x is None or y is None:
            return x is None and self._keys.equal(a, b)
        (t, i), (u, j) = x, y
        if i != j or len(t.inputs) != len(u.inputs) or not _same_form(t, u):
            return False
        return all(self.same(p, q) for p, q in zip(t.inputs, u.inputs, strict=True))

    def _digit(self, a: Axis, made: Mapping[Axis, tuple[Transform, int]]) -> IndexDigit[Axis]:
        match made.get(a):
            case (Split() as split, position):
                return self._digit(split.source, made).part(split, position, self._keys.facts) or IndexDigit(a, 1, a.extent, True)
            case _:
                return IndexDigit(a, 1, a.extent, True)

    def _same_digit(self, own: IndexDigit[Axis], other: IndexDigit[Axis]) -> bool:
        """True for digits of one axis, in whichever steps the splits made them; the producer's axis may count pieces of the consumer's."""
        whole = (self._root[own.base], 1) if own.base in self._root else self._quotients.get(own.base)
        return whole is not None and whole[0] is other.base and own.divisor * whole[1] == other.divisor and own.extent is other.extent


def _joined_with_one(a: Axis, made: Mapping[Axis, tuple[Transform, int]]) -> Axis:
    """The axis that has the values of ``a``, a merge of it with axes of extent 1; else ``a``."""
    while a in made:
        match made[a][0]:
            case Merge(outer=outer, inner=inner) if outer.extent is ONE or inner.extent is ONE:
                a = inner if outer.extent is ONE else outer
            case _:
                break
    return a


def _same_form(t: Transform, u: Transform) -> bool:
    match t, u:
        case Split(), Split():
            return t.outer.extent is u.outer.extent and t.inner.extent is u.inner.extent
        case Merge(), Merge():
            return t.inner.extent is u.inner.extent
        case Swizzle(), Swizzle():
            return True
        case Resize(), Resize():
            return t.left is u.left and t.right is u.right
        case Rasterize(), Rasterize():
            return t.maps == u.maps
        case _:
            return False


def _derivations(tv: TensorView) -> dict[Axis, tuple[Transform, int]]:
    return {out: (t, k) for t in tv.schedule.transforms for k, out in enumerate(t.outputs)}


def mismatch(keys: Keys, producer: TensorView, consumer: MathExpr, position: int) -> str | None:
    """Why the loop axes at ``position`` of a producer and of one of its readers are not one loop; ``None`` if they are."""
    q = consumer.output
    if position >= len(q.schedule.loop):
        return f"{q.name} has only {len(q.schedule.loop)} loop axes"
    a, b = producer.schedule.loop[position], q.schedule.loop[position]
    for read in storage_reads(keys.fusion, consumer):
        if read.tensor is producer and not Correspondence(keys, producer, q, read).same(a, b):
            return f"axis {position} of {producer.name} (extent {a.extent}) is not axis {position} of {q.name} (extent {b.extent})"
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """One loop of the nest: the joined axes of all tensors that share it.

    Attributes:
        axes: tensor -> its axis.
        depth: how many loops stand outside it.
    """

    id: int
    depth: int
    axes: dict[TensorView, Axis]


@dataclass(frozen=True, slots=True, eq=False)
class SharedLoops:
    """The loops of a fusion.

    Attributes:
        loops: all of them.
        path: tensor -> the loops around its code, outermost first, one per loop axis.
    """

    loops: tuple[Loop, ...]
    path: Mapping[TensorView, tuple[Loop, ...]]

    @staticmethod
    def of(fusion: Fusion) -> SharedLoops:
        """Join the axes that inline positions make one loop."""
        loops: list[Loop] = []
        code = [e for e in fusion.exprs() if has_code(fusion, e)]
        parent: dict[TensorView, list[TensorView]] = {e.output: [] for e in code}
        depth: dict[tuple[TensorView, TensorView], int] = {}
        for expr in code:
            p = expr.output
            for use in storage_uses(fusion, p):
                if use.output in parent and p.schedule.inline:
                    parent[p].append(use.output)
                    parent[use.output].append(p)
                    depth[(p, use.output)] = depth[(use.output, p)] = p.schedule.inline
        joined: dict[tuple[TensorView, int], Loop] = {}
        for expr in code:
            tv = expr.output
            for d in range(len(tv.schedule.loop)):
                if (tv, d) in joined:
                    continue
                loop = Loop(len(loops), d, {})
                loops.append(loop)
                stack = [tv]
                while stack:
                    x = stack.pop()
                    if (x, d) in joined or d >= len(x.schedule.loop):
                        continue
                    joined[(x, d)] = loop
                    loop.axes[x] = x.schedule.loop[d]
                    stack += [y for y in parent[x] if depth[(x, y)] > d and (y, d) not in joined]
        path = {tv: tuple(joined[(tv, d)] for d in range(len(tv.schedule.loop))) for tv in (expr.output for expr in code)}
        return SharedLoops(tuple(loops), path)


def has_copies(group: Group, loop: Loop, tensors: Iterable[TensorView]) -> bool:
    """True if each arm of a horizontal dispatch has its own copy of a loop that the members share, and of all loops inside it.

    So it is where the members do not bind the loop alike, and where they bind it to the group's own type, which must stand inside the
    dispatch, but other roles run it trip by trip: loops must not change places there, since all roles visit channels in one order.

    Args:
        tensors: those of the group with code in the loop.
    """
    types = {tv.schedule.ptype(loop.axes[tv]) for tv in tensors}
    if not any(p.is_bound for p in types):
        return False
    if len(types) > 1:
        return True
    return group.ptype in types and any(tv.schedule.ptype(a).is_loop for tv, a in loop.axes.items())
