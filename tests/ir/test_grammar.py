"""Texts that are not lines of a fusion: each mistake with its line and column."""

import pytest

from taskfuse.errors import ParseError
from taskfuse.ir.parser import parse_fusion
from tests.ir.same import HEAD, Y


@pytest.mark.parametrize(
    ("text", "error"),
    [
        # words and line ends
        ("", "line 1, column 1: expected 'FUSION', found end of text"),
        ("\n\nINPUT x: float32[4]", "line 3, column 1: expected 'FUSION', found 'INPUT'"),
        ("FUSION", "line 1, column 7: expected the name of a fusion, found end of text"),
        ("FUSION f g", "line 1, column 10: expected the end of the line, found 'g'"),
        ('FUSION "\\q"', "line 1, column 8: '\"\\q\"' is not a string: the escapes are those of JSON"),
        ("FUSION f\nFUSION g", "line 2, column 1: a text holds one fusion"),
        ("FUSION f\n§", "line 2, column 1: unexpected character '§'"),
        ("FUSION f\nINPUT x float32[4]", "line 2, column 9: expected ':', found 'float32'"),
        ("FUSION f\nINPUT x: float31[4]", "line 2, column 10: there is no dtype 'float31'"),
        ("FUSION f\nINPUT x: 4", "line 2, column 10: expected a dtype, found '4'"),
        ("FUSION f\nINPUT x: float32[4", "line 2, column 19: expected ']', found end of text"),
        ("FUSION f\nINPUT x: float32[+]", "line 2, column 18: expected an expression, found '+'"),
        # dimensions and values
        ("FUSION f\nDIM S min", "line 2, column 10: expected an integer, found end of text"),
        ("FUSION f\nDIM S min 1 min 2", "line 2, column 13: 'min' of dimension 'S' is given twice"),
        # definitions
        (HEAD + "y: float32[S, 4] sin(x)", "line 5, column 18: expected '=', found 'sin'"),
        (HEAD + "y: float32[S, 4] = sinn(x)", "line 5, column 20: there is no elementwise function 'sinn'"),
        (HEAD + "y: float32[S, 4] = sin(x, x)", "line 5, column 23: 'sin' takes 1 operand, not 2"),
        (HEAD + "y: float32[S, 4] = add(x)", "line 5, column 23: 'add' takes 2 operands, not 1"),
        (HEAD + "y: float32[S, 4] = sin(-x)", "line 5, column 25: expected a number, found 'x'"),
        (HEAD + "y: float32[S, 4] = sin(-true)", "line 5, column 25: 'true' cannot be negated"),
        (HEAD + "y: float32[S, 4] = sin(1.0:f)", "line 5, column 28: there is no dtype 'f'"),
        (HEAD + "y: float32[S, 4] = select (x)", "line 5, column 27: expected the name of a selection, found '('"),
        (HEAD + "y: float32[S, 4] = view copy(x, x)", "line 5, column 31: expected ')', found ','"),
        (HEAD + "y: float32[S, 4] = scan add of x over i1", "line 5, column 34: expected 'along', found 'over'"),
        (HEAD + "y: float32[S, 4] = scan add of x along S", "line 5, column 40: expected an iteration symbol such as i1, found 'S'"),
        (HEAD + "y: float32[S, 4] = gather(x[v0, i1], v1 = x of S)", "line 5, column 38: expected 'v0', found 'v1'"),
        (HEAD + "y: float32[S, 4] = gather(x[v0, i1], v0 = x)", "line 5, column 44: expected 'of', found ')'"),
        (HEAD + "y: float32[S, 4] = assemble(x)", "line 5, column 30: expected '->', found ')'"),
        (HEAD + "y: float32[S] = reduce plus of copy(x) over i1: 4 init 0.0", "line 5, column 24: there is no combining function 'plus'"),
        (HEAD + "y: float32[S] = reduce add of copy(x) over 1: 4 init 0.0", "line 5, column 44: expected an iteration symbol such as i1, found '1'"),
        (HEAD + "y: float32[S] = reduce add of copy(x) over i1: 4", "line 5, column 49: expected 'init', found end of text"),
        (HEAD + "y: float32[S] root [S, 4 red] = copy(x)", "line 5, column 26: there is no kind of axis 'red'"),
        (Y + "ORDER x, y\nORDER y, x", "line 7, column 1: there is an ORDER line already"),
        (Y + "TASK t y", "line 6, column 8: expected '=', found 'y'"),
        (Y + "TASK t = y registers many", "line 6, column 22: expected an integer, found 'many'"),
        (Y + "TASK t = y\nGROUP g = t on TIDw", "line 7, column 16: there is no parallel type 'TIDw'"),
    ],
)
def test_texts_that_are_no_records(text: str, error: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_fusion(text)
    assert str(caught.value) == error
