"""Random small kernels, as text of kernel IR: few threads, few trips, all synchronization statements.

They are small enough for all their interleavings (``kernel.explore``), so that the static proof, exhaustive exploration and random interleavings can
be compared on tens of thousands of them (:mod:`taskfuse.testing.agreement`). Most are right; some have their actions in a random order.
"""

from taskfuse.testing.small.kinds import KINDS, small_kernel
from taskfuse.testing.small.text import Small

__all__ = ["KINDS", "Small", "small_kernel"]
