"""Side conditions on engines: bytes, boxes, registers, and what is known of their kernels."""

from collections.abc import Callable

import pytest

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.sides import Side
from taskfuse.testing.small.sides.engines import accumulators, boxes, budgets, ring_bytes
from tests.testing.small.drawn import drawn, lacks, misjudged

MAKERS: dict[Callable[[Chooser], Side], tuple[str, ...]] = {
    ring_bytes: ("EXPECT", "TMA s"),
    boxes: ("TENSORMAP", "TMA"),
    budgets: ("SETMAXNREG",),
    accumulators: ("WGMMA", "WAIT_GROUP wgmma"),
}


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_known_of_them_is_so(make: Callable[[Chooser], Side]) -> None:
    found = drawn(make, 14)
    assert lacks(found, *MAKERS[make]) == []
    assert misjudged(found) == []
