"""The work of a launch, counted from its kernel's statements, and the time that follows: :func:`count`.

It reads only kernel IR, so the kernels of all schedulers are counted alike, independent of the cost model that chose them.
"""

from taskfuse.count.launch import Launch
from taskfuse.count.tally import IN_FLIGHT, Count, Traffic
from taskfuse.count.walk import count

__all__ = ["IN_FLIGHT", "Count", "Launch", "Traffic", "count"]
