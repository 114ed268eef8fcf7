"""The side conditions, with the weight of each."""

from __future__ import annotations

from collections.abc import Callable

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.sides.barrier_uses import barrier_uses
from taskfuse.testing.small.sides.cursors import moved
from taskfuse.testing.small.sides.engines import accumulators, boxes, budgets, ring_bytes
from taskfuse.testing.small.sides.exchanges import clusters, queues, rings
from taskfuse.testing.small.sides.participants import arrivals, grids, idle, loader, named, semaphores, symbolic, whole_warps
from taskfuse.testing.small.sides.places import aliases, choices, extents, gathers, weights
from taskfuse.testing.small.sides.proxies import handed, proxies
from taskfuse.testing.small.sides.relays import relays
from taskfuse.testing.small.sides.role_pairs import role_pairs
from taskfuse.testing.small.sides.side import Side
from taskfuse.testing.small.sides.slots import slots
from taskfuse.testing.small.sides.values import advances, alignment, arithmetic, hidden, names, rows, steps, stores

SIDES: tuple[tuple[int, Callable[[Chooser], Side]], ...] = (
    (12, arrivals),
    (7, symbolic),
    (8, loader),
    (9, whole_warps),
    (6, named),
    (6, semaphores),
    (3, grids),
    (12, stores),
    (6, alignment),
    (2, rows),
    (8, arithmetic),
    (5, hidden),
    (6, steps),
    (5, advances),
    (3, names),
    (5, ring_bytes),
    (4, boxes),
    (5, proxies),
    (6, handed),
    (3, budgets),
    (2, accumulators),
    (5, queues),
    (6, rings),
    (4, clusters),
    (4, aliases),
    (2, extents),
    (3, choices),
    (2, gathers),
    (3, weights),
    (2, idle),
    (4, moved),
    (8, role_pairs),
    (8, relays),
    (8, slots),
    (12, barrier_uses),
)
"""Each kind, and how often it is made."""


def side_kernel(c: Chooser) -> Side:
    """A kernel with a side condition."""
    at = c.integer(0, sum(weight for weight, _ in SIDES) - 1)
    for weight, make in SIDES:
        at -= weight
        if at < 0:
            return make(c)
    raise AssertionError(at)
