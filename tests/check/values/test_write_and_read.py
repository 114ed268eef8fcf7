"""One write and one read: equations of their places, and what decides whether the write happens."""

import pytest

from taskfuse.check.values.match import where_found
from taskfuse.check.values.solve import Open
from taskfuse.ir.scalar import const, parse_expr
from tests.check.values.pairs import pair


def test_places_are_equal() -> None:
    found = pair()
    ((a, b),) = found.equations
    assert (str(a), str(b)) == ("'written.threadIdx.x", "63 - threadIdx.x")
    assert found.span("'written.threadIdx.x") == (0, 63)
    assert found.countable({"'written.threadIdx.x", "threadIdx.x"})
    assert not found.countable({"N"})


def test_what_must_hold_for_the_write_to_happen() -> None:
    found = pair("threadIdx.x < 48")
    at = {"'written.threadIdx.x": parse_expr("63 - threadIdx.x")}
    assert parse_expr("63 - threadIdx.x < 48") in [c for _, c in found.required(at, ())]
    assert found.some(found.required({}, {"'written.threadIdx.x"}), {}, set()) == {
        "'written.threadIdx.x": const(0),
        "'written.threadIdx.y": const(0),
        "'written.threadIdx.z": const(0),
    }
    assert found.never(parse_expr("threadIdx.x == 64"), ()) is True
    assert found.cuts_outside(parse_expr("threadIdx.x < 48")) is False


def test_where_it_is_found() -> None:
    everywhere = where_found(pair())
    assert everywhere is not None
    assert (everywhere.under, everywhere.rest) == ((), None)
    assert where_found(pair("threadIdx.x < 48", read="threadIdx.x + 48")) is None
    with pytest.raises(Open, match="it finds another element of x"):
        where_found(pair(read="threadIdx.x"))
