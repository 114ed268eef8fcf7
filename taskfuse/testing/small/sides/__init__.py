"""Random kernels with side conditions: executing threads, thread-dependent bytes, counts, steps and advances, extents, alignment, names, proxies, budgets.

Other small kernels vary how rings are used; these vary the assumptions of such kernels. About half of them are right; a generator that knows which ones
says so.
"""

from taskfuse.testing.small.sides.kinds import SIDES, side_kernel
from taskfuse.testing.small.sides.side import Side

__all__ = ["SIDES", "Side", "side_kernel"]
