"""Texts that are not SCHEDULE lines: each mistake with its line and column."""

import pytest

from taskfuse.errors import ParseError
from taskfuse.ir.parser import parse_fusion
from tests.ir.same import Y


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (Y + "SCHEDULE y: stage 2", "line 6, column 13: there is no clause of SCHEDULE 'stage'"),
        (Y + "SCHEDULE y: stages 2; stages 3", "line 6, column 23: 'stages' is given twice"),
        (Y + "SCHEDULE y: stages S", "line 6, column 20: expected an integer, found 'S'"),
        (Y + "SCHEDULE y: memory Register", "line 6, column 20: there is no memory type 'Register'"),
        (Y + "SCHEDULE y: atom warp(a0)", "line 6, column 18: there is no atom 'warp'"),
        (Y + "SCHEDULE y: loop [a0:TIDw, a1]", "line 6, column 22: there is no parallel type 'TIDw'"),
        (Y + "SCHEDULE y: loop [a0, 1]", "line 6, column 23: expected an axis, found '1'"),
        (Y + "SCHEDULE y: loop [a0 | a1 | a2]", "line 6, column 27: expected ']', found '|'"),
        (Y + "SCHEDULE y: split(a0) -> a2, a3", "line 6, column 21: expected ',', found ')'"),
        (Y + "SCHEDULE y: split(a0, 4) -> a2", "line 6, column 26: 'split' makes 2 axes, not 1"),
        (Y + "SCHEDULE y: merge(a0, a1) -> a2, a3", "line 6, column 27: 'merge' makes 1 axis, not 2"),
        (Y + "SCHEDULE y: merge(a0, a1 outer) -> a2", "line 6, column 26: expected ')', found 'outer'"),
        (Y + "SCHEDULE y: split(a0, 4) -> y.b, a2", "line 6, column 29: 'y.b' is not a name of an axis: it has a dot"),
        (Y + "SCHEDULE y: split(a0, 4) -> a2 as odd: 4, a3", "line 6, column 35: there is no kind of axis 'odd'"),
        (Y + "SCHEDULE y: rasterize(a0, a1 by i0) -> a2", "line 6, column 13: 'rasterize' of 2 axes takes as many maps, not 1"),
    ],
)
def test_texts_that_are_no_schedule(text: str, error: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_fusion(text)
    assert str(caught.value) == error
