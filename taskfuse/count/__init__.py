"""The work of a launch, counted from its kernel's statements, and the time that it takes: :func:`count`.

It reads kernel IR alone, so the results of all schedulers are counted alike, whatever model chose them.
"""

from taskfuse.count.launch import Launch
from taskfuse.count.tally import IN_FLIGHT, Count, Traffic
from taskfuse.count.walk import count

__all__ = ["IN_FLIGHT", "Count", "Launch", "Traffic", "count"]
