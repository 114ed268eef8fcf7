"""Contractions: reductions of a function of two tensors, by which axes each of the two has.

A matrix product is one whose function is a product and whose combining function is a sum; but which axes are its rows and columns follows from the
op maps alone, and holds for any functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from taskfuse.ir.axes import iteration_position
from taskfuse.ir.expr import MathExpr, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import storage_reads


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """The factors of a contraction, and the axes of its iteration space, by their positions.

    Attributes:
        a, b: the element of each that an iteration reads, of a storage tensor.
        places: of these among the operands.
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
        """True if there are rows and columns, and both factors have all that is reduced."""
        return bool(self.rows and self.columns) and self.shared.issuperset(self.summed)

    def swapped(self) -> Factors:
        """The same, with the factors in the other order."""
        return replace(self, a=self.b, b=self.a, places=self.places[::-1], rows=self.columns, columns=self.rows)


def factors(fusion: Fusion, expr: MathExpr) -> Factors | None:
    """The factors of ``expr``; ``None`` if it does not reduce a function of elements of two tensors."""
    reads = storage_reads(fusion, expr)
    if not isinstance(expr, Reduction) or len(reads) != 2:
        return None
    first, second = (place for place, operand in enumerate(expr.operands) if isinstance(operand, Read))
    a, b = (frozenset(p for e in read.index if (p := iteration_position(e)) is not None) for read in reads)
    root = expr.output.root
    summed = tuple(p for p, axis in enumerate(root) if axis.is_reduction)
    batch = tuple(p for p in range(len(root)) if p not in summed and (p in a) == (p in b))
    return Factors(*reads, (first, second), a - b, b - a, summed, batch, a & b)
