"""The tables of elementwise functions and of what reductions combine with, against what their columns say."""

import numpy as np
import pytest

from taskfuse.dtypes import DTYPES, DType, bfloat16, bool_, float16, float32, float64, int8, int32, uint8
from taskfuse.ir.elementwise import COMBINES, ELEMENTWISE, FUNCTION_INSTRUCTIONS, Combine, DTypeRule, Elementwise

FLOATS = [0.0, 1.0, -2.5, 448.0, -3e38]
INTEGERS = [0, 1, 3, 100, 127]


def takes(rule: DTypeRule, dtype: DType) -> bool:
    match rule:
        case DTypeRule.BITWISE:
            return not dtype.is_float
        case DTypeRule.NUMERIC:
            return dtype is not bool_
        case DTypeRule.LOGICAL:
            return dtype is bool_
        case _:
            return True


def elements(dtype: DType) -> np.ndarray:
    return np.array([False, True] if dtype is bool_ else FLOATS if dtype.is_float else INTEGERS, dtype.compute.numpy)


REDUCED = [(row, dtype) for row in COMBINES.values() for dtype in (float32, float64, int8, uint8, int32, bool_) if takes(row.op.rule, dtype)]


@pytest.mark.parametrize(("row", "dtype"), REDUCED, ids=str)
def test_neutral_elements_change_nothing_and_idempotent_functions_take_twice(row: Combine, dtype: DType) -> None:
    x = elements(dtype)
    neutral = np.array(row.neutral(dtype), dtype.compute.numpy)
    for found in (row.op.function(neutral, x), row.op.function(x, neutral)):
        np.testing.assert_array_equal(found, x)
    if row.idempotent:
        np.testing.assert_array_equal(row.op.function(x, x), x)


@pytest.mark.parametrize("row", [row for row in ELEMENTWISE.values() if row.commutative], ids=str)
def test_commutative_functions_are(row: Elementwise) -> None:
    dtype = bool_ if row.rule is DTypeRule.LOGICAL else int32 if row.rule is DTypeRule.BITWISE else float64
    x, y = np.meshgrid(elements(dtype)[1:], elements(dtype)[1:])
    rest = [x] * (row.arity - 2)
    np.testing.assert_array_equal(row.function(x, y, *rest), row.function(y, x, *rest))


def test_every_reduction_combines_commutatively() -> None:
    assert all(row.op.commutative and row.op.arity == 2 and row.op is ELEMENTWISE[row.name] for row in COMBINES.values())


@pytest.mark.parametrize(
    ("name", "operands", "out", "computed"),
    [
        ("add", (bfloat16, bfloat16), bfloat16, float32),
        ("add", (int8, int8), int8, int8),
        ("lt", (float16, float16), bool_, float32),
        ("lt", (int8, int32), bool_, int32),
        ("logical_and", (int32, float32), bool_, bool_),
        ("cast", (float64,), float32, float64),
    ],
)
def test_what_a_function_computes_in(name: str, operands: tuple[DType, ...], out: DType, computed: DType) -> None:
    assert ELEMENTWISE[name].compute_dtype(operands, out) is computed


def test_functions_take_more_instructions_than_arithmetic() -> None:
    assert {ELEMENTWISE[n].instructions for n in ("exp", "div", "sqrt")} == {FUNCTION_INSTRUCTIONS}
    assert {ELEMENTWISE[n].instructions for n in ("add", "maximum", "lt")} == {1}


def test_names_of_numpy() -> None:
    assert ELEMENTWISE["sin"].numpy_name == "sin"
    for row in ELEMENTWISE.values():
        assert not row.numpy_name or hasattr(np, row.numpy_name), row
    assert len(DTYPES) >= 14
