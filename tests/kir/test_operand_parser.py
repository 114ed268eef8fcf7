"""Operands, names and literals in the text of a kernel."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from taskfuse.errors import ParseError
from taskfuse.kir.operand_parser import KernelReader, suggestion


@pytest.mark.parametrize(("text", "value"), [("3", 3), ("-3", -3), ("0.5", 0.5), ("-inf", -math.inf), ("true", True), ("1e-05", 1e-05)])
def test_literals(text: str, value: float) -> None:
    found = KernelReader(text).literal()
    assert found == value
    assert type(found) is type(value)


def test_literals_without_a_sign() -> None:
    assert math.isnan(float(KernelReader("-nan").literal()))
    with pytest.raises(ParseError, match="column 2: expected a number, found 'true'"):
        KernelReader("-true").literal()


def test_only_what_begins_a_literal_is_at_one() -> None:
    assert all(KernelReader(text).at_literal() for text in ("3", "-x", "inf", "0.5"))
    assert not any(KernelReader(text).at_literal() for text in ("x", "(3)", "infinite"))


REFUSED: list[tuple[Callable[[KernelReader], object], str, str]] = [
    (KernelReader.dtype, "float33", "there is no dtype 'float33'\nhelp: did you mean 'float32'?"),
    (lambda r: r.name("a name"), "FOR", "'FOR' is a word of the grammar, not a name"),
    (lambda r: r.name("a name"), "3", "expected a name, found '3'"),
    (lambda r: r.number("width"), "width x", "expected an integer, found 'x'"),
    (lambda r: r.string("a file"), "x", "expected a file in quotes, found 'x'"),
    (lambda r: r.expressions("(", ")"), "(3 4)", "expected ',', found '4'"),
]


@pytest.mark.parametrize(
    ("take", "text", "reason"),
    REFUSED,
)
def test_what_is_refused(take: Callable[[KernelReader], Any], text: str, reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        take(KernelReader(text))
    assert str(caught.value).partition(": ")[2] == reason


def test_a_list_ends_at_its_bracket() -> None:
    found = KernelReader("[1, 2] 3")
    assert [*map(int, found.expressions("[", "]"))] == [1, 2]
    assert found.integer() == 3


def test_suggestions_are_near() -> None:
    assert suggestion("flaot32", ["float32", "int8"]) == "did you mean 'float32'?"
    assert suggestion("zzz", ["float32"]) is None
