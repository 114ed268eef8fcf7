"""Side conditions on places: overlapping buffers, extents, choices, gathers, and what is known of their kernels."""

from collections.abc import Callable

import pytest

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.sides import Side
from taskfuse.testing.small.sides.places import aliases, choices, extents, gathers
from tests.testing.small.drawn import drawn, lacks, misjudged

MAKERS: dict[Callable[[Chooser], Side], tuple[str, ...]] = {
    aliases: ("SHARED a", " @ "),
    extents: ("DIM N min", " b"),
    choices: ("cat(", " if "),
    gathers: ("GATHER",),
}


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_known_of_them_is_so(make: Callable[[Chooser], Side]) -> None:
    found = drawn(make, 14)
    assert lacks(found, *MAKERS[make]) == []
    assert misjudged(found) == []
