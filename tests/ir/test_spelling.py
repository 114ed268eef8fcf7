"""How elementwise functions are written in C++."""

import re

import pytest

from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.spelling import Spelling, arithmetic, extremum, infix, library, rounding

COLUMNS = ("f32", "f64", "signed", "unsigned", "boolean", "fast")


@pytest.mark.parametrize("row", ELEMENTWISE.values(), ids=lambda row: row.name)
def test_an_operand_stands_once_in_a_text(row: Elementwise) -> None:
    """It may be a load."""
    texts = [text for column in COLUMNS if (text := getattr(row.cpp, column)) is not None]
    assert texts
    for text in texts:
        places = re.findall(r"\{(\d)\}", text)
        assert len(places) == len(set(places)), text
        assert set(places) <= {str(k) for k in range(row.arity)}, text
        assert not re.search(r"\{(?![0-2]\}|T\}|U\})", text), text


@pytest.mark.parametrize("row", ELEMENTWISE.values(), ids=lambda row: row.name)
def test_floats_have_both_widths_and_integers_both_signs(row: Elementwise) -> None:
    assert (row.cpp.f32 is None) == (row.cpp.f64 is None)
    assert (row.cpp.signed is None) == (row.cpp.unsigned is None)


def test_makers() -> None:
    assert library("atan2", 2) == Spelling("atan2f({0}, {1})", "atan2({0}, {1})")
    assert rounding("floor") == Spelling("floorf({0})", "floor({0})", "{0}", "{0}")
    assert infix("<").boolean == "({0} < {1})"
    assert infix("<", "(!{0} && {1})").boolean == "(!{0} && {1})"
    made = arithmetic("+", None, "sum")
    assert (made.f64, made.boolean, made.pair) == ("({0} + {1})", None, "{P}_sum({0}, {1})")
    assert arithmetic("-", None, "difference").signed == "(({T})(({U}){0} - ({U}){1}))", "signed overflow wraps"
    assert extremum("fminf", "fmin", "least", "({0} && {1})").unsigned == "least<{T}>({0}, {1})"
