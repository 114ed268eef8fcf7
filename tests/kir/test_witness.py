"""The witness: its text, what of it is read back, who keeps it, the verifier's rules."""

import pickle
from collections.abc import Iterator
from dataclasses import replace
from inspect import signature
from pathlib import Path

import pytest

import taskfuse.kir.witness_rules as rules
from taskfuse.cli.load import load
from taskfuse.dtypes import bool_, float32, float64
from taskfuse.errors import ParseError, VerifyError
from taskfuse.ir.elementwise import COMBINES, ELEMENTWISE
from taskfuse.ir.scalar import const, ge, lt, sym
from taskfuse.kir import Kernel, held, map_stmts, parse_kernel, specialized, verify_kernel, walk
from taskfuse.kir.forms import RULE_WORDS
from taskfuse.kir.nodes import Compute, Stmt
from taskfuse.kir.operands import Access, Case, Content, Holds, Immediate, IndexOf, ScalarValue, Writer
from taskfuse.kir.scope import Declarations
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Pick, Reduce, Whole
from taskfuse.lowering.state import State
from taskfuse.lowering.steps import Step
from taskfuse.testing.case import seeded_case
from taskfuse.testing.options import Mix

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[a-z]*.py"))
SEEDS = range(40, 48)

DEFINITIONS = """\
  DEFINE whole: float32[N, 4] = copy(x[i0, i1])
  DEFINE s: float32[N] over (N, 4) at (i0) = reduce add of mul(x[i0, i1], alpha) from 0.0
  DEFINE d: float32[N] over (N, 4) at (i0) = reduce maximum of abs.float64(x[i0, i1]) from -inf
  DEFINE t: float32[N, 4] = scan add.float64 along 1 of x[i0, i1]
  DEFINE p: float32[N, 4] = pick(x[i0, i1] if i1 < 2, otherwise 0.5)
  DEFINE q: float32[N, 4] = pick(x[i0, 3 - i1] if i1 < 2, 1.0:float64 if i1 >= 2)
  DEFINE f: float32[N] = find x[i0, v0] at j[i0] of 4
  DEFINE l: bool[N] = lt.int64(index(i0 + N), 3)
  DEFINE one: float32[] = neg(0.5)
  DEFINE w: float32[N, 4] = whole p at (i0, i1), q at (N - i0 - 1, i1)
  DEFINE y: float32[N, 4] = add(s[i0], one[])
"""
HEADER = f"""\
KERNEL k(x: float32[N, 4], j: int32[N], alpha: float32) -> (y: float32[N, 4])
  DIM N
  TENSORMAP map_x = x box (8, 4) swizzle 0
  GRID (N, 1, 1)  BLOCK (32, 1, 1)
  LOCAL r: float32[]
  LOCAL acc: float32[8]
  LOCAL ab: bfloat16[8]
  SHARED b: bfloat16[32, 8] align 128
  SHARED g: float32[8, 4] align 128
  MBARRIER full[1]
{DEFINITIONS}
"""
LINE = HEADER.count("\n") + 1


def kernel(body: str) -> Kernel:
    return parse_kernel(HEADER + body + "\n")


def assert_equal(found: Kernel, wanted: Kernel) -> None:
    """Equal with the witness, and of the same rows of the tables of dtypes and functions."""
    assert found == wanted
    assert found.definitions == wanted.definitions
    assert [held(s) for s in walk(found)] == [held(s) for s in walk(wanted)]
    for a, b in zip(found.definitions, wanted.definitions, strict=True):
        assert rows(a) == rows(b)


def rows(d: Definition) -> list[int]:
    """The identities of the rows that a definition names."""
    match d.rule:
        case Apply(op=op, dtype=dtype):
            found: tuple[object, ...] = (op, dtype)
        case Reduce(combine=combine, body=body, init=init, dtype=dtype):
            found = (combine, body, init.dtype, dtype)
        case Accumulate(combine=combine, dtype=dtype):
            found = (combine, dtype)
        case Pick() | Find() | Whole():
            found = ()
    return [id(row) for row in (d.dtype, *found)]


