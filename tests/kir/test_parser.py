"""Every mistake in kernel text has an error with its line, its column and its text."""

import pytest

from taskfuse.errors import ParseError
from taskfuse.kir import parse_kernel
from tests.kir.headers import HEADER


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FUNCTION k", "line 1, column 1: expected 'KERNEL', found 'FUNCTION'"),
        ("", "line 1, column 1: expected 'KERNEL', found end of text"),
        ("KERNEL (x: float32[N]) -> ()", "line 1, column 8: expected the kernel's name, found '('"),
        ("KERNEL IF() -> ()", "line 1, column 8: 'IF' is a word of the grammar, not a name"),
        ("KERNEL k(x) -> ()", "line 1, column 11: expected ':', found ')'"),
        ("KERNEL k(x: float33[N]) -> ()", "line 1, column 13: there is no dtype 'float33'\nhelp: did you mean 'float32'?"),
        ("KERNEL k()", "line 1, column 11: expected '->', found end of text"),
        ("KERNEL k() -> (y: float32)", "line 1, column 26: expected '[', found ')'"),
        ("KERNEL k() -> () GRID (1, 1, 1)", "line 1, column 18: expected the end of the line, found 'GRID'"),
        ("KERNEL k() -> ()\n  DIM N", "line 2, column 8: expected GRID and BLOCK, found end of text"),
        ("KERNEL k() -> ()\nDIM N", "line 2, column 1: a declaration is indented below KERNEL"),
        ("KERNEL k() -> ()\n  DIM N min x", "line 2, column 13: expected an integer, found 'x'"),
        ("KERNEL k() -> ()\n  DIM N atleast 3", "line 2, column 9: expected the end of the line, found 'atleast'"),
        ("KERNEL k() -> ()\n  GRID (1, 1)  BLOCK (1, 1, 1)", "line 2, column 8: a launch shape has 3 extents, not 2"),
        ("KERNEL k() -> ()\n  GRID (1, 1, 1)", "line 2, column 17: expected 'BLOCK', found end of text"),
        (
            "KERNEL k() -> ()\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)",
            "line 3, column 3: the launch shape is given twice",
        ),
        ("KERNEL k() -> ()\n  LOCAL a float32[]", "line 2, column 11: expected ':', found 'float32'"),
        ("KERNEL k() -> ()\n  MBARRIER full", "line 2, column 16: expected '[', found end of text"),
        ("KERNEL k() -> ()\n  TENSORMAP m = x box 3", "line 2, column 23: expected '(', found '3'"),
    ],
)
def test_headers(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_kernel(text)
    assert str(caught.value) == message


def test_comments_and_empty_lines_are_free() -> None:
    text = HEADER + "# about\n\nIF N < 4:   # small\n  # inside\n\n  acc = neg(\n    x[0])  # dropped\nSYNC block  # why"
    kernel = parse_kernel(text)
    assert str(kernel) == HEADER + "IF N < 4:  # small\n  acc = neg(x[0])\nSYNC block  # why"


def test_leading_zeros_count_for_nothing() -> None:
    (buffer,) = (b for b in parse_kernel(HEADER.replace("align 128", "align 0128") + "y[007] = copy(01)").buffers if b.name == "s")
    assert buffer.align == 128
