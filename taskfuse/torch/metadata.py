"""torch's metadata of a value of a graph, in taskfuse's terms: dtype, extents and strides as expressions, device.

No ``SymInt`` is ever compared or converted here: that would add a guard to the compiled function. Its sympy expression is read instead, and for choices what
it is in the call for which torch traces (:func:`size_hint`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import lcm, prod
from typing import Any, Final, cast

import torch
from torch.fx import Node

from taskfuse.dtypes import DTYPES, DType
from taskfuse.ir.dims import Dim
from taskfuse.ir.scalar import Expr, Facts, IntLike, const, is_multiple, maximum, minimum, sym, wrap
from taskfuse.ir.strides import order_of
from taskfuse.target import TMA_BYTES

NAMES = {"float8_e4m3fn": "float8_e4m3"}
"""Dtypes that torch calls otherwise."""

LARGEST = 1 << 62
"""From here on, a bound means unbounded."""

USUAL = 1024
"""The value of an extent that depends on data, in choices."""


SYMBOLIC: Final = torch.SymInt, torch.SymFloat
"""Numbers that are expressions of symbols."""


class Refused(Exception):
    """A node that is not importable; the message says why, in a few words."""


@dataclass(frozen=True, slots=True)
class Meta:
    """A tensor: ``strides`` are in elements; ``device`` is torch's name of it."""

    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    device: str

    @property
    def is_host_number(self) -> bool:
        """True for a tensor without dimensions on the host: a number that kernels take as an argument."""
        return self.device == "cpu" and not self.shape


def dtype_of(dtype: Any) -> DType:
    """The dtype of torch's. Raises :class:`Refused` for one that taskfuse lacks."""
    name = str(dtype).removeprefix("torch.")
    found = DTYPES.get(NAMES.get(name, name))
    if found is None and dtype.is_complex:
        raise Refused(f"{name} is not a dtype of kernels; math on the parts that torch.view_as_real gives is fused")
    if found is None:
        raise Refused(f"{name} is not a dtype of kernels")
    return found


def torch_dtype(dtype: DType) -> Any:
    """torch's dtype."""
    back = {own: name for name, own in NAMES.items()}
    return getattr(torch, back.get(dtype.name, dtype.name))


