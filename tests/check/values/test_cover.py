"""Points that are visited once: what is said to be covered is, at small extents, iteration by iteration; and what leaves points out is told."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.check.values.cover import covered
from taskfuse.check.values.runs import Visits
from taskfuse.check.values.solve import Open
from taskfuse.ir.scalar import Expr, const, parse_expr, substitute, sym
from tests.visits import KNOWN, box, expressions, visited, visits

SIZES = ("1", "2", "3", "4", "N", "2*N", "M", "N*M", "(N + 1)//2")


@st.composite
def statements(draw: st.DrawFn) -> tuple[list[Visits], tuple[Expr, ...]]:
    """Copies of a statement over digits of one or two axes, most of them right; some skip, repeat or leave the box."""
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    sizes = {n: draw(st.sampled_from(SIZES)) for n in names}
    axes = draw(st.integers(1, 2))
    points, extents = ["0"] * axes, ["1"] * axes
    for n in names:
        k = draw(st.integers(0, axes - 1))
        points[k], extents[k] = f"({points[k]})*({sizes[n]}) + {n}", f"({extents[k]})*({sizes[n]})"
    copies = draw(st.integers(1, 2))
    extents[0] = f"({extents[0]})*{copies}"
    wrong = draw(st.sampled_from(["no", "no", "bound", "start", "axis", "shift", "condition"]))
    made: list[Visits] = []
    for k in range(copies):
        spans: dict[str, int | str | tuple[int | str, int | str]] = dict(sizes)
        at, conditions = [f"({points[0]})*{copies} + {k}", *points[1:]], list[str]()
        if k == copies - 1:
            other = draw(st.sampled_from(names))
            match wrong:
                case "bound":
                    spans[names[0]] = draw(st.sampled_from(SIZES))
                case "start":
                    spans[names[0]] = draw(st.sampled_from([1, "N - 1", "min(N, 2) - 1", *(() if other == names[0] else (other,))])), sizes[names[0]]
                case "axis":
                    at[-1] = draw(st.sampled_from([other, f"{at[-1]} - {other}", f"{other} + {names[0]}"]))
                case "shift":
                    at[-1] = f"{at[-1]} + {draw(st.sampled_from(['1', '-1', 'N', other]))}"
                case "condition":
                    conditions.append(draw(st.sampled_from([f"{other} < N", f"{other} != 1", f"{other} >= {names[0]}", f"{other} % 2 == 0"])))
                case _:
                    pass
        made.append(visits(at, conditions, **spans))
    for v in range(len(made)):
        turned = draw(st.sets(st.sampled_from(range(axes))))
        sizes_of = {n: end for n, (start, end) in made[v].spans.items() if start is const(0) and end is not None}
        mirrored = {n: sizes_of[n] - 1 - sym(n) for n in draw(st.sets(st.sampled_from(names))) if n in sizes_of}
        point = [substitute(e, mirrored) for e in made[v].point]
        point = [parse_expr(extents[k]) - 1 - e if k in turned else e for k, e in enumerate(point)]
        made[v] = replace(made[v], point=tuple(point))
    return made, expressions(extents)


@settings(max_examples=100)
@given(statements())
def test_what_is_covered_is_visited_once(drawn: tuple[list[Visits], tuple[Expr, ...]]) -> None:
    made, extents = drawn
    try:
        beyond = covered(made, extents, KNOWN)
    except Open:
        return
    for n, m in ((1, 1), (2, 1), (1, 3), (3, 2)):
        env = {"N": n, "M": m}
        found, inside = visited(made, env), box(extents, env)
        assert [found[p] for p in inside] == [1] * len(inside)
        assert beyond or len(found) == len(inside)


@settings(max_examples=100)
@given(statements())
def test_what_is_covered_again_is_visited(drawn: tuple[list[Visits], tuple[Expr, ...]]) -> None:
    made, extents = drawn
    made = [*made, *made[:1]]
    try:
        beyond = covered(made, extents, KNOWN, again=True)
    except Open:
        return
    for n, m in ((1, 1), (2, 1), (1, 3), (3, 2)):
        env = {"N": n, "M": m}
        found, inside = visited(made, env), box(extents, env)
        assert all(found[p] for p in inside)
        assert beyond or len(found) == len(inside)


RIGHT: dict[str, tuple[Any, ...]] = {
    "digits": (["2*i + j"], {"i": "N", "j": 2}, ["2*N"]),
    "a symbolic tile": (["i*N + j", "k"], {"i": 4, "j": "N", "k": 3}, ["4*N", "3"]),
    "from another first value": (["i - 2"], {"i": (2, "N + 2")}, ["N"]),
    "one value": (["i", "j"], {"i": (0, 1), "j": "N"}, ["1", "N"]),
    "no axis": ([], {}, []),
    "down": (["N - 1 - i"], {"i": "N"}, ["N"]),
    "down, from behind the end": (["N - i"], {"i": (1, "N + 1")}, ["N"]),
    "one digit down": (["4*(N - 1 - i) + j"], {"i": "N", "j": 4}, ["4*N"]),
    "both digits down": (["4*N - 1 - 4*i - j"], {"i": "N", "j": 4}, ["4*N"]),
}


@pytest.mark.parametrize("name", RIGHT)
def test_covered(name: str) -> None:
    point, spans, extents = RIGHT[name]
    assert not covered([visits(point, **spans)], expressions(extents), KNOWN)


AGAIN: dict[str, tuple[Any, ...]] = {
    "twice": ([visits(["i"], i=4), visits(["i"], i=4)], [visits(["i"], i=3), visits(["i"], i=3)], ["4"]),
    "remainders": ([visits(["i % 5", "j"], i=12, j="N")], [visits(["i % 5", "j"], i=4, j="N")], ["5", "N"]),
    "the only point": ([visits([]), visits([])], [visits(["i"], i=0)], []),
}


@pytest.mark.parametrize("name", AGAIN)
def test_points_may_be_visited_again_where_that_is_allowed(name: str) -> None:
    good, bad, extents = AGAIN[name]
    assert not covered(good, expressions(extents), KNOWN, again=True)
    with pytest.raises(Open, match="visited"):
        covered(good, expressions(extents), KNOWN)
    with pytest.raises(Open, match=r"is not visited|visited 0 times"):
        covered([replace(v, point=v.point[: len(extents)]) for v in bad], expressions(extents), KNOWN, again=True)


def test_points_behind_the_end_are_told() -> None:
    assert covered([visits(["i"], i="N + 1")], expressions(["N"]), KNOWN)
    assert covered([visits(["4*i + j"], i="(N + 3)//4", j=4)], expressions(["N"]), KNOWN)


def test_points_in_front_of_the_first_are_told() -> None:
    assert covered([visits(["N - 1 - 4*i - j"], i="(N + 3)//4", j=4)], expressions(["N"]), KNOWN)


def boxes(tiles: int, across: int, copies: Sequence[int] = (0, 1)) -> list[Visits]:
    """Copies of a box of 64 points by two rows of 64, in each of the tiles that a number runs through: more points than a table has."""
    return [visits([f"j + 64*t + 128*(w % {across})", f"i + 128*(w//{across}) + {64 * c}"], w=tiles, i=64, j=64, t=2) for c in copies]


def test_tiles_of_many_points() -> None:
    """9 of them along an axis: what weighs least is written down, and quotient and remainder are digits above it."""
    assert covered(boxes(144, 9), expressions(["1066", "1952"]), KNOWN)


@pytest.mark.parametrize(
    "made",
    [boxes(143, 9), boxes(144, 8), boxes(144, 9, [0]), boxes(144, 9, [0, 0])],
    ids=["one less", "of fewer in a row", "half of each", "that half twice"],
)
@pytest.mark.parametrize("again", [False, True])
def test_tiles_that_leave_points_out(made: list[Visits], again: bool) -> None:
    with pytest.raises(Open, match=r"w % [89] is not a digit of a point"):
        covered(made, expressions(["1066", "1952"]), KNOWN, again=again)


WRONG: dict[str, tuple[Any, ...]] = {
    "the diagonal": ([visits(["i", "i"], i="N")], ["N", "N"], "i moves along several axes at once"),
    "a multiple of the diagonal": ([visits(["2*i + j", "i"], i="N", j=2)], ["2*N", "N"], "i moves along several axes at once"),
    "a copy with fewer trips": ([visits(["2*i"], i="N"), visits(["2*i + 1"], i="N - 1")], ["2*N"], "different loops"),
    "a copy that begins later": ([visits(["2*i"], i="N"), visits(["2*i + 1"], i=(1, "N"))], ["2*N"], "different loops"),
    "a first value that depends on another digit": ([visits(["i", "j"], i=4, j=("i", 4))], ["4", "4"], "only 4 - i points along an axis of 4"),
    "a first value that is an extent": ([visits(["i"], i=("min(N, 3) - 1", 8))], ["8"], "is not a digit of a point"),
    "a step": ([visits(["2*i"], i="N")], ["2*N"], r"point \[1\] is not visited"),
    "too few": ([visits(["i"], i="N - 1")], ["N"], r"only N - 1 points along an axis of N"),
    "again": ([visits(["i"], i="N", j="M")], ["N"], "visited again in each iteration of j"),
    "twice": ([visits(["i"], i=4), visits(["i"], i=4)], ["4"], r"point \[0\] is visited 2 times"),
    "not all": ([visits(["i"], i=3)], ["4"], r"point \[3\] is not visited"),
    "down, too few": ([visits(["N - 1 - i"], i="N - 1")], ["N"], "only N - 1 points"),
    "down, one further": ([visits(["N - i"], i="N")], ["N"], "visits points outside"),
    "one down, its copy up": ([visits(["2*N - 2 - 2*i"], i="N"), visits(["2*i"], i="N")], ["2*N"], "is visited 2 times"),
    "outside": ([visits(["i - 1"], i=4)], ["3"], "it visits points outside"),
    "an extent that is longer": ([visits(["i"], i=4)], ["N"], "4 points are visited along an axis of N"),
    "nothing": ([], ["4"], "no statement is known to visit"),
    "the only point twice": ([visits([]), visits([])], [], "the only point is visited 2 times"),
    "an empty loop beside a long one": ([visits(["i", "j"], i="N", j=0)], ["N", "1"], r"is not visited"),
}


@pytest.mark.parametrize("name", WRONG)
def test_not_covered(name: str) -> None:
    made, extents, reason = WRONG[name]
    with pytest.raises(Open, match=reason):
        covered(made, expressions(extents), KNOWN)
