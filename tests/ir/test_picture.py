"""Pictures of fusions: boxes inside boxes that do not overlap, edges that lead down, text that is escaped."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse as tf
from examples import founding, gemm, horizontal_fusion, pipeline
from taskfuse.errors import TaskError
from taskfuse.ir.draw_layout import MARGIN, Box, arrange, route
from taskfuse.ir.picture import fusion_picture
from taskfuse.svg import Drawing
from taskfuse.testing import seeded_case

SVG = "{http://www.w3.org/2000/svg}"
CHANNEL = "#d9730d"


def texts(svg: str) -> list[str]:
    return ["".join(e.itertext()) for e in ET.fromstring(svg).iter(f"{SVG}text")]


def edges(svg: str, colour: str | None = None) -> list[str]:
    """What reads what, by the notes of the edges."""
    found = [e for e in ET.fromstring(svg).iter(f"{SVG}path") if e.find(f"{SVG}title") is not None]
    return ["".join(e.itertext()) for e in found if colour is None or e.get("stroke") == colour]


def test_the_founding_example() -> None:
    svg = fusion_picture(founding.build(2, 3))
    found = texts(svg)
    assert found[0] == "fusion cat"
    assert [t for t in found if "group" in t] == ["group3: vertical on TIDz", "group1: horizontal on TIDy", "group2"]
    assert [t for t in found if " = " in t][-2:] == ["tv9 = cat", "tv10 = neg"]
    assert found.count("3 slots") == 4
    assert edges(svg, CHANNEL) == [f"tv9 reads tv{k}" for k in (5, 6, 7, 8)]
    assert len(edges(svg)) == 4 + 4 + 4 + 1


def test_the_file(tmp_path: Path) -> None:
    fusion = founding.build()
    fusion.draw(tmp_path / "a.svg")
    tf.parse_fusion(str(fusion)).draw(str(tmp_path / "b.svg"))
    assert (tmp_path / "a.svg").read_text() == (tmp_path / "b.svg").read_text() == fusion_picture(fusion)


def test_without_tasks_there_are_no_frames() -> None:
    with tf.Fusion("plain") as fusion:
        x = tf.define_tensor(["M", "N"], name="x")
        fusion.add_output(tf.softmax(x, axis=1))
    svg = fusion_picture(fusion)
    assert not any(":" in t for t in texts(svg)[:-1])
    assert "tv1 = reduce maximum" in texts(svg)
    assert "tv3 reads x" in " ".join(edges(svg))
    assert "tv2 = " not in " ".join(texts(svg))  # a view


def test_unclaimed_tensors_have_the_frames_that_lowering_gives_them() -> None:
    with tf.Fusion("partly") as fusion:
        x = tf.define_tensor([4], name="x")
        a = tf.exp(x)
        b = tf.sin(a)
        c = tf.cos(b)
        fusion.add_output(c)
    fusion.task([b], "middle")
    assert {"t0", "middle", "t0_1"} <= set(texts(fusion_picture(fusion)))


def test_names_are_escaped() -> None:
    with tf.Fusion('a < b & "c"') as fusion:
        fusion.add_output(tf.exp(tf.define_tensor([2], name="<x>&'")))
    svg = fusion_picture(fusion)
    assert texts(svg)[:2] == ['fusion a < b & "c"', "<x>&'"]
    assert edges(svg) == ["tv1 reads <x>&'"]


def test_neither_kind_is_drawn_in_turn() -> None:
    with tf.Fusion("two") as fusion:
        x = tf.define_tensor([8], name="x")
        u = tf.exp(x)
        v, w = tf.sin(u), tf.cos(x)
        fusion.add_output(v)
        fusion.add_output(w)
    fusion.group([fusion.task([u]), fusion.task([v]), fusion.task([w])], "three")
    assert "three: in turn" in texts(fusion_picture(fusion))
    assert edges(fusion_picture(fusion), CHANNEL) == []


# -- the layout -------------------------------------------------------------------------------------------------------------------------


def boxes(box: Box) -> Iterator[Box]:
    yield box
    for inner in box.inside:
        yield from boxes(inner)


def overlap(a: Box, b: Box) -> bool:
    return a.x < b.x + b.width and b.x < a.x + a.width and a.y < b.y + b.height and b.y < a.y + a.height


def check(root: Box, wires: list[tuple[Box, Box]]) -> None:
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
def layouts(draw: st.DrawFn) -> tuple[Box, list[tuple[Box, Box]]]:
    """Leaves in order, cut into consecutive ranges, these into others; edges lead from earlier leaves to later ones."""
    leaves = [Box(draw(st.floats(5, 200)), draw(st.floats(5, 60))) for _ in range(draw(st.integers(1, 14)))]
    count = len(leaves)
    pairs = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=20))
    wires = [(leaves[i], leaves[j]) for i, j in sorted(set(pairs)) if i < j]
    level = leaves
    for _ in range(draw(st.integers(1, 3))):
        cuts = sorted({0, len(level), *draw(st.lists(st.integers(0, len(level)), max_size=4))})
        level = [Box(0.0, 0.0, level[a:b]) for a, b in pairwise(cuts)]
    return Box(50.0, 0.0, level), wires


@given(layouts())
@settings(max_examples=80)
def test_nothing_overlaps_and_edges_lead_down(case: tuple[Box, list[tuple[Box, Box]]]) -> None:
    root, wires = case
    arrange(root, wires)
    check(root, wires)


def test_a_long_row_is_broken() -> None:
    root = Box(0.0, 0.0, [Box(0.0, 0.0, [Box(200.0, 30.0) for _ in range(20)])])
    arrange(root, [])
    check(root, [])
    assert root.width < 1700


def test_an_edge_goes_around_what_is_between() -> None:
    first, second, third = (Box(100.0, 30.0) for _ in range(3))
    root = Box(0.0, 0.0, [first, second, third])
    arrange(root, [(first, second), (second, third), (first, third)])
    start, end = (first.x + 50, first.y + 30), (third.x + 50, third.y)
    assert route(start, end, []) == [start, end]
    around = route(start, end, [second])
    assert len(around) == 4
    assert all(not second.x < x < second.x + second.width for x, _ in around[1:3])


def test_every_fusion_can_be_drawn() -> None:
    for seed in range(15):
        fusion = seeded_case(seed).fusion
        found = texts(fusion_picture(fusion))
        assert all(n.name in {t.partition(":")[0] for t in found} for n in fusion.tasks.nodes)
        assert all(any(t == tv.name or t.startswith(f"{tv.name} = ") for t in found) for tv in (*fusion.inputs, *fusion.outputs))


@pytest.mark.parametrize(
    ("fusion", "channels"),
    [
        (gemm.build(), ["tv4 reads tv8", "tv4 reads tv9"]),
        (horizontal_fusion.build(), ["tv2 reads tv1"]),
        (pipeline.build(), ["tv3 reads tv2", "tv4 reads tv3", "tv5 reads tv3"]),
    ],
)
def test_edges_between_roles_are_channels(fusion: tf.Fusion, channels: list[str]) -> None:
    assert edges(fusion_picture(fusion), CHANNEL) == channels


def test_what_breaks_the_laws_is_drawn_too() -> None:
    """A cache of seed 34 puts a tensor in no task between two tasks, the first of which reads the second: a cycle, which lowering refuses."""
    fusion = seeded_case(34).fusion
    with pytest.raises(TaskError, match="cycle"):
        fusion.check()
    found = edges(fusion_picture(fusion))
    assert found
    assert not any("tv5" in edge.split() for edge in found)  # what no task can have is left out


def test_a_drawing_has_each_definition_once() -> None:
    drawing = Drawing(10, 10)
    assert drawing.hatched("#000000") == drawing.hatched("#000000") == "url(#hatch000000)"
    drawing.curve([(0, 0), (1, 5)])
    drawing.curve([(2, 0), (1, 5)], note="<")
    svg = str(drawing)
    assert (svg.count("<pattern"), svg.count("<marker"), svg.count("&lt;")) == (1, 1, 1)
