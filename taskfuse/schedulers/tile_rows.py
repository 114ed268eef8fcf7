"""Reductions along the rows of a product's tiles, where a tile has whole rows: found after the product, and scheduled with it.

A row that one tile holds is reduced while its elements lie in registers: each thread reduces those that it has, and the four lanes of a row combine
their results by shuffles. Nothing waits for other tiles, so what follows may read such a reduction and the elements again: a maximum, and the sum of what
exponentials are of the distances from it. Each reduction computes its terms from the accumulators anew, as no registers are left for those of a whole tile;
only results of rows are stored.

    rows     for each 64 rows of a warpgroup: [warp, row, pair over TIDx, half, columns / 8, element], as tensor cores hold sums
    of rows  functions of results of rows: [warp, row, half]

Rows longer than a tile are in chunks: each tile of a row is an element of an axis of chunks, which the factor with the columns alone has
(:mod:`taskfuse.schedulers.product_cascades`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskfuse.ir.atoms import WGMMA_ROWS
from taskfuse.ir.axes import iteration_position
from taskfuse.ir.contraction import factors
from taskfuse.ir.expr import FirstValid, MathExpr, Pointwise, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const
from taskfuse.ir.storage import has_code, producers, reads_of, storage_reads, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedulers.config import STMATRIX, MatmulConfig
from taskfuse.schedulers.epilogue import STAGED_ITEMSIZE
from taskfuse.schedulers.factors import padded_source
from taskfuse.schedulers.instructions import cost
from taskfuse.schedulers.script import Script

WIDEST = 256
"""The most columns of a tile."""


@dataclass(frozen=True, slots=True, eq=False)
class TileRows:
    """The tensors behind a product whose tiles have whole rows.

    Attributes:
        result: the product.
        n: the axis of its columns, all of which a tile has.
        chunks: the axis of the tiles of a row, if rows are in chunks: batch elements that only the factor with the columns has.
        reductions: along n, producers first.
        elements: the elementwise tensors that these reduce, and those between.
        of_rows: the elementwise tensors of rows alone.
        narrow: the inputs that the elementwise tensors read, of rows alone.
    """

    result: TensorView
    n: int
    chunks: int | None
    reductions: tuple[TensorView, ...]
    elements: tuple[TensorView, ...]
    of_rows: tuple[TensorView, ...]
    narrow: tuple[TensorView, ...]

    @property
    def columns(self) -> int:
        """The number of columns."""
        extent = self.result.root[self.n].extent
        assert isinstance(extent, Const)
        return extent.value

    def work(self, fusion: Fusion) -> float:
        """Instructions for one element of the product: each reduction computes its terms."""
        found = 0.0
        for tv in self.reductions:
            chain = [e for t in self.terms(fusion, tv) if (e := fusion.definition(t)) is not None]
            found += 1 + sum(map(cost, chain))
        return found

    def terms(self, fusion: Fusion, tv: TensorView) -> list[TensorView]:
        """The elementwise tensors that a reduction needs of each element."""
        found: list[TensorView] = []
        stack = producers_of(fusion, tv)
        while stack:
            t = stack.pop()
            if among(t, self.elements) and not among(t, found):
                found.append(t)
                stack += producers_of(fusion, t)
        return found


def producers_of(fusion: Fusion, tv: TensorView) -> list[TensorView]:
    """The tensors in memory or registers that the definition of a tensor reads."""
    return [r.tensor for r in reads_of(fusion, tv)]


def tile_rows(fusion: Fusion, exprs: Sequence[MathExpr], products: Sequence[Reduction], outputs: Sequence[TensorView]) -> TileRows | None:
    """What follows a product, if all of it are reductions of rows that a tile holds, functions of these, and what they reduce; ``None``: it is something else.

    Args:
        exprs: the expressions that the outputs need.
        products: the contractions among them.
    """
    two = factors(fusion, products[0]) if len(products) == 1 else None
    if two is None or not two.make_a_matrix or len(two.summed) > 1:
        return None
    result = products[0].output
    code = [e for e in exprs if e.output is not result and has_code(fusion, e) and not _is_factor(fusion, e.output, result)]
    reductions = [e for e in code if isinstance(e, Reduction)]
    others = [e.output for e in code if isinstance(e, Pointwise | FirstValid)]
    is_plain = all(len(storage_reads(fusion, e)) == 1 for e in reductions)
    if not reductions or not is_plain or len(reductions) + len(others) < len(code) or result.is_output:
        return None
    places = _places(fusion, result, [e.output for e in code])
    if places is None:
        return None
    reduced = {_reduced_place(fusion, e, places) for e in reductions}
    n = reduced.pop() if len(reduced) == 1 else None
    if n is None or n not in two.rows | two.columns:
        return None
    extent = result.root[n].extent
    if not isinstance(extent, Const) or extent.value > WIDEST or extent.value % STMATRIX:
        return None
    own, rest = (two.columns, two.rows) if n in two.columns else (two.rows, two.columns)
    kept = {p for p, a in enumerate(result.root) if not a.is_reduction and p != n}
    m = max(rest)
    wide = [tv for tv in others if not _is_of_rows(places[tv], n, m)]
    of_rows = [tv for tv in others if not among(tv, wide)]
    results = [*(e.output for e in reductions), *of_rows]
    if any(not among(tv, results) or set(places[tv].values()) != kept for tv in outputs):
        return None
    if any(set(places[e.output].values()) != kept or e.output.ndim != len(kept) for e in reductions) or any(tv.is_output for tv in wide):
        return None
    sides = dict.fromkeys(t for tv in others for t in producers(fusion, tv) if t.is_input)
    if any({n, m} <= set(places.get(tv, {}).values()) for tv in sides):
        return None  # an element for each of the product
    chunks = max((p for p in own if p != n), default=None)
    narrow = tuple(tv for tv in sides if _is_of_rows(places.get(tv, {}), n, m))
    return TileRows(result, n, chunks, tuple(e.output for e in reductions), tuple(wide), tuple(of_rows), narrow)


def _is_factor(fusion: Fusion, tv: TensorView, result: TensorView) -> bool:
    """Whether a tensor is a padded factor of the product."""
    return padded_source(fusion, tv, whole=False) is not None and all(use.output is result for use in storage_uses(fusion, tv))


def _is_of_rows(places: Mapping[int, int], n: int, m: int) -> bool:
    """Whether a tensor has rows, and no columns."""
    return n not in places.values() and m in places.values()


def _places(fusion: Fusion, result: TensorView, code: Sequence[TensorView]) -> dict[TensorView, dict[int, int]] | None:
    """For each logical axis of each tensor behind a product, the axis of the product that it is: from the product to what reads it, then from readers back to
    what else they read. ``None``: a tensor is read at other points than its reader's."""
    kept = iter(p for p, a in enumerate(result.root) if not a.is_reduction)
    found: dict[TensorView, dict[int, int]] = {result: dict(enumerate(kept))}
    roots: dict[TensorView, dict[int, int]] = {}  # of axes of iteration spaces
    for _ in range(2):  # what is computed of inputs alone gets its places from its readers
        for tv in (*code, *reversed(code)):
            mine = roots.setdefault(tv, {})
            logical = [p for p, a in enumerate(tv.root) if not a.is_reduction]
            mine.update({logical[k]: p for k, p in found.get(tv, {}).items()})
            for read in reads_of(fusion, tv):
                theirs = found.get(read.tensor, {})
                for k, e in enumerate(read.index):
                    position = iteration_position(e)
                    if position is None:
                        if read.tensor is result or (not read.tensor.is_input and e.free):
                            return None
                        continue
                    if k in theirs and mine.setdefault(position, theirs[k]) != theirs[k]:
                        return None
            for read in reads_of(fusion, tv):
                for k, e in enumerate(read.index):
                    position = iteration_position(e)
                    if position in mine and found.setdefault(read.tensor, {}).setdefault(k, mine[position]) != mine[position]:
                        return None
            found.setdefault(tv, {}).update({k: mine[p] for k, p in enumerate(logical) if p in mine})
    return found


