"""What a launch of a kernel will do, counted from its statements, and how long that takes: :func:`count`.

It reads kernel IR alone, so that every scheduler's result goes through the same count, whatever model chose it.
"""

from taskfuse.count.launch import Launch
from taskfuse.count.tally import IN_FLIGHT, LOAD_CYCLES, Count, Traffic
from taskfuse.count.walk import count

__all__ = ["IN_FLIGHT", "LOAD_CYCLES", "Count", "Launch", "Traffic", "count"]
