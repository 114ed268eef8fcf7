"""tile_windows: the elements of overlapping windows, once for each tile of windows.

``y[w, j] = x[w * s + j - b]`` has each element of ``x`` for several windows ``w``. With tiles of ``T`` windows, ``t[a, q] = x[a * T * s + q - b]`` has what the
windows of tile ``a`` read, each element once, and ``y[w, j] = t[w // T, w % T * s + j]`` is a view of it. A thread that computes a tile of windows then loads
each of their elements once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from taskfuse.errors import shown
from taskfuse.ir.axes import axis, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import FirstValid, Literal, MathExpr, Pointwise, Read, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import TRUE, ZERO, Const, Expr, Facts, and_, const, le, lt, prove, simplify, substitute
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, inlined_producers


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows along one dimension of what a tensor reads: place ``j`` of window ``w`` has the element ``w * stride + j * step + start``.

    Attributes:
        dimension: of the tensor that is read.
        windows, places: positions of the axes of windows and of their places, in the tensor that has the windows.
        stride, step: elements from one window, and from one place, to the next. One of them is 1.
        length: places of a window.
    """

    dimension: int
    windows: int
    places: int
    stride: int
    step: int
    length: int

    def reach(self, tile: int) -> int:
        """Elements from the first to the last one that the windows of a tile have."""
        return (tile - 1) * self.stride + (self.length - 1) * self.step + 1


def windows_of(fusion: Fusion, tv: TensorView) -> list[Windows]:
    """The dimensions along which a tensor has the elements of windows of another one, which may be padded with a constant."""
    read = windowed_read(fusion.definition(tv))
    if read is None:
        return []
    facts, names = facts_of(fusion, tv), [str(iteration_symbol(p)) for p in range(len(tv.root))]
    found: list[Windows] = []
    for d, index in enumerate(read.index):
        own = [p for p, name in enumerate(names) if name in index.free]
        if len(own) != 2 or any(names[p] in e.free for p in own for k, e in enumerate(read.index) if k != d):
            continue
        (w, j), (stride, step) = own, (step_along(index, p, facts) for p in own)
        length = tv.root[j].extent
        if stride is not None and step is not None and 1 in (stride, step) and isinstance(length, Const):
            found.append(Windows(d, w, j, stride, step, length.value))
    return found


def tile_windows(tv: TensorView, position: object, tile: object) -> TensorView:
    """See :meth:`TensorView.tile_windows`.

    Raises:
        ScheduleError: ``tv`` has not the elements of windows along that axis, has a schedule, or is an output; the tile is no number of windows.
        TaskError: a law of tasks and groups is broken.
    """
    call = Call("tile_windows", tv)
    fusion, k = tv.fusion, call.position(position, list(tv.root), "logical")
    if isinstance(tile, bool) or not isinstance(tile, int) or tile < 1:
        raise call.error(f"the tile is {shown(tile)}", "give a positive number of windows")
    if tv.is_input or tv.is_output:
        raise call.error(f"it is an {'input' if tv.is_input else 'output'}", "tile what a reduction over windows reads")
    windows = next((w for w in windows_of(fusion, tv) if w.windows == k), None)
    definition = fusion.definition(tv)
    read = windowed_read(definition)
    if windows is None or definition is None or read is None:
        help = "tile a tensor of windows, whose index is w * stride + j * step + start, where stride or step is 1"
        raise call.error(f"its axis {k} is none of windows", help)
    if tv.loop != tv.root:
        raise call.error(f"the loops of {tv.name} are not the axes of its math", "call tile_windows before split, merge and reorder")
    call.check_not_part()
    call.check_not_inlined()
    for producer in inlined_producers(tv):
        raise call.error(f"{producer.name} is inlined into it at {producer.schedule.inline}", f"tile it before inlining, or {producer.name}.inline_at(0)")
    fusion.check()
    symbols = [iteration_symbol(p) for p in range(len(tv.root))]
    w, j = symbols[k], symbols[windows.places]
    extents = [a.extent for a in tv.root]
    extents[k], extents[windows.places] = simplify(extents[k].ceildiv(tile), fusion.facts()), const(windows.reach(tile))
    elements = fusion.new_tensor([axis(e) for e in extents], tv.dtype, location=caller(), origin=tv)
    join_task(elements, tv)
    place_of: Mapping[str, Expr] = {str(w): w * tile + j, str(j): ZERO} if windows.stride == 1 else {str(w): w * tile}
    taken = moved_read(read, windows.dimension, place_of, facts_of(fusion, elements))
    fill = definition.operands[-1] if isinstance(definition, FirstValid) and len(definition.operands) > 1 else Literal.zero(tv.dtype)
    if taken.valid is TRUE:
        fusion.define(Pointwise(elements, ELEMENTWISE["copy"], (taken,), definition.location))
    else:
        fusion.define(FirstValid(elements, "tile_windows", (taken, fill), definition.location))
    place = list(symbols)
    place[k], place[windows.places] = w // tile, w % tile * windows.stride + j * windows.step
    tv.schedule = TensorSchedule(list(tv.root))
    fusion.define(View(tv, "tile_windows", Read(elements, tuple(place)), definition.location))
    return elements


def windowed_read(definition: MathExpr | None) -> Read | None:
    """What a tensor reads that has elements of one other tensor, and a constant where there are none."""
    match definition:
        case Pointwise(op=function, operands=(Read() as read,)) if function is ELEMENTWISE["copy"]:
            return read
        case View(operand=read) | FirstValid(operands=(Read() as read,)) | FirstValid(operands=(Read() as read, Literal())):
            return read
        case _:
            return None


def moved_read(read: Read, dimension: int, place: Mapping[str, Expr], facts: Facts) -> Read:
    """A read at other points, some of which may lie outside what is read.

    Args:
        dimension: along which they may lie outside.
        place: by the symbols of axes, what stands in their place.
        facts: of the points.
    """
    index = tuple(simplify(substitute(e, place), facts) for e in read.index)
    at = index[dimension]
    inside = [c for c in (le(0, at), lt(at, read.tensor.shape[dimension])) if not prove(c, facts)]
    return Read(read.tensor, index, simplify(and_(substitute(read.valid, place), *inside), facts))


def step_along(index: Expr, p: int, facts: Facts) -> int | None:
    """How far an index moves with each step along an axis, if that is everywhere the same."""
    found = simplify(substitute(index, {str(iteration_symbol(p)): iteration_symbol(p) + 1}) - index, facts)
    return found.value if isinstance(found, Const) and found.value > 0 else None


def facts_of(fusion: Fusion, tv: TensorView) -> Facts:
    """The ranges of the axes of a tensor."""
    return fusion.facts().with_ranges({str(iteration_symbol(k)): (0, a.extent - 1) for k, a in enumerate(tv.root)})
