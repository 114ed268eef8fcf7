"""The canonical form of a fusion with products: all views stand before the products, as arrays of other strides or as copies.

A product is scheduled well if its factors are tensors with axes of rows, columns and k, and its epilogue reads each element in place. Models
put views everywhere: rows are merged before a product and split after it, heads are sliced from columns and permuted. Three rules, all of them
public scheduling calls, move these views:

1. elementwise tensors are computed at the points of their readers (an elementwise function commutes with an index map);
2. so is a product that is read at other points than its own, if that takes no more points and leaves rows and columns: these become several axes;
3. a factor, or an operand of the epilogue or of what it reads, that is then read at an index is read through a view with the axes of its reader; a view
   that is not an array of other strides is copied once.

The law: the fusion computes what it did before (``fusion.evaluate`` agrees, in modular values bit for bit).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from math import prod

from taskfuse.errors import TaskfuseError
from taskfuse.ir.contraction import axes_of_index, factors
from taskfuse.ir.expr import FirstValid, MathExpr, Pointwise, Read, Reduction, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import TRUE
from taskfuse.ir.storage import needed, producers, resolve, storage_reads, storage_uses, strided
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.through_view import is_whole, own_index
from taskfuse.schedulers.elementwise import is_aligned, recompute_all
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script
from taskfuse.target import VECTOR_BYTES

SHORT = 64
"""Rows of the products of a warpgroup, the least of a tile of tensor cores at their rate."""


def canonical(fusion: Fusion, extent: Sizes, readers: AbstractSet[str] | None = None) -> Script | None:
    """A copy of ``fusion`` in canonical form, with the calls that made it; ``None`` if it already has that form, or cannot have it.

    Args:
        extent: numbers for extents.
        readers: names of the only tensors at whose points products, and functions of them, are computed; ``None``: of all.
    """
    before = {e.output.name for e in _products(fusion)}
    if not before:
        return None
    staying = set[str]()
    try:
        while True:
            script = Script(copy_fusion(fusion)[0])
            found = _behind(script, extent, readers, staying)
            if found <= staying:
                break
            staying |= found
        _before(script, frozenset() if readers is None else before)
    except TaskfuseError:
        return None
    return script if script.lines else None


def _products(fusion: Fusion) -> list[Reduction]:
    """Reductions of two tensors, each of which has an axis that the other lacks, at whatever index that is."""
    found: list[Reduction] = []
    for expr in needed(fusion):
        if not isinstance(expr, Reduction):
            continue
        simplified = [replace(read, index=own_index(fusion, expr, read)) for read in storage_reads(fusion, expr)]
        two = factors(fusion, expr, simplified)
        if two is not None and two.rows and two.columns and two.shared:
            found.append(expr)
    return found


def _after(fusion: Fusion, products: set[TensorView]) -> set[TensorView]:
    """The tensors that depend on one of ``products``."""
    found = set[TensorView]()
    for e in fusion.exprs():
        if not fusion.is_view(e.output) and any(tv in found or tv in products for tv in producers(fusion, e.output)):
            found.add(e.output)
    return found


# -- after products ----------------------------------------------------------------------------------------------------------------------


def _behind(script: Script, extent: Sizes, readers: AbstractSet[str] | None, staying: AbstractSet[str]) -> set[str]:
    """Rules 1 and 2. Returns the names of products that are read at other points than their own, and not computed there.

    Args:
        staying: products that are not, as known before: functions of no others stay in their place, too. Readers would take the product itself otherwise, the
            sums in float32 and not what they are rounded to.
    """
    fusion = script.fusion
    products = {e.output for e in _products(fusion) if e.output.name not in staying}
    after = _after(fusion, products)
    found = set[str]()
    recompute_all(script, fusion, lambda read, reader: (readers is not None and reader.name not in readers) or _stays(fusion, read, reader, after))
    for product in [e.output for e in _products(fusion)]:
        if product.is_output:
            continue
        uses = storage_uses(fusion, product)
        reads = {use.output: [r for r in storage_reads(fusion, use) if r.tensor is product] for use in uses}
        if any(not isinstance(use, Pointwise | View) for use in uses) or all(is_aligned(r, tv) for tv, own in reads.items() for r in own):
            continue
        found.add(product.name)
        if any(r.valid is not TRUE for own in reads.values() for r in own) or not all(_leaves_a_matrix(fusion, product, use, extent) for use in uses):
            continue
        spaces: dict[tuple[object, ...], list[TensorView]] = {}
        for tv in reads:
            spaces.setdefault(tuple(a.extent for a in tv.root), []).append(tv)
        points = {tuple(r.index): prod(extent(a.extent) for a in tv.root) for tv, own in reads.items() for r in own}
        if sum(points.values()) <= extent.elements(product):
            found.discard(product.name)
            for own in spaces.values():
                script.recompute(product, own)
    return found


def _leaves_a_matrix(fusion: Fusion, product: TensorView, use: MathExpr, extent: Sizes) -> bool:
    """Whether a product that is computed where ``use`` reads it has rows and columns still. An axis of the reader that runs through batch and columns, as where
    heads stand side by side in a row, belongs to both factors then, and no element of one is used for several of the other; so does one that runs through rows
    and columns. Where rows alternate with columns, and the innermost of both are shorter than :data:`SHORT`, no tile of them fills a warpgroup."""
    expr = fusion.definition(product)
    assert expr is not None
    two = factors(fusion, expr, [replace(own, index=own_index(fusion, expr, own)) for own in storage_reads(fusion, expr)])
    assert two is not None
    kept = [p for p in range(len(product.root)) if p not in two.summed]
    for read in storage_reads(fusion, use):
        if read.tensor is product:
            through = dict(zip(kept, own_index(fusion, use, read), strict=True))
            a, b = (axes_of_index(e for p, e in through.items() if p in own | two.shared) for own in (two.rows, two.columns))
            rows, columns = (axes_of_index(e for p, e in through.items() if p in own) for own in (two.rows, two.columns))
            if not (a - b and b - a) or rows & columns:
                return False
            extents = {k: extent(use.output.root[k].extent) for k in sorted(a ^ b)}
            if all(_innermost(extents, own) < SHORT <= prod(extents[k] for k in own) for own in (a - b, b - a)):
                return False
    return True


def _innermost(extents: Mapping[int, int], own: AbstractSet[int]) -> int:
    """Elements along the last of some axes, and those before it up to another one.

    Args:
        extents: of axes by their positions, in order.
        own: some of them.
    """
    found = 1
    for k, e in reversed([*extents.items()]):
        if k in own:
            found *= e
        elif found > 1 and e > 1:
            break
    return found


def _stays(fusion: Fusion, read: Read, reader: TensorView, after: set[TensorView]) -> bool:
    """True for tensors other than elementwise functions of a product, for those read in place, and for those that reductions read, at more points."""
    expr = fusion.definition(reader)
    return read.tensor not in after or not isinstance(expr, Pointwise | FirstValid | View) or is_aligned(read, reader)


# -- before products ----------------------------------------------------------------------------------------------------------------------


def _before(script: Script, others: AbstractSet[str]) -> None:
    """Rule 3, but for some products."""
    fusion = script.fusion
    products = [e for e in _products(fusion) if e.output.name not in others]
    after = _after(fusion, {e.output for e in products})
    behind = [e for e in needed(fusion) if isinstance(e, Pointwise) and e.output in after]
    for expr in (*products, *behind, *_beside(fusion, behind, after)):
        operands(script, expr.output, isinstance(expr, Reduction))


def _beside(fusion: Fusion, behind: Sequence[Pointwise], after: set[TensorView]) -> list[Pointwise]:
    """The elementwise functions of inputs that functions of products read, such as a bias in another dtype."""
    found: dict[TensorView, Pointwise] = {}
    stack = [tv for e in behind for tv in producers(fusion, e.output)]
    while stack:
        tv = stack.pop()
        expr = fusion.definition(tv)
        if isinstance(expr, Pointwise) and tv not in after and tv not in found:
            found[tv] = expr
            stack += producers(fusion, tv)
    return list(found.values())


def operands(script: Script, tv: TensorView, is_product: bool) -> None:
    """Rule 3 for the operands of one tensor."""
    fusion = script.fusion
    expr = fusion.definition(tv)
    assert expr is not None
    for k, operand in enumerate(expr.operands):
        if not isinstance(operand, Read):
            continue
        read = resolve(fusion, operand)
        index = own_index(fusion, expr, read)
        is_array = is_whole(expr, read, index) and not (is_product and any(not e.free for e in index))  # axes of one element are in a factor's way
        is_plain = is_array and index == read.index
        if read.valid is not TRUE or is_plain or not (is_product or read.tensor.is_input):
            continue
        is_viewed = fusion.is_view(operand.tensor) and is_whole(expr, operand, operand.index) and all(e.free for e in operand.index)
        view = operand.tensor
        if not is_viewed or (not is_array and not _is_rows(fusion, view)):  # a view of its own has the axis last along which neighbors lie side by side
            view = script.through_view(tv, k)
        if not is_array and not _is_rows(fusion, view):
            script.new(view, "cache_after")


def _is_rows(fusion: Fusion, view: TensorView) -> bool:
    """True if a view is an array of rows that copies of whole vectors take."""
    place = strided(fusion, view)
    return place is not None and place.has_rows(VECTOR_BYTES, fusion.facts())
