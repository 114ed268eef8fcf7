"""tile_shifts: what several tensors read of one at constant distances, once for each tile of their points.

``y0[i] = x[i - 1]`` and ``y1[i] = x[i + 1]``, as stencils and convolutions that are written as sums of slices read them, have most elements in common. With
tiles of ``T`` points, ``t[a, q] = x[a * T + q - 1]`` has what the points of tile ``a`` read, each element once, and ``y0[i] = t[i // T, i % T]`` and
``y1[i] = t[i // T, i % T + 2]`` are views of it. A thread that computes a tile of points then loads each of their elements once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskfuse.errors import shown
from taskfuse.ir.axes import axis, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import FirstValid, Literal, Pointwise, Read, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import TRUE, Const, Expr, Facts, const, prove, simplify, substitute
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, inlined_producers
from taskfuse.schedule.tile_windows import facts_of, moved_read, step_along, windowed_read

SLICES = "tile tensors that are slices of one tensor, shifted along one axis"


@dataclass(frozen=True, slots=True)
class Shift:
    """What a tensor reads along one of its axes: point ``i`` has element ``i * step + start`` along a dimension of what is read.

    Attributes:
        read: what is read.
        dimension: of the tensor that is read; no other has an index with that axis.
        step: elements from one point to the next.
        fill: what the tensor has where there is no element.
    """

    read: Read
    dimension: int
    step: int
    fill: Literal

    def distance(self, other: Shift, extents: Sequence[Expr], fusion: Fusion) -> int | None:
        """How many elements further on another tensor of these extents reads at each point; ``None``: that differs, or they differ in more than this."""
        if self.read.tensor is not other.read.tensor or (self.dimension, self.step, self.fill) != (other.dimension, other.step, other.fill):
            return None
        facts = fusion.facts().with_ranges({str(iteration_symbol(k)): (0, e - 1) for k, e in enumerate(extents)})
        apart = [simplify(b - a, facts) for a, b in zip(self.read.index, other.read.index, strict=True)]
        found = apart[self.dimension]
        if not isinstance(found, Const) or any(e != const(0) for d, e in enumerate(apart) if d != self.dimension):
            return None
        return found.value


def shift_of(fusion: Fusion, tv: TensorView, k: int) -> Shift | None:
    """What a tensor reads along its axis ``k``; ``None``: its elements are not those of one other tensor, or not at constant steps."""
    definition = fusion.definition(tv)
    read, name = windowed_read(definition), str(iteration_symbol(k))
    along = [] if read is None else [d for d, e in enumerate(read.index) if name in e.free]
    if read is None or len(along) != 1 or (step := step_along(read.index[along[0]], k, facts_of(fusion, tv))) is None:
        return None
    if step > 1 and read.valid is not TRUE:
        return None  # what lies between two points has no condition
    last = definition.operands[-1] if isinstance(definition, FirstValid) else None
    fill = last if isinstance(last, Literal) else Literal.zero(tv.dtype)
    return Shift(read, along[0], step, fill)


@dataclass(frozen=True, slots=True)
class Tiles:
    """What tiles of points read.

    Attributes:
        extents: of the elements of tiles.
        taken: which each is, of the tensor that is read.
        fill: what it is where there is none.
        places: by tensor, where its own elements are.
    """

    extents: tuple[Expr, ...]
    taken: Read
    fill: Literal
    places: tuple[tuple[Expr, ...], ...]


def tiles_of(fusion: Fusion, tensors: Sequence[TensorView], k: int, tile: int) -> Tiles | tuple[TensorView, str]:
    """The elements of tiles of ``tile`` points along axis ``k`` of some tensors; or one of these that has others, and why."""
    first = tensors[0]
    own, extents = shift_of(fusion, first, k), [a.extent for a in first.root]
    distances: list[int] = []
    for tv in tensors:
        has_axes = len(tv.root) == len(extents) and all(a.extent is e for a, e in zip(tv.root, extents, strict=True))
        shift = shift_of(fusion, tv, k) if has_axes else None
        found = None if own is None or shift is None else own.distance(shift, extents, fusion)
        if found is None:
            return tv, f"does not read what {first.name} reads, at a constant distance along axis {k}"
        distances.append(found)
    assert own is not None
    least, step = min(distances), own.step
    reach = (tile - 1) * step + max(distances) - least + 1
    extents = [*extents[:k], simplify(extents[k].ceildiv(tile), fusion.facts()), const(reach), *extents[k + 1 :]]
    symbols = [iteration_symbol(p) for p in range(len(extents))]
    facts = fusion.facts().with_ranges({str(s): (0, e - 1) for s, e in zip(symbols, extents, strict=True)})
    taken = _taken(own, k, len(extents), tile, least, facts)
    places = tuple((*symbols[:k], symbols[k] // tile, symbols[k] % tile * step + (n - least), *symbols[k + 1 : -1]) for n in distances)
    for tv, place in zip(tensors, places, strict=True):
        if not _has_all(fusion, tv, taken, place):
            return tv, f"has nothing at some points where {own.read.tensor.name} has elements"
    return Tiles(tuple(extents), taken, own.fill, places)


def tile_shifts(tv: TensorView, others: object, position: object, tile: object) -> TensorView:
    """See :meth:`TensorView.tile_shifts`.

    Raises:
        ScheduleError: the tensors do not read one tensor at constant distances along that axis, or have nothing where it has elements; one has a schedule, or
            is an input or an output; the tile is no number of points.
        TaskError: a law of tasks and groups is broken.
    """
    call = Call("tile_shifts", tv)
    fusion, k = tv.fusion, call.position(position, list(tv.root), "logical")
    if isinstance(tile, bool) or not isinstance(tile, int) or tile < 1:
        raise call.error(f"the tile is {shown(tile)}", "give a positive number of points")
    tensors = [tv]
    for other in call.several(others, "tensors"):
        if not isinstance(other, TensorView) or other.fusion is not fusion:
            raise call.error(f"{shown(other)} is not a tensor of the fusion", SLICES)
        tensors.append(other)
    for other in tensors:
        _check(Call("tile_shifts", other))
    found = tiles_of(fusion, tensors, k, tile)
    if not isinstance(found, Tiles):
        raise call.error(f"{found[0].name} {found[1]}", SLICES)
    fusion.check()
    made = fusion.new_tensor([axis(e) for e in found.extents], tv.dtype, location=caller(), origin=tv)
    join_task(made, tv)
    if found.taken.valid is TRUE:
        fusion.define(Pointwise(made, ELEMENTWISE["copy"], (found.taken,), tv.location))
    else:
        fusion.define(FirstValid(made, "tile_shifts", (found.taken, found.fill), tv.location))
    for other, place in zip(tensors, found.places, strict=True):
        other.schedule = TensorSchedule(list(other.root))
        fusion.define(View(other, "tile_shifts", Read(made, place), other.location))
    return made


def _check(call: Call) -> None:
    tv = call.tv
    if tv.is_input or tv.is_output:
        raise call.error(f"it is an {'input' if tv.is_input else 'output'}", "tile what elementwise functions read")
    if tv.loop != tv.root:
        raise call.error(f"the loops of {tv.name} are not the axes of its math", "call tile_shifts before split, merge and reorder")
    call.check_not_part()
    call.check_not_inlined()
    for producer in inlined_producers(tv):
        raise call.error(f"{producer.name} is inlined into it at {producer.schedule.inline}", f"tile it before inlining, or {producer.name}.inline_at(0)")


def _taken(own: Shift, k: int, axes: int, tile: int, least: int, facts: Facts) -> Read:
    """What element ``q`` of tile ``a`` is: point 0 of the first tensor, ``a * tile * step + q + least`` elements further on."""
    i, q = iteration_symbol(k), iteration_symbol(k + 1)
    read = own.read
    if own.step > 1:
        start = substitute(read.index[own.dimension], {str(i): const(0)})
        read = Read(read.tensor, tuple(start + i if d == own.dimension else e for d, e in enumerate(read.index)))
    place = {str(iteration_symbol(p)): iteration_symbol(p + 1) for p in range(k + 1, axes - 1)}
    return moved_read(read, own.dimension, {**place, str(i): i * (tile * own.step) + q + least}, facts)


def _has_all(fusion: Fusion, tv: TensorView, taken: Read, place: Sequence[Expr]) -> bool:
    """Whether a tensor has an element at all points where the elements of tiles have one, and at no others."""
    own, facts = windowed_read(fusion.definition(tv)), facts_of(fusion, tv)
    assert own is not None
    there = simplify(substitute(taken.valid, {str(iteration_symbol(p)): e for p, e in enumerate(place)}), facts)
    here = simplify(own.valid, facts)
    return there is here or (prove(there, facts.with_assumption(here)) and prove(here, facts.with_assumption(there)))
