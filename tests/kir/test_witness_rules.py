"""Rules of the witness: a text that breaks one, with the message, and one that does not."""

from dataclasses import replace
from inspect import signature

import pytest

import taskfuse.kir.witness_rules as rules
from taskfuse.dtypes import float32, float64
from taskfuse.errors import VerifyError
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import TRUE, const, sym
from taskfuse.kir import Kernel, map_stmts, parse_kernel, verify_kernel
from taskfuse.kir.nodes import Compute, Stmt
from taskfuse.kir.operands import Access, Content, Holds, ScalarValue
from taskfuse.kir.witness import Apply, Find, Whole
from tests.kir.witnessed import HEADER, assert_equal, kernel


def message(broken: Kernel) -> tuple[str, str]:
    """The message of the verifier's refusal, and the line that it stands under."""
    with pytest.raises(VerifyError) as caught:
        verify_kernel(broken)
    first, *quoted = str(caught.value).split("\n")
    under = next(i for i, line in enumerate(quoted) if line.removeprefix("  | ").lstrip().startswith("^ "))
    assert first == f"kernel 'k': {quoted[under].removeprefix('  | ').lstrip()[2:]}"
    return first.partition(": ")[2], quoted[under - 1].removeprefix("  | ").strip()


BAD_DEFINITIONS = [
    # bad definition, message, good definition
    ("p: float32[N] = copy(x[i0, 0])", "'p' is defined twice", "z: float32[N] = copy(x[i0, 0])"),
    ("x: float32[N, 4] = neg(p[i0, i1])", "'x' is an input, which has no definition", "z: float32[N, 4] = neg(p[i0, i1])"),
    ("alpha: float32[] = neg(0.5)", "'alpha' is a scalar argument, which has no definition", "z: float32[] = neg(0.5)"),
    (
        "threadIdx.x: float32[] = neg(0.5)",
        "'threadIdx.x' is not a name: a name is letters, digits and _, in parts joined by dots, no word of the grammar, no index, no number in a tile "
        "and no symbol of a cursor",
        "z: float32[] = neg(0.5)",
    ),
    ("z: float32[M] = neg(0.5)", "the definition of 'z' has an extent with 'M', which is not an extent of the kernel", "z: float32[N] = neg(0.5)"),
    (
        "z: float32[N] over (N, i0) at (i0) = reduce add of neg(0.5) from 0.0",
        "the definition of 'z' has an extent with 'i0', which is not an extent of the kernel",
        "z: float32[N] over (N, N) at (i0) = reduce add of neg(0.5) from 0.0",
    ),
    (
        "z: float32[N] over (N, 4) at (i0, i1) = reduce add of neg(0.5) from 0.0",
        "the shape of 'z' has 1 axes, and a point of its iteration space belongs to an element with 2 indices",
        "z: float32[N] over (N, 4) at (i0) = reduce add of neg(0.5) from 0.0",
    ),
    (
        "z: float32[N] over (N, 4) at (i2) = reduce add of neg(0.5) from 0.0",
        "'i2' is not defined in the definition of 'z', whose iteration space has 2 axes",
        "z: float32[4] over (N, 4) at (i1) = reduce add of neg(0.5) from 0.0",
    ),
    ("z: float32[4] over (4) at (3 - i0) = neg(0.5)", "'z' is not a reduction: its iteration space is its shape", "z: float32[4] = neg(0.5)"),
    (
        "z: float32[N] over (4, 4) at (i0) = reduce add of neg(0.5) from 0.0",
        "axis 0 of 'z' is an axis of its iteration space, which has another extent",
        "z: float32[N] over (N, 4) at (i0) = reduce add of neg(0.5) from 0.0",
    ),
    ("z: float32[N] = bitwise_not(0.5)", "bitwise_not does not compute in float32", "z: float32[N] = neg(0.5)"),
    (
        "z: float32[N] over (N, 4) at (i0) = reduce logical_and of neg(0.5) from 1.0",
        "logical_and does not combine float32",
        "z: float32[N] over (N, 4) at (i0) = reduce maximum of neg(0.5) from 1.0",
    ),
    ("z: float32[N] = add(0.5)", "add takes 2 operands, not 1", "z: float32[N] = add(0.5, alpha)"),
    (
        "z: float32[N] over (N, 2) at (i0) = reduce add of mul(alpha) from 0.0",
        "mul takes 2 operands, not 1",
        "z: float32[N] over (N, 2) at (i0) = reduce add of mul(alpha, alpha) from 0.0",
    ),
    ("z: float32[N] = pick()", "'z' picks from nothing", "z: float32[N] = pick(otherwise 0.0)"),
    ("z: float32[N] = pick(0.5 if i0)", "the condition i0 is not a boolean", "z: float32[N] = pick(0.5 if i0 < N)"),
    ("z: float32[N] = scan add along 1 of s[i0]", "'z' has 1 axes, and none that is number 1", "z: float32[N] = scan add along 0 of s[i0]"),
    ("z: float32[N] = copy(x[i0])", "'x' has 2 axes, the access 1 indices", "z: float32[N] = copy(x[i0, 0])"),
    ("z: float32[N] = find x[i0, v0] at j[] of 4", "'j' has 1 axes, the access 0 indices", "z: float32[N] = find x[i0, v0] at j[0] of 4"),
    ("z: float32[N] = copy(x[i0, i1])", "'i1' is not defined in the definition of 'z', whose iteration space has 1 axes", "z: float32[N] = copy(x[i0, 3])"),
    (
        "z: int64[N] = copy(index(threadIdx.x))",
        "'threadIdx.x' is not defined in the definition of 'z', whose iteration space has 1 axes",
        "z: int64[N] = copy(index(i0))",
    ),
    (
        "z: float32[N] = copy(x[v0, 0])",
        "'v0' is not defined in the definition of 'z', whose iteration space has 1 axes",
        "z: float32[N] = find x[v0, 0] at j[i0] of N",
    ),
    (
        "z: float32[N] = pick(0.5 if i1 < 2, otherwise 1.0)",
        "'i1' is not defined in the definition of 'z', whose iteration space has 1 axes",
        "z: float32[N] = pick(0.5 if i0 < 2, otherwise 1.0)",
    ),
    (
        "z: float32[N] = find x[i0, v1] at j[i0] of 4",
        "'v1' is not defined in the definition of 'z', whose iteration space has 1 axes",
        "z: float32[N] = find x[i0, v0] at j[i0] of 4",
    ),
    (
        "z: float32[N] = find x[i0, v0] at s[i0] of 4",
        "an index is an integer of at most 64 bits with a sign, and 's' is float32",
        "z: float32[N] = find x[i0, v0] at j[i0] of 4",
    ),
    (
        "z: uint8[N] = find x[i0, v0] at j[i0] of 4",
        "'z' is uint8, and has elements of 'x', which is float32",
        "z: float32[N] = find x[i0, v0] at j[i0] of 4",
    ),
    ("z: float16[N, 4] = whole t at (i0, i1)", "'z' is float16, and has elements of 't', which is float32", "z: float32[N, 4] = whole t at (i0, i1)"),
    ("z: float32[N, 4] = whole p at (i0)", "'z' has 2 axes, and the place of 'p' in it 1 indices", "z: float32[N, 4] = whole t at (i0, 3 - i1)"),
    (
        "z: float32[N, 4] = whole p at (i0, i2)",
        "'i2' is not defined in the place of 'p', which has 2 axes",
        "z: float32[N, 4] = whole t at (i0, i1), w at (i0, i1)",
    ),
    ("z: float32[N, 4] = whole p at (i0, i1)", "'p' is a part of 'w' already: copy it", "z: float32[N, 4] = whole t at (i0, i1)"),
    ("z: float32[N, 4] = whole t at (i0, i1), t at (i0, 3 - i1)", "'t' is a part of 'z' already: copy it", "z: float32[N, 4] = whole t at (i0, 3 - i1)"),
    ("z: int8[N] = copy(300)", "300 is not a value of int8", "z: int8[N] = copy(30)"),
]


