"""The contraction of a fusion, recognized by its structure: axes and operands; its epilogue is found by :mod:`taskfuse.schedulers.epilogue`.

:mod:`taskfuse.ir.contraction` defines a matrix product, with rows m, columns n and batch axes. Its combining function and body are
compared with what the tensor-core atom computes, whichever op made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskfuse.ir.atoms import SUM_OF_PRODUCTS
from taskfuse.ir.connectivity import components
from taskfuse.ir.contraction import MatrixAxes, computes, factors
from taskfuse.ir.expr import MathExpr, Reduction, reads
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import ge, prove
from taskfuse.ir.storage import has_code, made_from, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.schedulers.block_sums import BlockSums, between, block_sums, outer_sum
from taskfuse.schedulers.boxes import are_better
from taskfuse.schedulers.epilogue import EpilogueInput, Output, Reduced, behind, check_finals, logical_places, output_of, places_of, reduced_by, sides_of
from taskfuse.schedulers.factors import Operand, factor, is_windowed
from taskfuse.schedulers.schedule import refuse
from taskfuse.schedulers.tile_rows import TileRows, tile_rows


@dataclass(frozen=True, slots=True, eq=False)
class Accumulated:
    """A further contraction of the same rows and columns, with accumulators of its own.

    Attributes:
        axes: of the contraction.
        a, b: as those of :class:`MatrixProduct`.
    """

    axes: MatrixAxes
    a: Operand
    b: Operand


@dataclass(frozen=True, slots=True, eq=False)
class MatrixProduct:
    """A fusion with one contraction, or with several of the same rows and columns.

    Attributes:
        axes: of the contraction, which sums over one; of the outer sum, where blocks are summed first: k are the blocks.
        a, b: the factor with rows m and the one with columns n.
        epilogue: the elementwise tensors computed from the contraction, with the outputs among them except ``result``.
        outputs: those that have every element of the product, in the fusion's order.
        sides: the inputs of the epilogue, of which a thread reads only the element at its own point.
        reductions: of results of the epilogue or the contraction.
        finals: elementwise tensors computed from reductions.
        blocks: the products of blocks of k that the contraction sums; ``None``: it multiplies.
        beside: the other contractions, whose elements the epilogue combines with those of the first.
        rows: what follows the contraction, if tiles have whole rows, of which only results are stored.
    """

    axes: MatrixAxes
    a: Operand
    b: Operand
    epilogue: tuple[TensorView, ...]
    outputs: tuple[Output, ...]
    sides: tuple[EpilogueInput, ...]
    reductions: tuple[Reduced, ...] = ()
    finals: tuple[TensorView, ...] = ()
    blocks: BlockSums | None = None
    beside: tuple[Accumulated, ...] = ()
    rows: TileRows | None = None

    @property
    def factors(self) -> tuple[tuple[Operand, Operand], ...]:
        """Those of each contraction."""
        return (self.a, self.b), *((other.a, other.b) for other in self.beside)

    @property
    def shares_steps(self) -> bool:
        """All contractions walk along k together, as they read one factor at the same places."""
        all_axes = [self.axes, *(other.axes for other in self.beside)]
        is_alike = all((x.batch, x.m, x.n, x.k) == (self.axes.batch, self.axes.m, self.axes.n, self.axes.k) for x in all_axes)
        return bool(self.beside) and is_alike and any(self._has_in_common(side) for side in (0, 1))

    def _has_in_common(self, side: int) -> bool:
        mine = self.factors[0][side]
        return all(two[side].tensor is mine.tensor and two[side].index == mine.index for two in self.factors)

    @property
    def multiplied(self) -> TensorView:
        """The tensor that the tensor cores compute."""
        return self.axes.result if self.blocks is None else self.blocks.product

    @property
    def held(self) -> tuple[int, ...]:
        """Bytes of an element of each tensor of which a thread may hold a piece besides the accumulators: inputs and outputs of the epilogue."""
        return tuple(tv.dtype.itemsize for tv in (*(side.tensor for side in self.sides), *(out.tensor for out in self.outputs)))

    @property
    def narrow(self) -> tuple[int, ...]:
        """Bytes of an element of each input of the epilogue that lacks rows or columns."""
        return tuple(side.tensor.dtype.itemsize for side in self.sides if not side.is_wide)

    @property
    def held_by_piece(self) -> tuple[int, ...]:
        """Bytes of an element of each tensor of which a thread holds no more than a piece at a time: of :attr:`held`, those that are not :attr:`narrow`."""
        return tuple(tv.dtype.itemsize for tv in (*(side.tensor for side in self.sides if side.is_wide), *(out.tensor for out in self.outputs)))


def find(
    fusion: Fusion, outputs: Sequence[TensorView] | None = None, *, is_swapped: bool = False, boxes: bool = True, columns: int | None = 0
) -> MatrixProduct:
    """The contraction of ``fusion`` and its surroundings.

    Args:
        outputs: look at what these need alone; ``None``: at all outputs.
        is_swapped: rows are the axis that columns otherwise are: of a result with few rows that is the long one.
        boxes: the rows of a tile may be a box of several axes.
        columns: of a tile, which has whole rows if it has as many; ``None``: it may have. 0: what follows takes no whole rows.

    Raises:
        UnsupportedError: there is no contraction that fits, an operand is computed, rows or columns may be empty, or the epilogue is not elementwise.
    """
    asked = fusion.outputs if outputs is None else outputs
    exprs = needed(fusion, asked)
    products = _contractions(fusion, exprs)
    expr = products[0]
    outer = outer_sum(fusion, exprs, expr) if len(products) == 1 else None
    result = expr.output if outer is None else outer.output
    inside = [] if outer is None else [expr.output, *between(fusion, expr.output, result)]
    made_by = products if outer is None else [outer]
    rows = tile_rows(fusion, exprs, products, asked) if outer is None and not is_swapped else None
    if rows is not None and columns in (None, rows.columns):
        others = [e for e in exprs if e is not expr]
        axes, a, b = _multiplied(fusion, expr, others, rows.n, is_alone=True)
        if axes.n == rows.n:
            return MatrixProduct(axes, a, b, (), (), (), rows=rows)
    epilogue, reductions, finals = behind(fusion, [e for e in exprs if not among(e.output, inside)], made_by)
    places = places_of(fusion, [e.output for e in made_by], epilogue)
    after = [*(e.output for e in reductions), *finals]
    parts = [part for tv in asked for part in made_from(fusion, tv)]
    for tv in parts:
        if tv not in places and not among(tv, after):
            raise refuse(fusion, "matmul", f"the output {tv.name} does not need the product", "move it to a separate fusion")
    stored = [tv for tv in parts if tv is result or among(tv, epilogue)]
    others = [e for e in exprs if e not in products]
    last = places[stored[0]].get(stored[0].ndim - 1) if stored else None
    alone = len(products) == 1
    takes_boxes = boxes and alone and outer is None and not reductions and not is_swapped
    axes, a, b = _multiplied(fusion, expr, others, last, in_blocks=outer is not None, is_alone=alone, is_swapped=is_swapped, takes_boxes=takes_boxes)
    blocks = None if outer is None else block_sums(fusion, expr, outer, axes.m, axes.n)
    if blocks is not None:
        axes = MatrixAxes(result, tuple(p for p in axes.batch if p != blocks.axis), axes.m, axes.n, blocks.axis)
    beside = tuple(_beside(fusion, e, others, axes, a) for e in products[1:])
    made = tuple(output_of(fusion, tv, places[tv], result, axes.n) for tv in stored)
    reduced = tuple(reduced_by(fusion, e, places, result, (axes.m, axes.n)) for e in reductions)
    check_finals(fusion, finals, reduced)
    return MatrixProduct(axes, a, b, epilogue, made, sides_of(fusion, epilogue, places, axes), reduced, finals, blocks, beside)


def _multiplied(
    fusion: Fusion,
    expr: Reduction,
    others: Sequence[MathExpr],
    last: int | None,
    *,
    in_blocks: bool = False,
    is_alone: bool = False,
    is_swapped: bool = False,
    takes_boxes: bool = False,
) -> tuple[MatrixAxes, Operand, Operand]:
    """The axes of a contraction and its factors, that with the rows first.

    Args:
        others: the other computed tensors.
        last: the axis that is contiguous in the output, if that is known.
        in_blocks: it multiplies blocks of k.
        is_alone: there is one contraction.
        is_swapped: see :func:`find`.
        takes_boxes: the rows of a tile may be a box of several axes.
    """
    two, result = factors(fusion, expr), expr.output
    if two is None:
        raise refuse(fusion, "matmul", f"{result.name} multiplies a tensor by a number", "scale the product instead")
    if not two.make_a_matrix:
        raise refuse(fusion, "matmul", f"{result.name} has no rows or no columns", "each factor needs an axis that the other lacks: reshape a vector to [1, K]")
    for axis in (result.root[p] for p in sorted(two.rows | two.columns)):
        if not prove(ge(axis.extent, 1), fusion.facts()):  # the factor that lacks it shares its loop
            raise refuse(fusion, "matmul", f"the extent {axis.extent} of {result.name} may be 0", "declare it with tf.dim(..., min=1)")
    if last in two.rows or (last not in two.columns and max(two.rows) > max(two.columns)):
        two = two.swapped()
    if is_swapped:
        two = two.swapped()
    in_boxes = len(two.summed) > 1 or is_windowed(fusion, result, two.a, two.rows)
    if in_boxes and not takes_boxes:
        reason = f"{result.name} sums over several axes or reads windows, and its tiles are scaled by blocks, reduced, or combined with others"
        raise refuse(fusion, "matmul", reason, "move it to a separate fusion")
    if takes_boxes and not in_boxes and are_better([result.root[p].extent for p in sorted(two.rows)]):
        in_boxes = two.a.tensor.is_input
    axes = two.as_matrices(result, last if last in two.columns else None, in_boxes=in_boxes)
    sources = zip(two.places, (two.a, two.b), (axes.m, axes.n), strict=True)
    a, b = (factor(fusion, expr, others, place, read, row, axes, in_blocks=in_blocks, is_alone=is_alone) for place, read, row in sources)
    mine, theirs = (o.prologue[-1] if o.prologue else o.tensor for o in (a, b))
    if mine.dtype is not theirs.dtype:
        raise refuse(fusion, "matmul", f"{mine!r} and {theirs!r} differ in dtype", "cast one of them first")
    return axes, a, b


def _beside(fusion: Fusion, expr: Reduction, others: Sequence[MathExpr], first: MatrixAxes, like: Operand) -> Accumulated:
    """A further contraction; its axes are those of the first but for k."""
    result, tile = expr.output, f"the tiles of {first.result.name}"
    if result.dtype is not first.result.dtype or result.shape != first.result.shape:
        raise refuse(fusion, "matmul", f"{result!r} differs in shape or dtype from {tile}", "move it to a separate fusion")
    at = {place: p for p, place in enumerate(logical_places(result))}
    place = logical_places(first.result)
    axes, a, b = _multiplied(fusion, expr, others, at[place[first.n]])
    if (axes.m, axes.n) != (at[place[first.m]], at[place[first.n]]):
        raise refuse(fusion, "matmul", f"rows and columns of {result.name} differ from those of {tile}", "move it to a separate fusion")
    if a.tensor.dtype is not like.tensor.dtype:
        raise refuse(fusion, "matmul", f"{like.tensor!r} and {a.tensor!r} differ in dtype", "cast one of them first")
    return Accumulated(axes, a, b)


def needed(fusion: Fusion, outputs: Sequence[TensorView]) -> tuple[MathExpr, ...]:
    """The expressions that some outputs need, producers first."""
    if list(outputs) == list(fusion.outputs):
        return fusion.exprs()
    wanted = set(outputs)
    for expr in reversed(fusion.exprs()):
        if expr.output in wanted:
            wanted.update(read.tensor for read in reads(expr))
    return tuple(e for e in fusion.exprs() if e.output in wanted)


def _contractions(fusion: Fusion, exprs: Sequence[MathExpr]) -> list[Reduction]:
    """The products whose elements the epilogue takes together."""
    found = [e for e in exprs if isinstance(e, Reduction)]
    products = [e for e in found if computes(e, SUM_OF_PRODUCTS)]
    if len(products) > 1:
        products = [e for e in products if (two := factors(fusion, e)) is not None and two.make_a_matrix]
    if not found:
        raise refuse(fusion, "matmul", "it has no contraction", "tf.schedulers.auto asks other schedulers")
    for expr in products or found[:1]:
        if not products:
            what = f"{expr.output.name} is a reduction by {expr.combine.name} of {expr.body.name}, not a sum of products"
            raise refuse(fusion, "matmul", what, "write the product as tf.matmul(a, b)")
    if len(products) > 1 and len(apart(fusion, exprs)) > 1:
        raise refuse(
            fusion, "matmul", f"it computes one tile at a time, and the results of {len(products)} contractions are not combined", "tf.schedulers.products"
        )
    return products


def apart(fusion: Fusion, exprs: Sequence[MathExpr]) -> list[list[TensorView]]:
    """The expressions, in independent parts."""
    code = [e for e in exprs if has_code(fusion, e)]
    computed = [e.output for e in code]
    edges = [(t, e.output) for e in code for read in storage_reads(fusion, e) for t in made_from(fusion, read.tensor) if among(t, computed)]
    return components(computed, edges)
