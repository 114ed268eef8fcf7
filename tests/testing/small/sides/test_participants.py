"""Side conditions on who takes part, and what is known of their kernels."""

from collections.abc import Callable

import pytest

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.sides import Side
from taskfuse.testing.small.sides.participants import arrivals, grids, idle, loader, named, semaphores, symbolic, whole_warps
from tests.testing.small.drawn import drawn, lacks, misjudged

MAKERS: dict[Callable[[Chooser], Side], tuple[str, ...]] = {
    arrivals: ("ARRIVE", "INIT"),
    symbolic: ("DIM",),
    loader: ("TMA", "EXPECT"),
    idle: ("INIT",),
    whole_warps: ("SHUFFLE", "SYNC warp"),
    named: ("SYNC named",),
    grids: ("SYNC grid",),
    semaphores: ("ACQUIRE", "RELEASE"),
}


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_known_of_them_is_so(make: Callable[[Chooser], Side]) -> None:
    found = drawn(make, 14)
    assert lacks(found, *MAKERS[make]) == []
    assert misjudged(found) == []
