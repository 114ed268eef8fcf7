"""The table of the combining functions of reductions and scans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from taskfuse.dtypes import DType, bool_, float32, float64, int32, int64, uint32, uint64
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Combine:
    """One row: an associative and commutative function of reductions.

    Attributes:
        name: name of the row, that of ``op``.
        op: the function.
        neutral: the neutral element for a dtype.
        idempotent: true if combining an element twice has no effect.
    """

    name: str
    op: Elementwise
    neutral: Callable[[DType], int | float | bool]
    idempotent: bool = False

    def __repr__(self) -> str:
        return self.name


def _all_bits(dtype: DType) -> int | bool:
    if dtype is bool_:
        return True
    return -1 if dtype.min_value < 0 else int(dtype.max_value)


def _combine(name: str, neutral: Callable[[DType], int | float | bool], idempotent: bool = False) -> Combine:
    return Combine(name, ELEMENTWISE[name], neutral, idempotent)


def _zero(dtype: DType) -> int | float | bool:
    return False if dtype is bool_ else 0.0 if dtype.is_float else 0


def _one(dtype: DType) -> int | float | bool:
    return True if dtype is bool_ else 1.0 if dtype.is_float else 1


COMBINES: dict[str, Combine] = {
    c.name: c
    for c in (
        _combine("add", _zero),
        _combine("mul", _one),
        _combine("maximum", lambda dtype: dtype.lowest, idempotent=True),
        _combine("minimum", lambda dtype: dtype.highest, idempotent=True),
        _combine("logical_and", _one, idempotent=True),
        _combine("logical_or", _zero, idempotent=True),
        _combine("bitwise_and", _all_bits, idempotent=True),
        _combine("bitwise_or", _zero, idempotent=True),
        _combine("bitwise_xor", _zero),
        _combine("logaddexp", lambda dtype: dtype.lowest),
    )
}


ATOMIC: dict[str, tuple[DType, ...]] = {
    "add": (float32, float64, int32, uint32, int64, uint64),
    "maximum": (int32, uint32, int64, uint64),
    "minimum": (int32, uint32, int64, uint64),
    "bitwise_and": (int32, uint32, int64, uint64),
    "bitwise_or": (int32, uint32, int64, uint64),
    "bitwise_xor": (int32, uint32, int64, uint64),
}
"""The functions that sm_80 combines atomically with an element in Global memory (PTX ISA, "red"), with their dtypes.

Floats of 16 bits are absent: each step would round, so they are summed in float32.
"""


def is_atomic(combine: Combine, dtype: DType) -> bool:
    """True if an element in Global memory can be combined atomically."""
    return dtype in ATOMIC.get(combine.name, ())


def vector_updates(combine: Combine, dtype: DType) -> tuple[int, ...]:
    """How many neighboring elements in Global memory one instruction combines, each atomically (PTX ISA, "red", ``.vec_32_bit``: sm_90)."""
    return (2, 4) if combine.name == "add" and dtype is float32 else ()


def is_bulk_update(combine: Combine, dtype: DType) -> bool:
    """True if the copy engine combines elements in Global memory with those of a box, each atomically (PTX ISA, "cp.reduce.async.bulk.tensor": sm_90)."""
    return is_atomic(combine, dtype) and dtype is not float64 and not (combine.name == "add" and dtype is int64)


def depends_on_order(combine: Combine, dtype: DType) -> bool:
    """True if the result depends on the order in which elements are combined: each step of a sum or product of floats rounds."""
    return dtype.is_float and combine.name in ("add", "mul", "logaddexp")
