"""What a kernel does under every one of the simulator's schedulers: whether the schedule matters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.errors import SimulationError, TaskfuseError
from taskfuse.ir.values import RING
from taskfuse.kir import Kernel
from taskfuse.sim import Scheduler, simulate

Argument = NDArray[Any] | float | int

# A kernel that computes the wrong thing, and the same under every schedule, has no race.
VALUES = ("uninitialized", "were not written", "no case of the choice holds")
LIMITS = ("threads per block", "bytes of Shared memory")
STEPS = "steps"
MOST = 300_000


def is_valid(kernel: Kernel) -> bool:
    """True if a kernel obeys the rules of kernel IR."""
    try:
        kernel.check_ir()
    except TaskfuseError:
        return False
    return True


def misbehaves(kernel: Kernel, arguments: Sequence[Argument]) -> str | None:
    """How a schedule shows a race, a deadlock or a misuse of barriers, memory or engines; ``None`` if none of eight does.

    Results must not depend on the schedule. That they are what somebody wanted is not asked: a kernel that reads what nobody wrote, under every
    schedule alike, is no less synchronized.
    """
    seen: list[tuple[NDArray[Any], ...] | str] = []
    for k, scheduler in enumerate(Scheduler):
        try:
            seen.append(simulate(kernel, arguments, seed=k, scheduler=scheduler, values=RING, max_steps=MOST))
        except SimulationError as error:
            reason = str(error).split("\n")[0]
            if any(text in reason for text in LIMITS):
                return None
            if reason.endswith(STEPS):
                continue
            if not any(text in reason for text in VALUES):
                return f"{scheduler.value}: {reason}"
            seen.append(reason)
    for found in seen[1:]:
        if isinstance(found, str) or isinstance(seen[0], str):
            if isinstance(found, str) is not isinstance(seen[0], str):
                return f"only some schedules read what nobody wrote: {found if isinstance(found, str) else seen[0]}"
        elif any(not np.array_equal(a, b) for a, b in zip(found, seen[0], strict=True)):
            return "results differ between schedules"
    return None
