"""Witnesses that lie: each operator changes what a statement says, or what it does, or both."""

import pytest

from taskfuse.kir import parse_kernel
from taskfuse.testing.lie_operators import LIE_OPERATORS
from tests.testing.planted import SUMS, planted

ROW = "4*blockIdx.x + threadIdx.x"


@pytest.mark.parametrize(
    ("operator", "count", "first"),
    [
        ("as another thread, honest", 15, f"acc = fma(x[threadIdx.x, j], z[threadIdx.x, j], acc)  ~ term y[{ROW}, j]"),
        ("as another thread, lying", 15, "acc = fma(x[threadIdx.x, j], z[threadIdx.x, j], acc)  ~ term y[threadIdx.x, j]"),
        ("other index read and said", 4, f"acc = fma(x[({ROW} + 1) % 8, j], z[{ROW}, j], acc)  ~ term y[({ROW} + 1) % 8, j]"),
        ("another index said", 6, f"acc = fma(x[{ROW}, j], z[{ROW}, j], acc)  ~ term y[{ROW} + 1, j]"),
        ("another content said", 18, "acc = copy(0.0)  ~ zero y"),
        ("another tensor said", 0, ""),
        ("nothing said", 3, "acc = copy(0.0)"),
        ("start dropped, another says it", 2, f"acc = fma(x[{ROW}, j], z[{ROW}, j], acc)  ~ start y"),
        ("value dropped, another says it", 2, f"acc = copy(0.0)  ~ value y[{ROW}]; PASS"),
        ("term twice, once as another", 6, f"acc = fma(x[{ROW}, j], z[{ROW}, j], acc)  ~ zero y[{ROW}, j]"),
        ("part twice, once as another", 0, ""),
    ],
)
def test_planted(operator: str, count: int, first: str) -> None:
    found = planted(LIE_OPERATORS, operator, parse_kernel(SUMS))
    assert len(found) == count
    assert not found or first in found


def test_definitions_stay() -> None:
    kernel = parse_kernel(SUMS)
    assert all(mutant.definitions == kernel.definitions for op in LIE_OPERATORS for mutant in op.apply(kernel))
