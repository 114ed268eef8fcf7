"""Boxes inside boxes that do not overlap, and edges that lead down and around them."""

from collections.abc import Iterator
from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.ir.draw_layout import MARGIN, DrawnBox, arrange, route


def boxes(box: DrawnBox) -> Iterator[DrawnBox]:
    yield box
    for inner in box.inside:
        yield from boxes(inner)


def overlap(a: DrawnBox, b: DrawnBox) -> bool:
    return a.x < b.x + b.width and b.x < a.x + a.width and a.y < b.y + b.height and b.y < a.y + a.height


def check(root: DrawnBox, wires: list[tuple[DrawnBox, DrawnBox]]) -> None:
    for box in boxes(root):
        for inner in box.inside:
            assert box.x < inner.x
            assert box.y < inner.y
            assert inner.x + inner.width <= box.x + box.width - MARGIN + 1e-6
            assert inner.y + inner.height <= box.y + box.height - MARGIN + 1e-6
        assert not any(overlap(a, b) for a, b in combinations(box.inside, 2))
    for a, b in wires:
        assert a.y + a.height < b.y
        points = route((a.x, a.y + a.height), (b.x, b.y), [x for x in root.leaves() if x not in (a, b)])
        assert [p[1] for p in points] == sorted(p[1] for p in points)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[DrawnBox, list[tuple[DrawnBox, DrawnBox]]]:
    """Leaves in order, cut into consecutive ranges, these into others; edges lead from earlier leaves to later ones."""
    leaves = [DrawnBox(draw(st.floats(5, 200)), draw(st.floats(5, 60))) for _ in range(draw(st.integers(1, 14)))]
    count = len(leaves)
    pairs = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=20))
    wires = [(leaves[i], leaves[j]) for i, j in sorted(set(pairs)) if i < j]
    level = leaves
    for _ in range(draw(st.integers(1, 3))):
        cuts = sorted({0, len(level), *draw(st.lists(st.integers(0, len(level)), max_size=4))})
        level = [DrawnBox(0.0, 0.0, level[a:b]) for a, b in pairwise(cuts)]
    return DrawnBox(50.0, 0.0, level), wires


@given(layouts())
@settings(max_examples=80)
def test_nothing_overlaps_and_edges_lead_down(case: tuple[DrawnBox, list[tuple[DrawnBox, DrawnBox]]]) -> None:
    root, wires = case
    arrange(root, wires)
    check(root, wires)


def test_a_long_row_is_broken() -> None:
    root = DrawnBox(0.0, 0.0, [DrawnBox(0.0, 0.0, [DrawnBox(200.0, 30.0) for _ in range(20)])])
    arrange(root, [])
    check(root, [])
    assert root.width < 1700


def test_an_edge_goes_around_what_is_between() -> None:
    first, second, third = (DrawnBox(100.0, 30.0) for _ in range(3))
    root = DrawnBox(0.0, 0.0, [first, second, third])
    arrange(root, [(first, second), (second, third), (first, third)])
    start, end = (first.x + 50, first.y + 30), (third.x + 50, third.y)
    assert route(start, end, []) == [start, end]
    around = route(start, end, [second])
    assert len(around) == 4
    assert all(not second.x < x < second.x + second.width for x, _ in around[1:3])
