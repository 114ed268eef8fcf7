"""Sets of threads, and expressions on them."""

import numpy as np

from taskfuse.sim import simulate
from tests.sim.kernels import X, error, kernel


def test_linear_ids_run_over_x_first() -> None:
    k = kernel(
        "y[blockIdx.z, blockIdx.y, threadIdx.z, threadIdx.y, threadIdx.x] = copy.int64(index(16*blockIdx.x + threadIdx.x))",
        outputs="y: float32[2, 2, 2, 2, 2]",
        block="(2, 2, 2)",
        grid="(1, 2, 2)",
    )
    (y,) = simulate(k, [X])
    np.testing.assert_array_equal(y, np.broadcast_to([0.0, 1.0], (2, 2, 2, 2, 2)))


def test_expressions_without_a_value() -> None:
    k = kernel("FOR i in 0..4//(N - 3):\n  y[i] = copy(x[i])", "DIM N", inputs="x: float32[N]")
    assert error(k, [X[:3]]).splitlines()[:2] == [
        "k: the expression 4//(N - 3) has no value: integer division or modulo by zero",
        "note: statement: FOR i in 0..4//(N - 3):",
    ]
    launch = kernel("", "DIM N", inputs="x: float32[N]", grid="(4//(N - 3), 1, 1)")
    assert error(launch, [X[:3]]) == "k: the expression 4//(N - 3) has no value: integer division or modulo by zero"
