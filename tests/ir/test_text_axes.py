"""Axes of a text: each is made when something names it, and names that mean no axis are refused where they stand."""

import pytest

from taskfuse import parse_fusion
from taskfuse.errors import ParseError
from taskfuse.ir.scalar import const

HEAD = "FUSION f\nDIM S\nSCALAR s: float32\nINPUT x: float32[S, 4]\n"
Y = HEAD + "y: float32[S, 4] = exp(x)\n"
Z = Y + "z: float32[S, 4] = exp(y)\n"


def test_a_schedule_may_name_axes_of_tensors_below() -> None:
    fusion = parse_fusion(Z + "SCHEDULE y: foreign f: S of z.g; loop [f, a0, a1]\nSCHEDULE z: split(a0, const) -> g, h; loop [g, h, a1]".replace("const", "2"))
    y, z = fusion.tensor("y"), fusion.tensor("z")
    assert y.loop[0].source is z.loop[0]
    assert z.loop[1].extent is const(2)


def test_an_axis_of_no_tensor_is_one_axis_wherever_it_is_named() -> None:
    text = "SCHEDULE y: foreign f: S of x7; loop [f, a0, a1]\nSCHEDULE z: foreign g: S of x7; foreign h: S of x8; loop [g, h, a0, a1]"
    fusion = parse_fusion(Z + text)
    y, z = fusion.tensor("y"), fusion.tensor("z")
    assert y.loop[0].source is z.loop[0].source is not None
    assert z.loop[1].source is not z.loop[0].source


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (HEAD + "y: float32[S] = reduce add of copy(x) over i2: 4 init 0.0", "line 5, column 44: y has 2 axes, the last is i1"),
        (HEAD + "y: float32[S] = reduce add of copy(x) over i1: 4, i1: 4 init 0.0", "line 5, column 51: i1 is given twice"),
        (
            HEAD + "y: float32[S] root [S, 4 reduction] = reduce add of copy(x) over i1: 4 init 0.0",
            "line 5, column 66: y has a root domain of its own, which tells the reduction axes",
        ),
        (Y + "SCHEDULE y: loop [a0, a2]", "line 6, column 23: y has no axis 'a2'"),
        (Y + "SCHEDULE y: split(a2, 4) -> a3, a4", "line 6, column 19: y has no axis 'a2' here"),
        (Y + "SCHEDULE y: split(a0, 0) -> a2, a3", "line 6, column 19: axis 'a0' of y is split by 0: a factor is at least 1"),
        (Y + "SCHEDULE y: split(a0, -1) -> a2, a3", "line 6, column 19: axis 'a0' of y is split by -1: a factor is at least 1"),
        (Y + "SCHEDULE y: split(a0, 4) -> a1, a2", "line 6, column 29: y has an axis 'a1' already"),
        (Y + "SCHEDULE y: foreign a0: 4 of x.a0", "line 6, column 21: y has an axis 'a0' already"),
        (Y + "SCHEDULE y: foreign a2: 4 of q.a0; loop [a2]", "line 6, column 30: there is no tensor 'q'"),
        (Y + "SCHEDULE y: foreign a2: 4 of x.a9; loop [a2]", "line 6, column 30: x has no axis 'a9'"),
        (Y + "SCHEDULE y: foreign a2: 4 of a0; loop [a2]", "line 6, column 30: 'a0' names no tensor: write an axis as tv0.a0"),
        (Y + "SCHEDULE y: foreign a2: 4 of y.a2; loop [a2]", "line 6, column 30: axis 'a2' of y comes from itself"),
    ],
)
def test_names_of_no_axis(text: str, error: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_fusion(text)
    assert str(caught.value) == error
