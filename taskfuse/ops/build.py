"""How ops make expressions: checks of operands, promotion, broadcasting, and the pointwise builder that most ops end in.

Implicit broadcasting makes no tensor: an operand is read by an op map that lacks the missing dimensions and stays at 0 in those of extent 1.
An implicit cast of a tensor makes a tensor that belongs to the call; constants and run-time scalars are converted where they are read.
All checks come before the first tensor is made, so a call that raises leaves the fusion as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex, cast

import numpy as np

from taskfuse.dtypes import DType, bool_, float16, float32, float64, int64, result_type, uint32, uint64
from taskfuse.errors import DTypeError, FusionError, ShapeError, shown
from taskfuse.ir.axes import axis, iteration_symbol
from taskfuse.ir.dims import Dim
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule, Elementwise
from taskfuse.ir.expr import IndexValue, Literal, Operand, Pointwise, Read, ScalarRead
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, ZERO, Const, Expr, Facts, free_symbols, shape_text, unsafe_divisor
from taskfuse.ir.tensor import Scalar, TensorView, Value
from taskfuse.location import caller

Shape = tuple[Expr, ...]
ARRAYS = "declare an input with tf.define_tensor, and give the array to the call"
"""What to do with an array of NumPy."""


def facts_help(x: TensorView, facts: str = "min=") -> str | None:
    """Help where what a tensor is asked for cannot be proved: facts about its extents, if any is symbolic."""
    return f"give facts with tf.dim(..., {facts})" if any(e.free for e in x.shape) else None


def shape_error(op: str, reason: str, help: str | None = None) -> ShapeError:
    """A :class:`ShapeError` at the user's line."""
    return ShapeError(op=op, reason=reason, help=help, location=caller())


def dtype_error(op: str, reason: str, help: str | None = None) -> DTypeError:
    """A :class:`DTypeError` at the user's line."""
    return DTypeError(op=op, reason=reason, help=help, location=caller())


def described(tv: TensorView) -> str:
    """How errors show an operand: ``tv0 [B, S]``."""
    return f"{tv.name} {shape_text(tv.shape)}"


def typed(x: Value) -> str:
    """How errors about dtypes show an operand: ``tv0 (int32)``."""
    return f"{x.name} ({x.dtype.name})" if isinstance(x, TensorView | Scalar) else repr(x)


def plain(x: object) -> object:
    """``x``; scalars of NumPy and constant extents as numbers of Python, whose dtype follows from what they are computed with."""
    match x:
        case Const(value):
            return value
        case np.generic():
            return cast("object", x.item())
        case _:
            return x


def check_tensor(op: str, x: object) -> TensorView:
    """``x`` if it is a tensor. Raises :class:`DTypeError`."""
    if not isinstance(x, TensorView):
        kind = type(x)
        help = ARRAYS if issubclass(kind, np.ndarray) else "make constants with tf.full, inputs with tf.define_tensor"
        raise dtype_error(op, f"takes a tensor, not {kind.__name__}", help)
    return x


def listed(op: str, value: object, what: str, help: str | None = None) -> list[Any]:
    """``value`` as a list; an integer or an extent is one entry. Raises :class:`ShapeError` if it is not a list of ``what``."""
    if isinstance(value, list | tuple):
        return list(cast("Iterable[Any]", value))
    if isinstance(value, str | int | Dim | SupportsIndex):  # the last looks at methods by name
        return [value]
    if not isinstance(value, Iterable):
        raise shape_error(op, f"{shown(value)} is not a list of {what}", help or f"give a list of {what}")
    return list(cast("Iterable[Any]", value))


