"""Points that go to elements which data names, and their gather form: every element looks at every point.

A point of an iteration space ``i0, i1, ...`` goes to the element at a place over these and ``v0, v1, ...``, integers that it reads. In gather form the
iteration space is that of the elements, and then the axes of the points that none of their axes follows; a point that names another element contributes
the neutral element.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from taskfuse.dtypes import bool_, int64
from taskfuse.ir.axes import AxisKind, axis, iteration_position, iteration_symbol, value_symbol
from taskfuse.ir.combine import Combine
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import IndexValue, Literal, Operand, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, ZERO, Expr, substitute
from taskfuse.ir.storage import resolve
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import Shape, broadcast_read, cast_tensor, define_pointwise, pointwise
from taskfuse.ops.select import pad


@dataclass(frozen=True, slots=True)
class Points:
    """Points, and where they go.

    Attributes:
        space: extents of their iteration space.
        place: per axis of what they go to, the index: one of the iteration symbols, each at most once, or one of the value symbols.
        values: reads of the integers that the value symbols are.
        extents: what each counts in.
        wraps: whether negative ones count from the end.
    """

    space: Shape
    place: Shape
    values: tuple[Read, ...]
    extents: Shape
    wraps: bool = True

    @property
    def follows(self) -> tuple[int | None, ...]:
        """Per axis of what they go to, the axis of the points that it follows; ``None``: data says the index."""
        return tuple(iteration_position(e) for e in self.place)

    def is_plain(self) -> bool:
        """True if places are such that there is a gather form."""
        followed = [a for a in self.follows if a is not None]
        named = [e for e, a in zip(self.place, self.follows, strict=True) if a is None]
        return len(set(followed)) == len(followed) and all(any(e is value_symbol(k) for k in range(len(self.values))) for e in named)

    def left(self) -> tuple[int, ...]:
        """Their axes that no axis of what they go to follows, and that have more than one index."""
        return tuple(a for a in range(len(self.space)) if a not in self.follows and self.space[a] is not ONE)

    def reached(self, whole: Shape) -> Shape:
        """Extents of the part of ``whole`` that they may go to."""
        return tuple(e if a is None else self.space[a] for e, a in zip(whole, self.follows, strict=True))

    def alike(self, fusion: Fusion) -> tuple[int, ...]:
        """The axes of what they go to along which points do not differ: each follows an axis of the points that no integer depends on."""
        names = {name for read in self.values for e in resolve(fusion, read).index for name in e.free}
        return tuple(d for d, a in enumerate(self.follows) if a is not None and self.space[a] is not ONE and str(iteration_symbol(a)) not in names)

    def at_first(self, axes: Collection[int]) -> Points:
        """Those at the first index of some axes."""
        first: dict[str, Expr] = {str(iteration_symbol(a)): ZERO for a in axes}
        values = (replace(read, index=tuple(substitute(e, first) for e in read.index)) for read in self.values)
        return replace(self, space=tuple(ONE if a in axes else e for a, e in enumerate(self.space)), values=tuple(values))

    def at(self) -> dict[str, Expr]:
        """Their iteration symbols by those of the gather form."""
        found = {str(iteration_symbol(a)): ZERO for a in range(len(self.space))}
        found |= {str(iteration_symbol(a)): iteration_symbol(len(self.place) + k) for k, a in enumerate(self.left())}
        return found | {str(iteration_symbol(a)): iteration_symbol(d) for d, a in enumerate(self.follows) if a is not None}


def gathered(fusion: Fusion, whole: Shape, points: Points, combine: Combine, value: Operand, neutral: Literal) -> TensorView:
    """``combine`` of ``value`` over the points that go to an element, for every element of ``whole``: ``neutral`` where none does."""
    location = caller()
    space = (*points.reached(whole), *(points.space[a] for a in points.left()))
    root = [axis(e, AxisKind.REDUCTION if d >= len(whole) else AxisKind.ITERATION) for d, e in enumerate(space)]
    body, operands = ELEMENTWISE["copy"], (_moved(value, points),)
    if None in points.follows:
        named = is_named(fusion, space, points)
        body, operands = ELEMENTWISE["where"], (broadcast_read(named, named.shape), *operands, neutral)
    if not points.left():
        found = define_pointwise(fusion, body, space, operands, neutral.dtype)
    else:
        out = fusion.new_tensor(root, neutral.dtype, location=location)
        found = fusion.define(Reduction(out, combine, body, operands, neutral, location))
    behind = [(ZERO, n - e) for n, e in zip(whole, found.shape, strict=True)]
    return found if all(n is ZERO for _, n in behind) else pad(found, behind, neutral.value)


def _moved(operand: Operand, points: Points) -> Operand:
    at = points.at()
    match operand:
        case Read():
            return replace(operand, index=tuple(substitute(e, at) for e in operand.index), valid=substitute(operand.valid, at))
        case IndexValue(index=index):
            return IndexValue(substitute(index, at))
        case _:
            return operand


def from_the_start(fusion: Fusion, points: Points) -> Points:
    """The same points with integers that count from the start, computed once for each: what has many elements for each point then compares once."""
    values: list[Read] = []
    for read, extent in zip(points.values, points.extents, strict=True):
        tv = read.tensor
        if tv.dtype.min_value < 0:
            wide = cast_tensor(tv, int64)
            wrapped = define_pointwise(fusion, ELEMENTWISE["add"], tv.shape, (broadcast_read(wide, tv.shape), IndexValue(extent)), int64)
            tv = pointwise(ELEMENTWISE["where"], (pointwise(ELEMENTWISE["lt"], (wide, 0)), wrapped, wide))
        values.append(replace(read, tensor=tv))
    return replace(points, values=tuple(values), wraps=False)


def is_named(fusion: Fusion, space: Shape, points: Points) -> TensorView:
    """Whether a point names an element, over the space of the gather form: computed where it is needed, not stored in a table."""
    found: TensorView | None = None
    for d, (e, a) in enumerate(zip(points.place, points.follows, strict=True)):
        if a is not None:
            continue
        k = next(k for k in range(len(points.values)) if e is value_symbol(k))
        read, here = _moved(points.values[k], points), iteration_symbol(d)
        same = define_pointwise(fusion, ELEMENTWISE["eq"], space, (read, IndexValue(here)), bool_)
        if points.wraps and points.values[k].tensor.dtype.min_value < 0:
            behind = define_pointwise(fusion, ELEMENTWISE["eq"], space, (read, IndexValue(here - points.extents[k])), bool_)
            same = pointwise(ELEMENTWISE["logical_or"], (same, behind))
        found = same if found is None else pointwise(ELEMENTWISE["logical_and"], (found, same))
    assert found is not None
    return found
