"""What is read of a witness, and what is neither a definition nor content."""

from pathlib import Path

import pytest

from taskfuse.dtypes import bool_, float32, float64
from taskfuse.errors import ParseError
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import TRUE, const, ge, lt, sym
from taskfuse.kir import held, parse_kernel, verify_kernel
from taskfuse.kir.forms import RULE_WORDS
from taskfuse.kir.operands import Access, ChoiceCase, Content, Holds, Immediate, IndexOf, ScalarValue
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Pick, Reduce, Whole
from tests.kir.witnessed import HEADER, assert_equal, kernel

LINE = HEADER.count("\n") + 1


def test_definitions_are_read() -> None:
    n, i0, i1 = sym("N"), sym("i0"), sym("i1")
    x, four, point = Access("x", (i0, i1)), const(4), (i0, i1)
    zero = Immediate(0.0, float32)
    found = {d.tensor: d for d in kernel("PASS").definitions}
    assert found["whole"] == Definition("whole", float32, (n, four), (n, four), point, Apply(ELEMENTWISE["copy"], (x,), float32))
    assert found["s"] == Definition("s", float32, (n,), (n, four), (i0,), Reduce(COMBINES["add"], ELEMENTWISE["mul"], (x, ScalarValue("alpha")), zero, float32))
    assert found["d"].rule == Reduce(COMBINES["maximum"], ELEMENTWISE["abs"], (x,), Immediate(-float("inf"), float64), float64)
    assert found["t"].rule == Accumulate(COMBINES["add"], x, 1, float64)
    assert found["p"].rule == Pick((ChoiceCase(lt(i1, 2), x), ChoiceCase(const(1), Immediate(0.5, float32))))
    assert found["q"].rule == Pick((ChoiceCase(lt(i1, 2), Access("x", (i0, 3 - i1))), ChoiceCase(ge(i1, 2), Immediate(1.0, float64))))
    assert found["f"].rule == Find(Access("x", (i0, sym("v0"))), (Access("j", (i0,)),), (four,))
    assert found["l"].dtype is bool_
    assert isinstance(found["l"].rule, Apply)
    assert found["l"].rule.operands[0] == IndexOf(i0 + n)
    assert found["one"].shape == found["one"].place == ()
    assert found["w"].rule == Whole(("p", "q"), (point, (n - i0 - 1, i1)), (TRUE, TRUE))
    assert isinstance(found["y"].rule, Apply)
    assert found["y"].rule.operands[1] == Access("one", ())


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("r = copy(0.0)  ~ zero s", Holds("s", (), Content.ZERO)),
        ("r = copy(0.0)  ~ start s  # a comment", Holds("s", (), Content.START)),
        ("r = add(r, 1.0)  ~ part s", Holds("s", (), Content.PART)),
        ("r = mul(x[0, 3], alpha)  ~ body s[0, 3]", Holds("s", (const(0), const(3)), Content.BODY)),
        ("r = add(r, x[N - 1, 3])  ~ term s[N - 1, 3]", Holds("s", (sym("N") - 1, const(3)), Content.TERM)),
        ("r = neg(0.5) ~ value one[]", Holds("one", ())),
        ("COPY y[0, 0] <- acc[0] width 4  ~ value y[0, tile.0] tile (4)", Holds("y", (const(0), sym("tile.0")), tile=(4,))),
        ("r = pad(x[0, 0] if N < 3, otherwise 0.0)  ~ value p[0, 0]", Holds("p", (const(0), const(0)))),
        ("COPY.async g[0, 0] <- x[0, 0] width 4 if N < 3  ~ value p[0, tile.0] tile (4)", Holds("p", (const(0), sym("tile.0")), tile=(4,))),
        ("SHUFFLE r <- r xor 1  ~ part s", Holds("s", (), Content.PART)),
        ("GATHER r <- x[0, v] at v = j[0] of 4  ~ value f[0]", Holds("f", (const(0),))),
        ("TMA g[0, 0] <- map_x(0, 0) on full[0]  ~ value whole[tile.0, tile.1] tile (8, 4)", Holds("whole", (sym("tile.0"), sym("tile.1")), tile=(8, 4))),
    ],
)
def test_what_results_stand_for_is_read(line: str, holds: Holds) -> None:
    found = kernel(line)
    assert [held(s) for s in found.body] == [holds]
    assert_equal(parse_kernel(found.text(witness=True)), found)
    verify_kernel(found)


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        ("r = copy(0.0) ~", 16, "expected what is held, found end of line"),
        ("r = copy(0.0) ~ values s[0]", 17, "there is no content 'values'\nhelp: did you mean 'value'?"),
        ("r = copy(0.0) ~ value 3", 23, "expected a tensor, found '3'"),
        ("r = copy(0.0) ~ value whol[0, 0]", 23, "there is no definition of 'whol'\nhelp: did you mean 'whole'?"),
        ("r = copy(0.0) ~ value x[0, 0]", 23, "there is no definition of 'x'"),
        ("r = copy(0.0) ~ value s", 24, "expected '[', found end of line"),
        ("r = copy(0.0) ~ value s[0, 0]", 23, "the shape of 's' has 1 axes, and 'value s' has 2 indices"),
        ("r = copy(0.0) ~ term s[0]", 22, "the iteration space of 's' has 2 axes, and 'term s' has 1 indices"),
        ("r = copy(0.0) ~ start s[0]", 23, "'start' has no index, and 'start s' has 1 indices"),
        ("r = copy(0.0) ~ value s[0] tile 4", 33, "expected '(', found '4'"),
        ("r = copy(0.0) ~ value s[0] tile (N)", 34, "expected an integer, found 'N'"),
        ("r = copy(0.0) ~ value s[0] width 4", 28, "expected the end of the line, found 'width'"),
        ("SYNC block ~ value s[0]", 12, "expected an expression, found '~'"),
        ("COMMIT copy ~ value s[0]", 13, "a claim follows a statement that writes elements, and this one writes no element"),
    ],
)
def test_what_is_no_content(line: str, column: int, reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        kernel(line)
    assert str(caught.value) == f"line {LINE}, column {column}: {reason}"


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        ("DEFINE IF: float32[N] = copy(one[])", 10, "'IF' is a word of the grammar, not a name"),
        ("DEFINE z float32[N] = copy(one[])", 12, "expected ':', found 'float32'"),
        ("DEFINE z: float3[N] = copy(one[])", 13, "there is no dtype 'float3'\nhelp: did you mean 'float32'?"),
        ("DEFINE z: float32 = copy(one[])", 21, "expected '[', found '='"),
        ("DEFINE z: float32[N] over (N) = copy(one[])", 33, "expected 'at', found '='"),
        ("DEFINE z: float32[N] copy(one[])", 24, "expected '=', found 'copy'"),
        ("DEFINE z: float32[N] = copi(one[])", 26, "there is no operation 'copi'\nhelp: did you mean 'copy'?"),
        ("DEFINE z: float32[N] = copy.float3(one[])", 26, "there is no dtype 'float3'\nhelp: did you mean 'float32'?"),
        ("DEFINE z: float32[N] = copy(tv9[])", 31, "there is no input, or tensor that is defined above, 'tv9'"),
        ("DEFINE z: float32[N] = copy(z[i0])", 31, "there is no input, or tensor that is defined above, 'z'"),
        ("DEFINE z: float32[N] = copy(one)", 34, "expected '[', found ')'"),
        ("DEFINE z: float32[N] = reduce ad of copy(one[]) from 0.0", 33, "there is no function that combines 'ad'\nhelp: did you mean 'add'?"),
        ("DEFINE z: float32[N] = reduce add of copy(one[])", 51, "expected 'from', found end of line"),
        ("DEFINE z: float32[N] = reduce add of copy(one[]) from N", 57, "expected a constant, found 'N'"),
        ("DEFINE z: float32[N] = scan add of x[i0, i0]", 35, "expected 'along', found 'of'"),
        ("DEFINE z: float32[N] = scan add.half along 0 of x[i0, i0]", 31, "there is no dtype 'half'"),
        ("DEFINE z: float32[N] = find x[i0, v0]", 40, "expected 'at', found end of line"),
        ("DEFINE z: float32[N] = find x[i0, v0] at j[i0]", 49, "expected 'of', found end of line"),
        ("DEFINE z: float32[N] = whole x", 33, "expected 'at', found end of line"),
        ("DEFINE z: float32[N] = pick(one[])", 36, "expected 'if', found ')'"),
        ("DEFINE z: float32[N] = 3", 26, "expected an operation or a rule, found '3'"),
        ("LOCAL z: float32[]", 3, "the indentation matches no enclosing block"),
    ],
)
def test_what_is_no_definition(line: str, column: int, reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_kernel(f"{HEADER.rstrip()}\n  {line}\n\nPASS\n")
    assert str(caught.value) == f"line {LINE - 1}, column {column}: {reason}"


def test_a_definition_is_indented() -> None:
    with pytest.raises(ParseError, match="a declaration is indented below KERNEL"):
        parse_kernel(f"{HEADER}DEFINE z: float32[N] = copy(one[])\n")


def test_no_operation_is_named_like_a_rule() -> None:
    assert not RULE_WORDS.keys() & ELEMENTWISE.keys()


def test_points_that_are_sent_to_places_that_no_data_names() -> None:
    text = (Path(__file__).parents[1] / "check" / "museum" / "update_box_twice.fixed.kir").read_text(encoding="utf-8")
    found = parse_kernel(text)
    assert "DEFINE u: float32[3, 8, 32] = send add of t[i0, i1, i2]\n" in found.text(witness=True)
    assert "TMA m(0, 0) <- t[0, 0] by add  ~ value u[k, tile.0, tile.1] tile (8, 32)\n" in found.text(witness=True)
    assert_equal(parse_kernel(found.text(witness=True)), found)
