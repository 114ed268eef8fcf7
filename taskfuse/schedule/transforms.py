"""split, merge, reorder, swizzle and rasterize of loop domains.

An axis may be transformed while it is Serial and right of every inline position: of the tensor's own, and of its producers' in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.errors import shown
from taskfuse.ir.calls import PaddedOrder, TileOrder
from taskfuse.ir.scalar import Expr, IntLike
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule import domain
from taskfuse.schedule.call import Call, described


def split(tv: TensorView, axis: int, factor: IntLike, inner: bool = True) -> None:
    """See :meth:`TensorView.split`."""
    call = Call("split", tv)
    position = call.position(axis, tv.schedule.loop)
    call.check_free(position)
    tv.schedule.transforms.append(domain.split(call, tv.schedule.loop, position, factor, inner))


def merge(tv: TensorView, outer: int, inner: int | None = None) -> None:
    """See :meth:`TensorView.merge`."""
    call = Call("merge", tv)
    loop = tv.schedule.loop
    a = call.position(outer, loop)
    if inner is None and a + 1 == len(loop):
        raise call.error(f"{described(a, loop[a])} is the last axis: there is no next one to merge with", "give both axes")
    b = a + 1 if inner is None else call.position(inner, loop)
    call.check_free(a)
    call.check_free(b)
    tv.schedule.transforms.append(domain.merge(call, loop, a, b))


def reorder(tv: TensorView, order: dict[int, int] | Sequence[int]) -> None:
    """See :meth:`TensorView.reorder`. Every axis whose position changes must be free to be transformed."""
    call = Call("reorder", tv)
    loop = tv.schedule.loop
    new = domain.permutation(call, loop, order)
    for position, old in enumerate(new):
        if position != old:
            call.check_free(old)
    loop[:] = [loop[old] for old in new]


def swizzle(tv: TensorView, x: int, y: int) -> None:
    """See :meth:`TensorView.swizzle`."""
    call = Call("swizzle", tv)
    loop = tv.schedule.loop
    positions = call.position(x, loop), call.position(y, loop)
    for position in positions:
        call.check_free(position)
    tv.schedule.transforms.append(domain.swizzle(call, loop, *positions))


def rasterize(tv: TensorView, axes: Sequence[int], maps: Sequence[Expr] | TileOrder, extent: IntLike | None = None) -> None:
    """See :meth:`TensorView.rasterize`."""
    call = Call("rasterize", tv)
    loop = tv.schedule.loop
    positions = call.positions(axes)
    for position in positions:
        call.check_free(position)
    if not isinstance(maps, Sequence) and not hasattr(maps, "maps"):
        raise call.error(f"{shown(maps)} is not a list of maps", "give one expression for each axis, or an order of tf.tiles")
    extents = [loop[p].extent for p in positions]
    try:
        made = maps if isinstance(maps, Sequence) else maps.maps(extents)
    except ValueError as error:  # an order of other axes
        raise call.error(str(error), "rasterize the axes that the order takes") from error
    if extent is None and isinstance(maps, PaddedOrder):
        extent = maps.items(extents)
    tv.schedule.transforms.append(domain.rasterize(call, loop, positions, made, extent))
