"""Tiles of ragged rows (:mod:`taskfuse.ir.row_tiles`): each row belongs to one tile, and lies in it.

Let ``t`` rise from 0 to M over G groups, d be the size of a tile, and ``n(g) = t[g]//d``, which rises from 0 to Q = M//d. A number w in 0..Q has one group g
with ``n(g) <= w < n(g + 1)``: the one that is looked up, the greatest of 0, ..., G - 1 with ``n(g) <= w``. Of a number w in Q..Q + G the search finds the last
group, and
``max(0, w - Q, -G*(w - Q))`` is w - Q, no greater: its group; of w below Q that maximum is at least G, and the search decides. Tile w of group g begins at row
``f = d*min(w, n(g + 1)) + t[g] % d``, which is ``t[g] + d*(w - n(g))`` for w below Q, and ``t[g] + d*(n(g + 1) - n(g))`` for the others. It ends at
``min(f + d, t[g + 1])``.

- *One tile*: tiles of different groups have no row in common, since ``t[g] <= f`` and they end at ``t[g + 1]``; those of one group begin at least d rows
  apart, as those below Q have the numbers n(g) to n(g + 1) - 1, and there is one other.
- *Some tile*: let r be a row of group g, ``c = n(g) + (r - t[g])//d``, so that ``t[g] + d*(c - n(g)) <= r`` and r lies less than d behind. If c is less than
  ``n(g + 1)``, c is a tile of group g, and r is in it. Else ``c <= r//d <= n(g + 1)`` shows that c is n(g + 1), and r is in the tile Q + g.
- *Inside*: a tile holds the d rows from ``s = min(f, M - d)`` on. If s is not f, it is less, and ``s + d = M`` is no less than the end.

So the map from (w, i) to the row ``s(w) + i``, restricted to rows that belong to w, hits each of the M rows once. Its inverse: the search finds the group g of
a row r, the greatest with ``t[g] <= r``; w is c if c is less than ``n(g + 1)``, else ``Q + g``, and ``f(w) = t[g] + d*((r - t[g])//d)`` in both cases, so i
is ``r - min(t[g] + d*((r - t[g])//d), M - d)``. Both are in range: bounds put on them change nothing. The caller promises that the table rises, and
the certificate names this promise; otherwise two tiles could share a row, and another row could have no tile.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.check.linear import Linear
from taskfuse.check.statement_tree import Context
from taskfuse.ir.row_tiles import RowTiles
from taskfuse.ir.scalar import ONE, ZERO, Const, Expr, UpperBound, conjuncts, lookups_of, simplify, sym
from taskfuse.kir import Kernel
from taskfuse.kir.witness import Definition, Whole


def tiles_of(kernel: Kernel, whole: Definition, definitions: Sequence[Definition]) -> RowTiles | None:
    """The tiles whose rows are those of a tensor with one part, if they are; the first axis of the part numbers the tiles, the second their rows.

    Args:
        definitions: those of the kernel, or its original ones; the part's is among them, unless it is an input.
    """
    rule = whole.rule
    if not isinstance(rule, Whole) or len(rule.parts) != 1:
        return None
    shapes = {p.name: p.shape for p in kernel.inputs} | {d.tensor: d.shape for d in definitions}
    shape, (place,), (condition,) = shapes[rule.parts[0]], rule.places, rule.conditions
    if len(shape) < 2 or not isinstance(shape[1], Const) or shape[1].value < 1:
        return None
    tile, row, *others = (sym(f"i{k}") for k in range(len(shape)))
    for p in kernel.tables:
        if p.rises is None or p.rises[0] is not ZERO or not any(isinstance(u, UpperBound) and u.tensor is sym(p.name) for u in lookups_of(condition)):
            continue
        tiles = RowTiles(sym(p.name), p.shape[0] - ONE, p.rises[1], shape[1].value)
        here = tiles.start(tile) + row
        is_one = (place, condition) == ((here, *others), tiles.belongs(here, tile)) and shape[0] is tiles.count
        if is_one and whole.shape == (tiles.rows, *shape[2:]):
            return tiles
    return None


def tile_and_row(kernel: Kernel, index: Expr, context: Context) -> tuple[RowTiles, Expr, Expr] | None:
    """The tile that an index of rows belongs to in a context, the tiles, and its place in the tile; ``None`` if the index does not determine them.

    Two indices with different tiles of the same set, or different places in one tile, are different rows.
    """
    constraints = context.constraints
    for found in dict.fromkeys(u for e in (index, *context.conditions) for u in lookups_of(e)):
        if not isinstance(found, UpperBound) or found.step != 0:
            continue
        table = next((p for p in kernel.tables if p.name == found.tensor.name), None)
        if table is None or table.rises is None or table.rises[0] is not ZERO or table.shape[0] is not found.size:
            continue
        tiles = RowTiles(found.tensor, found.size - ONE, table.rises[1], found.divisor)
        tile = found.sought
        start = tiles.start(tile)
        place = index - start
        if lookups_of(place):  # it is said in simpler words
            place = index - simplify(start, constraints.facts)
        is_number = _is_nonnegative(tile, context) and _is_nonnegative(tiles.count - ONE - tile, context)
        if is_number and not lookups_of(place) and all(map(constraints.proves, conjuncts(tiles.belongs(index, tile)))):
            return tiles, tile, place
    return None


def belonging(kernel: Kernel) -> dict[str, Expr]:
    """The condition under which an element of a part belongs to its whole, for parts with elements that do not."""
    wholes = (d.rule for d in kernel.definitions if isinstance(d.rule, Whole))
    return {part: c for rule in wholes for part, c in zip(rule.parts, rule.conditions, strict=True) if not isinstance(c, Const)}


def _is_nonnegative(e: Expr, context: Context) -> bool:
    least, _ = context.ranges.of(e)
    constraints, form = context.constraints.about(e)
    return (least is not None and least >= 0) or Linear.of(constraints).nonnegative(form)
