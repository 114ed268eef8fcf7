"""Which matrices tensor cores multiply: operand types, what they accumulate in, and the widths of ``wgmma``."""

from __future__ import annotations

from taskfuse.dtypes import DType, bfloat16, float8_e4m3, float8_e5m2, float16, float32, int8, int32, uint8

_FLOATS = frozenset((float8_e4m3, float8_e5m2))
_INTEGERS = frozenset((int8, uint8))
_ALIKE = frozenset((bfloat16, float16, float32))


def accumulator_dtype(a: DType, b: DType) -> DType | None:
    """The element type in which products of A and B are summed; ``None``: no instruction multiplies them.

    16-bit floats and float32 (as tf32) go with their like; 8-bit floats mix, and so do 8-bit integers, whose sums are int32 (they wrap).
    PTX ISA, "wgmma.mma_async" and "mma"; the 16-bit accumulators that the instructions also have are left out.
    """
    if (a is b and a in _ALIKE) or {a, b} <= _FLOATS:
        return float32
    return int32 if {a, b} <= _INTEGERS else None


def wgmma_widths(dtype: DType) -> tuple[int, ...]:
    """Every n of ``wgmma.mma_async.m64nNk*`` for operands of ``dtype``: multiples of 8 up to 256, for integers of 16 from 32 on."""
    return tuple(n for n in range(8, 257, 8) if dtype.is_float or n <= 32 or n % 16 == 0)
