"""What schedulers know of GPUs: instructions, which are alike on all of them, and the roofline that every cost model stands on.

The figures of one GPU are in :mod:`taskfuse.target`. A kernel takes its launch and, of the times that its bytes and its instructions take at full speed, the
longest; what a cost model adds, such as waits, waves and epilogues, is its own.
"""

from __future__ import annotations

from typing import Final

from taskfuse.ir.elementwise import DTypeRule
from taskfuse.target import Target

VECTOR_BYTES: Final = 16
"""Bytes that a thread loads or stores at once at most."""
ASYNC_BYTES: Final = (4, 8, 16)
"""Bytes of an element, or of a vector, that ``cp.async`` copies."""
FUNCTIONS: Final = (DTypeRule.FLOAT, DTypeRule.DIVIDE)
"""The rules of functions that take many instructions, such as exponentials, roots and quotients: of what gives a float of anything."""
FUNCTION_COST: Final = 16
"""Instructions of such a function; arithmetic takes one. Assumed, not measured."""


def dram_us(target: Target, moved: float, share: float = 1.0) -> float:
    """Microseconds of so many bytes between the chip and its memory, at a share of its bandwidth."""
    return moved / (target.dram_bytes_per_us * share)


def issue_us(target: Target, instructions: float, sms: int | None = None) -> float:
    """Microseconds of so many instructions of threads, on all multiprocessors or on ``sms`` of them."""
    return instructions / (target.lanes * (target.cycles_per_us if sms is None else sms * target.clock_mhz))


def fill(target: Target, threads: float) -> float:
    """The share of the bandwidth that so many threads reach, each with a load in flight (Little's law)."""
    return min(1.0, threads / (target.sms * target.busy_threads))


def kernel_us(target: Target, *times: float) -> float:
    """Microseconds from one kernel of a graph to the next, of one whose parts take ``times`` at once."""
    return target.launch_us + max(times)
