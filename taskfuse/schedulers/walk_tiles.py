"""The common part of schedules of walks: the factors of their products as tiles in Shared memory, and the products on tensor cores."""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.dtypes import float32
from taskfuse.ir import atoms
from taskfuse.ir.atoms import SUM_OF_PRODUCTS, WGMMA_ROWS
from taskfuse.ir.axes import iteration_point, iteration_position
from taskfuse.ir.contraction import Factors, computes, factors
from taskfuse.ir.expr import FirstValid, Literal, Operand, Read, Reduction
from taskfuse.ir.fragments import term_digits, term_of_column
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.matrix_instructions import Family, rows
from taskfuse.ir.scalar import Const, Expr, sym
from taskfuse.ir.storage import resolve
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule import layouts
from taskfuse.schedule.through_view import reads_through
from taskfuse.schedulers.attention_config import ITEMSIZE, STEP, span
from taskfuse.schedulers.schedule import refuse
from taskfuse.schedulers.script import Recorded, Script, Spelled


def matrices(fusion: Fusion, expr: Reduction) -> Factors | None:
    """The factors of a matrix product; ``None`` for another reduction."""
    found = factors(fusion, expr) if computes(expr, SUM_OF_PRODUCTS) else None
    return found if found is not None and found.make_a_matrix else None


def check_product(fusion: Fusion, kind: str, expr: Reduction, two: Factors, itemsizes: Sequence[int] = (ITEMSIZE,), computed: Operand | None = None) -> None:
    """Raise :class:`UnsupportedError` unless ``wgmma`` multiplies the factors of a product as tiles in Shared memory, and sums in float32.

    Args:
        kind: the scheduler.
        itemsizes: the bytes that an element of the factors may have.
        computed: the factor that is computed of accumulators, in their registers. The other one has the terms in the order in which these have them
            (:func:`taskfuse.ir.fragments.term_of_column`).
    """
    name, dtypes = expr.output.name, (two.a.tensor.dtype, two.b.tensor.dtype)
    a, b = dtypes
    if not {dtype.itemsize for dtype in dtypes} <= set(itemsizes) or not all(dtype.is_float for dtype in dtypes) or expr.output.dtype is not float32:
        bits = " or ".join(f"{8 * size}-bit" for size in itemsizes)
        raise refuse(fusion, kind, f"{name} is not a float32 sum of products of {bits} floats", "cast the factors; dtype=tf.float32")
    found = rows(Family.WGMMA, a, b)
    if not any(row.sums is float32 for row in found):
        raise refuse(fusion, kind, f"{name} multiplies {a.name} by {b.name}, which tensor cores do not", "cast the factors to one dtype")
    for factor in (two.a, two.b):
        read = resolve(fusion, factor)
        if found[0].transposes or iteration_position(_as_summed(read, a.itemsize if computed not in (None, factor) else ITEMSIZE)) in two.summed:
            continue
        reason = f"{name} does not sum over the last axis of {read.tensor!r}, which tensor cores take contiguous in elements of {8 * a.itemsize} bits"
        if computed is None:
            raise refuse(fusion, kind, reason, f"pass {read.tensor.name} transposed, as an array of its own")
        raise refuse(fusion, kind, f"{reason}, in the order of accumulators", "tf.compile copies it so, by tv.pack_factors(axis, n, operands, as_columns=True)")


def _as_summed(read: Read, itemsize: int) -> Expr:
    """The index along the last axis, of which terms in the order of accumulators are the place."""
    last = read.index[-1]
    free = [sym(name) for name in sorted(last.free)]
    return free[0] if len(free) == 1 and last is term_of_column(free[0], itemsize) else last


def is_given(fusion: Fusion, operand: Operand) -> bool:
    """True for an input, or a zero-padded one, such as chunks of keys."""
    if not isinstance(operand, Read):
        return False
    tensor = resolve(fusion, operand).tensor
    match fusion.definition(tensor):
        case FirstValid(operands=(Read() as read, Literal(value=value))):
            return value == 0 and resolve(fusion, read).tensor.is_input
        case _:
            return tensor.is_input


def copied(script: Script, reader: TensorView, operand: int, there: Sequence[TensorView] = ()) -> TensorView:
    """The tile of an operand: a zero-padded copy is one already, and an operand that is ``there`` is not copied again."""
    fusion = script.fusion
    expr = fusion.definition(reader)
    assert expr is not None
    given = expr.operands[operand]
    assert isinstance(given, Read)
    read = resolve(fusion, given)
    if not read.tensor.is_input:
        return read.tensor
    same = next((tv for tv in there if reads_through(reader, operand, tv)), None)
    if same is not None:
        return script.through_view(reader, operand, same)
    is_whole = read.tensor is given.tensor and all(any(e is s for s in iteration_point(len(reader.root))) for e in read.index)
    return script.new(read.tensor, "cache_after", reader, operand) if is_whole else script.through_view(reader, operand)


