"""The printed form of operands."""

import pytest

from taskfuse import dtypes
from taskfuse.kir.operand_printer import immediate_text
from taskfuse.kir.operands import Immediate


@pytest.mark.parametrize(
    ("value", "dtype", "expected", "text"),
    [
        (0.5, dtypes.float32, dtypes.float32, "0.5"),
        (0.5, dtypes.float32, dtypes.float16, "0.5:float32"),
        (-0.0, dtypes.float16, None, "-0.0:float16"),
        (float("inf"), dtypes.float32, dtypes.float32, "inf"),
        (-float("inf"), dtypes.float32, dtypes.float32, "-inf"),
        (float("nan"), dtypes.float32, dtypes.float32, "nan"),
        (1e-05, dtypes.float32, dtypes.float32, "1e-05"),
        (-3, dtypes.int64, dtypes.int64, "-3"),
        (True, dtypes.bool_, dtypes.bool_, "true"),
    ],
)
def test_constants(value: float, dtype: dtypes.DType, expected: dtypes.DType | None, text: str) -> None:
    assert immediate_text(Immediate(value, dtype), expected) == text
