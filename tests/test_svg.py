"""Pictures as SVG: what is drawn is XML, whatever it says, and has one size."""

import xml.etree.ElementTree as ET

from taskfuse.svg import FONT, Drawing, text_width

SVG = "{http://www.w3.org/2000/svg}"


def drawn(drawing: Drawing) -> ET.Element:
    return ET.fromstring(str(drawing))


def test_text_and_notes_are_escaped() -> None:
    drawing = Drawing(100, 50)
    drawing.text(1, 2, 'a < b & "c" \'')
    drawing.box(0, 0, 10, 10, '#fff" onload="x', note="x > y")
    root = drawn(drawing)
    assert [e.text for e in root.iter(f"{SVG}text")] == ['a < b & "c" \'']
    box = [e for e in root.iter(f"{SVG}rect") if e.get("fill") == '#fff" onload="x']
    assert [e.findtext(f"{SVG}title") for e in box] == ["x > y"]


def test_what_is_drawn_later_covers() -> None:
    drawing = Drawing(10, 10)
    drawing.box(0, 0, 1, 1, "red")
    drawing.line([(0, 0), (1, 1)])
    drawing.box(0, 0, 1, 1, "blue")
    shapes = [e.get("fill") if e.tag == f"{SVG}rect" else "line" for e in drawn(drawing).iter() if e.tag in (f"{SVG}rect", f"{SVG}path")]
    assert shapes[-3:] == ["red", "line", "blue"]


def test_an_arrow_head_is_defined_once_for_each_color() -> None:
    drawing = Drawing(10, 10)
    for color in ("#111111", "#222222", "#111111"):
        drawing.curve([(0, 0), (1, 5)], line=color)
    root = drawn(drawing)
    heads = [e.get("id") for e in root.iter(f"{SVG}marker")]
    assert sorted(map(str, heads)) == ["head111111", "head222222"]
    assert {str(e.get("marker-end")) for e in root.iter(f"{SVG}path") if e.get("marker-end")} == {f"url(#{h})" for h in heads}


def test_the_width_of_text_grows_with_its_length_and_size() -> None:
    assert text_width("") == 0
    assert text_width("ab") == 2 * text_width("a")
    assert text_width("ab", 2 * FONT) == 2 * text_width("ab")