def common_fusion(op: str, operands: Sequence[Value]) -> Fusion:
    """The fusion that all tensors and scalars among ``operands`` belong to.

    Raises:
        DTypeError: if an operand is not a value, or none is a tensor or run-time scalar.
        FusionError: if they belong to different fusions.
    """
    found: TensorView | Scalar | None = None
    for x in list[object](operands):
        match x:
            case TensorView() | Scalar():
                if found is not None and x.fusion is not found.fusion:
                    raise FusionError(fusion=found.fusion.name, reason=f"{op} mixes {found.name} with {x.name} of fusion '{x.fusion.name}'", location=caller())
                found = x
            case bool() | int() | float() | Expr() | np.generic():
                pass
            case np.ndarray():
                raise dtype_error(op, f"an array {list(x.shape)} is not an operand", ARRAYS)
            case _:
                raise dtype_error(op, f"{type(x).__name__} is not an operand", "use tensors, run-time scalars and Python numbers: float(x), int(x)")
    if found is not None:
        for x in operands:
            check_symbols(op, found.fusion, x)
    if found is None:
        raise dtype_error(op, "needs a tensor or a run-time scalar among its operands", "make constants with tf.full")
    return found.fusion


def check_symbols(op: str, fusion: Fusion, x: object) -> None:
    """Check that an expression is made of dimensions of ``fusion``, and has a value. Raises :class:`FusionError` or :class:`ShapeError`."""
    unknown = sorted(free_symbols(x) - fusion.dims.keys()) if isinstance(x, Expr) else []
    if unknown:
        reason = f"{op} of {x}: '{unknown[0]}' is not one of its dimensions"
        raise FusionError(fusion=fusion.name, reason=reason, help="use extents of tensors of this fusion, x.shape[d]", location=caller())
    if isinstance(x, Expr):
        check_divisors(op, str(x), x, fusion.facts())


def check_divisors(op: str, what: str, x: Expr, facts: Facts) -> None:
    """Check that an expression has a value in every call. Raises :class:`ShapeError`."""
    divisor = unsafe_divisor(x, facts)
    if divisor is not None:
        raise shape_error(op, f"{what} divides by {divisor}, which may be 0", "declare it with tf.dim(..., min=1)")


def normalize_axis(op: str, axis: object, ndim: int, what: str) -> int:
    """``axis`` as a position in ``[0, ndim)``. Raises :class:`ShapeError` that shows ``what``."""
    help = f"use an axis in [{-ndim}, {ndim - 1}]" if ndim else "a 0-d tensor has no axes"
    if not isinstance(axis, int | SupportsIndex):  # the second alone looks at methods by name
        raise shape_error(op, f"{shown(axis)} is not an axis", help)
    found = axis.__index__()
    if not -ndim <= found < ndim:
        raise shape_error(op, f"axis {found} is out of range for {what}", help)
    return found % ndim


def normalize_axes(op: str, axes: int | Sequence[int] | None, x: TensorView) -> tuple[int, ...]:
    """``axes`` as sorted positions; all of them if ``None``. Raises :class:`ShapeError` if one is out of range or given twice."""
    if axes is None:
        return tuple(range(x.ndim))
    given: tuple[object, ...] = tuple(axes) if isinstance(axes, Iterable) and not isinstance(axes, str) else (axes,)
    found = [normalize_axis(op, a, x.ndim, described(x)) for a in given]
    if len(set(found)) < len(found):
        raise shape_error(op, f"axes {given} of {described(x)} repeat an axis")
    return tuple(sorted(found))


# -- dtypes ----------------------------------------------------------------------------------------------------------------------------


def float_of(dtype: DType) -> DType:
    """The float that a dtype becomes in a function with float results, as in NumPy: 8 bits float16, 16 bits float32, else float64."""
    if dtype.is_float:
        return dtype
    return float16 if dtype.bits == 8 else float32 if dtype.bits == 16 else float64


def total_dtype(dtype: DType) -> DType:
    """The dtype that sums and products of elements have: int64 or uint64 for bool and integers."""
    if dtype.is_float or dtype.bits == 64:
        return dtype
    return uint64 if dtype.is_integer and dtype.min_value == 0 else int64


def promoted_dtype(op: Elementwise, operands: Sequence[DType | int | float | bool]) -> DType:
    """The dtype that operands of ``op`` are promoted to (the selector of a SELECT left out)."""
    promoted = result_type(*operands)
    match op.rule:
        case DTypeRule.FLOAT:
            return float_of(promoted)
        case DTypeRule.DIVIDE:
            return promoted if promoted.is_float else float64
        case DTypeRule.LOGICAL:
            return bool_
        case _:
            return promoted


