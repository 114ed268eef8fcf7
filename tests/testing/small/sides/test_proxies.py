"""Side conditions between the proxies, and what is known of their kernels."""

from collections.abc import Callable

import pytest

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.refutation import look
from taskfuse.testing.small.sides import Side
from taskfuse.testing.small.sides.proxies import handed, proxies
from tests.testing.small.drawn import drawn, lacks, misjudged


@pytest.mark.parametrize("make", [handed, proxies])
def test_what_is_known_of_them_is_so(make: Callable[[Chooser], Side]) -> None:
    found = drawn(make, 24)
    assert lacks(found, "FENCE proxy.async", "TMA") == []
    assert misjudged(found) == []


def test_what_is_handed_on_rightly_is_proved() -> None:
    """Each way of passing it on; but for the fence or the wait that is missing, the wrong ones are such kernels, too."""
    right = [side for side in drawn(handed, 60) if side.right]
    assert {side.kind for side in right} >= {f"handed: {meets}" for meets in ("mbarrier", "one arrival", "named", "block", "cluster", "grid")}
    assert [str(side.kernel) for k, side in enumerate(right) if not look(0, k, side, 1).proved] == []
