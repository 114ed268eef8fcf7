"""Every mistake in a statement has an error with its line, its column and its text."""

import pytest

from taskfuse.errors import ParseError
from taskfuse.kir import parse_kernel
from tests.kir.headers import FIRST, HEADER


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        # symbols and names
        ("acc = neg(x[`i`])", 13, "unexpected character '`'"),
        ("acc = neg(z[0])", 11, "there is no buffer or argument 'z'"),
        ("ac = neg(x[0])", 1, "there is no buffer or argument 'ac'\nhelp: did you mean 'acc'?"),
        ("acc = neg(x)", 11, "'x' has 1 axes and needs as many indices"),
        ("acc = negg(x[0])", 7, "there is no operation 'negg'\nhelp: did you mean 'neg'?"),
        ("acc = neg.float33(x[0])", 7, "there is no dtype 'float33'\nhelp: did you mean 'float32'?"),
        ("acc = neg(0.5:half)", 15, "there is no dtype 'half'"),
        ("acc = neg(-true)", 12, "expected a number, found 'true'"),
        ("acc = neg(-x[0])", 12, "expected a constant, found 'x'"),
        ("acc = neg(x[0]", 15, "expected ',', found end of text"),
        ("acc = neg(x[0] +)", 16, "expected ',', found '+'"),
        ("acc = cat(x[0] if, otherwise 0.0)", 18, "expected an expression, found ','"),
        ("acc = cat(x[0], otherwise 0.0)", 15, "expected 'if', found ','"),
        ("acc = 3", 7, "expected an operation, found '3'"),
        ("acc", 1, "'acc' begins no statement"),
        ("3 = acc", 1, "expected a buffer, found '3'"),
        ("FROB acc", 1, "'FROB' begins no statement"),
        ("UNROLL", 1, "UNROLL begins no statement"),
        ("p = CURSOR(slot 0)", 12, "expected 'slots', found 'slot'"),
        ("p.advance 1", 1, "'p.advance' begins no statement"),
        # instructions
        ("WAIT ful[0] parity 1", 6, "there is no mbarrier 'ful'\nhelp: did you mean 'full'?"),
        ("WAIT full[0]", 13, "expected 'parity', found end of text"),
        ("ARRIVE full", 12, "expected '[', found end of text"),
        ("EXPECT full[0] 32", 16, "expected 'bytes', found '32'"),
        ("INIT full[0] 32", 14, "expected 'count', found '32'"),
        ("SYNC all", 6, "there is no barrier scope 'all'"),
        ("SYNC named 1", 13, "expected ',', found end of text"),
        ("SYNC grid counter, 32", 11, "there is no counter 'counter'"),
        ("FENCE all", 7, "there is no fence 'all'"),
        ("COPY s[0] = x[0] width 4", 11, "expected '<-', found '='"),
        ("COPY s[0] <- x[0]", 18, "expected 'width', found end of text"),
        ("COPY.sync s[0] <- x[0] width 4", 1, "expected COPY or COPY.async, found 'COPY.sync'"),
        ("COPY s[0] <- x[0] width 4 if N < 1", 27, "expected the end of the line, found 'if'"),
        ("COPY.async s[0] <- x[0] width 4 where N < 1", 33, "expected the end of the line, found 'where'"),
        ("ARRIVE.later full[0]", 1, "expected ARRIVE or ARRIVE.async, found 'ARRIVE.later'"),
        ("TMA s[0] <- map_y(0) on full[0]", 13, "there is no tensor map 'map_y'\nhelp: did you mean 'map_x'?"),
        ("TMA s[0] <- map_x(0)", 21, "expected 'on', found end of text"),
        ("COMMIT tma", 8, "there is no queue 'tma'"),
        ("WAIT_GROUP bulk.write <= 0", 12, "there is no queue 'bulk.write'"),
        ("WAIT_GROUP bulk 0", 17, "expected '<=', found '0'"),
        ("WGMMA.m32n8k16.bfloat16 acc", 1, "expected WGMMA.m64n<n>k<k>.<dtype>, found 'WGMMA.m32n8k16.bfloat16'"),
        ("WGMMA.m64n8k16.bfloat16 acc, s[0], s[1]", 36, "expected 'desc', found 's'"),
        ("WGMMA.m64n8k8.float32 acc, s[0]", 1, "products of float32 operands are tf32: say so"),
        ("MMA.m16n16k16.bfloat16 acc, s[0], s[1]", 1, "expected MMA.m16n8k<k>.<dtype>, found 'MMA.m16n16k16.bfloat16'"),
        ("LDMATRIX.x3 acc <- s[0]", 1, "expected LDMATRIX with .x1, .x2 or .x4, and .trans, found 'LDMATRIX.x3'"),
        ("STMATRIX.trans.x2 s[0] <- acc", 1, "expected STMATRIX with .x1, .x2 or .x4, and .trans, found 'STMATRIX.trans.x2'"),
        ("WGMMA.m64n8k16.bfloat16 acc, desc(s[0], swizzle 0, lbo 0, sbo 0, major X)", 72, "there is no major 'X'"),
        ("SETMAXNREG all", 12, "expected an integer, found 'all'"),
        ("PASS 3", 6, "expected the end of the line, found '3'"),
        # blocks
        ("FOR i in 0..4", 14, "expected ':', found end of text"),
        ("FOR i in 0:", 11, "expected '..', found ':'"),
        ("FOR i + 1 in 0..4:", 5, "the loop variable i + 1 is not a name"),
        ("FOR i in TIDx{4:", 16, "expected '}', found ':'"),
        ("ELSE:", 1, "ELSE without IF"),
        ("IF N < 1", 9, "expected ':', found end of text"),
        ("  acc = neg(x[0])", 3, "the indentation matches no enclosing block"),
    ],
)
def test_statements(line: str, column: int, reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_kernel(HEADER + line)
    assert str(caught.value) == f"line {FIRST}, column {column}: {reason}"


@pytest.mark.parametrize(
    ("body", "line", "column", "reason"),
    [
        ("FOR i in 0..4:\nacc = neg(x[i])", 1, 1, "expected an indented block, or PASS"),
        ("IF N < 1:", 0, 10, "expected an indented block, or PASS"),
        ("FOR i in 0..4:\n    acc = neg(x[i])\n  acc = neg(x[i])", 2, 3, "the indentation matches no enclosing block"),
        ("FOR i in 0..4:\n  acc = neg(x[i])\n    acc = neg(x[i])", 2, 5, "the indentation matches no enclosing block"),
        ("IF N < 1:\n  PASS\nELSE:\n  PASS\nELSE:\n  PASS", 4, 1, "ELSE without IF"),
        ("IF N < 1:\n  PASS\n  ELSE:\n  PASS", 2, 3, "ELSE without IF"),
    ],
)
def test_blocks(body: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_kernel(HEADER + body)
    assert str(caught.value) == f"line {FIRST + line}, column {column}: {reason}"


def test_a_body_indented_less_than_its_header() -> None:
    text = "  KERNEL k() -> ()\n    GRID (1, 1, 1)  BLOCK (1, 1, 1)\n SYNC block"
    with pytest.raises(ParseError, match="line 3, column 2: the indentation matches no enclosing block"):
        parse_kernel(text)
