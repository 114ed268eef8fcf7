"""Random kernels with side conditions: who executes, thread-dependent bytes, counts, steps and advances, extents, alignment, names, proxies, budgets.

Other small kernels vary how rings are used; these vary what such a kernel takes for granted. About half of them are right, and where a generator can know
which, it says so.
"""

from taskfuse.testing.small.sides.kinds import SIDES, side_kernel
from taskfuse.testing.small.sides.side import Side

__all__ = ["SIDES", "Side", "side_kernel"]
