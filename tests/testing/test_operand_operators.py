"""Mistakes in operands: each operator plants the one that its name says, in one place."""

import pytest

from taskfuse.kir import parse_kernel
from taskfuse.testing.operand_operators import OPERAND_OPERATORS
from tests.testing.planted import SUMS, planted

ROW = "4*blockIdx.x + threadIdx.x"
TERM = f"acc = fma(x[{ROW}, j], z[{ROW}, j], acc)  ~ term y[{ROW}, j]"
VALUE = f"y[{ROW}] = copy(acc)  ~ value y[{ROW}]"


@pytest.mark.parametrize(
    ("operator", "count", "line"),
    [
        ("read the next element", 4, TERM.replace(f"x[{ROW},", f"x[({ROW} + 1) % 8,")),
        ("read the element before", 4, TERM.replace(f"x[{ROW},", f"x[max({ROW} - 1, 0),")),
        ("read the next element, clamped", 4, TERM.replace(f"x[{ROW},", f"x[min({ROW} + 1, 7),")),
        ("read the first element", 4, TERM.replace(f"x[{ROW},", "x[0,")),
        ("read transposed", 2, TERM.replace(f"x[{ROW}, j]", f"x[j, {ROW}]")),
        ("read another tensor", 2, TERM.replace("x[", "z[")),
        ("read a constant", 4, TERM.replace(f"x[{ROW}, j]", "0.0")),
        ("write backwards", 1, VALUE.replace(f"y[{ROW}] =", "y[7 - 4*blockIdx.x - threadIdx.x] =")),
        ("operands swapped", 2, f"acc = fma(z[{ROW}, j], x[{ROW}, j], acc)  ~ term y[{ROW}, j]"),
        ("another function", 2, VALUE.replace("copy(", "abs(")),
        ("another constant", 1, "acc = copy(1.0)  ~ start y"),
        ("computed in another dtype", 15, "acc = copy.float64(0.0:float32)  ~ start y"),
        ("another shuffle", 0, ""),
    ],
)
def test_planted(operator: str, count: int, line: str) -> None:
    found = planted(OPERAND_OPERATORS, operator, parse_kernel(SUMS))
    assert len(found) == count
    assert not found or line in found
