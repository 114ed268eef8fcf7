"""The same visits in other words: iteration by iteration they visit the same points of a box, as often."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from taskfuse.check.values.cover import covered
from taskfuse.check.values.equivalent_visits import begun_at_zero, lengthened, settled, shortened
from taskfuse.check.values.runs import Visits
from taskfuse.check.values.solve import Open
from taskfuse.ir.scalar import const
from tests.visits import KNOWN, box, expressions, visited, visits

AT = ({"N": n, "M": m} for n, m in ((1, 1), (2, 5), (5, 2), (7, 3), (9, 9)))
PLACES = tuple(AT)


def same(one: Visits, two: Visits, extents: Sequence[str]) -> bool:
    """Whether two statements visit every point of a box equally often."""
    shape = expressions(extents)
    return all(visited([one], env)[p] == visited([two], env)[p] for env in PLACES for p in box(shape, env))


LONGER = [
    (visits(["a + 4*b"], a="min(N, 4)", b="(N + 3)//4"), ["N"], "4"),
    (visits(["a + b"], a="min(N, 4, M)", b=1), ["N"], "min(4, M)"),
    (visits(["a", "b + 2"], b="min(N, M)", a="N"), ["N", "N"], "M"),
    (visits(["a - b"], a="min(N, 4)", b=2), ["N"], None),  # what is past the end by itself may not be in the difference
    (visits(["a - 1"], a="min(N, 4)"), ["N"], None),
    (visits(["2*a"], a="min(N, 4)"), ["N"], None),
    (visits(["a + b"], a="min(N, 4)", b=(-1, 1)), ["N"], None),
    (visits(["a + b % 2"], a="min(N, 4)", b=2), ["N"], None),
    (visits(["a"], a="min(N, 4)"), ["M"], None),
    (visits(["a"], a="min(N, N)"), ["N"], None),
]


@pytest.mark.parametrize(("v", "extents", "end"), LONGER)
def test_an_end_that_spares_points_past_an_axis_end_is_none(v: Visits, extents: list[str], end: str | None) -> None:
    name = next(n for n, (_, stop) in v.spans.items() if "min" in str(stop) or n == "a")
    found = lengthened(v, expressions(extents), KNOWN)
    assert (found is v) == (end is None)
    assert end is None or found.spans[name][1] is expressions([end])[0]
    assert same(v, found, extents)


SETTLED = [
    visits(["a + 48*b"], a="2 - 48*b", b=1),
    visits(["a + b"], ["a < M + b"], a="N", b=(3, 4)),
    visits(["a", "b"], ["b == 2"], a=("b", "N + b"), b=(2, 3)),
]


@pytest.mark.parametrize("v", SETTLED)
def test_what_has_one_value_is_that_value_in_spans_too(v: Visits) -> None:
    found = settled(v)
    assert found.spans.keys() == {"a"}
    assert same(v, found, ["N + M + 4"] * len(v.point))


def test_symbols_of_rows() -> None:
    v = replace(visits(["a + 4*t"], ["u < 3"], a="4 - t", t=8, u=8), rows={"t": np.array([1, 1]), "u": np.array([0, 2])})
    found = settled(v)
    assert found.rows is not None
    assert {n: of.tolist() for n, of in found.rows.items()} == {"u": [0, 2]}
    assert found.spans["a"] == (const(0), const(3))
    assert "t" not in found.spans
    twice = replace(v, rows={"t": np.array([1, 1])})
    assert settled(twice) is twice  # each row visits
    one = settled(replace(v, rows={"t": np.array([1]), "u": np.array([2])}))
    assert one.rows is None
    assert one.spans.keys() == {"a"}


def test_nothing_to_settle() -> None:
    v = visits(["a + b"], a="N", b=2)
    assert settled(v) is v
    assert lengthened(v, expressions(["N"]), KNOWN) is v
    assert shortened(v) is v


COVERED = [
    (visits(["a + 48*b"], a="2 - 48*b", b=1), ["2"], True),
    (visits(["a + 48*b"], a="1 - 48*b", b=1), ["2"], False),
    (visits(["a + 4*b"], a="min(N, 4)", b="(N + 3)//4"), ["N"], True),
    (visits(["a + 4*b"], a="min(N, 3)", b="(N + 3)//4"), ["N"], False),
    (visits(["a + 4*b"], a="min(N, 4)", b="N//4"), ["N"], False),
    (visits(["a + 4*b"], a="min(N, 5)", b="(N + 3)//4"), ["N"], False),  # twice
    (visits(["a + 4*b"], a="min(M, 4)", b="(N + 3)//4"), ["N"], False),
    (visits(["0"], a="min(N//5, 1)"), ["min(N//5, 1)"], True),
    (visits(["0", "b"], a="min(N, 1)", b=3), ["min(N, 1)", "3"], True),
    (visits(["0"], a="min(N, 2)"), ["min(N, 1)"], False),  # twice
    (visits(["0"], a="min(M//5, 1)"), ["min(N//5, 1)"], False),
    (visits(["0"], a="min(N, 1)", b="min(N, 2)"), ["min(N, 1)"], False),
]


@pytest.mark.parametrize(("v", "extents", "right"), COVERED)
def test_what_is_covered_in_other_words(v: Visits, extents: list[str], right: bool) -> None:
    shape = expressions(extents)
    assert right == all(visited([v], env)[p] == 1 for env in PLACES for p in box(shape, env))
    if right:
        covered([v], shape, KNOWN)
    else:
        with pytest.raises(Open, match=r"points along an axis of 2 are visited|nothing steps by min|its points are visited again in each iteration of"):
            covered([v], shape, KNOWN)


@pytest.mark.parametrize("v", [visits(["a - 3", "(a + 1)//2 + b"], ["a % 2 == 0"], a=(3, "N + 3"), b=(-1, 4)), visits(["a"], a=(1, 0))])
def test_symbols_begin_at_zero(v: Visits) -> None:
    found = begun_at_zero(v)
    assert all(start is const(0) for start, _ in found.spans.values())
    assert same(v, found, ["N + M + 4"] * len(v.point))
    assert begun_at_zero(found) is found
