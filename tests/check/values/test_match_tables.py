"""Tables of a write and of a read, joined: the points of the read at which the write leaves the element, another one, or none."""

import pytest

from taskfuse.check.values.match_tables import joined
from taskfuse.check.values.solve import Open
from tests.check.values.pairs import pair


def test_tables_leave_the_points_that_are_not_written() -> None:
    found = pair("threadIdx.x < 48")
    outcome = joined(found, {}, found.equations, [])
    assert outcome is not None
    assert outcome.rest is not None
    assert sorted(outcome.rest.at(k)["threadIdx.x"] for k in range(outcome.rest.count)) == list(range(16))


def test_tables_see_another_element() -> None:
    found = pair(read="threadIdx.x")
    with pytest.raises(Open, match=r"it finds another element of x on axis 0 \(threadIdx\.x = 0\)"):
        joined(found, {}, found.equations, [])
