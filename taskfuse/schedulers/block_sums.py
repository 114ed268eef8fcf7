"""Products whose sum has two levels: products of blocks of k, each made into a term, and the sum of these terms over the blocks.

``y[m, n] = sum over kb of f(sum over kk of a[m, kb, kk] * b[n, kb, kk], s[m, kb], ...)``: scales of blocks are such an f. The inner sum is a matrix product
with the batch axis kb; the math between the sums is elementwise, and may read further inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskfuse.ir.axes import iteration_position
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.contraction import axes_of
from taskfuse.ir.expr import MathExpr, Pointwise, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import TRUE, Const, const, is_multiple
from taskfuse.ir.storage import has_code, reads_of, resolve, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.schedulers.elementwise import is_aligned
from taskfuse.schedulers.loads import is_bulk
from taskfuse.schedulers.schedule import refuse

SPAN = 128
"""Bytes of k, or of m or n where that is contiguous, in one row of a tile in Shared memory: the widest swizzle."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockInput:
    """An input that terms read.

    Attributes:
        reader: the term, or the sum itself.
        position: of the reader's operand.
        has_rows, has_columns: its index depends on m, on n.
        is_each_column: each n has an element of its own.
        is_paired: two neighbors along n are one access.
        is_bulk: the copy engine can read a row of what belongs to the rows or columns of a tile: neighbors along m or n lie side by side.
    """

    reader: TensorView
    position: int
    has_rows: bool
    has_columns: bool
    is_each_column: bool
    is_paired: bool
    is_bulk: bool


@dataclass(frozen=True, slots=True, eq=False)
class BlockSums:
    """The inner level of a product with two levels of sums.

    Attributes:
        product: the products of blocks.
        size: elements of k in a block.
        axis: the position of the blocks in the iteration spaces of both sums.
        terms: the elementwise tensors between the sums, producers first.
        inputs: the further operands of the terms and of the outer sum.
    """

    product: TensorView
    size: int
    axis: int
    terms: tuple[TensorView, ...]
    inputs: tuple[BlockInput, ...]


def outer_sum(fusion: Fusion, exprs: Sequence[MathExpr], product: Reduction) -> Reduction | None:
    """The sum over a batch axis of ``product`` that is its only reader; ``None`` if there is none, or blocks are not rows of tiles of 128 bytes."""
    itemsize = max(read.tensor.dtype.itemsize for read in reads_of(fusion, product.output))
    if product.output.root[-1].extent is not const(SPAN // itemsize):
        return None
    behind = [product.output]
    for expr in exprs:
        if not has_code(fusion, expr):
            continue
        read = [r for r in reads_of(fusion, expr.output) if among(r.tensor, behind)]
        if not read:
            continue
        if isinstance(expr, Pointwise) and all(is_aligned(r, expr.output) for r in read):
            behind.append(expr.output)
            continue
        over = [p for p, a in enumerate(expr.output.root) if a.is_reduction]
        if not isinstance(expr, Reduction) or expr.combine is not COMBINES["add"] or len(over) != 1 or not all(is_aligned(r, expr.output) for r in read):
            return None
        shared = all(over[0] in axes_of(r) for r in reads_of(fusion, product.output))
        return expr if shared and over[0] < product.output.ndim else None
    return None


def block_sums(fusion: Fusion, product: Reduction, outer: Reduction, m: int, n: int) -> BlockSums:
    """The inner level below ``outer``.

    Args:
        m, n: positions of rows and columns.

    Raises:
        UnsupportedError: the math between the sums is not elementwise.
    """
    size = product.output.root[-1].extent
    inner = product.output
    assert isinstance(size, Const)
    needed = between(fusion, inner, outer.output)
    terms = tuple(e.output for e in fusion.exprs() if among(e.output, needed))
    (axis,) = (p for p, a in enumerate(outer.output.root) if a.is_reduction)
    inputs = tuple(found for tv in (*terms, outer.output) for found in _inputs(fusion, tv, inner, terms, (m, n)))
    return BlockSums(inner, size.value, axis, terms, inputs)


def between(fusion: Fusion, inner: TensorView, outer: TensorView) -> list[TensorView]:
    """The computed tensors that the outer sum needs beside the inner one.

    Raises:
        UnsupportedError: one is needed elsewhere.
    """
    found: list[TensorView] = []
    stack = [outer]
    while stack:
        for read in reads_of(fusion, stack.pop()):
            tv = read.tensor
            if not tv.is_input and tv is not inner and not among(tv, found):
                found.append(tv)
                stack.append(tv)
    for tv in (inner, *found):
        other = next((u.output for u in storage_uses(fusion, tv) if not among(u.output, [*found, outer])), None)
        if tv.is_output or other is not None:
            what = "is an output" if other is None else f"is read by {other.name}"
            reason = f"{tv.name} {what}, and is summed while it lies in registers, block by block"
            raise refuse(fusion, "matmul", reason, "compute it in a separate fusion")
    return found


def _inputs(fusion: Fusion, tv: TensorView, inner: TensorView, terms: Sequence[TensorView], tile: tuple[int, int]) -> list[BlockInput]:
    expr = fusion.definition(tv)
    if not isinstance(expr, Pointwise | Reduction):
        raise refuse(fusion, "matmul", f"{tv.name} is not computed element by element", "move it to a separate fusion")
    found: list[BlockInput] = []
    for position, operand in enumerate(expr.operands):
        if not isinstance(operand, Read):
            continue
        read = resolve(fusion, operand)
        if not read.tensor.is_input:
            if not is_aligned(read, tv) or not (read.tensor is inner or among(read.tensor, terms)):
                raise refuse(fusion, "matmul", f"{tv.name} reads {read.tensor.name} elsewhere than at its own point", "move it to a separate fusion")
            continue
        if read.valid is not TRUE:
            raise refuse(fusion, "matmul", f"{tv.name} reads {read.tensor.name} only in some iterations", "pass slices as inputs")
        axes = axes_of(read)
        paired = bool(read.index) and iteration_position(read.index[-1]) == tile[1] and is_multiple(read.tensor.shape[-1], 2, fusion.facts())
        each = any(iteration_position(e) == tile[1] for e in read.index)
        has_row = bool(read.index) and iteration_position(read.index[-1]) in tile and len(axes & {*tile}) == 1
        bulk = has_row and all(iteration_position(e) is not None for e in read.index) and is_bulk(read.tensor, fusion.facts())
        found.append(BlockInput(tv, position, tile[0] in axes, tile[1] in axes, each, paired, bulk))
    return found
