"""Values of expressions for the threads of one block."""

import numpy as np
import pytest

from taskfuse.check.refuted import Refuted, TooLarge
from taskfuse.check.thread_values import ThreadValues
from taskfuse.ir.scalar import parse_expr
from tests.sim.kernels import kernel


def values(block: str = "(4, 2, 1)") -> ThreadValues:
    return ThreadValues(kernel("PASS", "DIM N min 1", inputs="x: float32[N]", block=block, grid="(3, 1, 1)"), {"N": 5}, (2, 0, 0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("threadIdx.x + 4*threadIdx.y", [0, 3, 7]), ("blockIdx.x*N", [10, 10, 10]), ("7", [7, 7, 7]), ("N // (threadIdx.x + 1)", [5, 1, 1])],
)
def test_values_of_some_threads(text: str, expected: list[int]) -> None:
    assert values().of(parse_expr(text), np.array([0, 3, 7])).tolist() == expected


def test_a_divisor_of_zero_refutes() -> None:
    found = values()
    found.role = "producer"
    with pytest.raises(Refuted, match=r"threadIdx\.x is 0, and must be") as caught:
        found.of(parse_expr("N // threadIdx.x"), np.arange(4))
    assert caught.value.notes == ("thread 0 in producer",)
    assert found.of(parse_expr("N // threadIdx.x"), np.arange(1, 3)).tolist() == [5, 2]


def test_cursors_have_a_value_per_thread() -> None:
    found = values()
    found.state("c.slot")[[1]] = 3
    assert found.of(parse_expr("c.slot"), np.arange(3)).tolist() == [0, 3, 0]


def test_a_block_is_no_larger_than_a_machine_has() -> None:
    with pytest.raises(TooLarge):
        values("(64, 64, 1)")
