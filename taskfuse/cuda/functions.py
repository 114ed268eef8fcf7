"""Elementwise functions in CUDA C++: the column ``cpp`` of :data:`taskfuse.ir.elementwise.ELEMENTWISE`, filled in for operands and a dtype.

Semantics are those of the NumPy implementations in ``ELEMENTWISE``. docs/math.md has the errors of the float functions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from taskfuse.cuda.c_types import c_type, wrapping_type
from taskfuse.cuda.conversions import CONVERSIONS, convert
from taskfuse.cuda.device_functions import DEVICE_FUNCTIONS
from taskfuse.cuda.text import Fragment, Helper
from taskfuse.dtypes import DType, DTypeKind, bool_
from taskfuse.errors import UnsupportedError
from taskfuse.ir.elementwise import ELEMENTWISE, DTypeRule, Elementwise
from taskfuse.ir.spelling import Spelling


def result_dtype(op: Elementwise, dtype: DType) -> DType:
    """The dtype of what ``op`` gives when it computes in ``dtype``."""
    return bool_ if op.rule in (DTypeRule.BOOL, DTypeRule.LOGICAL) else dtype


def call(op: Elementwise, operands: Sequence[str], dtype: DType, fast_math: bool = False) -> Fragment:
    """``op`` on operands of ``dtype`` (a selector is a bool), as C++ of type ``c_type(result_dtype(op, dtype))``.

    Args:
        operands: texts that may stand as operands; each is evaluated at most once.
        dtype: what ``op`` computes in. Floats below 32 bits are computed in float and rounded once.
        fast_math: take the faster and less accurate forms of float.

    Raises :class:`UnsupportedError` if the function does not take the dtype.
    """
    if dtype.compute is not dtype and not op.cpp.moves:
        return _in_float(op, operands, dtype, fast_math)
    text = _form(op.cpp, dtype, fast_math)
    if text is None:
        raise UnsupportedError(what=f"{op.name} of {dtype}", reason="the CUDA backend has no form of it")
    # no minus sign after another one
    apart = [f"({operand})" if operand.startswith("-") else operand for operand in operands]
    return Fragment(text.format(*apart, T=c_type(dtype), U=wrapping_type(dtype)), DEVICE_FUNCTIONS.called(text))


def _in_float(op: Elementwise, operands: Sequence[str], dtype: DType, fast_math: bool) -> Fragment:
    converted = [convert(operand, dtype, dtype.compute) for operand in operands]
    value = call(op, [operand.text for operand in converted], dtype.compute, fast_math)
    result = result_dtype(op, dtype)
    rounded = convert(value.text, result_dtype(op, dtype.compute), result)
    return Fragment(rounded.text, frozenset[Helper]().union(value.helpers, rounded.helpers, *(operand.helpers for operand in converted)))


def _form(row: Spelling, dtype: DType, fast_math: bool) -> str | None:
    match dtype.kind:
        case DTypeKind.INT:
            return row.signed
        case DTypeKind.UINT:
            return row.unsigned
        case DTypeKind.BOOL:
            return row.boolean
        case DTypeKind.FLOAT if dtype.bits == 64:
            return row.f64
        case DTypeKind.FLOAT:
            return row.fast if fast_math and row.fast is not None else row.f32


_FORMS = [form for row in (op.cpp for op in ELEMENTWISE.values()) for form in (row.f32, row.f64, row.signed, row.unsigned, row.fast) if form is not None]
# what the texts of this module and of conversions call: no variable may have such a name where they stand
IDENTIFIERS: frozenset[str] = frozenset(re.findall(r"[a-zA-Z_]\w+", " ".join(_FORMS))) | CONVERSIONS.helpers.keys()
