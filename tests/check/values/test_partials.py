"""Partial results: whatever the order in which terms are joined, a result is complete if it has each point of its element once."""

import random
from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.check.values.elements import Elements
from taskfuse.check.values.partials import INITIAL, Accumulation, PartialNodes
from taskfuse.check.values.terms import Terms, constant, tensor_tag
from taskfuse.dtypes import float16, float32
from taskfuse.kir import parse_kernel
from tests.executions import finding

TEXT = """\
KERNEL k(x: float32[3, 4]) -> (total: float32[3])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE total: float32[3] over (3, 4) at (i0) = reduce add of copy(x[i0, i1]) from 0.0
  DEFINE more: float32[3] over (3, 4) at (i0) = reduce add of copy(x[i0, i1]) from 2.0
  DEFINE most: float32[3] over (3, 4) at (i0) = reduce maximum of copy(x[i0, i1]) from -inf
  DEFINE pairs: float32[2] over (2, 4) at (i0) = reduce add of copy(x[i0, i1]) from 0.0
  DEFINE folded: float32[2] over (4) at (i0//2) = reduce add of copy(x[0, i0]) from 0.0
  DEFINE running: float32[3, 4] = scan add along 1 of x[i0, i1]

FOR i in 0..3:
  total[i] = copy(0.0)  ~ start total
"""


ELEMENTS = Elements(parse_kernel(TEXT), {})


def partials() -> tuple[PartialNodes, dict[str, Accumulation]]:
    found = PartialNodes(ELEMENTS)
    return found, {f.tensor.name: f for f in found.folds.values()}


def joined(p: PartialNodes, fold: Accumulation, points: list[int], chance: random.Random) -> int:
    """The node of some terms, joined in any order."""
    nodes, known = p.nodes(fold, Terms(np.full(len(points), fold.body), np.array(points)))
    assert known.all()
    left = [p.start(fold), *nodes.tolist()]
    while len(left) > 1:
        a, b = (left.pop(chance.randrange(len(left))) for _ in range(2))
        left.append(int(p.joins(np.array([a]), np.array([b]))[0]))
    return left[0]


@settings(max_examples=40)
@given(
    st.sampled_from(["total", "more", "most", "folded", "running"]), st.lists(st.integers(0, 11), max_size=6), st.booleans(), st.randoms(use_true_random=False)
)
def test_complete_are_those_with_each_point_of_the_element(name: str, points: list[int], right: bool, chance: random.Random) -> None:
    p, folds = partials()
    fold = folds[name]
    element = chance.randrange(fold.tensor.size)
    points = [k % int(np.prod(fold.tensor.space)) for k in points]
    domain = [k for k in fold.domain(element).elements() if k != INITIAL]
    if right:
        points = domain + [k for k in points if k in domain and fold.is_idempotent]
    node = joined(p, fold, points, chance)
    wanted = set(points) == set(domain) if fold.is_idempotent else Counter(points) == Counter(domain)
    assert p.is_complete(fold, np.array([node]), np.array([element])).tolist() == [wanted]
    assert Counter(k for k, _, _ in p.origins(fold, node) if k != INITIAL) == Counter(points)


def test_the_domains_of_elements() -> None:
    _, folds = partials()
    assert sorted(folds["total"].domain(1)) == [4, 5, 6, 7]
    assert sorted(folds["more"].domain(0)) == [INITIAL, 0, 1, 2, 3]
    assert sorted(folds["folded"].domain(1)) == [2, 3]
    assert sorted(folds["running"].domain(6)) == [4, 5, 6]


