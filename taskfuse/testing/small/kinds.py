"""The kinds of small kernels, with the weight of each."""

from __future__ import annotations

from collections.abc import Callable

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.barriers import exchanging, gridwide, handover
from taskfuse.testing.small.blocks import between_blocks, clustered
from taskfuse.testing.small.pingpong import distributed
from taskfuse.testing.small.pipeline import Pipeline
from taskfuse.testing.small.prefetch import prefetched
from taskfuse.testing.small.products import product, together
from taskfuse.testing.small.text import Small
from taskfuse.testing.small.updates import updating


def _pipeline(c: Chooser) -> Small:
    return Pipeline(c).make()


KINDS: tuple[tuple[int, Callable[[Chooser], Small]], ...] = (
    (50, _pipeline),
    (8, distributed),
    (8, exchanging),
    (3, handover),
    (3, gridwide),
    (9, prefetched),
    (7, between_blocks),
    (5, clustered),
    (4, product),
    (3, together),
    (4, updating),
)
"""Each kind, and how many of about 100 kernels are of it."""


def small_kernel(c: Chooser) -> Small:
    """A random small kernel."""
    place = c.integer(0, sum(weight for weight, _ in KINDS) - 1)
    for weight, make in KINDS:
        if place < weight:
            return make(c)
        place -= weight
    raise AssertionError("places are less than the sum of the weights")
