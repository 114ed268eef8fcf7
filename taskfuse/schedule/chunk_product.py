"""chunk_product: the sums of a matrix product, divided among blocks that share tiles of the result.

``y[m, n] = sum of a[m, k] * b[k, n]`` becomes ``parts[b, e, i, j]``, the terms of element (i, j) of its tile that item e of block b takes, and
``y[m, n]``, the sum of the parts of its tile in the order of k. Where an item begins and ends is a function of b and e (:mod:`taskfuse.ir.shares`): its
factors are zeros past its end, so the loop over k ends there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from taskfuse.errors import shown
from taskfuse.ir.axes import AxisKind, axis, iteration_symbol
from taskfuse.ir.calls import ProductOrder
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import FirstValid, Literal, Read, Reduction
from taskfuse.ir.scalar import Const, Expr, and_, const, eq, lt, substitute
from taskfuse.ir.shares import Shares
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, inlined_producers


class ProductChunks(NamedTuple):
    """The tensors that :func:`chunk_product` makes, with B blocks, up to E items of a block, P parts of a tile and L elements of k of an item.

    Attributes:
        left: [B, E, tile_m, L], the first factor's elements of an item; zeros past its end.
        right: [B, E, tile_n, L], the second one's.
        parts: [B, E, tile_m, tile_n], their product.
        terms: [M, N, P], the parts of each element in the order of k; zeros past its last.
    """

    left: TensorView
    right: TensorView
    parts: TensorView
    terms: TensorView


def chunk_product(tv: TensorView, order: ProductOrder, tile: tuple[object, ...]) -> ProductChunks:
    """See :meth:`TensorView.chunk_product`.

    Raises:
        ScheduleError: ``tv`` is not a product of two matrices of constant extents or has a schedule, or ``tile`` is not three positive integers.
        TaskError: a law of tasks and groups is broken.
    """
    call = Call("chunk_product", tv)
    definition, extents = _product(call)
    sizes = [n for n in tile if isinstance(n, int) and not isinstance(n, bool) and n > 0]
    if len(tile) != 3 or len(sizes) != 3:
        raise call.error(f"a tile of {shown(tile)}", "give rows, columns and a step of k: positive integers")
    if not hasattr(order, "shares"):
        raise call.error(f"{shown(order)} divides no tiles", "give tf.tiles.split_k(...) or tf.tiles.stream_k(...)")
    call.check_not_inlined()
    for producer in inlined_producers(tv):
        raise call.error(f"{producer.name} is inlined into it at {producer.schedule.inline}", f"chunk it before inlining, or {producer.name}.inline_at(0)")
    tv.fusion.check()
    rows, columns, steps = (-(-n // t) for n, t in zip(extents, sizes, strict=True))
    return _ProductChunking(tv, definition, extents, (sizes[0], sizes[1], sizes[2]), columns, order.shares(rows * columns, steps)).run()


def _product(call: Call) -> tuple[Reduction, tuple[int, int, int]]:
    """The reduction, and its extents: rows, columns, terms."""
    tv = call.tv
    definition = call.reduction()
    if (definition.combine.op, definition.body) != (ELEMENTWISE["add"], ELEMENTWISE["mul"]):
        raise call.error(f"{tv.name} is not a sum of products")
    if tv.loop != tv.root:
        raise call.error(f"the loops of {tv.name} are not the axes of its math", "call chunk_product before split, merge, reorder and rfactor")
    if [a.is_reduction for a in tv.root] != [False, False, True]:
        raise call.error(f"{tv.name} is not a product of two matrices: it has the axes {', '.join(str(a.extent) for a in tv.root)}")
    m, n = (str(iteration_symbol(p)) for p in range(2))
    free = [{s for e in o.index for s in e.free} if isinstance(o, Read) else set[str]() for o in definition.operands]
    if len(free) != 2 or not (m in free[0] and n not in free[0] and n in free[1] and m not in free[1]):
        raise call.error(f"the factors of {tv.name} are not one with its rows and one with its columns")
    extents = [a.extent.value for a in tv.root if isinstance(a.extent, Const)]
    if len(extents) != 3:
        raise call.error(f"its extents {', '.join(str(a.extent) for a in tv.root)} are not constants", "how blocks share tiles depends on their number")
    return definition, (extents[0], extents[1], extents[2])


class _ProductChunking:
    """One call."""

    def __init__(self, tv: TensorView, product: Reduction, extents: tuple[int, int, int], tile: tuple[int, int, int], columns: int, shares: Shares) -> None:
        self.tv = tv
        self.product = product
        self.extents = extents
        self.tile = tile
        self.columns = columns
        self.shares = shares

    def run(self) -> ProductChunks:
        """The tensors; ``tv`` adds the parts."""
        tv, (tile_m, tile_n, tile_k), shares = self.tv, self.tile, self.shares
        whole = const(shares.blocks), const(shares.items)
        length = shares.longest * tile_k
        block, item, inner, k = map(iteration_symbol, range(4))
        tile = shares.tile(block, item)
        left = self._factor(0, (*whole, const(tile_m), const(length)), tile // self.columns * tile_m + inner, k)
        right = self._factor(1, (*whole, const(tile_n), const(length)), tile % self.columns * tile_n + inner, k)
        root = [axis(e) for e in (*whole, const(tile_m), const(tile_n))] + [axis(const(length), AxisKind.REDUCTION)]
        parts = tv.fusion.new_tensor(root, tv.dtype, location=caller(), origin=tv)
        i, j, k = map(iteration_symbol, (2, 3, 4))
        factors = Read(left, (block, item, i, k)), Read(right, (block, item, j, k))
        neutral = Literal(self.product.combine.neutral(tv.dtype), tv.dtype)
        tv.fusion.define(Reduction(parts, self.product.combine, self.product.body, factors, neutral, self.product.location))
        terms = self._terms(parts)
        tv.root = (*tv.root[:2], axis(const(shares.parts), AxisKind.REDUCTION))
        tv.schedule = TensorSchedule(list(tv.root))
        here = Read(terms, tuple(map(iteration_symbol, range(3))))
        tv.fusion.define(Reduction(tv, self.product.combine, ELEMENTWISE["copy"], (here,), self.product.init, self.product.location))
        for made in (terms, parts, left, right):
            join_task(made, tv)
        return ProductChunks(left, right, parts, terms)

    def _factor(self, which: int, shape: tuple[Expr, ...], place: Expr, k: Expr) -> TensorView:
        """The elements of one factor that items take: at a row or column of the result, and at ``k`` of the item."""
        read, tile_k, (block, item) = self.product.operands[which], self.tile[2], map(iteration_symbol, range(2))
        assert isinstance(read, Read)
        first, end = self.shares.first(block, item), self.shares.end(block, item)
        term = first * tile_k + k
        at = {str(iteration_symbol(which)): place, str(iteration_symbol(2)): term}
        valid = [lt(k, (end - first) * tile_k)]
        valid += [lt(place, self.extents[which])] if self.extents[which] % self.tile[which] else []
        valid += [lt(term, self.extents[2])] if self.extents[2] % tile_k else []
        moved = replace(read, index=tuple(substitute(e, at) for e in read.index), valid=and_(substitute(read.valid, at), *valid))
        return self._select(shape, moved)

    def _terms(self, parts: TensorView) -> TensorView:
        """The parts of each element, by their number."""
        tile_m, tile_n, _ = self.tile
        m, n, part = map(iteration_symbol, range(3))
        tile = m // tile_m * self.columns + n // tile_n
        valid = self.shares.has_part(tile, part) if self.shares.parts > 1 else eq(0, 0)
        read = Read(parts, (*self.shares.item_of(tile, part), m % tile_m, n % tile_n), valid)
        shape = (*(a.extent for a in self.tv.root[:2]), const(self.shares.parts))
        return self._select(shape, read)

    def _select(self, shape: tuple[Expr, ...], read: Read) -> TensorView:
        """The element that is read, and 0 where it is not valid."""
        out = self.tv.fusion.new_tensor([axis(e) for e in shape], read.tensor.dtype, location=caller(), origin=self.tv)
        return self.tv.fusion.define(FirstValid(out, "pad", (read, Literal.zero(out.dtype)), self.product.location))
