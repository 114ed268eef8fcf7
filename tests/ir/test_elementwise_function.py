"""What a row of the table of elementwise functions says of itself."""

import pytest

from taskfuse.dtypes import DType, bfloat16, bool_, float16, float32, float64, int8, int32
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import FUNCTION_INSTRUCTIONS


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


def test_issue_slots() -> None:
    sigmoid, power, copy = (ELEMENTWISE[n] for n in ("sigmoid", "pow", "copy"))
    assert (sigmoid.issue_slots(float32), sigmoid.issue_slots(bfloat16), sigmoid.issue_slots(float64)) == (16, 10, 32)
    assert power.issue_slots(float32) > 10 * power.issue_slots(float32, is_constant=True)
    assert (copy.issue_slots(float32), copy.issue_slots(bfloat16), ELEMENTWISE["add"].issue_slots(bfloat16)) == (1, 1, 2)