def refusal(op: Elementwise, dtype: DType) -> tuple[str, str] | None:
    """Why ``op`` does not take operands promoted to ``dtype``, and what to do; ``None`` if it does."""
    match op.rule:
        case DTypeRule.NUMERIC if dtype.is_bool:
            return "bool operands do not support arithmetic", "cast to an integer or float dtype first"
        case DTypeRule.BITWISE if dtype.is_float:
            return "needs bool or integer operands", "cast to an integer dtype first"
        case DTypeRule.SHIFT if not dtype.is_integer:
            return "needs integer operands", "cast to an integer dtype first"
        case DTypeRule.BITS if not dtype.is_float:
            return "needs a float operand", "the bits of an integer are the integer"
        case DTypeRule.OF_BITS if dtype not in (uint32, uint64):
            return "needs the bits of a float, uint32 or uint64", "cast to one of them first"
        case _:
            return None


def operand_dtype(op: Elementwise, operands: Sequence[Value]) -> DType:
    """:func:`promoted_dtype` of values. Raises :class:`DTypeError`."""
    known = _promoting(x for x in operands if not isinstance(x, Expr))
    promoted = promoted_dtype(op, known or [int64])
    if len(known) < len(operands) and not promoted.is_float:
        promoted = promoted_dtype(op, [*known, int64])  # an extent among integers is an int64; among floats it is as weak as a number
    refused = refusal(op, promoted)
    if refused is not None:
        reason, help = refused
        raise dtype_error(op.name, f"{reason}: {', '.join(typed(x) for x in operands)}", help)
    return promoted


def _promoting(operands: Iterable[TensorView | Scalar | bool | int | float]) -> list[DType | bool | int | float]:
    """The dtypes and numbers that decide the promotion of operands: for a scalar that does not promote, a number of its kind, unless all are such scalars."""
    given = list(operands)
    if not any(isinstance(x, TensorView) or (isinstance(x, Scalar) and x.promotes) for x in given):
        return [x.dtype if isinstance(x, TensorView | Scalar) else x for x in given]
    return [_of_its_kind(x.dtype) if isinstance(x, Scalar) and not x.promotes else x.dtype if isinstance(x, TensorView | Scalar) else x for x in given]


def _of_its_kind(dtype: DType) -> bool | int | float:
    return False if dtype.is_bool else 0.0 if dtype.is_float else 0


def result_dtype(op: Elementwise, dtype: DType) -> DType:
    """The dtype of the result of ``op`` on operands promoted to ``dtype``."""
    return op.result_dtype(dtype)


def literal(op: str, value: int | float | bool, dtype: DType) -> Literal:
    """A constant of ``dtype``. Raises :class:`DTypeError` if ``value`` is out of its range."""
    if dtype.is_bool:
        return Literal(bool(value), dtype)
    if not dtype.is_float:
        if not dtype.holds(value):
            raise dtype_error(op, f"{shown(value)} is not a value of {dtype.name}", "cast the tensor to a dtype that holds it")
        return Literal(int(value), dtype)
    try:
        return Literal(float(value), dtype)
    except OverflowError:
        raise dtype_error(op, f"the constant is out of the range of {dtype.name}") from None


# -- shapes ----------------------------------------------------------------------------------------------------------------------------


def broadcast_shape(op: str, operands: Sequence[TensorView]) -> Shape:
    """The shape that ``operands`` broadcast to, aligned at the last dimension.

    Extents are equal iff they are the same expression; only the constant 1 broadcasts. Raises :class:`ShapeError`.
    """
    ndim = max((tv.ndim for tv in operands), default=0)
    shape: list[Expr] = [ONE] * ndim
    source: list[TensorView | None] = [None] * ndim
    for tv in operands:
        for d, extent in enumerate(tv.shape, start=ndim - tv.ndim):
            if extent is ONE or extent is shape[d]:
                continue
            other = source[d]
            if other is not None:
                raise shape_error(
                    op,
                    f"shapes do not broadcast: dimension {d - ndim} is {shape[d]} in {described(other)} but {extent} in {described(tv)}",
                    "extents must be the same expression, or the constant 1",
                )
            shape[d], source[d] = extent, tv
    return tuple(shape)


