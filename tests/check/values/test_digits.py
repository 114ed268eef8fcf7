"""Points that are visited once: low digits need no table, and what leaves one out or takes one twice is told in the points as they are."""

import pytest

from taskfuse.check.values.cover import covered
from taskfuse.check.values.digits import without_digits
from taskfuse.check.values.runs import Visits
from taskfuse.check.values.solve import Open
from taskfuse.ir.scalar import Expr, const
from tests.visits import KNOWN, visits

EXTENTS: tuple[Expr, ...] = (const(256), const(128))

RIGHT = visits(("64*a + s", "32*(b//2) + 16*(b % 2) + t"), a=4, b=8, s=64, t=16)


def test_digits_go_where_all_else_is_a_multiple() -> None:
    (left,), extents = without_digits([RIGHT], EXTENTS)
    assert (list(left.spans), [str(e) for e in left.point], [str(e) for e in extents]) == (["b"], ["0", "2*(b//2) + b % 2"], ["1", "8"])
    assert not covered([RIGHT], EXTENTS, KNOWN)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (visits(("64*a + s", "16*b + t"), a=4, b=8, s=63, t=16), "point [63, 0] is not visited"),
        (visits(("64*a + s", "16*b + t"), a=4, b=8, s=65, t=16), "visited 2 times"),
        (visits(("64*a + s", "16*b + s"), a=4, b=8, s=64), "point [0, 1] is not visited"),
        (visits(("64*a + s", "16*b + t"), ("s < 60",), a=4, b=8, s=64, t=16), "point [60, 0] is not visited"),
        (visits(("32*a + s", "16*b + t"), a=4, b=8, s=64, t=16), "visited 2 times"),
        (visits(("64*a + s", "16*(b//2) + t"), a=4, b=8, s=64, t=16), "visited 2 times"),
    ],
    ids=["short", "long", "on two axes", "under a condition", "other multiples", "its multiple twice"],
)
def test_other_digits_stay(wrong: Visits, reason: str) -> None:
    with pytest.raises(Open) as caught:
        covered([wrong], EXTENTS, KNOWN)
    assert reason in caught.value.reason


def test_copies_have_the_same_digits() -> None:
    one, two = (visits((f"128*a + s + {k}", "t"), a=2, s=64, t=128) for k in (0, 64))
    assert not covered([one, two], EXTENTS, KNOWN)
    short = visits(("128*a + s + 64", "t"), a=2, s=32, t=128)
    with pytest.raises(Open, match=r"point \[96, 0\] is not visited"):
        covered([one, short], EXTENTS, KNOWN)
