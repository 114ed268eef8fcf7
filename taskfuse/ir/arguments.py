"""The arguments of a call: input arrays, then run-time scalars and integers, checked against a fusion; shapes and integers give the symbols their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import DType
from taskfuse.errors import FusionError, InputError, shown
from taskfuse.ir.dims import Dim
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Expr, Sym, evaluate, shape_text, substitute, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.values import Values
from taskfuse.location import caller

Argument = npt.ArrayLike


def check_count(fusion: Fusion, given: int) -> None:
    """Raises :class:`FusionError` unless ``given`` is the number of inputs, scalars and integers."""
    wanted: list[str] = [*map(repr, (*fusion.inputs, *fusion.scalars)), *fusion.integers]
    if given != len(wanted):
        takes = ", ".join(wanted) or "none"
        raise FusionError(fusion=fusion.name, reason=f"takes {len(wanted)} arguments, got {given}", help=f"the arguments are: {takes}")


def in_order(fusion: Fusion, given: Sequence[Argument], named: Mapping[str, Argument]) -> tuple[Argument, ...]:
    """The arguments of a call by position: ``given``, then those passed by name.

    Raises :class:`FusionError` for a name that is not that of an argument after ``given``.
    """
    names = fusion.arguments[len(given) :]
    for name in named:
        if name not in names:
            help = f"the arguments are: {', '.join([*map(repr, (*fusion.inputs, *fusion.scalars)), *fusion.integers]) or 'none'}"
            raise FusionError(fusion=fusion.name, reason=f"'{name}' is not one of the remaining arguments", help=help, location=caller())
    return (*given, *(named[name] for name in names)) if named and len(named) == len(names) else (*given,)


def bind_symbols(fusion: Fusion, arrays: Sequence[npt.NDArray[Any]], integers: Sequence[object], values: Values) -> dict[str, int]:
    """The values of the symbolic dimensions, from the input arrays and the integers of a call.

    Raises :class:`InputError` for an array whose dtype or rank is wrong, and as :func:`bind_shapes`.
    """
    for position, (tv, array) in enumerate(zip(fusion.inputs, arrays, strict=False)):
        if array.dtype not in (tv.dtype.numpy, values.storage(tv.dtype)):
            raise InputError(
                index=position,
                fusion=fusion.name,
                reason=f"{tv.name} is {tv.dtype.name}, the array is {array.dtype}",
                help=f"pass it converted to {tv.dtype.name}",
            )
    return bind_shapes(fusion, [a.shape for a in arrays], integers)


def bind_shapes(fusion: Fusion, shapes: Sequence[Sequence[int]], integers: Sequence[object] = ()) -> dict[str, int]:
    """The values of the symbolic dimensions: those of ``fusion.integers``, and those that follow from the shapes of the inputs.

    An extent that is a symbol determines its value; any other that is linear in a single unknown symbol is solved for it. The remaining extents are checked.

    Raises:
        InputError: if a rank is wrong, an extent differs from the fusion's, an argument is not an integer, or a value breaks the facts of its dimension.
        FusionError: if the inputs leave a dimension undetermined.
    """
    first = len(fusion.inputs) + len(fusion.scalars)
    bound: dict[str, int] = {}
    source: dict[str, str] = {}
    position_of: dict[str, int] = {}
    for position, (name, value) in enumerate(zip(fusion.integers, integers, strict=True), start=first):
        bound[name] = integer_argument(fusion.name, position, name, value)
        if not fusion.dims[name].admits(bound[name], {}):
            raise _unfit(fusion, position, fusion.dims[name], bound)
        source[name], position_of[name] = "the argument", position
    waiting: list[tuple[int, TensorView, int, Expr, int]] = []
    for position, (tv, shape) in enumerate(zip(fusion.inputs, shapes, strict=True)):
        if len(shape) != tv.ndim:
            raise InputError(index=position, fusion=fusion.name, reason=f"{tv.name} has shape {shape_text(tv.shape)}, the array {_tuple_text(shape)}")
        waiting += [(position, tv, d, extent, size) for d, (extent, size) in enumerate(zip(tv.shape, shape, strict=True))]
    while waiting:
        # what has no unknown is checked as soon as it can be, so that the first input at fault is the one that the error names
        item = next((item for item in waiting if is_solvable(item[3], bound)), None)
        if item is None:
            break
        position, tv, d, extent, size = item
        waiting.remove(item)
        unknown = extent.free - bound.keys()
        for name in unknown:
            solved = solve_extent(extent, name, bound, size)
            if solved is None:
                raise InputError(index=position, fusion=fusion.name, reason=f"dimension {d} of {tv.name} is {extent}, which cannot be {size}")
            bound[name] = solved
            source[name], position_of[name] = f"dimension {d} of {tv.name}", position
            if name in fusion.dims and not fusion.dims[name].admits(solved, {}):
                raise _unfit(fusion, position, fusion.dims[name], bound)
        if not unknown and _value(extent, bound) != size:
            origin = [f"{name} = {bound[name]} from {source[name]}" for name in sorted(extent.free)]
            raise InputError(
                index=position,
                fusion=fusion.name,
                reason=f"dimension {d} of {tv.name} is {extent}{'' if not origin else f' = {_value(extent, bound)}'}, the array has {size}",
                notes=tuple(origin),
            )
    missing = fusion.dims.keys() - bound.keys()
    if missing:
        raise FusionError(
            fusion=fusion.name,
            reason=f"no input determines dimension '{min(missing)}'",
            help="use the dimension itself as an extent of an input, or make it an argument: tf.define_integer",
        )
    for name, position in position_of.items():
        if name in fusion.dims and not fusion.dims[name].admits(bound[name], bound):
            raise _unfit(fusion, position, fusion.dims[name], bound)
    return bound


def integer_argument(fusion: str, position: int, name: str, value: object) -> int:
    """The run-time integer ``name``. Raises :class:`InputError` for a bool, a float or an array."""
    if isinstance(value, Integral) and value is not True and value is not False:
        return int(value)
    is_array = hasattr(value, "shape")
    help = f"pass int({name}): it decides on shapes and launches, so the host has to know it" if is_array else "pass an int"
    what = f"an array of type {type(value).__name__}" if is_array else repr(value)
    raise InputError(index=position, fusion=fusion, reason=f"{name} is an integer, got {what}", help=help)


def scalar_argument(fusion: str, position: int, name: str, dtype: DType, value: Argument, values: Values) -> npt.NDArray[Any]:
    """The run-time scalar ``name`` as a 0-d array. Raises :class:`InputError` if it is not a number that ``dtype`` holds."""
    if isinstance(value, bool | int | float):
        if not dtype.holds(value):
            raise InputError(index=position, fusion=fusion, reason=f"{name} is {dtype.name}, which cannot hold {shown(value)}")
        return values.literal(value, dtype)
    array = np.asarray(value)
    if array.ndim != 0 or array.dtype not in (dtype.numpy, values.storage(dtype)):
        raise InputError(index=position, fusion=fusion, reason=f"{name} is {dtype.name}, got {array.dtype}{_tuple_text(array.shape)}")
    return values.encode(array, dtype)


def _tuple_text(shape: Sequence[int]) -> str:
    return "[" + ", ".join(str(n) for n in shape) + "]"


def _value(extent: Expr, bound: Mapping[str, int]) -> int:
    found = evaluate(extent, bound)
    assert isinstance(found, int)
    return found


def is_solvable(extent: Expr, bound: Mapping[str, int]) -> bool:
    """True for an extent without an unknown, and for one that is linear in a single unknown: others may have several solutions."""
    unknown = extent.free - bound.keys()
    if isinstance(extent, Sym) or not unknown:
        return True
    if len(unknown) > 1:
        return False
    known = substitute(extent, {name: bound[name] for name in extent.free - unknown})
    (name,) = unknown
    at_zero = substitute(known, {name: 0})
    slope = substitute(known, {name: 1}) - at_zero
    return not (at_zero.free or slope.free) and known is at_zero + slope * sym(name)


def solve_extent(extent: Expr, name: str, bound: Mapping[str, int], size: int) -> int | None:
    """The nonnegative value of ``name`` for which ``extent``, which is solvable (:func:`is_solvable`), is ``size``; ``None`` if there is none."""
    at_zero = _value(extent, {**bound, name: 0})
    slope = _value(extent, {**bound, name: 1}) - at_zero
    if slope == 0:
        return None
    candidate = (size - at_zero) // slope
    return candidate if candidate >= 0 and _value(extent, {**bound, name: candidate}) == size else None


def _unfit(fusion: Fusion, position: int, dim: Dim, values: Mapping[str, int]) -> InputError:
    """The error about the value of a dimension that breaks its facts."""
    value, most = values[dim.name], dim.most(values)
    if value < dim.min:
        reason = f"dimension '{dim.name}' is {value}, less than its minimum {dim.min}"
    elif most is not None and value > most:
        limit = "" if dim.bound is None else f" = {dim.limit}"
        reason = f"dimension '{dim.name}' is {value}, more than its maximum {most}{limit}"
    else:
        reason = f"dimension '{dim.name}' is {value}, not a multiple of {dim.multiple_of}"
    return InputError(index=position, fusion=fusion.name, reason=reason)
