"""Inputs, run-time scalars, facts about dimensions, and constants."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import SupportsIndex

from taskfuse.dtypes import DType, DTypeLike, as_dtype, bool_, float32, float64, int32, int64, uint64
from taskfuse.errors import FusionError, ParseError, shown
from taskfuse.ir.axes import axis, is_map_symbol, iteration_symbol
from taskfuse.ir.dims import Dim
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import IndexValue, ScalarRead
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ZERO, Const, Expr, IntLike, free_symbols, ge, lt, maximum, parse_expr, prove, simplify, sym, wrap
from taskfuse.ir.tables import TableRange
from taskfuse.ir.tensor import Scalar, TensorView
from taskfuse.location import caller
from taskfuse.ops.build import Shape, check_divisors, check_symbols, check_tensor, define_pointwise, dtype_error, literal, normalize_axis, plain, shape_error
from taskfuse.ops.elementwise import add, mul
from taskfuse.ops.pointwise import cast
from taskfuse.ops.registry import OpKind, always, op, same

__all__ = [
    "arange",
    "define_integer",
    "define_scalar",
    "define_tensor",
    "dim",
    "full",
    "full_like",
    "iota",
    "ones",
    "ones_like",
    "table",
    "zeros",
    "zeros_like",
]

Extent = IntLike | str | Dim
Number = bool | int | float | Expr | Scalar


@op(OpKind.CREATION, always(int64), torch="", numpy="")
def dim(name: str, multiple_of: int = 1, min: int = 1, max: IntLike | str | None = None) -> Dim:
    """Facts about the symbolic extent ``name``, to be used in shapes; they are checked when arguments are bound.

    Args:
        name: the symbol, an identifier (``i0``, ``i1``, ..., ``v0``, ``v1``, ... and ``claimed`` are taken by index maps).
        multiple_of: a divisor of every value.
        min: least value; an extent may be 0 only if it is given as 0.
        max: greatest value, or ``None``; an expression of other dimensions, as an expression or as text (``"N - 4"``), bounds it by their values.

    Raises :class:`FusionError` for a name that is not an identifier or is taken, and for facts that no value meets.
    """
    found = _limit(name, max)
    bound = None if isinstance(found, Const) else found
    limit = None if bound is not None else plain(max if found is None else found)
    if not _is_identifier(name) or is_map_symbol(name):
        raise FusionError(
            fusion="?",
            reason=f"{shown(name)} is not a name for a dimension",
            help="use an identifier other than i0, i1, ..., v0, v1, ... and claimed, which index maps use",
            location=caller(),
        )
    for fact, value in {"min": min, "multiple_of": multiple_of, **({} if limit is None else {"max": limit})}.items():
        if not _is_integer(value):
            raise FusionError(fusion="?", reason=f"dimension '{name}' has {fact}={shown(value)}", help="use an integer", location=caller())
    most = int(limit) if isinstance(limit, Integral) else None
    made = Dim(name, int(min), most, int(multiple_of), bound)
    if not made.is_possible:
        raise FusionError(
            fusion="?", reason=f"no extent meets the facts of dimension '{name}': min={min}, max={max}, multiple_of={multiple_of}", location=caller()
        )
    return made


def _limit(name: str, most: object) -> Expr | None:
    """A greatest value that is an expression; ``None`` for a number or ``None``. Raises :class:`FusionError` for other text."""
    if not isinstance(most, str):
        return most if isinstance(most, Expr) else None
    try:
        return parse_expr(most)
    except ParseError as error:
        reason = f"dimension '{name}' has max={shown(most)}: {error.message}"
        raise FusionError(fusion="?", reason=reason, help="use an integer or an expression such as 'N - 4'", location=caller()) from None


def _is_identifier(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier()


def _is_integer(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral)


def extent(op: str, fusion: Fusion, value: object) -> Expr:
    """An extent of a shape as an expression; its symbols become dimensions of ``fusion``.

    Raises :class:`ShapeError` if it is negative or not an expression.
    """
    found = _expression(op, fusion, value)
    if prove(lt(found, 0), fusion.facts()):
        raise shape_error(op, f"extent {found} is negative")
    check_divisors(op, f"extent {found}", found, fusion.facts())
    return found


def _expression(op: str, fusion: Fusion, value: object) -> Expr:
    """An integer as an expression; its symbols become dimensions of ``fusion``. Raises :class:`ShapeError` for other values."""
    match value:
        case Dim():
            _declare(fusion, value.bound)
            fusion.add_dim(value)
            return sym(value.name)
        case str():
            try:
                found = parse_expr(value)
            except ParseError as error:
                raise shape_error(op, f"'{value}' is not an extent: {error.message}", "use a name such as 'S' or an expression such as '4*S'") from None
        case Expr():
            found = value
        case int() | SupportsIndex():  # the second alone looks at methods by name
            found = wrap(value.__index__())
        case _:
            raise shape_error(op, f"{shown(value)} is not an extent", "use an int, a name such as 'S', an expression such as '4*S', or tf.dim(...)")
    _declare(fusion, found)
    return found


@op(OpKind.CREATION, same, torch="", numpy="")
def define_tensor(
    shape: Sequence[Extent] | Extent, dtype: DTypeLike = float32, name: str | None = None, *, strides: Sequence[IntLike | str] | None = None
) -> TensorView:
    """An input of the current fusion.

    Args:
        shape: extents: an int is static; a string is a symbol shared by name (``"S"``) or an expression of symbols (``"4*S"``); ``tf.dim``
            adds facts to a symbol. One extent alone is the shape of a 1-d tensor.
        dtype: element type.
        name: printed name; ``tv0``, ``tv1``, ... unless given.
        strides: of the arrays that calls pass, in elements: numbers, or expressions of dimensions. Calls check them, and an automatic schedule takes the axes
            in the order in which they lie in memory. By default arrays may have any strides, and schedules assume row-major ones.

    Raises:
        FusionError: outside ``with Fusion()``, or if the name is taken, or if the strides do not fit the shape.
        ShapeError: for an extent that is negative or not an expression.
    """
    fusion = Fusion.current()
    wanted = as_dtype(dtype)
    axes = [axis(e) for e in _shape("define_tensor", fusion, shape)]
    made = fusion.add_input(fusion.new_tensor(axes, wanted, name=name, location=caller()))
    if strides is not None:
        fusion.set_strides(made, strides)
    return made


@op(OpKind.CREATION, same, torch="", numpy="")
def table(name: str, size: Extent, high: Extent, dtype: DTypeLike = int32, *, low: Extent = 0, rising: bool = False, lengths: bool = False) -> TensorView:
    """An input of ``size`` integers that determines the work: offsets of ragged rows, their lengths, groups of tiles.

    Elements are clamped to ``low..high``, so that no access leaves its tensor whatever a table holds.

    Args:
        name: its name, in the text and in expressions.
        size: number of elements.
        high: the greatest value.
        dtype: an integer type other than ``uint64``.
        low: the least value.
        rising: a promise: no element is less than the one before it, the first is ``low`` and the last ``high``, as offsets of rows are. What a kernel computes
            from a table that breaks it is unspecified; it still neither reads nor writes outside its tensors, and ends.
        lengths: the elements are lengths of groups, as routers count them, for ops that take offsets: kernels add them up. This is also a promise: no
            length is negative, and their sum is ``high``. Otherwise negative lengths count as 0, no group ends after ``high``, and the last one ends there.

    Raises:
        FusionError: outside ``with Fusion()``, or if the name is taken, or is not an identifier, or is that of a dimension.
        DTypeError: ``dtype`` is another type.
        ShapeError: for a size or bound that is not an expression; for lengths with ``rising=True`` or ``low=``, or of which there may be 0.
    """
    fusion = Fusion.current()
    wanted = as_dtype(dtype)
    if not wanted.is_integer or wanted is uint64:
        raise dtype_error("table", f"{wanted.name} is not a dtype of tables", "use int32 or int64")
    if not _is_identifier(name) or is_map_symbol(name) or name in fusion.dims:
        raise FusionError(
            fusion=fusion.name, reason=f"{shown(name)} is not a name for a table", help="use an identifier that no dimension has", location=caller()
        )
    least, most = (_expression("table", fusion, e) for e in (low, high))
    for e in (least, most):
        check_divisors("table", f"bound {e}", e, fusion.facts())
    shape = _shape("table", fusion, size)
    if lengths and (rising or least is not ZERO or not prove(ge(shape[0], 1), fusion.facts())):
        reason = (
            "lengths of groups are not offsets"
            if rising
            else f"lengths have low=0, not {least}"
            if least is not ZERO
            else f"the number of lengths, {shape[0]}, may be 0"
        )
        help = "leave out rising=True" if rising else "leave out low=" if least is not ZERO else "declare their number with tf.dim(..., min=1)"
        raise shape_error("table", reason, help)
    known = TableRange(least, most, rising, lengths=lengths)
    made = fusion.add_input(fusion.new_tensor([axis(e) for e in shape], wanted, name=name, location=caller()))
    fusion.tables[made] = known
    return made


@op(OpKind.CREATION, same, torch="", numpy="")
def define_scalar(dtype: DTypeLike = float32, name: str | None = None, promotes: bool = True) -> Scalar:
    """A run-time scalar of the current fusion: an argument of every call, after the tensors.

    With ``promotes=False`` it is promoted like a Python number: a tensor of bfloat16 times such a scalar of float64 is bfloat16.

    Raises :class:`FusionError` outside ``with Fusion()``, or if the name is taken.
    """
    return Fusion.current().add_scalar(name, as_dtype(dtype), promotes)


@op(OpKind.CREATION, always(int64), torch="", numpy="")
def define_integer(name: str, min: int = 0, max: IntLike | str | None = None, multiple_of: int = 1) -> Expr:
    """A run-time integer of the current fusion: an argument of every call, after the tensors and the run-time scalars.

    It is an extent like those of shapes, whose value the caller passes: use it in shapes, as a bound of a slice, a width of padding, an index,
    a number. Calls check its facts; one kernel serves all values.

    Args:
        name: its name, an identifier.
        min, max, multiple_of: facts, as of :func:`dim`. ``max="N - 4"`` bounds it by an extent of the arrays.

    Raises :class:`FusionError` outside ``with Fusion()``, if the name is taken or not an identifier, and for facts that no value meets.
    """
    fusion = Fusion.current()
    made = dim(name, multiple_of, min, max)
    _declare(fusion, made.bound)
    return fusion.add_integer(made)


def _declare(fusion: Fusion, e: Expr | None) -> None:
    """Declare the symbols of an expression as dimensions."""
    for name in sorted(free_symbols(e) if e is not None else ()):
        if name not in fusion.dims:
            fusion.add_dim(dim(name))


def _shape(op: str, fusion: Fusion, shape: Sequence[Extent] | Extent) -> Shape:
    given: Sequence[Extent] = shape if isinstance(shape, Sequence) and not isinstance(shape, str) else (shape,)
    return tuple(extent(op, fusion, e) for e in given)


@op(OpKind.CREATION, same)
def full(shape: Sequence[Extent] | Extent, value: Number, dtype: DTypeLike | None = None) -> TensorView:
    """A tensor of the current fusion with one value everywhere.

    ``dtype`` defaults to that of a run-time scalar, else to bool, int64 or float32 by the kind of the number. Raises :class:`DTypeError` if
    the dtype cannot hold the value.
    """
    fusion = Fusion.current()
    return _full("full", fusion, _shape("full", fusion, shape), value, dtype)


def _full(op: str, fusion: Fusion, shape: Shape, value: Number, dtype: DTypeLike | None) -> TensorView:
    match number := plain(value):
        case Scalar():
            wanted = number.dtype if dtype is None else as_dtype(dtype)
            row = ELEMENTWISE["copy" if wanted is number.dtype else "cast"]
            return define_pointwise(fusion, row, shape, (ScalarRead(number),), wanted)
        case Expr():
            check_symbols(op, fusion, number)
            return _index_values(fusion, shape, number, int64 if dtype is None else as_dtype(dtype))
        case bool():
            wanted = bool_ if dtype is None else as_dtype(dtype)
        case int():
            wanted = int64 if dtype is None else as_dtype(dtype)
        case float():
            wanted = float32 if dtype is None else as_dtype(dtype)
        case _:
            raise dtype_error(op, f"{type(value).__name__} is not a value", "use a number, an extent or a run-time scalar")
    return define_pointwise(fusion, ELEMENTWISE["copy"], shape, (literal(op, number, wanted),), wanted)


@op(OpKind.CREATION, same)
def zeros(shape: Sequence[Extent] | Extent, dtype: DTypeLike = float32) -> TensorView:
    """A tensor of zeros."""
    return full(shape, False, dtype)


@op(OpKind.CREATION, same)
def ones(shape: Sequence[Extent] | Extent, dtype: DTypeLike = float32) -> TensorView:
    """A tensor of ones."""
    return full(shape, True, dtype)


@op(OpKind.CREATION, same)
def full_like(x: TensorView, value: Number, dtype: DTypeLike | None = None) -> TensorView:
    """A tensor with the shape of ``x``, and its dtype unless given, with one value everywhere."""
    check_tensor("full_like", x)
    return _full("full_like", x.fusion, x.shape, value, x.dtype if dtype is None else dtype)


@op(OpKind.CREATION, same)
def zeros_like(x: TensorView, dtype: DTypeLike | None = None) -> TensorView:
    """A tensor of zeros with the shape of ``x``."""
    return full_like(x, False, dtype)


@op(OpKind.CREATION, same)
def ones_like(x: TensorView, dtype: DTypeLike | None = None) -> TensorView:
    """A tensor of ones with the shape of ``x``."""
    return full_like(x, True, dtype)


@op(OpKind.CREATION, same, torch="", numpy="")
def iota(shape: Sequence[Extent] | Extent, axis: int = 0, dtype: DTypeLike = int64) -> TensorView:
    """A tensor whose elements are their own index along ``axis``. Raises :class:`ShapeError` if the axis is out of range."""
    fusion = Fusion.current()
    extents = _shape("iota", fusion, shape)
    place = normalize_axis("iota", axis, len(extents), f"{len(extents)} dimensions")
    return _index_values(fusion, extents, iteration_symbol(place), as_dtype(dtype))


def arange_like(fusion: Fusion, length: Expr) -> TensorView:
    """``0, 1, ..., length - 1``, int64."""
    return _index_values(fusion, (length,), iteration_symbol(0), int64)


def _index_values(fusion: Fusion, shape: Shape, index: Expr, dtype: DType) -> TensorView:
    return define_pointwise(fusion, ELEMENTWISE["copy" if dtype is int64 else "cast"], shape, (IndexValue(index),), dtype)


def _bound(fusion: Fusion, value: Extent | float) -> IntLike | float:
    """A bound of ``arange``: a number, or an expression of dimensions."""
    match number := plain(value):
        case float():
            return number
        case SupportsIndex() if not isinstance(number, Expr):
            return number.__index__()
        case Expr():
            extent("arange", fusion, maximum(number, 0))
            return number
        case _:
            return extent("arange", fusion, number)


@op(OpKind.CREATION, same)
def arange(start: Extent | float, stop: Extent | float | None = None, step: int | float = 1, dtype: DTypeLike | None = None) -> TensorView:
    """``start, start + step, ...`` up to ``stop``, exclusive; ``arange(n)`` is ``0, ..., n - 1``.

    Integers may be symbolic (all but ``step``), also names as in a shape, and give int64; if any is a float the result is float32. Raises
    :class:`ShapeError` if ``step`` is 0 or a bound is not a number.
    """
    fusion = Fusion.current()
    first, last = (0, _bound(fusion, start)) if stop is None else (_bound(fusion, start), _bound(fusion, stop))
    by = _bound(fusion, step)
    if isinstance(by, Expr):
        raise shape_error("arange", f"step {by} is symbolic", "use a number, then multiply by the extent")
    step = by
    if step == 0:
        raise shape_error("arange", "step is 0")
    if isinstance(first, float) or isinstance(last, float) or isinstance(step, float):
        if isinstance(first, Expr) or isinstance(last, Expr):
            raise dtype_error("arange", "mixes a symbolic bound with a float", "use integers, then scale the result")
        length = max(0, -int((first - last) // step))
        wanted = float32 if dtype is None else as_dtype(dtype)
        with fusion.call():
            index = _index_values(fusion, (wrap(length),), iteration_symbol(0), float64)
            return cast(add(mul(index, float(step)), float(first)), wanted)
    distance = wrap(last) - first if step > 0 else wrap(first) - last
    length = simplify(maximum(distance.ceildiv(abs(step)), 0), fusion.facts())
    return _index_values(fusion, (length,), iteration_symbol(0) * step + first, int64 if dtype is None else as_dtype(dtype))
