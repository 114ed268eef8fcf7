"""Batches of asynchronous operations: closed, and waited for."""

import numpy as np
import pytest

from taskfuse.errors import SimulationError
from taskfuse.sim import Interleaving, simulate
from tests.sim.kernels import INTERLEAVINGS, X, kernel

COPY = """
COPY.async s[threadIdx.x] <- x[threadIdx.x] width 1
COMMIT copy
WAIT_GROUP copy <= {pending}
y[threadIdx.x] = copy(s[threadIdx.x])
"""
SHARED = "SHARED s: float32[32] align 16 @ 0"


@pytest.mark.parametrize("interleaving", INTERLEAVINGS)
def test_a_batch_is_done_where_none_is_pending(interleaving: Interleaving) -> None:
    (y,) = simulate(kernel(COPY.format(pending=0), SHARED), [X], interleaving=interleaving)
    np.testing.assert_array_equal(y, X)


def test_a_batch_that_may_be_pending_is_not_done() -> None:
    with pytest.raises(SimulationError, match="accessed while an asynchronous copy that writes it may be in flight"):
        simulate(kernel(COPY.format(pending=1), SHARED), [X])


def test_a_torn_warp_may_not_use_the_queue_of_wgmma() -> None:
    with pytest.raises(SimulationError, match="an instruction on the wgmma queue"):
        simulate(kernel("IF threadIdx.x < 3:\n  COMMIT wgmma\ny[threadIdx.x] = copy(x[threadIdx.x])"), [X])
