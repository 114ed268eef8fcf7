"""Concatenation and padding: cat, stack, pad.

*Gather*: the result's own loops select the part by index. *Scatter*: each part is stored as a slice of the result and nothing is executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import SupportsIndex

from taskfuse.dtypes import DType, result_type
from taskfuse.errors import shown
from taskfuse.ir.axes import axis, iteration_symbol
from taskfuse.ir.dims import Dim
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Assemble, FirstValid, Operand, Read, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import ONE, TRUE, ZERO, Const, Expr, IntLike, and_, eq, le, lt, prove, wrap
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import (
    Shape,
    broadcast_read,
    cast_tensor,
    check_symbols,
    check_tensor,
    common_fusion,
    define_pointwise,
    described,
    dtype_error,
    facts_help,
    listed,
    literal,
    normalize_axis,
    plain,
    shape_error,
)
from taskfuse.ops.keywords import axial
from taskfuse.ops.registry import OpKind, op, promoted, same
from taskfuse.ops.views import broadcast_to, flip, view

__all__ = ["CatForm", "cat", "pad", "stack"]

Widths = IntLike | str | Sequence[IntLike] | Sequence[tuple[IntLike, IntLike]]


class CatForm(Enum):
    """How ``cat`` and ``stack`` are computed."""

    GATHER = "gather"
    SCATTER = "scatter"


def _form(op: str, form: CatForm | str) -> CatForm:
    try:
        return CatForm(form)
    except ValueError:
        raise dtype_error(op, f"{shown(form)} is not a form", "use 'gather' or 'scatter'") from None


def _parts(op: str, tensors: Sequence[TensorView]) -> tuple[Fusion, DType]:
    given = [check_tensor(op, tv) for tv in listed(op, tensors, "tensors")]
    if not given:
        raise shape_error(op, "needs at least one tensor")
    return common_fusion(op, given), result_type(*(tv.dtype for tv in given))


@op(OpKind.ASSEMBLY, promoted, torch="cat concat concatenate", numpy="concatenate")
@axial
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
            raise shape_error(
                "cat", f"{described(first)} and {described(tv)} differ in another dimension than {place}", "reshape or broadcast one of them first"
            )
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
                return define_select(fusion, "cat", shape, reads, dtype)
            case CatForm.SCATTER:
                places = [tuple(here + start if d == place else s for d, s in enumerate(symbols)) for start in offsets[:-1]]
                return _assemble(fusion, shape, parts, places, dtype)


@op(OpKind.ASSEMBLY, promoted)
@axial
def stack(tensors: Sequence[TensorView], dim: int = 0, form: CatForm | str = CatForm.GATHER) -> TensorView:
    """``tensors`` of one shape along a new dimension ``dim``; forms as in :func:`cat`.

    Raises :class:`ShapeError` if there are no tensors or shapes differ.
    """
    fusion, dtype = _parts("stack", tensors)
    kind = _form("stack", form)
    first = tensors[0]
    for tv in tensors[1:]:
        if tv.ndim != first.ndim or any(a is not b for a, b in zip(tv.shape, first.shape, strict=True)):
            raise shape_error("stack", f"{described(first)} and {described(tv)} differ in shape", "reshape or broadcast one of them first")
    place = normalize_axis("stack", dim, first.ndim + 1, f"the {first.ndim + 1}-d result of {described(first)}")
    shape = (*first.shape[:place], wrap(len(tensors)), *first.shape[place:])
    symbols = tuple(iteration_symbol(d) for d in range(len(shape)))
    with fusion.call():
        parts = _prepared(tensors, dtype, kind)
        match kind:
            case CatForm.GATHER:
                index = symbols[:place] + symbols[place + 1 :]
                reads = [Read(tv, index, TRUE if len(parts) == 1 else eq(symbols[place], wrap(k))) for k, tv in enumerate(parts)]
                return define_select(fusion, "stack", shape, reads, dtype)
            case CatForm.SCATTER:
                places = [(*symbols[:place], wrap(k), *symbols[place : first.ndim]) for k in range(len(parts))]
                return _assemble(fusion, shape, parts, places, dtype)


class PadMode(Enum):
    """The values that ``pad`` puts around a tensor, by NumPy's names; torch's ``replicate`` and ``circular`` mean ``edge`` and ``wrap``."""

    CONSTANT = "constant"
    EDGE = "edge"
    REFLECT = "reflect"
    SYMMETRIC = "symmetric"
    WRAP = "wrap"


_TORCH_MODES = {"replicate": "edge", "circular": "wrap"}


@op(OpKind.ASSEMBLY, same, torch="pad constant_pad_nd")
def pad(x: TensorView, widths: Widths, value: bool | int | float | None = None, mode: PadMode | str = PadMode.CONSTANT) -> TensorView:
    """``x`` with ``widths[d] = (before, after)`` elements around it in each dimension, as ``mode`` says.

    Args:
        x: the tensor.
        widths: one pair per dimension, outermost first; or one pair, or one number, for all. Negative constants take elements away, as in torch.
        value: of the mode ``constant``; by default 0.
        mode: ``constant``; ``edge`` (torch: ``replicate``), the last element; ``reflect``, the elements before the last, mirrored; ``symmetric``, the same
            with the last one twice; ``wrap`` (torch: ``circular``), those of the other end.

    Raises:
        ShapeError: if ``widths`` are not widths, a symbolic one is not provably nonnegative, more elements are taken away than there are, or a width is not
            provably within the elements that the mode repeats.
        DTypeError: if the dtype of ``x`` cannot hold ``value``, the mode does not exist, or a value is given for a mode other than ``constant``.
    """
    check_tensor("pad", x)
    given = _pairs(x, widths)
    try:
        kind = PadMode(_TORCH_MODES.get(mode, mode) if isinstance(mode, str) else mode)
    except ValueError:
        raise dtype_error("pad", f"{shown(mode)} is not a mode", f"use one of {', '.join(m.value for m in PadMode)}") from None
    if kind is not PadMode.CONSTANT:
        if value is not None:
            raise dtype_error("pad", f"mode {kind.value!r} takes no value", "leave out value=")
        with x.fusion.call():
            return _extended(*_cropped(x, given), kind)
    number = 0 if value is None else plain(value)
    if not isinstance(number, bool | int | float):
        raise dtype_error("pad", f"{shown(value)} is not a number", "use tf.where if the value is a tensor or a run-time scalar")
    if number and result_type(x.dtype, number) is not x.dtype:
        raise dtype_error("pad", f"{shown(number)} is not a value of {x.dtype.name}", "cast the tensor first")
    fill = literal("pad", number, x.dtype)
    with x.fusion.call():
        x, pairs = _cropped(x, given)
        shape = tuple(before + e + after for e, (before, after) in zip(x.shape, pairs, strict=True))
        symbols = [iteration_symbol(d) for d in range(x.ndim)]
        index = tuple(s - before for s, (before, _) in zip(symbols, pairs, strict=True))
        valid = and_(*(_between(s, b, b + e, t) for s, (b, _), e, t in zip(symbols, pairs, x.shape, shape, strict=True)))
        return define_select(x.fusion, "pad", shape, (Read(x, index, valid), fill), x.dtype)


def _cropped(x: TensorView, pairs: list[tuple[Expr, Expr]]) -> tuple[TensorView, list[tuple[Expr, Expr]]]:
    """``x`` without the elements that negative widths take away, and the other widths."""
    facts = x.fusion.facts()
    for d, (before, after) in enumerate(pairs):
        gone = [-width if isinstance(width, Const) and width.value < 0 else ZERO for width in (before, after)]
        if all(width is ZERO for width in gone):
            continue
        if not prove(le(gone[0] + gone[1], x.shape[d]), facts):
            raise shape_error("pad", f"widths {before} and {after} remove more elements of dimension {d} of {described(x)} than it provably has", facts_help(x))
        x = _sliced(x, d, gone[0], x.shape[d] - gone[1])
    return x, [(_added(before), _added(after)) for before, after in pairs]


def _added(width: Expr) -> Expr:
    """How many elements a width adds: a symbolic one is not negative."""
    return ZERO if isinstance(width, Const) and width.value < 0 else width


def _pairs(x: TensorView, widths: object) -> list[tuple[Expr, Expr]]:
    """One pair of widths per dimension of ``x``, checked."""
    help = "give one number for all, or one (before, after) per dimension"
    given = listed("pad", widths, "widths", help)
    rows = [listed("pad", w, "widths", help) for w in given]
    if all(isinstance(w, SupportsIndex | str | Dim) for w in given) and len(given) in (1, 2):
        rows = [[given[0], given[-1]]] * x.ndim
    if len(rows) != x.ndim or any(len(row) != 2 for row in rows):
        raise shape_error("pad", f"{len(rows)} pairs of widths for the {x.ndim} dimensions of {described(x)}", help)
    facts = x.fusion.facts()
    found: list[tuple[Expr, Expr]] = []
    for row in rows:
        pair: list[Expr] = []
        for width in row:
            number = plain(width)
            if not isinstance(number, int | Expr) or isinstance(number, bool):
                raise shape_error("pad", f"width {shown(width)} is not an integer", help)
            check_symbols("pad", x.fusion, number)
            if isinstance(number, Expr) and not prove(le(0, number), facts):
                raise shape_error("pad", f"width {number} is not provably nonnegative", "slice to make a tensor smaller; constants may be negative")
            pair.append(wrap(number))
        found.append((pair[0], pair[1]))
    return found


def _extended(x: TensorView, pairs: Sequence[tuple[Expr, Expr]], kind: PadMode) -> TensorView:
    """``x`` padded with its own elements: one concatenation per dimension that has a width."""
    facts = x.fusion.facts()
    with x.fusion.call():
        for d, (before, after) in enumerate(pairs):
            n, widths = x.shape[d], [width for width in (before, after) if width is not ZERO]
            has = {PadMode.EDGE: ONE, PadMode.REFLECT: n - 1, PadMode.SYMMETRIC: n, PadMode.WRAP: n}[kind]
            for width in widths:
                if not prove(le(1, n) if kind is PadMode.EDGE else le(width, has), facts):
                    what = f"{width} elements of dimension {d} of {described(x)}, which has {n}"
                    raise shape_error("pad", f"mode {kind.value!r} cannot give {what}", facts_help(x) or "pad several times")
            first = [] if before is ZERO else [_border(x, d, kind, before, is_before=True)]
            last = [] if after is ZERO else [_border(x, d, kind, after, is_before=False)]
            x = cat([*first, x, *last], d) if widths else x
        return x


def _border(x: TensorView, d: int, kind: PadMode, width: Expr, *, is_before: bool) -> TensorView:
    """The ``width`` elements that ``kind`` puts before ``x``, or after it, along dimension ``d``."""
    n = x.shape[d]
    match kind:
        case PadMode.WRAP:
            return _sliced(x, d, n - width, n) if is_before else _sliced(x, d, ZERO, width)
        case PadMode.EDGE:
            at = ZERO if is_before else n - 1
            return _stretched(_sliced(x, d, at, at + 1), d, width)
        case _:
            off = ONE if kind is PadMode.REFLECT else ZERO
            start = off if is_before else n - width - off
            return flip(_sliced(x, d, start, start + width), d)


def _sliced(x: TensorView, d: int, start: Expr, stop: Expr) -> TensorView:
    """The elements ``[start, stop)`` along dimension ``d``, which must exist."""
    shape = [stop - start if k == d else e for k, e in enumerate(x.shape)]
    return view(x, "slice", shape, [start + iteration_symbol(k) if k == d else iteration_symbol(k) for k in range(x.ndim)])


def _stretched(x: TensorView, d: int, extent: Expr) -> TensorView:
    """``x`` of extent 1 along dimension ``d`` repeated there."""
    return broadcast_to(x, [extent if k == d else e for k, e in enumerate(x.shape)])


def _between(position: Expr, start: Expr, end: Expr, total: Expr) -> Expr:
    """``start <= position < end``, without the comparisons that hold for all of ``[0, total)``."""
    above = TRUE if start is ZERO else le(start, position)
    below = TRUE if end is total else lt(position, end)
    return and_(above, below)


def define_select(fusion: Fusion, label: str, shape: Shape, operands: Sequence[Operand], dtype: DType) -> TensorView:
    location = caller()
    out = fusion.new_tensor([axis(e) for e in shape], dtype, location=location)
    return fusion.define(FirstValid(out, label, tuple(operands), location))


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
