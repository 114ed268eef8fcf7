"""Loops over elements of 16-bit floats in registers that take two elements at a time: one instruction computes both halves of a 32-bit word.

A loop that is copied for each of its values, and whose body is one function of elements that lie side by side, runs half as often, on words. Functions that
have such an instruction (:attr:`~taskfuse.ir.spelling.Spelling.pair`) compute the numbers that float32, rounded, has; one for each element takes the
conversions to float32 and back, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isnan
from typing import NamedTuple

from taskfuse.cuda import matrices
from taskfuse.cuda.functions import call_of_pair
from taskfuse.cuda.rounded import is_short
from taskfuse.cuda.storage import NamedStorage
from taskfuse.cuda.text import bare
from taskfuse.cuda.writer import TextScope, Writer
from taskfuse.dtypes import DType
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
    if not is_adjacent(made.out, loop.var, dtype, places, facts):
        return None
    found: list[Access | Immediate] = []
    for operand in made.operands:
        match operand:
            case Access(buffer=buffer, index=index) if buffer == made.out.buffer and index != made.out.index:
                return None  # the second element may be computed of the first
            case Access() if is_adjacent(operand, loop.var, dtype, places, facts):
                found.append(operand)
            case Immediate() if _has(dtype, operand):
                found.append(operand)
            case _:
                return None
    return Pair(made, tuple(found))


def write_pair(w: Writer, pair: Pair, scope: TextScope) -> None:
    """A line for two elements that lie side by side."""
    dtype = w.dtype(pair.stmt.out)
    w.helpers |= {matrices.WORD, matrices.SET_WORD}
    operands = [word_of(o, dtype) if isinstance(o, Immediate) else f"{matrices.WORD.name}({w.address(o, scope)})" for o in pair.operands]
    w.call(scope, matrices.SET_WORD, w.address(pair.stmt.out, scope), bare(w.use(call_of_pair(pair.stmt.op, operands, dtype))))


def word_of(number: Immediate, dtype: DType) -> str:
    """The text of a word with a number in both halves."""
    bits = int(NATIVE.literal(number.value, dtype).view("u2"))
    return f"0x{bits:04x}{bits:04x}u"


def is_adjacent(access: Access, var: str, dtype: DType, places: Mapping[str, NamedStorage], facts: Callable[[], Facts]) -> bool:
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
