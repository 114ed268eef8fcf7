"""Reductions of a product's long rows that read one another, such as the softmax of logits: in chunks of a tile's columns, so that no element is stored.

A tile of a product has the part of a row that one chunk is. So the cascade of a chunk (:func:`taskfuse.chunk_cascade`) is computed while the tile lies in
registers (:mod:`taskfuse.schedulers.tile_rows`), and a second kernel joins the results of the chunks, a few numbers for each row and tile; the product itself
stays on the chip. A gather of the row's elements, such as the logit of a target, is a sum for that, of which the index leaves one term
(:meth:`~taskfuse.ir.tensor.TensorView.gather_as_sum`). The cost model of products chooses the columns of a tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from taskfuse.errors import ScheduleError, UnsupportedError
from taskfuse.ir.atoms import SUM_OF_PRODUCTS
from taskfuse.ir.axes import iteration_position
from taskfuse.ir.contraction import computes, factors
from taskfuse.ir.expr import FirstValid, Gather, MathExpr, Pointwise, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const
from taskfuse.ir.storage import needed, producers, storage_reads, storage_uses, table
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.gather_as_sum import gathered_axis
from taskfuse.schedule.parts import Parts
from taskfuse.schedule.recompute import is_gathered_elementwise
from taskfuse.schedulers.contraction import find
from taskfuse.schedulers.matmul import problem_of
from taskfuse.schedulers.matmul_candidates import SHAPES, rank
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.tile_rows import WIDEST

NARROWEST = 96
"""The fewest columns of a chunk: of fewer, more results are stored and more of the operands is loaded."""


@dataclass(frozen=True, slots=True, eq=False)
class ProductRows:
    """What is computed of a product's rows.

    Attributes:
        elements: the product, and elementwise tensors that have an element for each of its own.
        reductions: of these along the axis of the columns, producers first.
        gathers: of these, along the same axis.
    """

    elements: tuple[TensorView, ...]
    reductions: tuple[TensorView, ...]
    gathers: tuple[TensorView, ...]


def rows_of(fusion: Fusion, exprs: Sequence[MathExpr], product: TensorView, axis: int) -> ProductRows | None:
    """All that is computed of a product, up to reductions and gathers along one of its axes; ``None`` if something else reads its elements, or they are stored.

    Args:
        exprs: the expressions that the outputs need, producers first.
        axis: a logical axis of the product.
    """
    along = {product: axis}
    reductions: list[TensorView] = []
    gathers: list[TensorView] = []
    for e in exprs:
        tv = e.output
        reads = [r for r in storage_reads(fusion, e) if r.tensor in along]
        if not reads:
            continue
        if isinstance(e, Gather):
            if table(fusion, e) not in along or len(reads) > 1 or gathered_axis(fusion, e) != along[reads[0].tensor]:
                return None
            gathers.append(tv)
            continue
        places = {iteration_position(r.index[along[r.tensor]]) for r in reads}
        place = places.pop()
        if places or place is None:
            return None
        if isinstance(e, Reduction):
            if not tv.root[place].is_reduction or sum(a.is_reduction for a in tv.root) > 1 or len(storage_reads(fusion, e)) > 1:
                return None
            reductions.append(tv)
        elif isinstance(e, Pointwise | FirstValid):
            along[tv] = place
        else:
            return None
    if any(tv.is_output for tv in along):
        return None
    return ProductRows(tuple(along), tuple(reductions), tuple(gathers))


def products_with_rows(fusion: Fusion) -> Iterator[tuple[TensorView, int, ProductRows]]:
    """Products of two factors, of which only results of rows are needed, each with the logical axis of the columns."""
    exprs = needed(fusion)
    for e in exprs:
        two = factors(fusion, e) if computes(e, SUM_OF_PRODUCTS) else None
        if two is None or not two.make_a_matrix or len(two.summed) > 1 or e.output.is_output:
            continue
        kept = [p for p, a in enumerate(e.output.root) if not a.is_reduction]
        for n in (max(two.columns), max(two.rows)):
            found = rows_of(fusion, exprs, e.output, kept.index(n))
            if found is not None and (found.reductions or found.gathers):
                yield e.output, kept.index(n), found
                break


def tile_walks(fusion: Fusion) -> Iterator[tuple[TensorView, ...]]:
    """The tensors of each product whose rows a tile holds, all that is computed of these, and what is computed of inputs for that alone, producers first."""
    exprs = needed(fusion)
    for product, axis, rows in products_with_rows(fusion):
        extent = product.shape[axis]
        if not rows.reductions or rows.gathers or not isinstance(extent, Const) or extent.value > WIDEST:
            continue
        elements = {*rows.elements}
        taken = {*elements, *rows.reductions, *_between(fusion, exprs, rows)}
        for e in reversed(exprs):
            tv, uses = e.output, storage_uses(fusion, e.output)
            is_padding = isinstance(e, FirstValid) and all(u.output is product for u in uses)
            is_own = isinstance(e, Pointwise) and not among(product, [u.output for u in uses])
            if uses and not tv.is_output and (is_padding or is_own) and all(u.output in taken for u in uses):
                taken.add(tv)
        yield tuple(e.output for e in exprs if e.output in taken)


def _between(fusion: Fusion, exprs: Sequence[MathExpr], rows: ProductRows) -> set[TensorView]:
    """The tensors of rows that are computed of reductions, and read for elements."""
    elements, behind = {*rows.elements}, {*rows.reductions}
    found = set[TensorView]()
    for e in exprs:
        if isinstance(e, Pointwise) and e.output not in elements and any(tv in behind for tv in producers(fusion, e.output)):
            behind.add(e.output)
    for e in reversed(exprs):
        if e.output in behind and isinstance(e, Pointwise) and any(u.output in elements or u.output in found for u in storage_uses(fusion, e.output)):
            found.add(e.output)
    return found


def chunk_product_cascades(fusion: Fusion, extent: Sizes) -> Script | None:
    """A copy of ``fusion`` with reductions of products' long rows in chunks of a tile's columns; ``None`` if there are none.

    Args:
        extent: numbers for extents.
    """
    names = [product.name for product, *_ in _of_long_rows(_with_sums(Script(copy_fusion(fusion)[0])).fusion)]
    if not names:
        return None
    script = _with_sums(Script(copy_fusion(fusion)[0]))
    for name in names:
        columns = _columns(script.fusion, name, extent)
        if columns is not None:
            _chunk(script, name, columns)
    return script if any("chunk_cascade" in line for line in script.lines) else None


def _with_sums(script: Script) -> Script:
    """Let what is gathered of elements of products be gathered of the products, and be sums then, where all else of these are reductions."""
    fusion = script.fusion
    for e in needed(fusion):
        made = table(fusion, e) if isinstance(e, Gather) else None
        if made is None:
            continue
        product = next((tv for tv, _, rows in products_with_rows(fusion) if among(made, rows.elements)), None)
        if product is not None and is_gathered_elementwise(fusion, e, [product]):
            script.recompute(made, [e.output], [product])
    for _, _, rows in list(products_with_rows(fusion)):
        for tv in rows.gathers:
            script.new(tv, "gather_as_sum")
    return script


def _of_long_rows(fusion: Fusion) -> Iterator[tuple[TensorView, int, ProductRows]]:
    """Of products with rows, those whose rows are longer than a tile, and are reduced."""
    for product, axis, rows in products_with_rows(fusion):
        extent = product.shape[axis]
        if isinstance(extent, Const) and extent.value > WIDEST and rows.reductions and not rows.gathers:
            yield product, axis, rows


def _chunk(script: Script, name: str, columns: int) -> None:
    """Reduce the rows of a product in chunks of some columns."""
    product, axis, rows = next(found for found in _of_long_rows(script.fusion) if found[0].name == name)
    extent = product.shape[axis]
    assert isinstance(extent, Const)
    script.chunk_cascade(rows.reductions, -(-extent.value // columns), columns)


def _columns(fusion: Fusion, name: str, extent: Sizes) -> int | None:
    """The columns of a tile with which a product and the reductions of its rows take least; ``None``: no kernel computes them together."""
    widths = sorted({n for _, n, *_ in SHAPES if n >= NARROWEST}, reverse=True)
    trial = Script(copy_fusion(fusion)[0])
    try:
        _chunk(trial, name, widths[0])
        walk = next((w for w in tile_walks(trial.fusion)), None)
        if walk is None:
            return None
        part = Parts(trial.fusion).extract(walk, fusion.name, ())
        product = find(part, columns=None)
        sizes = {name: size for name, size in extent.values.items() if name in part.dims}
        problem = problem_of(part, product, sizes, extent.target)
    except (ScheduleError, UnsupportedError):
        return None
    if not problem.row_columns:
        return None
    long = next(p.shape[axis] for p, axis, _ in _of_long_rows(fusion) if p.name == name)
    assert isinstance(long, Const)

    def us(width: int) -> float:
        ranked = rank(replace(problem, n=-(-long.value // width) * width, row_columns=width))
        return ranked[0].us if ranked else float("inf")

    return min(widths, key=us)
