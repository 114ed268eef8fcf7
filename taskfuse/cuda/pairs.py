"""Loops over elements of 16-bit floats in registers that take two elements at a time: one instruction computes both halves of a 32-bit word. And those that
convert float32 to ``float8_e4m3``, of which one instruction converts two.

A loop that is copied for each of its values, and whose body is one function of elements that lie side by side, runs half as often, on words. Functions that
have such an instruction (:attr:`~taskfuse.ir.spelling.Spelling.pair`) compute the numbers that float32, rounded, has; one for each element takes the
conversions to float32 and back, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isnan
from typing import NamedTuple

from taskfuse.cuda.rounded import is_short
from taskfuse.cuda.storage import NamedStorage
from taskfuse.dtypes import DType, float8_e4m3, float32
from taskfuse.ir.elementwise_function import DTypeRule
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import ONE, ZERO, Const, Expr, Facts, simplify, substitute, sym
from taskfuse.ir.values import NATIVE
from taskfuse.kir.nodes import Compute, For
from taskfuse.kir.operands import Access, Immediate


class Pair(NamedTuple):
    """A statement of two elements at a time, and what it computes them of."""

    stmt: Compute
    operands: tuple[Access | Immediate, ...]


def pair_of(loop: For, places: Mapping[str, NamedStorage], facts: Callable[[], Facts]) -> Pair | None:
    """The statement of a loop that may take two elements at a time; ``None``: it may not.

    Args:
        places: the storage of each buffer.
        facts: what is known around the loop.
    """
    match loop:
        case For(unroll=True, start=Const(0), stop=Const(stop), step=Const(1), body=(Compute() as made,)) if stop % 2 == 0:
            dtype = places[made.out.buffer].dtype
        case _:
            return None
    if made.op.cpp.pair is None or not is_short(dtype) or made.dtype not in (dtype, dtype.compute) or made.op.result_dtype(made.dtype) is not made.dtype:
        return None
    if not _is_adjacent(made.out, loop.var, dtype, places, facts):
        return None
    found: list[Access | Immediate] = []
    for operand in made.operands:
        match operand:
            case Access(buffer=buffer, index=index) if buffer == made.out.buffer and index != made.out.index:
                return None  # the second element may be computed of the first
            case Access() if _is_adjacent(operand, loop.var, dtype, places, facts):
                found.append(operand)
            case Immediate() if _has(dtype, operand):
                found.append(operand)
            case _:
                return None
    return Pair(made, tuple(found))


class Narrowed(NamedTuple):
    """Two neighboring elements of ``float8_e4m3``, from ``out`` on, and the numbers of float32 that they are."""

    stmt: Compute
    operands: tuple[Access, Access]


def narrowed_of(loop: For, places: Mapping[str, NamedStorage], facts: Callable[[], Facts]) -> Narrowed | None:
    """The conversion of a loop that may take two elements at a time; ``None``: it may not."""
    match loop:
        case For(unroll=True, start=Const(0), stop=Const(stop), step=Const(1), body=(Compute(operands=(Access() as source,)) as made,)) if stop % 2 == 0:
            pass
        case _:
            return None
    dtypes = [places[access.buffer].dtype for access in (made.out, source)]
    if made.op.rule is not DTypeRule.CAST or made.dtype is not float32 or dtypes != [float8_e4m3, float32]:
        return None
    if not _is_adjacent(made.out, loop.var, float8_e4m3, places, facts):
        return None
    after = replace(source, index=tuple(simplify(substitute(e, {loop.var: sym(loop.var) + 1}), facts()) for e in source.index))
    return Narrowed(made, (source, after))


def word_of(number: Immediate, dtype: DType) -> str:
    """The text of a word with a number in both halves."""
    bits = int(NATIVE.literal(number.value, dtype).view("u2"))
    return f"0x{bits:04x}{bits:04x}u"


def _is_adjacent(access: Access, var: str, dtype: DType, places: Mapping[str, NamedStorage], facts: Callable[[], Facts]) -> bool:
    """Whether the elements of two consecutive trips lie side by side in registers."""
    place = places[access.buffer]
    if MEDIA[place.memory].has_addresses or place.is_register or place.holds_floats or place.dtype is not dtype:
        return False
    offset: Expr = ZERO
    for i, extent in zip(access.index, place.shape, strict=True):
        offset = offset * extent + i
    return simplify(substitute(offset, {var: sym(var) + 1}) - offset, facts()) is ONE


def _has(dtype: DType, number: Immediate) -> bool:
    """Whether a dtype has a number."""
    value = float(number.value)
    return isnan(value) or float(NATIVE.literal(value, dtype)) == value