def members(value: Any) -> list[Any]:
    """The values of a tuple or list, or a value alone."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, tuple | list) else [value]


def results(node: Node) -> list[Any]:
    """What torch says of the results of a node, one after another: fake tensors, symbols, ``None``."""
    return members(node.meta.get("val"))


def integer(value: Any) -> Expr:
    """An int or a ``SymInt`` as an expression. Raises :class:`Refused` for an expression that extents cannot have."""
    if isinstance(value, torch.SymInt):
        return expression(value.node.expr)
    return const(int(value))


def expression(e: Any) -> Expr:
    """A sympy expression of integers."""
    match type(e).__name__:
        case "Symbol":
            return sym(str(e))
        case "Add":
            return _folded(e.args, operator.add)
        case "Mul":
            return _folded(e.args, operator.mul)
        case "FloorDiv" | "CleanDiv":
            return wrap(expression(e.args[0]) // expression(e.args[1]))
        case "Mod" | "PythonMod":
            return wrap(expression(e.args[0]) % expression(e.args[1]))
        case "Max":
            return _folded(e.args, maximum)
        case "Min":
            return _folded(e.args, minimum)
        case "Pow" | "PowByNatural" if getattr(e.args[1], "is_Integer", False) and 0 < int(e.args[1]) < 8:
            return _folded((e.args[0],) * int(e.args[1]), operator.mul)
        case _ if getattr(e, "is_Integer", False):
            return const(int(e))
        case _:
            raise Refused(f"an extent is {e}")


@dataclass(frozen=True, slots=True)
class Quotient:
    """A Python float that is a quotient of two integers, which may be extents."""

    numerator: Expr
    denominator: Expr


def quotient(value: torch.SymFloat) -> Quotient:
    """A ``SymFloat`` as a quotient. Raises :class:`Refused` if it is none.

    Sums, products and quotients of quotients are one, which is rounded once, where Python rounds each.
    """
    numerator, denominator = _rational(value.node.expr).together().as_numer_denom()
    return Quotient(expression(numerator), expression(denominator))


def symbolic(value: Any) -> Expr | Quotient:
    """An int, a ``SymInt`` or a ``SymFloat`` in the terms of a fusion. Raises :class:`Refused` for one that it cannot have."""
    return quotient(value) if isinstance(value, torch.SymFloat) else integer(value)


def _rational(e: Any) -> Any:
    """A sympy expression of floats as an exact one, of integers."""
    match type(e).__name__:
        case "IntTrueDiv" | "FloatTrueDiv":
            return _rational(e.args[0]) / _rational(e.args[1])
        case "ToFloat":
            return e.args[0]
        case "Add":
            return sum(map(_rational, e.args))
        case "Mul":
            return prod(map(_rational, e.args))
        case _ if e.is_Float and float(e).is_integer():
            return int(e)
        case _ if e.is_integer:
            return e
        case _:
            raise Refused(f"a number is {e}")


def parts(e: Any) -> list[Any]:
    """A sympy expression, and all that it is made of."""
    return [e, *(part for arg in e.args for part in parts(arg))]


def _folded(args: Sequence[Any], join: Callable[[Expr, Expr], IntLike]) -> Expr:
    first, *rest = map(expression, args)
    for e in rest:
        first = wrap(join(first, e))
    return first


def meta_of(value: Any) -> Meta:
    """What is known of a fake tensor. Raises :class:`Refused` for one that is not dense and strided, or has a dtype that taskfuse lacks."""
    if not isinstance(value, torch.Tensor):
        raise Refused(f"{type(value).__name__} is not a tensor")
    if value.layout is not torch.strided or value.is_quantized or value.is_nested or getattr(value, "is_sparse_csr", False):
        raise Refused("it is not a strided tensor")
    if value.is_conj() or value.is_neg():
        raise Refused("it is a conjugate or negative view")
    dtype = dtype_of(value.dtype)
    return Meta(dtype, tuple(map(integer, value.shape)), tuple(map(integer, value.stride())), str(value.device))


def symbols_of(value: Any) -> Iterator[tuple[str, Dim]]:
    """The free symbols of a fake tensor, or of a number, with the facts that torch knows: its ranges, and what divides it."""
    for number in _numbers(value):
        if isinstance(number, SYMBOLIC):
            env: Any = number.node.shape_env
            divisors = _divisors(env)
            for symbol in sorted(number.node.expr.free_symbols, key=str):
                known = env.var_to_range.get(symbol)
                yield str(symbol), Dim(str(symbol), _least(known), _most(known), divisors.get(symbol, 1))


def _divisors(env: Any) -> dict[Any, int]:
    """The symbols that guards say are multiples, and of what."""
    found: dict[Any, int] = {}
    for remainder in env.divisible:
        symbol, divisor = remainder.args
        if symbol.is_Symbol and divisor.is_Integer:
            found[symbol] = lcm(found.get(symbol, 1), int(divisor))
    return found


def size_hint(number: Any, otherwise: int = USUAL) -> int:
    """An integer, or what a ``SymInt`` is in the call for which torch traces: for choices that may be wrong elsewhere, but only cost time there.

    Args:
        otherwise: in place of what depends on data.
    """
    known = number.node.hint if isinstance(number, torch.SymInt) else number
    return known if isinstance(known, int) else otherwise


def hints_of(value: Any) -> dict[str, int]:
    """The free symbols of a fake tensor, or of a number, as they are in the call for which torch traces; without those that depend on data."""
    found: dict[str, int] = {}
    for number in _numbers(value):
        if isinstance(number, SYMBOLIC):
            env: Any = number.node.shape_env
            known = env.backed_var_to_val if hasattr(env, "backed_var_to_val") else env.var_to_val
            found |= {str(symbol): int(known[symbol]) for symbol in number.node.expr.free_symbols if symbol in known and known[symbol].is_Integer}
    return found


def _numbers(value: Any) -> list[Any]:
    """The extents, strides and offset of a fake tensor; or a number."""
    return [*value.shape, *value.stride(), value.storage_offset()] if isinstance(value, torch.Tensor) else [value]


def _least(known: Any) -> int:
    lower: Any = None if known is None else known.lower
    return max(int(lower), 0) if getattr(lower, "is_Integer", False) else 0


def _most(known: Any) -> int | None:
    upper: Any = None if known is None else known.upper
    return int(upper) if getattr(upper, "is_Integer", False) and int(upper) < LARGEST else None


def has_rows(meta: Meta, facts: Facts) -> bool:
    """Whether the axes are in memory in their order, elements along the last one without gaps; between rows there may be gaps, or rows may share memory."""
    if not meta.shape:
        return True
    is_contiguous = meta.strides[-1] is const(1) or meta.shape[-1] is const(1)
    return is_contiguous and order_of(meta.shape, meta.strides, facts) in (None, tuple(range(len(meta.shape))))


def is_copied(meta: Meta, offset: Expr, facts: Facts) -> bool:
    """Whether the copy engine can load a tensor that begins ``offset`` elements after an aligned address, wherever schedules expect it of the extents.

    They expect it if rows are multiples of 16 bytes. Then the first element and the strides of the other axes must be, too, and one axis be contiguous, with
    strides that can be declared if it is not the last. Tensors without elements, and those whose rows are never multiples, are loaded otherwise.
    """
    axes = [(n, s) for n, s in zip(meta.shape, meta.strides, strict=True) if n is not const(1)]
    size = meta.dtype.itemsize
    if not axes or any(n is const(0) for n, _ in axes):
        return True
    place = next((k for k, (_, s) in enumerate(axes) if s is const(1)), len(axes) - 1)
    row, step = axes.pop(place)
    if not row.free and not is_multiple(row * size, TMA_BYTES, facts):
        return True
    if not is_multiple(offset * size, TMA_BYTES, facts):
        return False
    if same_places(meta.shape, meta.strides, row_major(meta.shape)):
        return True
    can_be_declared = place == len(axes) or not any(s is const(0) for _, s in axes)
    return step is const(1) and can_be_declared and all(is_multiple(s * size, TMA_BYTES, facts) for _, s in axes)


def row_major(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The strides of a tensor without gaps."""
    found: list[Expr] = []
    step: IntLike = 1
    for extent in reversed(shape):
        found.append(wrap(step))
        step = extent * step
    return tuple(reversed(found))


def same_places(shape: tuple[Expr, ...], a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    """Whether two lists of strides put the elements of a tensor at the same places: strides of axes of extent 1 mean nothing."""
    return any(e is const(0) for e in shape) or all(e is const(1) or s is t for e, s, t in zip(shape, a, b, strict=True))
