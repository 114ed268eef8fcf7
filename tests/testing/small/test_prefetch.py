"""Small kernels whose roles fill a ring of their own ahead."""

from collections.abc import Callable

import pytest

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small import Small
from taskfuse.testing.small.prefetch import prefetched
from tests.testing.small.drawn import drawn, lacks, needless

MAKERS: dict[Callable[[Chooser], Small], tuple[tuple[str, ...], str]] = {
    prefetched: (("COPY.async", "TMA", "WAIT_GROUP"), "SYNC"),
}
"""What some of their kernels have, and what most cannot do without."""


@pytest.mark.parametrize("make", MAKERS)
def test_they_have_what_they_are_for_and_need_it(make: Callable[[Chooser], Small]) -> None:
    words, needed = MAKERS[make]
    found = drawn(make, 24)
    assert lacks(found, *words) == []
    refused, wrong = needless(found, needed)
    assert refused
    assert wrong == []