@pytest.mark.parametrize(("bad", "text", "good"), BAD_DEFINITIONS, ids=[text for _, text, _ in BAD_DEFINITIONS])
def test_rules_of_definitions(bad: str, text: str, good: str) -> None:
    broken = parse_kernel(f"{HEADER.rstrip()}\n  DEFINE {bad}\n\nPASS\n")
    assert message(broken) == (text, f"DEFINE {bad}")
    assert_equal(parse_kernel(broken.text(witness=True)), broken)
    verify_kernel(parse_kernel(f"{HEADER.rstrip()}\n  DEFINE {good}\n\nPASS\n"))


def changed(name: str, **changes: object) -> Kernel:
    found = kernel("PASS")
    return replace(found, definitions=tuple(replace(d, **changes) if d.tensor == name else d for d in found.definitions))


def test_rules_of_definitions_that_no_text_breaks() -> None:
    found = kernel("PASS")
    assert message(changed("y", rule=Apply(ELEMENTWISE["neg"], (ScalarValue("beta"),), float32)))[0] == "there is no scalar argument 'beta'"
    assert message(changed("y", dtype=float64))[0] == "output 'y' is float32, and its definition float64"
    four = (const(4), const(4))
    assert message(changed("y", shape=four, space=four))[0] == "the shape of output 'y' is (N, 4), that of its definition (4, 4)"
    assert message(changed("f", rule=Find(Access("x", (sym("i0"), sym("v0"))), (), ())))[0] == "'f' is found at 0 values with 0 extents"
    assert (
        message(changed("f", rule=Find(Access("x", (sym("i0"), sym("v0"))), (Access("j", (sym("i0"),)),), ())))[0] == "'f' is found at 1 values with 0 extents"
    )
    assert message(changed("w", rule=Whole(("p", "q"), (), ())))[0] == "'w' is made of 2 parts at 0 places under 0 conditions"
    assert message(changed("w", rule=Whole(("t9",), ((sym("i0"), sym("i1")),), (TRUE,))))[0] == "there is no input, or tensor that is defined above, 't9'"
    assert message(replace(found, definitions=(found.definitions[-2], found.definitions[4])))[0] == "there is no input, or tensor that is defined above, 'p'"
    renamed = parse_kernel("KERNEL k(x: float32[i0]) -> (y: float32[i0])\n  DIM i0\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n  DEFINE y: float32[i0] = copy(x[i0])\n")
    assert message(renamed) == ("'i0' is an extent and an index of definitions: rename the extent", "DEFINE y: float32[i0] = copy(x[i0])")
    verify_kernel(replace(renamed, definitions=()))