def _reduced_place(fusion: Fusion, expr: Reduction, places: Mapping[TensorView, Mapping[int, int]]) -> int | None:
    """The axis of the product that a reduction of one tensor reduces."""
    reduced = [p for p, a in enumerate(expr.output.root) if a.is_reduction]
    found = {places[r.tensor].get(k) for r in reads_of(fusion, expr.output) for k, e in enumerate(r.index) if iteration_position(e) in reduced}
    return found.pop() if len(reduced) == 1 and len(found) == 1 else None


class TileRowsSchedule:
    """The schedule of what follows a product whose tiles have whole rows.

    Args:
        head: the axes of the loops over tiles.
        turn: the place of the axis over which warpgroups take turns; ``None``: they share tiles.
    """

    def __init__(self, script: Script, config: MatmulConfig, rows: TileRows, head: int, turn: int | None) -> None:
        self.script, self.fusion, self.config, self.rows = script, script.fusion, config, rows
        self.head = head
        self.turn = turn
        self.splits_rows = config.rows > WGMMA_ROWS
        self.tile = head + (turn is None) + self.splits_rows
        """The place of the 64 rows of an instruction."""

    def copies(self) -> None:
        """Let each reduction compute its terms, and make copies: inputs in registers, results of rows from there to memory."""
        script, fusion, rows = self.script, self.fusion, self.rows
        self.terms: list[TensorView] = []
        self.kept = [tv for tv in rows.elements if tv.dtype.itemsize == STAGED_ITEMSIZE and len(self._reductions_of(tv)) > 1]
        loaded = [script.new(tv, "cache_after") for tv in rows.narrow]
        for tv in rows.reductions:
            (read,) = {r.tensor for r in reads_of(fusion, tv)}
            if among(read, rows.elements):
                script.recompute(read, [tv], [*rows.of_rows, *loaded, *self.kept])
        # a copy is stored: results that others read, too, stay in registers
        self.stored = [tv for tv in (*rows.reductions, *rows.of_rows) if tv.is_output]
        renamed = {tv: script.new(tv, "cache_fork" if tv.uses else "cache_before") for tv in self.stored}
        self.reductions = [renamed.get(tv, tv) for tv in rows.reductions]
        self.of_rows = [*loaded, *(renamed.get(tv, tv) for tv in rows.of_rows)]
        known = [*self.reductions, *self.of_rows, *self.stored, rows.result]
        for tv in self.reductions:
            stack = producers_of(fusion, tv)
            while stack:
                t = stack.pop()
                if not t.is_input and not among(t, [*known, *self.terms]):
                    self.terms.append(t)
                    stack += producers_of(fusion, t)
        for tv in tuple(self.terms):  # a condition stands around what is read, and none around reads of accumulators
            for side in [t for t in producers(fusion, tv) if t.is_input]:
                self.terms += script.recompute(side, [tv])

    def _reductions_of(self, tv: TensorView) -> list[TensorView]:
        """The reductions that have an elementwise tensor among their terms."""
        return [r for r in self.rows.reductions if among(tv, self.rows.terms(self.fusion, r))]

    @property
    def by_columns(self) -> list[TensorView]:
        """The tensors with columns: terms of reductions, and these."""
        return [*self.terms, *self.reductions]

    @property
    def tensors(self) -> list[TensorView]:
        """All tensors."""
        return [*self.by_columns, *self.of_rows, *self.stored]

    def spread(self) -> None:
        """The tiles of tensor cores: [head, (warpgroup,) (rows of 64,) | warp, row, pair, half, columns / 8, element]."""
        script, tile = self.script, self.tile
        for tv in self.by_columns:
            call = script.on(tv)
            if self.turn is None:
                call.split(self.head, self.config.rows)
            if self.splits_rows:
                call.split(tile - 1, WGMMA_ROWS)
            call.bind(self.head if self.turn is None else self.turn, P.TIDy)
            if self.splits_rows:
                call.bind(tile - 1, P.Unroll)
            call.fragment((tile, tile + 1)).reorder({tile + 4: tile + 3})
        alone = [*self.of_rows, *self.stored]
        first = self.reductions[0]
        script.on(first).propagate(alone, tile + 4)
        script.parallelize_like(first, alone)

    def share_loops(self) -> None:
        """Compute all for the same 64 rows; terms for one element after another."""
        script = self.script
        script.inline_at([tv for tv in (*self.reductions, *self.of_rows)], self.tile)
        script.inline_at([tv for tv in self.terms if among(tv, self.kept)], self.tile)
        script.inline_at([tv for tv in self.terms if not among(tv, self.kept)], self.tile + 6)
