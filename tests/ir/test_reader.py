"""A position in the tokens of a text: lines and comments, words, names and lists."""

from collections.abc import Callable
from typing import Any

import pytest

from taskfuse.errors import ParseError
from taskfuse.ir.reader import FusionReader, TokenReader
from taskfuse.ir.scalar import TokenKind
from taskfuse.ir.types import ParallelType


@pytest.mark.parametrize(
    ("line", "comment"),
    [("a", None), ("a # why", "why"), ("a  #", None), ('"x # y"', None), ('"x # y"  # why # then', "why # then"), ("# alone", "alone")],
)
def test_a_comment_begins_behind_the_last_token(line: str, comment: str | None) -> None:
    reader = TokenReader(f"{line}\n\n\nb")
    if not reader.at_line_end() and not reader.at("b"):
        reader.advance()
    if line != "# alone":
        assert reader.end_line() == comment
        assert reader.token.line == 4
    else:  # it is above the next token
        assert reader.token.text == "b"
        assert TokenReader(f"{line}\nb").comment_above() == comment


def test_the_end_of_a_line_is_expected_where_more_stands() -> None:
    reader = TokenReader("a b")
    reader.advance()
    with pytest.raises(ParseError, match=r"^line 1, column 3: expected the end of the line, found 'b'$"):
        reader.end_line()


def test_expressions_are_the_longest() -> None:
    reader = TokenReader("2*i + 1 .. 3")
    assert str(reader.expression()) == "2*i + 1"
    assert reader.take("..")
    assert reader.integer() == 3
    assert reader.token.kind is TokenKind.END


def test_names_of_axes() -> None:
    reader = FusionReader('tv7.a1, "a tensor".a1, x0, a.b.c')
    named = [(None if n.tensor is None else n.tensor.text, n.axis.text) for n in reader.some(reader.axis_name)]
    assert named == [("tv7", "a1"), ("a tensor", "a1"), (None, "x0"), ("a.b", "c")]


def test_bound_axes_in_brackets() -> None:
    reader = FusionReader("[a0:TIDx, a1] []")
    assert [(b.name.text, b.ptype) for b in reader.bracketed(reader.bound_axis)] == [("a0", ParallelType.TIDx), ("a1", ParallelType.Serial)]
    assert reader.bracketed(reader.axis) == ()


REFUSED: list[tuple[Callable[[FusionReader], object], str, str]] = [
    (FusionReader.tensor_name, "3", "expected the name of a tensor, found '3'"),
    (FusionReader.axis, "tv0.a0", "'tv0.a0' is not a name of an axis: it has a dot"),
    (FusionReader.bound_axis, "a0:TIDw", "there is no parallel type 'TIDw'"),
    (lambda r: r.name("tensor"), '"\\x"', "'\"\\x\"' is not a string: the escapes are those of JSON"),
    (lambda r: r.bracketed(r.axis), "[a0 a1]", "expected ']', found 'a1'"),
    (lambda r: r.some(r.axis), "a0,", "expected an axis, found end of text"),
]


@pytest.mark.parametrize(
    ("take", "text", "reason"),
    REFUSED,
)
def test_what_is_refused(take: Callable[[FusionReader], Any], text: str, reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        take(FusionReader(text))
    assert str(caught.value).partition(": ")[2] == reason