def broadcast_read(tv: TensorView, shape: Shape) -> Read:
    """The read of ``tv`` broadcast to ``shape``, with one iteration symbol per dimension of ``shape``."""
    lead = len(shape) - tv.ndim
    return Read(tv, tuple(iteration_symbol(lead + d) if e is shape[lead + d] else ZERO for d, e in enumerate(tv.shape)))


# -- builders ---------------------------------------------------------------------------------------------------------------------------


def define_pointwise(fusion: Fusion, op: Elementwise, shape: Shape, operands: Sequence[Operand], dtype: DType) -> TensorView:
    """A new tensor ``op(operands...)``, from operands that fit already."""
    location = caller()
    out = fusion.new_tensor([axis(e) for e in shape], dtype, location=location)
    return fusion.define(Pointwise(out, op, tuple(operands), location))


def cast_tensor(x: TensorView, dtype: DType) -> TensorView:
    """``x`` converted to ``dtype``; ``x`` itself if it has that dtype."""
    if x.dtype is dtype:
        return x
    return define_pointwise(x.fusion, ELEMENTWISE["cast"], x.shape, (broadcast_read(x, x.shape),), dtype)


COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
"""Comparisons, each with the one that holds if it does with its operands exchanged."""


def pointwise(op: Elementwise, operands: Sequence[Value]) -> TensorView:
    """Promote, broadcast and apply ``op``.

    Raises:
        DTypeError: if ``op`` does not take the dtypes.
        ShapeError: if the shapes do not broadcast.
        FusionError: if the operands belong to different fusions.
    """
    operands = [cast("Value", plain(x)) for x in operands]
    fusion = common_fusion(op.name, operands)
    if op.name in COMPARISONS and [x.dtype for x in operands if isinstance(x, TensorView)] in ([int64, uint64], [uint64, int64]):
        with fusion.call():
            return _of_integers(op.name, *operands)
    selectors = 1 if op.rule is DTypeRule.SELECT else 0
    dtype = operand_dtype(op, operands[selectors:])
    wanted = [bool_] * selectors + [dtype] * (len(operands) - selectors)
    shape = broadcast_shape(op.name, [x for x in operands if isinstance(x, TensorView)])
    checked = [literal(op.name, x, d) if isinstance(x, bool | int | float) else x for x, d in zip(operands, wanted, strict=True)]
    with fusion.call():
        built = [_operand(x, d, shape) for x, d in zip(checked, wanted, strict=True)]
        return define_pointwise(fusion, op, shape, built, result_dtype(op, dtype))


def _of_integers(name: str, a: Value, b: Value) -> TensorView:
    """A comparison of int64 with uint64. No dtype holds all numbers of both: the signed one is compared as uint64 unless it is negative, which decides."""
    assert isinstance(a, TensorView)
    assert isinstance(b, TensorView)
    if a.dtype is uint64:
        return _of_integers(COMPARISONS[name], b, a)
    same = elementwise(name, cast_tensor(a, uint64), b)
    return elementwise("logical_or", elementwise("lt", a, 0), same) if name in ("ne", "lt", "le") else elementwise("logical_and", elementwise("ge", a, 0), same)


def elementwise(name: str, *operands: Value) -> TensorView:
    """:func:`pointwise` of the op of this name."""
    return pointwise(ELEMENTWISE[name], operands)


def _operand(x: TensorView | Scalar | Expr | Literal, dtype: DType, shape: Shape) -> Operand:
    match x:
        case TensorView():
            return broadcast_read(cast_tensor(x, dtype), shape)
        case Scalar():
            return ScalarRead(x)
        case Expr():
            return IndexValue(x)
        case Literal():
            return x


def divide_by_count(x: TensorView, count: Expr) -> TensorView:
    """``x / count`` for a float tensor and an integer expression over the fusion's symbols."""
    return define_pointwise(x.fusion, ELEMENTWISE["div"], x.shape, (broadcast_read(x, x.shape), IndexValue(count)), x.dtype)