# -- text -----------------------------------------------------------------------------------------------------------------------------


def test_definitions_are_read() -> None:
    n, i0, i1 = sym("N"), sym("i0"), sym("i1")
    x, four, point = Access("x", (i0, i1)), const(4), (i0, i1)
    zero = Immediate(0.0, float32)
    found = {d.tensor: d for d in kernel("PASS").definitions}
    assert found["whole"] == Definition("whole", float32, (n, four), (n, four), point, Apply(ELEMENTWISE["copy"], (x,), float32))
    assert found["s"] == Definition("s", float32, (n,), (n, four), (i0,), Reduce(COMBINES["add"], ELEMENTWISE["mul"], (x, ScalarValue("alpha")), zero, float32))
    assert found["d"].rule == Reduce(COMBINES["maximum"], ELEMENTWISE["abs"], (x,), Immediate(-float("inf"), float64), float64)
    assert found["t"].rule == Accumulate(COMBINES["add"], x, 1, float64)
    assert found["p"].rule == Pick((Case(lt(i1, 2), x), Case(const(1), Immediate(0.5, float32))))
    assert found["q"].rule == Pick((Case(lt(i1, 2), Access("x", (i0, 3 - i1))), Case(ge(i1, 2), Immediate(1.0, float64))))
    assert found["f"].rule == Find(Access("x", (i0, sym("v0"))), (Access("j", (i0,)),), (four,))
    assert found["l"].dtype is bool_
    assert isinstance(found["l"].rule, Apply)
    assert found["l"].rule.operands[0] == IndexOf(i0 + n)
    assert found["one"].shape == found["one"].place == ()
    assert found["w"].rule == Whole(("p", "q"), (point, (n - i0 - 1, i1)))
    assert isinstance(found["y"].rule, Apply)
    assert found["y"].rule.operands[1] == Access("one", ())


def test_the_text_is_printed_as_it_was_read() -> None:
    body = "y[blockIdx.x, 0] = copy(r)  ~ value y[blockIdx.x, 0]"
    found = kernel(body)
    assert found.text(witness=True) == f"{HEADER}{body}"
    assert str(found) == (HEADER.replace(DEFINITIONS, "") + body).replace(f"  ~ {body.partition('  ~ ')[2]}", "")
    plain = parse_kernel(str(found))
    assert plain == found
    assert (plain.definitions, [held(s) for s in walk(plain)]) == ((), [None])


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
        ("COMMIT copy ~ value s[0]", 13, "what a statement's results stand for is said behind one that writes elements, and this one writes none"),
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


# -- lowered kernels ------------------------------------------------------------------------------------------------------------------


def lowered(mix: Mix) -> Iterator[tuple[Kernel, dict[str, int]]]:
    for seed in SEEDS:
        case = seeded_case(seed, mix)
        if case.kernel is not None:
            yield case.kernel, case.sizes


@pytest.mark.parametrize("mix", Mix, ids=lambda m: m.value)
def test_random_kernels_are_read_back(mix: Mix) -> None:
    kernels = 0
    for found, sizes in lowered(mix):
        fixed = specialized(found, sizes)
        for k in (found, fixed):
            assert k.definitions
            assert_equal(parse_kernel(k.text(witness=True)), k)
            assert rules.definition_problem(Declarations.of(k)) is None
        verify_kernel(found)
        assert not any(e.free & sizes.keys() for d in fixed.definitions for e in (*d.shape, *d.space, *d.place))
        assert_equal(pickle.loads(pickle.dumps(found)), found)
        kernels += 1
    assert kernels >= 3


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_are_read_back(path: Path) -> None:
    for program in load(str(path)):
        found = program.kernel()
        assert found.definitions
        assert_equal(parse_kernel(found.text(witness=True)), found)
        assert_equal(pickle.loads(pickle.dumps(found)), found)


