"""The functions that reductions combine with, against what their columns say."""

import numpy as np
import pytest

from taskfuse.dtypes import DType, bfloat16, bool_, float32, float64, int8, int32, int64, uint8
from taskfuse.ir.combine import COMBINES, Combine, is_bulk_update, vector_updates
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule
from tests.ir.elements import elements


def takes(rule: DTypeRule, dtype: DType) -> bool:
    match rule:
        case DTypeRule.BITWISE:
            return not dtype.is_float
        case DTypeRule.NUMERIC:
            return dtype is not bool_
        case DTypeRule.LOGICAL:
            return dtype is bool_
        case DTypeRule.FLOAT:
            return dtype.is_float
        case _:
            return True


REDUCED = [(row, dtype) for row in COMBINES.values() for dtype in (float32, float64, int8, uint8, int32, bool_) if takes(row.op.rule, dtype)]


@pytest.mark.parametrize(("row", "dtype"), REDUCED, ids=str)
def test_neutral_elements_change_nothing_and_idempotent_functions_take_twice(row: Combine, dtype: DType) -> None:
    x = elements(dtype)
    neutral = np.array(row.neutral(dtype), dtype.compute.numpy)
    for found in (row.op.function(neutral, x), row.op.function(x, neutral)):
        np.testing.assert_array_equal(found, x)
    if row.idempotent:
        np.testing.assert_array_equal(row.op.function(x, x), x)


def test_every_reduction_combines_commutatively() -> None:
    assert all(row.op.commutative and row.op.arity == 2 and row.op is ELEMENTWISE[row.name] for row in COMBINES.values())


def test_what_one_instruction_updates() -> None:
    """Of neighbors, sums of float32; in bulk, what threads update, without sums of 64 bits with a sign or of float64."""
    assert vector_updates(COMBINES["add"], float32) == (2, 4)
    for name, dtype in (("add", int32), ("add", float64), ("maximum", int32)):
        assert vector_updates(COMBINES[name], dtype) == ()
    assert is_bulk_update(COMBINES["add"], float32)
    assert is_bulk_update(COMBINES["maximum"], int64)
    for name, dtype in (("add", float64), ("add", int64), ("add", bfloat16), ("mul", float32)):
        assert not is_bulk_update(COMBINES[name], dtype)