PRODUCT = "MMA.m16n8k16.bfloat16 acc[0], ab[0], ab[0]  ~ "
MATRICES = "LDMATRIX ab[0] <- b[threadIdx.x, 0]  ~ value p[tile.0, tile.1] "
BAD_CONTENTS = [
    ("r = copy(x[0, 0])  ~ body t[0, 0]", "'t' is not a reduction, so nothing stands for one term of it", "r = copy(x[0, 0])  ~ body s[0, 0]"),
    ("r = copy(0.0)  ~ start p", "'p' is not a reduction and no scan, so nothing stands for 'start' of it", "r = copy(0.0)  ~ start t"),
    ("SHUFFLE r <- r xor 1  ~ part p", "'p' is not a reduction and no scan, so nothing stands for 'part' of it", "SHUFFLE r <- r xor 1  ~ part s"),
    (
        f"{PRODUCT}value s[0]",
        "a matrix product adds terms: it stands for 'term', not for 'value'",
        f"{PRODUCT}term s[tile.0 + tile.1, tile.2] tile (16, 8, 16)",
    ),
    ("SHUFFLE r <- r xor 1  ~ term s[0, 0]", "this adds nothing to what was there, so it stands for no 'term'", "r = add(r, x[0, 0])  ~ term s[0, 0]"),
    (
        "UPDATE y[0, 0] by add of r  ~ value p[0, 0]",
        "this sends elements to another tensor: they stand for 'value' of one that is sent, not for 'value' of 'p'",
        "UPDATE y[0, 0] by add of r",
    ),
    ("COPY y[0, 0] <- acc[0] width 4  ~ part s", "this copies elements: they stand for 'value', not for 'part'", "r = copy(acc[0])  ~ part s"),
    ("r = copy(x[0, 0])  ~ value s[i]", "'i' is not in scope in what is held", "FOR i in 0..4:\n  r = copy(x[0, 0])  ~ value s[i]"),
    ("r = copy(x[0, 0])  ~ value s[tile.0]", "'tile.0' is not in scope in what is held", "r = copy(x[0, 0])  ~ value s[threadIdx.x]"),
    ("GATHER r <- x[0, v] at v = j[0] of 4  ~ value f[v]", "'v' is not in scope in what is held", "GATHER r <- x[0, v] at v = j[0] of 4  ~ value f[0]"),
    ("r = copy(x[0, 0])  ~ value s[tile.0] tile (4)", "this writes one element, and has no tile of (4)", "r = copy(x[0, 0])  ~ value s[4]"),
    ("r = copy(0.0)  ~ start s tile (4)", "this writes one element, and has no tile of (4)", "r = copy(0.0)  ~ start s"),
    (
        "COPY y[0, 0] <- acc[0] width 4  ~ value y[0, tile.0] tile (2)",
        "a tile of (2), where this instruction has one of (4)",
        "COPY y[0, 0] <- acc[0] width 4  ~ value y[0, tile.0] tile (4)",
    ),
    (
        "COPY y[0, 0] <- acc[0] width 4  ~ value y[0, 0]",
        "no tile, where this instruction has one of (4)",
        "COPY y[0, 0] <- acc[0] width 4  ~ value y[0, tile.0] tile (4)",
    ),
    (
        "TMA g[0, 0] <- map_x(0, 0) on full[0]  ~ value whole[tile.0, tile.1] tile (8, 0)",
        "a tile of (8, 0): every number is positive",
        "TMA g[0, 0] <- map_x(0, 0) on full[0]  ~ value whole[tile.0, tile.1] tile (8, 4)",
    ),
    (f"{MATRICES}tile (32, 16)", "a tile of (32, 16), where this instruction has one of (32, 8)", f"{MATRICES}tile (32, 8)"),
    (
        f"{PRODUCT}term s[tile.0, tile.2] tile (16, 8, 8)",
        "a tile of (16, 8, 8), where this instruction has one of (16, 8, 16)",
        f"{PRODUCT}term s[tile.0, tile.2] tile (16, 8, 16)",
    ),
]


