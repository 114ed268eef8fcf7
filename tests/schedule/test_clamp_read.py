"""clamp_read: the math stays, whatever is padded; elements are loaded at places that exist; refused with a reason."""

from __future__ import annotations

import pytest

from taskfuse.errors import ScheduleError
from tests.schedule.shifts import same, shifted


@pytest.mark.parametrize("size", [9, "S"])
def test_a_clamped_read_is_of_a_place_that_exists(size: int | str) -> None:
    fusion, tensors = shifted(1, 1, size=size)
    same(fusion, lambda: [tv.clamp_read() for tv in tensors])


def test_refused() -> None:
    with pytest.raises(ScheduleError, match="it is no choice between an element and a constant"):
        shifted(0, 0)[1][0].clamp_read()
