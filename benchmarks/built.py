"""A product that is scheduled, lowered and compiled, for scripts that time many of them."""

from __future__ import annotations

from dataclasses import dataclass

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig
from taskfuse.target import DEFAULT, Target


@dataclass(frozen=True)
class Built:
    """A kernel, its parameters, and the time that the cost model expects."""

    kernel: tf.Kernel
    config: MatmulConfig
    expected_us: float


def built(fusion: tf.Fusion, config: MatmulConfig | None, target: Target = DEFAULT, *, fast_math: bool = False) -> Built:
    """Schedule a fusion with given parameters, or those that are chosen; lower and compile it. The machine code stays on disk."""
    schedule = tf.schedulers.matmul(fusion, config, target=target)
    kernel = tf.lower(fusion)
    kernel.cubin(fast_math=fast_math)
    return Built(kernel, schedule.config, schedule.us)