def test_every_pass_keeps_what_every_statement_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def checked(step: Step, state: State) -> None:
        definitions = state.kernel.definitions if hasattr(state, "kernel") else None
        step.change(state)
        if not hasattr(state, "kernel"):
            return
        writers = [s for s in walk(state.kernel) if isinstance(s, Writer)]
        assert all(s.holds is not None for s in writers)
        assert definitions is None or state.kernel.definitions is definitions
        verify_kernel(state.kernel)
        seen.append(len(writers))

    monkeypatch.setattr(Step, "run", checked)
    for path in EXAMPLES:
        for program in load(str(path)):
            program.kernel()
    for mix in Mix:
        for seed in SEEDS:
            seeded_case(seed, mix)
    assert len(seen) > 3 * 60


# -- rules ----------------------------------------------------------------------------------------------------------------------------


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
        "'threadIdx.x' is not a name: a name is letters, digits and _, in parts joined by dots, no word of the grammar, no index and no symbol of a cursor",
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
        "'i2' means nothing in the definition of 'z', whose iteration space has 2 axes",
        "z: float32[4] over (N, 4) at (i1) = reduce add of neg(0.5) from 0.0",
    ),
    ("z: float32[4] over (4) at (3 - i0) = neg(0.5)", "'z' is not a reduction: its iteration space is its shape", "z: float32[4] = neg(0.5)"),
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
    ("z: float32[N] = copy(x[i0, i1])", "'i1' means nothing in the definition of 'z', whose iteration space has 1 axes", "z: float32[N] = copy(x[i0, 3])"),
    (
        "z: int64[N] = copy(index(threadIdx.x))",
        "'threadIdx.x' means nothing in the definition of 'z', whose iteration space has 1 axes",
        "z: int64[N] = copy(index(i0))",
    ),
    (
        "z: float32[N] = copy(x[v0, 0])",
        "'v0' means nothing in the definition of 'z', whose iteration space has 1 axes",
        "z: float32[N] = find x[v0, 0] at j[i0] of N",
    ),
    (
        "z: float32[N] = pick(0.5 if i1 < 2, otherwise 1.0)",
        "'i1' means nothing in the definition of 'z', whose iteration space has 1 axes",
        "z: float32[N] = pick(0.5 if i0 < 2, otherwise 1.0)",
    ),
    (
        "z: float32[N] = find x[i0, v1] at j[i0] of 4",
        "'v1' means nothing in the definition of 'z', whose iteration space has 1 axes",
        "z: float32[N] = find x[i0, v0] at j[i0] of 4",
    ),
    (
        "z: float32[N] = find x[i0, v0] at s[i0] of 4",
        "an index is an integer of at most 64 bits with a sign, and 's' is float32",
        "z: float32[N] = find x[i0, v0] at j[i0] of 4",
    ),
    ("z: float32[N, 4] = whole p at (i0)", "'z' has 2 axes, and the place of 'p' in it 1 indices", "z: float32[N, 4] = whole p at (i0, 3 - i1)"),
    (
        "z: float32[N, 4] = whole p at (i0, i2)",
        "'i2' means nothing in the place of 'p', which has 2 axes",
        "z: float32[N, 4] = whole p at (i0, i1), q at (i0, i1)",
    ),
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
    assert message(changed("w", rule=Whole(("p", "q"), ())))[0] == "'w' is made of 2 parts at 0 places"
    assert message(changed("w", rule=Whole(("t9",), ((sym("i0"), sym("i1")),))))[0] == "there is no input, or tensor that is defined above, 't9'"
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
        "a product of matrices adds terms: it stands for 'term', not for 'value'",
        f"{PRODUCT}term s[tile.0 + tile.1, tile.2] tile (16, 8, 16)",
    ),
    ("SHUFFLE r <- r xor 1  ~ term s[0, 0]", "this adds nothing to what was there, so it stands for no 'term'", "r = add(r, x[0, 0])  ~ term s[0, 0]"),
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
    assert message(broken) == ("'tile.0' numbers the elements of a tile, and already means something here", copy)
    verify_kernel(kernel(f"FOR tile.1 in 0..4:\n  {copy}"))


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
