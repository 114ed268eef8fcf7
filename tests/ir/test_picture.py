"""Pictures of fusions: boxes inside boxes that do not overlap, edges that lead down, text that is escaped."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import taskfuse as tf
from examples import founding, gemm, horizontal_fusion, pipeline
from taskfuse.errors import TaskError
from taskfuse.ir.picture import fusion_picture
from taskfuse.svg import Drawing
from tests.random_cases import random_case_of

SVG = "{http://www.w3.org/2000/svg}"
CHANNEL = "#d9730d"


def texts(svg: str) -> list[str]:
    return ["".join(e.itertext()) for e in ET.fromstring(svg).iter(f"{SVG}text")]


def edges(svg: str, color: str | None = None) -> list[str]:
    """What reads what, by the notes of the edges."""
    found = [e for e in ET.fromstring(svg).iter(f"{SVG}path") if e.find(f"{SVG}title") is not None]
    return ["".join(e.itertext()) for e in found if color is None or e.get("stroke") == color]


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


def test_every_fusion_can_be_drawn() -> None:
    for seed in range(15):
        fusion = random_case_of(seed).fusion
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
    fusion = random_case_of(34).fusion
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
