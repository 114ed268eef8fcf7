"""Timing kernels: CUDA graphs of a few calls, replayed in turn, so that clocks and throttling affect all of them equally."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from taskfuse.cuda.arrays import kinds

CALLS = 10
"""Calls in a graph, over which the gap between two graphs is spread."""

Call = Callable[..., Any]
"""A callable with arrays, ``out=`` and ``stream=``: an :class:`~taskfuse.runtime.executable.Executable`."""


def in_turn(calls: Sequence[Call], args: Sequence[Any], rounds: int = 20) -> list[float]:
    """Microseconds of one call of each of ``calls`` on ``args``: the median of ``rounds`` replays of a graph of 10.

    Caches are warm, as if each kernel's input were the previous one's output; data that exceed them are read from memory.

    Args:
        args: arrays on one GPU, and run-time scalars. Outputs are allocated once per call, before the measurement.

    Raises:
        TaskfuseError: an error of a call; a call that allocates memory while it runs cannot be measured this way.
    """
    driver = kinds().driver
    device = driver.device(kinds().device_of(args[0]))
    times: list[list[float]] = [[] for _ in calls]
    with driver.current(device), ExitStack() as graphs:
        stream = driver.own_stream(device)
        ready = [graphs.enter_context(driver.captured(stream, _repeat(call, args, stream))) for call in calls]
        for graph in ready:
            driver.replay(graph, stream)
        for _ in range(rounds):
            for graph, found in zip(ready, times, strict=True):
                found.append(driver.replay(graph, stream) / CALLS)
    return [statistics.median(found) for found in times]


def _repeat(call: Call, args: Sequence[Any], stream: int) -> Callable[[], None]:
    """Some calls in ``stream``, after one that has compiled and loaded the kernel and made its outputs."""
    out = call(*args, stream=stream)
    kinds().driver.synchronize(stream)

    def repeat() -> None:
        for _ in range(CALLS):
            call(*args, out=out, stream=stream)

    return repeat
