"""Reductions of a function of pairs of elements, found by structure: the two inputs, the axes, and the functions of a pair before it is combined.

    result[batch, m, n] = combine over k of body(a[batch, m, k], b[batch, k, n])

A matrix product is the one whose body is a product and whose combine is a sum. Distances, kernels of Gaussian processes, products in the tropical
semiring have the same axes, so each element of a tile is used as often: tiles in Shared memory, parts of a tile in registers. The body consists of the
reduction's own function and of elementwise tensors that only it needs, the *inner* ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskfuse.errors import UnsupportedError
from taskfuse.ir.axes import iteration_position
from taskfuse.ir.contraction import Factors, MatrixAxes, classified, factors
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import MathExpr, Pointwise, Read, Reduction, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import TRUE, ge, is_multiple, prove
from taskfuse.ir.storage import needed, storage_operands, storage_reads, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.schedule.recompute import reduces_one
from taskfuse.schedulers.elementwise import is_aligned, recompute_all
from taskfuse.schedulers.factors import at_axes, chosen_by_batch
from taskfuse.schedulers.instructions import cost
from taskfuse.schedulers.schedule import refuse
from taskfuse.schedulers.script import Recorded, Script
from taskfuse.target import VECTOR_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class PairFactor:
    """An input of a body.

    Attributes:
        tensor: the input.
        reader: what reads it: the contraction, or an inner tensor.
        position: of the operand that reads it.
        is_whole: it is read at axes of the contraction alone (:class:`taskfuse.schedulers.contraction.Operand`), by the contraction itself.
        is_k_major: k is its last axis.
        vector: elements of one copy.
    """

    tensor: TensorView
    reader: TensorView
    position: int
    is_whole: bool
    is_k_major: bool
    vector: int


@dataclass(frozen=True, slots=True, eq=False)
class PairReduction:
    """The contraction of a fusion.

    Attributes:
        axes: of the contraction.
        a, b: the factors with its rows and with its columns.
        inner: the elementwise tensors of the body, producers first; they have every axis.
        instructions: of a pair: 1 for a product that is added.
        vector: elements of a vector in registers.
    """

    axes: MatrixAxes
    a: PairFactor
    b: PairFactor
    inner: tuple[TensorView, ...]
    instructions: int
    vector: int


def settle(script: Script) -> None:
    """Compute the elementwise tensors of a body for each pair, such as a factor that is converted before it is broadcast. A product of two tensors is left
    unchanged: functions of its factors are computed once per element, in a separate kernel.

    Raises:
        UnsupportedError: that makes too many tensors.
    """
    if not is_settled(script.fusion):
        recompute_all(script, script.fusion)


def is_settled(fusion: Fusion) -> bool:
    """Whether :func:`settle` leaves it alone."""

    def has_body(expr: MathExpr) -> bool:
        reads = storage_reads(fusion, expr)
        return len(reads) == 1 and not reads[0].tensor.is_input and is_aligned(reads[0], expr.output)

    return not any(isinstance(expr, Reduction) and has_body(expr) for expr in needed(fusion))


def find(fusion: Fusion, scheduler: str = "simt_gemm") -> PairReduction:
    """The contraction of ``fusion``.

    Args:
        scheduler: what asks, for errors.

    Raises:
        UnsupportedError: there is not exactly one; its body reads other than two inputs, one with rows and one with columns, or computed ones; an inner
            tensor lacks an axis, or is needed elsewhere; the rest is not elementwise; or an extent may be 0.
    """
    expr, body = _contraction(fusion, scheduler)
    result = expr.output
    found, readers = _factors(fusion, scheduler, expr, body)
    if not found.make_a_matrix:
        raise refuse(fusion, scheduler, f"{result.name} has no rows or no columns", "tf.schedulers.reduction")
    if max(found.rows) > max(found.columns):
        found, readers = found.swapped(), readers[::-1]
    for a in result.root:
        if not prove(ge(a.extent, 1), fusion.facts()):
            raise refuse(fusion, scheduler, f"the extent {a.extent} may be 0", "declare it with tf.dim(..., min=1)")
    axes = found.as_matrices(result)
    reads = tuple(zip((found.a, found.b), (axes.m, axes.n), readers, found.places, strict=True))
    a, b = (
        PairFactor(r.tensor, reader, place, whole and not body, iteration_position(r.index[-1]) == axes.k, _vector(fusion, r.tensor))
        for (r, row, reader, place) in reads
        for whole in [_check_factor(fusion, scheduler, r, result, row, axes, {e.output for e in (*body, expr)})]
    )
    widest = max(tv.dtype.itemsize for tv in (result, a.tensor, b.tensor, *(e.output for e in body), *fusion.outputs))
    return PairReduction(axes, a, b, tuple(e.output for e in body), _instructions(expr, body), min(4, VECTOR_BYTES // widest))


def copies(script: Script, problem: PairReduction, result: TensorView) -> tuple[list[TensorView], list[TensorView]]:
    """What reads each factor, and copies of the factors in Shared memory that it reads instead, at axes of the contraction alone.

    Args:
        result: what the contraction is computed in.
    """
    is_one = problem.a.tensor is problem.b.tensor
    readers = [result if f.reader is problem.axes.result else f.reader for f in (problem.a, problem.b)]
    tiles = [
        script.new(f.tensor, "cache_after", *([result, f.position] if is_one else [])) if f.is_whole else script.through_view(reader, f.position)
        for f, reader in zip((problem.a, problem.b), readers, strict=True)
    ]
    for tile in tiles:
        script.on(tile).set_memory_type(MemoryType.Shared)
    return readers, tiles


def deal_tiles(script: Script, problem: PairReduction, result: TensorView, tile: tuple[int, int, int]) -> Recorded:
    """Give each block a tile of the result; ``tile``: its rows, its columns, and elements of k. Returns the calls of the tensor of sums."""
    axes = problem.axes
    script.comment("[batch, row tile, column tile: blocks | others summed, k tile | rows, columns, k]")
    order = [*axes.batch, axes.m, axes.n, *axes.summed, axes.k]
    call = script.on(result)
    if order != sorted(order):
        call.reorder(order)
    m, last = len(axes.batch), len(order) - 1
    call.split(last, tile[2]).split(m + 1, tile[1]).split(m, tile[0])
    call.reorder([*range(m + 1), m + 2, *range(m + 4, last + 3), m + 1, m + 3, last + 3])
    for axis in range(m + 2):
        call.bind(axis, ParallelType.BIDx)
    return call


def check_one(fusion: Fusion, scheduler: str) -> None:
    """Refuse a fusion that has several reductions, however it is changed: one of axes of one element may become elementwise (:func:`reduces_one`)."""
    exprs = needed(fusion)
    found = [e for e in exprs if isinstance(e, Reduction)]
    if len(found) > 1 and all(isinstance(e, Reduction | Pointwise | View) for e in exprs) and not any(reduces_one(fusion, e) for e in found):
        raise _several(fusion, scheduler, len(found))


def _several(fusion: Fusion, scheduler: str, count: int) -> UnsupportedError:
    return refuse(fusion, scheduler, f"it takes one contraction, and there are {count} reductions", "use a separate fusion for each")


def _contraction(fusion: Fusion, scheduler: str) -> tuple[Reduction, tuple[MathExpr, ...]]:
    """The one reduction, and the inner tensors. Checks that all tensors read at their own points."""
    exprs = needed(fusion)
    found: list[Reduction] = []
    for expr in exprs:
        if isinstance(expr, Reduction):
            found.append(expr)
        elif not isinstance(expr, Pointwise | View):
            raise refuse(fusion, scheduler, f"{expr.output.name} is not computed element by element", "move it to a separate fusion")
    if len(found) != 1:
        raise _several(fusion, scheduler, len(found))
    (contraction,) = found
    behind = {contraction.output}
    body = {contraction.output}
    for expr in exprs:
        if any(read.tensor in behind for read in storage_reads(fusion, expr)):
            behind.add(expr.output)
    for expr in reversed(exprs):
        tv = expr.output
        if tv not in behind and not tv.is_output and all(use.output in body for use in storage_uses(fusion, tv)):
            body.add(tv)
    for expr in exprs:
        tv = expr.output
        if tv not in behind | body:
            raise refuse(fusion, scheduler, f"{tv.name} does not need the contraction", "move it to a separate fusion")
        for read in storage_reads(fusion, expr):
            if not read.tensor.is_input and not is_aligned(read, tv):
                reason = f"{tv.name} reads {read.tensor.name} at points other than its own"
                raise refuse(fusion, scheduler, reason, "move it to a separate fusion")
    return contraction, tuple(e for e in exprs if e.output in body and e is not contraction)


def _factors(fusion: Fusion, scheduler: str, expr: Reduction, body: Sequence[MathExpr]) -> tuple[Factors, tuple[TensorView, TensorView]]:
    """The factors, and what reads each."""
    if not body:
        found = factors(fusion, expr)
        if found is None:
            raise refuse(fusion, scheduler, f"{expr.output.name} does not reduce pairs of elements of two tensors", "tf.schedulers.reduction")
        return found, (expr.output, expr.output)
    places = [
        (e.output, place, operand)
        for e in (*body, expr)
        for place, operand in enumerate(storage_operands(fusion, e))
        if isinstance(operand, Read) and operand.tensor.is_input
    ]
    if len(places) != 2:
        raise refuse(fusion, scheduler, f"the term of {expr.output.name} reads elements of inputs at {len(places)} places", "tf.schedulers.reduction")
    (first, at, a), (second, there, b) = places
    return classified(expr.output, (a, b), (at, there)), (first, second)


def _check_factor(fusion: Fusion, scheduler: str, read: Read, result: TensorView, row: int, axes: MatrixAxes, body: set[TensorView]) -> bool:
    """Whether a factor is read at axes of the contraction alone.

    Raises:
        UnsupportedError: it is computed or read elsewhere, too, or other axes than those of the batch decide where it is read.
    """
    tv = read.tensor
    positions = [iteration_position(e) for e in read.index]
    uses = storage_uses(fusion, tv)
    if not tv.is_input or not all(use.output in body for use in uses):
        raise refuse(fusion, scheduler, f"the factor {tv.name} is computed, or read elsewhere, too", "make it an input of a separate fusion")
    known = [p for p in positions if p is not None]
    whole = at_axes(result, read)
    is_found = all(w or c for w, c in zip(whole, chosen_by_batch(read, row, axes), strict=True)) and whole[-1]
    if not is_found or read.valid is not TRUE or len(set(known)) != len(known):
        raise refuse(fusion, scheduler, f"{result.name} reads {tv.name} at [{', '.join(map(str, read.index))}]", "pass slices and reshaped arrays as inputs")
    return all(whole)


def _vector(fusion: Fusion, tv: TensorView) -> int:
    vector = VECTOR_BYTES // tv.dtype.itemsize
    while vector > 1 and not is_multiple(tv.shape[-1], vector, fusion.facts()):
        vector //= 2
    return vector


def _instructions(expr: Reduction, body: Sequence[MathExpr]) -> int:
    """Instructions of a pair; a product or a square that is added takes one with the addition."""
    products = {ELEMENTWISE["mul"], ELEMENTWISE["square"]}
    last = expr.body if expr.body is not ELEMENTWISE["copy"] or not body else getattr(body[-1], "op", None)
    is_fused = expr.combine.name == "add" and last in products
    own = 0 if expr.body is ELEMENTWISE["copy"] else 1
    return max(1, sum(cost(e) for e in body) + own + 1 - is_fused)
