"""Random cases that several tests look at: a process makes each of them once.

Tests that may look at any cases look at those of the first seeds of each kind, so that they look at the same ones. What they look at stays as it is.
"""

from collections.abc import Mapping
from functools import cache

from taskfuse.testing import Mix, seeded_case
from taskfuse.testing.case import Case

PAIRS: Mapping[Mix, tuple[int, int]] = {
    **dict.fromkeys(Mix, (0, 1)),
    **dict.fromkeys((Mix.STREAMS, Mix.WARPS, Mix.ROWS, Mix.POINTWISE), (0, 3)),
    **dict.fromkeys((Mix.FUNCTIONS, Mix.SCATTER, Mix.STAGED), (0, 2)),
    Mix.PRODUCTS: (1, 2),
}
"""Two of the first four seeds of each kind: all pairs together have every statement, function, rule, memory and mechanism that all four seeds have."""


@cache
def _made(seed: int, mix: Mix) -> Case:
    return seeded_case(seed, mix)


def random_case_of(seed: int, mix: Mix = Mix.MIXED) -> Case:
    """:func:`taskfuse.testing.seeded_case`, made once."""
    return _made(seed, mix)
