"""Products of which only the first rows of each matrix are read, and data says how many: padded groups.

Loops over the terms of a tile without readers do not run (:mod:`taskfuse.lowering.neutral_tails`). If the tiles of one matrix follow those of the one before,
and a matrix has about as many tiles as there are blocks, the same blocks get the first rows of all. 6 x 1024 x 4096 x 7168 with a fifth of the rows took 434 us
so, and takes 191 in layers (``tf.tiles.grouped(..., layers=True)``), of which the first rows of all matrices are the first (H200, 128 x 256, two runs).
"""

from __future__ import annotations

from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Compare, CompareOp, Expr, Facts, conjuncts, const, integers_of, lookups_of, simplify, substitute, sym
from taskfuse.lowering.neutral_tails import condition_of_reads
from taskfuse.schedulers.contraction import MatrixProduct
from taskfuse.schedulers.epilogue import logical_places


def has_first_rows(fusion: Fusion, product: MatrixProduct) -> bool:
    """Whether elements of a table end the rows that are read of each matrix."""
    axes = product.axes
    if not axes.batch or axes.outer_rows or product.beside or product.reductions:
        return False
    condition = condition_of_reads(fusion, axes.result)
    if condition is None:
        return False
    places = logical_places(axes.result)
    row, column = (f"i{places[p]}" for p in (axes.m, axes.n))
    return any(_ends_rows(part, row, column, fusion.facts()) for part in conjuncts(condition))


def _ends_rows(part: Expr, row: str, column: str, facts: Facts) -> bool:
    """Whether a comparison holds for all rows before one that data determines, whatever the column."""
    if not isinstance(part, Compare) or part.op not in (CompareOp.LT, CompareOp.LE):
        return False
    room = part.b - part.a
    step = simplify(substitute(room, {row: sym(row) + 1}) - room, facts)
    return step is const(-1) and column not in integers_of(room) and bool(lookups_of(room))
