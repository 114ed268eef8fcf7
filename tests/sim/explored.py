"""Kernels whose interleavings are all looked at."""

from typing import Any

import numpy as np
import pytest

from taskfuse.errors import SimulationError
from taskfuse.kir import Kernel
from taskfuse.sim import Exploration, simulate
from tests.sim.kernels import load

RING = load("ring")
ROWS = np.random.default_rng(0).standard_normal((12, 32)).astype(np.float32)


def repeats(k: Kernel, args: list[Any], found: Exploration) -> bool:
    """True if the interleaving of a failure fails again, in the same way."""
    assert found.failure is not None
    if found.failure.error is None:
        first, again = (simulate(k, args, choices=s, in_step=found.in_step) for s in ((), found.failure.choices))
        return any(a.tobytes() != b.tobytes() for a, b in zip(first, again, strict=True))
    with pytest.raises(SimulationError) as caught:
        simulate(k, args, choices=found.failure.choices, in_step=found.in_step)
    return str(caught.value) == str(found.failure.error)
