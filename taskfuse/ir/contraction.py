"""Contractions: reductions of a function of two tensors, classified by the axes of each.

A matrix product is a contraction with products as terms that are combined by a sum; its rows and columns follow from the
op maps alone, for any functions. A tensor *has* an axis if the index at which it is read depends on the axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from taskfuse.ir.atoms import Contraction
from taskfuse.ir.axes import iteration_position
from taskfuse.ir.expr import MathExpr, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Expr, sym
from taskfuse.ir.storage import storage_reads
from taskfuse.ir.tensor import TensorView


def computes(expr: MathExpr | None, row: Contraction) -> TypeGuard[Reduction]:
    """True if the instructions of a row compute an expression."""
    return isinstance(expr, Reduction) and expr.combine is row.combine and expr.body is row.body


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """The factors of a contraction, and the axes of its iteration space, by their positions.

    Attributes:
        a, b: the element of each that an iteration reads, of a storage tensor.
        places: their positions among the operands.
        rows, columns: axes that only ``a`` has, and those that only ``b`` has.
        summed: reduced axes.
        batch: all others: both have them, or neither.
        shared: axes that both have.
    """

    a: Read
    b: Read
    places: tuple[int, int]
    rows: frozenset[int]
    columns: frozenset[int]
    summed: tuple[int, ...]
    batch: tuple[int, ...]
    shared: frozenset[int]

    @property
    def make_a_matrix(self) -> bool:
        """True if there are rows and columns, and both factors have all reduced axes."""
        return bool(self.rows and self.columns) and self.shared.issuperset(self.summed)

    def as_matrices(self, result: TensorView, n: int | None = None, *, in_boxes: bool = False) -> MatrixAxes:
        """The contraction as a matrix product, with the rows in ``a``: the last of the rows, of the columns and of the reduced axes are m, n and k.

        Args:
            n: the axis of the columns; by default the last of them.
            in_boxes: a tile has rows along all axes of the rows, not only along m.
        """
        m, columns = max(self.rows), max(self.columns) if n is None else n
        *summed, k = self.summed
        rows = tuple(sorted(self.rows - {m})) if in_boxes else ()
        batch = tuple(p for p in range(len(result.root)) if p not in (*rows, m, columns, *self.summed))
        return MatrixAxes(result, batch, m, columns, k, tuple(summed), rows)

    def swapped(self) -> Factors:
        """The contraction with its factors exchanged."""
        return replace(self, a=self.b, b=self.a, places=self.places[::-1], rows=self.columns, columns=self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class MatrixAxes:
    """A contraction as a matrix product: [m, k] times [k, n], for each element of the batch axes.

    Attributes:
        result: the result tensor.
        batch, m, n, k: positions in the iteration space of ``result``.
        summed: the reduced axes besides k.
        outer_rows: axes outside m of which a tile of rows has a part, too: the rows of a tile are a box.
    """

    result: TensorView
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    summed: tuple[int, ...] = ()
    outer_rows: tuple[int, ...] = ()

    @property
    def rows(self) -> tuple[int, ...]:
        """The axes of a tile's rows."""
        return (*self.outer_rows, self.m)

    def extent(self, position: int) -> Expr:
        """The extent of an axis of the iteration space."""
        return self.result.root[position].extent


def axes_of(read: Read) -> frozenset[int]:
    """The axes of the reader's iteration space, by their positions, that the index of a read depends on."""
    return axes_of_index(read.index)


def axes_of_index(index: Iterable[Expr]) -> frozenset[int]:
    """The axes of an iteration space, by their positions, that an index depends on."""
    return frozenset(p for name in set[str]().union(*(e.free for e in index)) if (p := iteration_position(sym(name))) is not None)


def factors(fusion: Fusion, expr: MathExpr, reads: Sequence[Read] | None = None) -> Factors | None:
    """The factors of ``expr``; ``None`` if it does not reduce a function of elements of two tensors.

    Args:
        reads: of its tensor operands, in order, if they are to replace the reads of storage: at simplified indices, or of views.
    """
    reads = storage_reads(fusion, expr) if reads is None else reads
    if not isinstance(expr, Reduction):
        return None
    if expr.rescaled is not None:
        reads = reads[:-1]
    if len(reads) != 2:
        return None
    first, second = (place for place, operand in enumerate(expr.terms) if isinstance(operand, Read))
    return classified(expr.output, (reads[0], reads[1]), (first, second))


def classified(result: TensorView, reads: tuple[Read, Read], places: tuple[int, int]) -> Factors:
    """The factors of a contraction that reads two elements at points of its iteration space.

    Args:
        result: what it makes.
        reads, places: see :class:`Factors`.
    """
    a, b = map(axes_of, reads)
    root = result.root
    summed = tuple(p for p, axis in enumerate(root) if axis.is_reduction)
    batch = tuple(p for p in range(len(root)) if p not in summed and (p in a) == (p in b))
    return Factors(*reads, places, a - b, b - a, summed, batch, a & b)
