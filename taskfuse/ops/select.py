"""Ops that put parts together: cat, stack, pad.

*Gather*: the result's own loops select the part by index. *Scatter*: each part is stored as a slice of the result and nothing is executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from taskfuse.dtypes import DType, result_type
from taskfuse.ir.arithmetic import among
from taskfuse.ir.axes import axis, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Assemble, Operand, Read, Select, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import TRUE, ZERO, Expr, IntLike, and_, eq, le, lt, prove, wrap
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import (
    Shape,
    broadcast_read,
    cast_tensor,
    check_tensor,
    common_fusion,
    define_pointwise,
    described,
    dtype_error,
    literal,
    normalize_axis,
    shape_error,
)
from taskfuse.ops.table import Kind, op, promoted, same

__all__ = ["CatForm", "cat", "pad", "stack"]


class CatForm(Enum):
    """How ``cat`` and ``stack`` are carried out."""

    GATHER = "gather"
    SCATTER = "scatter"


def _form(op: str, form: CatForm | str) -> CatForm:
    try:
        return CatForm(form)
    except ValueError:
        raise dtype_error(op, f"{form!r} is no form", "use 'gather' or 'scatter'") from None


def _parts(op: str, tensors: Sequence[TensorView]) -> tuple[Fusion, DType]:
    given = [check_tensor(op, tv) for tv in tensors]
    if not given:
        raise shape_error(op, "needs at least one tensor")
    return common_fusion(op, tensors), result_type(*(tv.dtype for tv in tensors))


@op(Kind.ASSEMBLY, promoted, torch="cat concat concatenate", numpy="concatenate")
def cat(tensors: Sequence[TensorView], dim: int = 0, form: CatForm | str = CatForm.GATHER) -> TensorView:
    """``tensors`` one after another along ``dim``; all other extents are equal.

    In scatter form a part that cannot be a slice of the result is copied first: a fusion input, a view, an output, a tensor that another
    expression reads already, or one that occurs twice.

    Raises :class:`ShapeError` if there are no tensors, a tensor is 0-d, or extents differ.
    """
    fusion, dtype = _parts("cat", tensors)
    kind = _form("cat", form)
    first = tensors[0]
    place = normalize_axis("cat", dim, first.ndim, described(first))
    for tv in tensors[1:]:
        if tv.ndim != first.ndim or any(a is not b for d, (a, b) in enumerate(zip(tv.shape, first.shape, strict=True)) if d != place):
            raise shape_error("cat", f"{described(first)} and {described(tv)} differ besides dimension {place}", "reshape or broadcast one of them first")
    offsets: list[Expr] = [ZERO]
    for tv in tensors:
        offsets.append(offsets[-1] + tv.shape[place])
    shape = (*first.shape[:place], offsets[-1], *first.shape[place + 1 :])
    symbols = [iteration_symbol(d) for d in range(first.ndim)]
    here = symbols[place]
    with fusion.call():
        parts = _prepared(tensors, dtype, kind)
        match kind:
            case CatForm.GATHER:
                reads = [
                    Read(tv, tuple(here - start if d == place else s for d, s in enumerate(symbols)), _between(here, start, end, offsets[-1]))
                    for tv, start, end in zip(parts, offsets, offsets[1:], strict=False)
                ]
                return _select(fusion, "cat", shape, reads, dtype)
            case CatForm.SCATTER:
                places = [tuple(here + start if d == place else s for d, s in enumerate(symbols)) for start in offsets[:-1]]
                return _assemble(fusion, shape, parts, places, dtype)


@op(Kind.ASSEMBLY, promoted)
def stack(tensors: Sequence[TensorView], dim: int = 0, form: CatForm | str = CatForm.GATHER) -> TensorView:
    """``tensors`` of one shape along a new dimension ``dim``; forms as in :func:`cat`.

    Raises :class:`ShapeError` if there are no tensors or shapes differ.
    """
    fusion, dtype = _parts("stack", tensors)
    kind = _form("stack", form)
    first = tensors[0]
    for tv in tensors[1:]:
        if tv.ndim != first.ndim or any(a is not b for a, b in zip(tv.shape, first.shape, strict=True)):
            raise shape_error("stack", f"{described(first)} and {described(tv)} differ", "reshape or broadcast one of them first")
    place = normalize_axis("stack", dim, first.ndim + 1, f"the {first.ndim + 1}-d result of {described(first)}")
    shape = (*first.shape[:place], wrap(len(tensors)), *first.shape[place:])
    symbols = tuple(iteration_symbol(d) for d in range(len(shape)))
    with fusion.call():
        parts = _prepared(tensors, dtype, kind)
        match kind:
            case CatForm.GATHER:
                index = symbols[:place] + symbols[place + 1 :]
                reads = [Read(tv, index, TRUE if len(parts) == 1 else eq(symbols[place], wrap(k))) for k, tv in enumerate(parts)]
                return _select(fusion, "stack", shape, reads, dtype)
            case CatForm.SCATTER:
                places = [(*symbols[:place], wrap(k), *symbols[place : first.ndim]) for k in range(len(parts))]
                return _assemble(fusion, shape, parts, places, dtype)


@op(Kind.ASSEMBLY, same, torch="pad constant_pad_nd")
def pad(x: TensorView, widths: Sequence[tuple[IntLike, IntLike]], value: bool | int | float = 0) -> TensorView:
    """``x`` with ``widths[d] = (before, after)`` elements of ``value`` around it in each dimension.

    Raises:
        ShapeError: if ``widths`` does not have one pair per dimension or a width is not provably nonnegative.
        DTypeError: if the dtype of ``x`` cannot hold ``value``.
    """
    check_tensor("pad", x)
    if len(widths) != x.ndim:
        raise shape_error("pad", f"{len(widths)} pairs of widths for the {x.ndim} dimensions of {described(x)}", "give one (before, after) per dimension")
    facts = x.fusion.facts()
    for before, after in widths:
        for width in (before, after):
            if not prove(le(0, width), facts):
                raise shape_error("pad", f"width {width} is not provably nonnegative", "slice to make a tensor smaller")
    if value and result_type(x.dtype, value) is not x.dtype:
        raise dtype_error("pad", f"{value!r} is no {x.dtype.name}", "cast the tensor first")
    fill = literal("pad", value, x.dtype)
    shape = tuple(before + e + after for e, (before, after) in zip(x.shape, widths, strict=True))
    symbols = [iteration_symbol(d) for d in range(x.ndim)]
    index = tuple(s - before for s, (before, _) in zip(symbols, widths, strict=True))
    valid = and_(*(_between(s, wrap(b), b + e, t) for s, (b, _), e, t in zip(symbols, widths, x.shape, shape, strict=True)))
    return _select(x.fusion, "pad", shape, (Read(x, index, valid), fill), x.dtype)


def _between(position: Expr, start: Expr, end: Expr, total: Expr) -> Expr:
    """``start <= position < end``, without the halves that hold in ``[0, total)``."""
    above = TRUE if start is ZERO else le(start, position)
    below = TRUE if end is total else lt(position, end)
    return and_(above, below)


def _select(fusion: Fusion, label: str, shape: Shape, operands: Sequence[Operand], dtype: DType) -> TensorView:
    location = caller()
    out = fusion.new_tensor([axis(e) for e in shape], dtype, location=location)
    return fusion.define(Select(out, label, tuple(operands), location))


def _assemble(fusion: Fusion, shape: Shape, parts: Sequence[TensorView], places: Sequence[tuple[Expr, ...]], dtype: DType) -> TensorView:
    location = caller()
    out = fusion.new_tensor([axis(e) for e in shape], dtype, location=location)
    reads = tuple(broadcast_read(tv, tv.shape) for tv in parts)
    return fusion.define(Assemble(out, reads, tuple(places), location))


def _prepared(tensors: Sequence[TensorView], dtype: DType, form: CatForm) -> list[TensorView]:
    """The parts cast to ``dtype``, and copied where scatter needs it."""
    parts: list[TensorView] = []
    for tv in tensors:
        part = cast_tensor(tv, dtype)
        if form is CatForm.SCATTER and (among(part, parts) or part.is_input or part.is_output or part.uses or isinstance(part.definition, View)):
            part = define_pointwise(tv.fusion, ELEMENTWISE["copy"], part.shape, (broadcast_read(part, part.shape),), dtype)
        parts.append(part)
    return parts