@pytest.mark.parametrize(("bad", "text", "good"), BAD_CONTENTS, ids=[text for _, text, _ in BAD_CONTENTS])
def test_rules_of_contents(bad: str, text: str, good: str) -> None:
    broken = kernel(bad)
    assert message(broken) == (text, bad)
    assert_equal(parse_kernel(broken.text(witness=True)), broken)
    verify_kernel(kernel(good))


def test_rules_of_contents_that_no_text_breaks() -> None:
    found = kernel("r = copy(x[0, 0])  ~ value s[0]")

    def holding(holds: Holds) -> Kernel:
        def change(s: Stmt) -> Stmt:
            return replace(s, holds=holds) if isinstance(s, Compute) else s

        return replace(found, body=map_stmts(found.body, change))

    assert message(holding(Holds("tv9", ()))) == ("there is no definition of 'tv9'", "r = copy(x[0, 0])  ~ value tv9[]")
    assert message(holding(Holds("x", (const(0), const(0)))))[0] == "there is no definition of 'x'"
    assert message(holding(Holds("s", ())))[0] == "the shape of 's' has 1 axes, and 'value s' has 0 indices"
    assert message(holding(Holds("s", (const(0),), Content.TERM)))[0] == "the iteration space of 's' has 2 axes, and 'term s' has 1 indices"
    assert message(holding(Holds("s", (const(0),), Content.PART))) == ("'part' has no index, and 'part s' has 1 indices", "r = copy(x[0, 0])  ~ part s[0]")


def test_every_output_has_a_definition_if_one_tensor_has() -> None:
    found = kernel("PASS")
    kept = tuple(d for d in found.definitions if d.tensor != "y")
    assert message(replace(found, definitions=kept))[0] == "output 'y' has no definition, and others have"
    verify_kernel(replace(found, definitions=()))


def test_the_symbols_of_a_tile_are_no_loop_variables() -> None:
    copy = "COPY y[0, 0] <- acc[0] width 4  ~ value y[0, tile.0] tile (4)"
    broken = kernel(f"FOR tile.0 in 0..4:\n  {copy}")
    assert message(broken)[0].startswith("'tile.0' is not a name: ")
    verify_kernel(kernel(f"FOR tile.x in 0..4:\n  {copy}"))


def test_the_kernel_is_quoted_with_its_witness() -> None:
    with pytest.raises(VerifyError) as caught:
        verify_kernel(kernel("r = copy(x[0, 0])  ~ start p"))
    text = str(caught.value)
    assert "  |   DEFINE s: float32[N] over (N, 4) at (i0) = reduce add of mul(x[i0, i1], alpha) from 0.0" in text
    assert text.endswith("  | r = copy(x[0, 0])  ~ start p\n  | ^ 'p' is not a reduction and no scan, so nothing stands for 'start' of it")


@pytest.mark.parametrize(
    ("table", "names"),
    [(rules.DEFINITION_RULES, ["d", "above"]), (rules.HOLDS_RULES, ["stmt", "holds", "definition", "scope"])],
    ids=["definitions", "contents"],
)
def test_every_rule_is_in_its_table(table: tuple[object, ...], names: list[str]) -> None:
    defined = {f for f in vars(rules).values() if callable(f) and getattr(f, "__module__", "") == rules.__name__ and list(signature(f).parameters) == names}
    assert set(table) == defined