def swizzle(script: Script, tv: TensorView, run: int | None = None) -> Recorded:
    """Rows of at most 128 bytes, in pieces, as tensor cores read them. Returns the calls of the tensor; its last two axes are those of a piece.

    Args:
        run: a piece has so many rows; ``None``: all.
    """
    extent = tv.schedule.loop[-1].extent
    assert isinstance(extent, Const)
    size = tv.dtype.itemsize
    piece = span(extent.value * size)
    call = script.on(tv)
    call.split(-1, piece // size).reorder({-2: -3})
    call.bind(-3, P.Unroll)
    if run is not None:
        call.split(-2, run).bind(-3, P.Unroll)
    return call.set_allocation_domain(Spelled(layouts.swizzled(piece), f"tf.layouts.swizzled({piece})"))


def as_terms(call: Recorded, itemsize: int) -> Recorded:
    """The last axis, of columns of accumulators, in the order in which they are terms of a product that takes them from their registers."""
    pairs, lanes, elements = term_digits(itemsize)
    if pairs == 1:
        return call
    call.split(-1, pairs * lanes * elements).split(-1, lanes * elements).split(-1, elements)
    return call.reorder({-3: -2}).merge(-4).merge(-3).merge(-2)


def hold_terms(call: Recorded, columns: int, itemsize: int) -> Recorded:
    """[.., columns / 8, half, element] of accumulators to [.., columns / 16, half, pair, element], as registers have four neighboring terms of 8 bits."""
    pairs, _, _ = term_digits(itemsize)
    return call if pairs == 1 else call.split(columns, pairs).reorder({columns + 2: columns + 1})


def multiply(script: Script, tv: TensorView, m: int, columns: int, itemsize: int = ITEMSIZE, *, is_computed: bool = False) -> None:
    """[.., warpgroup, m64, columns, terms] to [.., warpgroup, step, | m64, columns, 16], with the 64 rows at ``m``, as wgmma.

    Args:
        itemsize: bytes of an element of the factors: of 8 bits an instruction multiplies 32 terms.
        is_computed: the first factor is computed of accumulators, in their registers.
    """
    step = STEP * ITEMSIZE // itemsize
    call = as_terms(script.on(tv), itemsize) if is_computed else script.on(tv)
    call.split(-1, step).reorder({m + 2: m})
    call.set_atom(atoms.wgmma(WGMMA_ROWS, columns, step), (m + 1, m + 2, m + 3))
    call.bind(m, P.Unroll)


def hold_results(
    script: Script, results: Sequence[TensorView], head: int, row_results: Sequence[TensorView] = (), bulk: Sequence[TensorView] = (), parts: int = 1
) -> None:
    """Results as the tensor cores hold sums: [.., rows of a block at ``head``, columns] to [.., warpgroup, | warp, row, pair, half, columns / 8, element].

    Args:
        results: the first has its rows at ``head``; the others become like it.
        row_results: results without columns.
        bulk: results that the copy engine stores, from tiles that ``stmatrix`` fills.
        parts: warpgroups that have the same rows, each with its part of the columns.
    """
    call, tile = script.on(results[0]), head + 1
    call.split(head, WGMMA_ROWS)
    columns = results[0].schedule.loop[tile + 1].extent
    assert isinstance(columns, Const)
    if bulk:
        call.propagate(list(bulk), tile + 1)
    if parts > 1:  # they go beside the rows when tensors without columns have these
        call.split(tile + 1, columns.value // parts).reorder({tile + 1: tile + 2})
        for tv in bulk:
            script.on(tv).split(tile + 1, columns.value // parts).merge(head, tile + 1)
    call.fragment((tile, tile + 1)).reorder({tile + 4: tile + 3})
    if row_results:
        call.propagate(list(row_results), tile + 4)
    if bulk:
        call.reorder({tile + 3: tile + 4})  # the order of stmatrix
    if parts > 1:
        call.merge(head, tile + 6)
    call.propagate(list(results[1:]), tile + 6)
    call.bind(head, P.TIDy)


def share_walk(script: Script, tensors: Sequence[TensorView], inside: Sequence[TensorView], head: int) -> None:
    """Compute all tensors in the loops over blocks, and those that are ``inside`` for each chunk, whose loop is at ``head``."""
    script.inline_at(tensors, head)
    script.inline_at([tv for tv in tensors if among(tv, inside)], head + 1)


def share_results(script: Script, results: Sequence[TensorView], stored: Sequence[tuple[TensorView, TensorView]], head: int) -> None:
    """Compute results where what reads them is computed; those that are ``stored``, copies and what they are copied to, in whole rows of a fragment."""
    whole, others = list[TensorView](), list[TensorView]()
    for tv in results:
        if not tv.is_output:
            (whole if any(tv is copy for copy, _ in stored) else others).append(tv)
    script.inline_at(whole, head + 6)
    script.inline_at(others, head + 7)