def test_constants_that_are_partial_results() -> None:
    """A neutral element has no points; an initial value is one, as a point of its own; another constant is none, nor is one of another dtype."""
    p, folds = partials()
    total, more = folds["total"], folds["more"]
    for fold, value, dtype, points in (
        (total, 0.0, float32, set[int]()),
        (more, 0.0, float32, set[int]()),
        (more, 2.0, float32, {INITIAL}),
        (total, 2.0, float32, None),
        (total, 0.0, float16, None),
        (total, -0.0, float32, None),
    ):
        nodes, known = p.nodes(fold, constant(value, dtype))
        assert known.tolist() == [points is not None]
        assert not known[0] or {point for point, _, _ in p.origins(fold, int(nodes[0]))} == (points or set())


def test_terms_of_another_reduction_are_none() -> None:
    p, folds = partials()
    other = Terms(np.array([folds["more"].body, folds["more"].part, tensor_tag(0, 0)]), np.array([0, 0, 0]))
    assert not p.nodes(folds["total"], other)[1].any()


def test_points_whose_terms_are_neutral_by_definition_may_be_left_out() -> None:
    text = (
        "KERNEL k(x: float32[6], n: int32[2]) -> (y: float32[2])\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n"
        "  DEFINE p: float32[2, 3] = pick(x[3*i0 + i1] if i1 < clamp(n[i0 of 2], 0, 3), otherwise 0.0)\n"
        "  DEFINE y: float32[2] over (2, 3) at (i0) = reduce add of copy(p[i0, i1]) from 0.0\n\ny[0] = copy(0.0)\n"
    )
    p = PartialNodes(Elements(parse_kernel(text), {"n": np.array([1, 2])}))
    (fold,) = p.folds.values()
    assert fold.without is not None
    assert fold.without.tolist() == [False, True, True, False, False, True]
    assert sorted(fold.domain(1)) == [3, 4]
    chance = random.Random(0)
    for points, complete in (([3, 4], True), ([3, 4, 5], True), ([3, 4, 5, 5], True), ([3], False), ([3, 3, 4], False), ([3, 4, 0], False)):
        node = joined(p, fold, points, chance)
        assert p.is_complete(fold, np.array([node]), np.array([1])).tolist() == [complete]
        assert {k for k, _, _ in p.origins(fold, node)} == set(points) - {5}


def test_elements_without_points_are_the_initial_value() -> None:
    """A reduction over fewer rows than its result has: the others have no terms."""
    text = (
        "KERNEL k(x: float32[{rows}, 8]) -> (y: float32[6])\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n  LOCAL acc: float32[]\n"
        "  DEFINE y: float32[6] over ({rows}, 8) at (i0 % 6) = reduce add of copy(x[i0, i1]) from 0.0\n\n"
        "FOR i in 0..6:\n  acc = copy(0.0)  ~ start y\n  IF i < {taken}:\n    FOR j in 0..8:\n      acc = add(acc, x[i, j])  ~ term y[i, j]\n"
        "  y[i] = copy(acc)  ~ value y[i]\n"
    )
    assert parse_kernel(text.format(rows=3, taken=3)).verify().is_proved
    assert not parse_kernel(text.format(rows=3, taken=2)).verify().is_proved
    assert parse_kernel(text.format(rows=1, taken=1)).verify().is_proved


COPIED = """\
KERNEL k(x: float32[4, 8]) -> (y: float32[4])
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL t: float32[]
  DEFINE p: float32[4, 8] = pick(x[i0, i1] if i1 < i0 + 2, otherwise 0.0)
  DEFINE q: float32[4, 8] = copy(p[i0, i1])
  DEFINE y: float32[4] over (4, 8) at (i0) = reduce add of copy(q[i0, i1]) from 0.0

t = copy(0.0)  ~ start y
FOR j in 0..threadIdx.x + 2:
  t = add(t, x[threadIdx.x, j])  ~ term y[threadIdx.x, j]
y[threadIdx.x] = copy(t)  ~ value y[threadIdx.x]
"""


def test_terms_are_neutral_through_copies() -> None:
    assert finding(COPIED) == ""
    assert finding(COPIED.replace("threadIdx.x + 2:", "threadIdx.x + 1:")) != ""
