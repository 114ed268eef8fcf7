"""The contractions of a fusion that tensor cores can compute, with the axes of their rows, columns and depth in each tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from taskfuse.dtypes import DType
from taskfuse.ir.atoms import SUM_OF_PRODUCTS
from taskfuse.ir.axes import Axis, iteration_position
from taskfuse.ir.contraction import computes, factors
from taskfuse.ir.expr import MathExpr, Pointwise, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.matrix_instructions import accumulator_dtype
from taskfuse.ir.scalar import TRUE
from taskfuse.ir.storage import storage_operands, storage_reads, storage_uses
from taskfuse.ir.tensor import TensorView


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """A factor of a contraction.

    Attributes:
        tensor: the tensor that is read: in storage, or a view whose elements do not have the indices of the iteration.
        place: its position among the operands; ``None`` for such a view.
        rows: its axis along the rows of the atom's operand.
        depth: its summed axis.
    """

    tensor: TensorView
    place: int | None
    rows: int
    depth: int


@dataclass(frozen=True, slots=True, eq=False)
class ContractionCase:
    """A sum of products over two tensors, with the axes that an atom may cover.

    Attributes:
        tv: the result.
        a, b: the factors: ``a`` has the rows of the result, ``b`` the columns.
        m, n, k: loop axes.
        kept, summed: the other axes.
    """

    tv: TensorView
    a: Factor
    b: Factor
    m: Axis
    n: Axis
    k: Axis
    kept: tuple[Axis, ...]
    summed: tuple[Axis, ...]

    @property
    def dtypes(self) -> tuple[DType, DType]:
        """The dtypes of the factors."""
        return self.a.tensor.dtype, self.b.tensor.dtype

    @property
    def is_turned(self) -> bool:
        """True if the result's columns come before its rows."""
        return self.tv.root.index(self.n) < self.tv.root.index(self.m)


def contractions(tv: TensorView) -> list[ContractionCase]:
    """Every way in which an atom can compute a tensor: each choice of rows, columns and depth, with either factor first."""
    expr = tv.definition
    if not computes(expr, SUM_OF_PRODUCTS):
        return []
    reads = read_in_place(tv.fusion, expr)
    two = factors(tv.fusion, expr, [read for _, read in reads])
    if two is None:
        return []
    places = reads[0][0], reads[1][0]
    found: list[ContractionCase] = []
    for (a_place, b_place), turned in ((places, two), (places[::-1], two.swapped())):
        a, b = turned.a, turned.b
        left, right = positions(a), positions(b)
        if left is None or right is None or accumulator_dtype(a.tensor.dtype, b.tensor.dtype) is not tv.dtype:
            continue
        rows = [p for p in left if p in turned.rows and tv.root[p] in tv.loop and not tv.root[p].is_reduction]
        columns = [p for p in right if p in turned.columns and tv.root[p] in tv.loop and not tv.root[p].is_reduction]
        depths = [(p, axis) for p in left if p in turned.shared and p in turned.summed for axis in _depths(tv, p)]
        for m, n, (p, k) in product(rows, columns, depths):
            rest = [x for x in tv.loop if x not in (tv.root[m], tv.root[n], k)]
            kept, summed = (tuple(x for x in rest if x.is_reduction is reduced) for reduced in (False, True))
            first = Factor(a.tensor, a_place, left.index(m), left.index(p))
            second = Factor(b.tensor, b_place, right.index(n), right.index(p))
            found.append(ContractionCase(tv, first, second, tv.root[m], tv.root[n], k, kept, summed))
    return found


def _depths(tv: TensorView, place: int) -> list[Axis]:
    """The loop axes that a root axis that is summed is: itself, or what ``rfactor`` left of it."""
    root = tv.root[place]
    if root in tv.loop:
        return [root]
    left = [x for x in tv.loop if x.is_reduction]
    return left if len(left) == 1 else []


def read_in_place(fusion: Fusion, expr: MathExpr) -> list[tuple[int | None, Read]]:
    """The tensors that an expression reads at the indices of its iteration, with the place among its operands; for views with other indices, the views."""
    found: list[tuple[int | None, Read]] = []
    for place, (own, stored) in enumerate(zip(expr.operands, storage_operands(fusion, expr), strict=True)):
        if isinstance(own, Read) and isinstance(stored, Read):
            direct = stored.valid is TRUE and positions(stored) is not None
            found.append((place, stored) if direct else (None, own))
    return [(place, read) for place, read in found if read.valid is TRUE]


def positions(read: Read) -> list[int] | None:
    """For each axis of a read tensor, the axis of the reader's iteration space that it follows; ``None`` if one follows none."""
    found = [iteration_position(e) for e in read.index]
    return None if None in found or len(set(found)) != len(found) else [p for p in found if p is not None]


def follows(expr: MathExpr | None, source: TensorView) -> bool:
    """True for an elementwise function that reads each element of ``source`` at its own place, once."""
    if not isinstance(expr, Pointwise):
        return False
    reads = [o for o in expr.operands if isinstance(o, Read) and o.tensor is source]
    return bool(reads) and all(r.valid is TRUE and positions(r) == list(range(expr.output.ndim)) for r in reads)


def epilogue(fusion: Fusion, tv: TensorView, leave: Callable[[TensorView], bool] | None = None) -> list[TensorView]:
    """The tensors computed elementwise from ``tv`` at its indices, producers first, without those that also need other tensors.

    Args:
        leave: true for tensors to leave out nevertheless; it is not called for readers of ``tv``.
    """
    found, apart = [tv], set[TensorView]()
    for expr in fusion.exprs():
        made_from = {r.tensor for r in storage_reads(fusion, expr)}
        follow = any(follows(expr, x) for x in found) and not made_from & apart and not fusion.is_view(expr.output)
        if follow and (follows(expr, tv) or leave is None or not leave(expr.output)):
            found.append(expr.output)
        elif made_from & {*found, *apart}:
            apart.add(expr.output)
    return found[1:]


def outside(fusion: Fusion, tv: TensorView, inside: Sequence[TensorView]) -> bool:
    """True if a tensor that is not ``inside`` reads ``tv``."""
    return any(not among(use.output, inside) for use in storage_uses(fusion, tv))


def source(fusion: Fusion, tv: TensorView) -> Read | None:
    """The tensor in storage that a copy reads."""
    expr = fusion.definition(tv)
    reads = storage_reads(fusion, expr) if expr is not None and not isinstance(expr, Reduction) else ()
    return reads[0] if len(reads) == 1 else None
