"""The functions that reductions combine with, against what their columns say."""

import numpy as np
import pytest

from taskfuse.dtypes import DType, bool_, float32, float64, int8, int32, uint8
from taskfuse.ir.combine import COMBINES, Combine
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
