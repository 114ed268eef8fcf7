"""Rules of statements in general: a line that breaks one, with the message, and one that does not."""

import pytest

from taskfuse.errors import VerifyError
from taskfuse.ir.scalar import const
from taskfuse.ir.types import ParallelType
from taskfuse.kir import parse_kernel, verify_kernel
from taskfuse.kir.declaration_rules import NO_NAME
from taskfuse.kir.nodes import Bind, Choose, If, Stmt
from taskfuse.kir.synchronization import Barrier, BarrierScope
from tests.kir.refused import WGMMA, body_of, is_refused, kernel, message

# bad line, message, good line
STATEMENTS = [
    # names and scopes
    ("acc[i] = neg(b[0])", "'i' is not in scope", "acc[3] = neg(b[0])"),
    ("r = neg(b[i])", "'i' is not in scope", "FOR i in 0..S:\n  r = neg(b[i])"),
    ("FOR i in i..4:\n  PASS", "'i' is not in scope", "FOR i in 0..4:\n  PASS"),
    ("IF i < 3:\n  PASS", "'i' is not in scope", "IF N < 3:\n  PASS"),
    ("p.advance(1)", "cursor 'p' is not initialized here", "p = CURSOR(slots 2, slot 0, parity 0)\np.advance(1)"),
    ("WAIT full[p.slot] parity 0", "cursor 'p' is not initialized here", "p = CURSOR(slots 2, slot 0, parity 0)\nWAIT full[p.slot] parity p.parity"),
    (
        "IF N < 3:\n  p = CURSOR(slots 2, slot 0, parity 0)\nWAIT full[p.slot] parity 0",
        "cursor 'p' is not initialized here",
        "FOR threadIdx.y in TIDy{4}:\n  p = CURSOR(slots 2, slot 0, parity 0)\nWAIT full[p.slot] parity 0",
    ),
    # accesses
    ("r = neg(x[0])", "'x' has 2 axes, the access 1 indices", "r = neg(x[0, 0])"),
    ("f[-1] = neg(r)", "index -1 is outside axis 0 of 'f', whose extent is S", "f[S - 1] = neg(r)"),
    ("acc[64] = neg(r)", "index 64 is outside axis 0 of 'acc', whose extent is 64", "acc[63] = neg(r)"),
    ("COPY.async f[0] <- b[-1] width 1 if N > 0", "index -1 is outside axis 0 of 'b', whose extent is S", "COPY.async f[0] <- b[-1] width 1 if 0"),
    ("ARRIVE full[2]", "slot 2 is outside the 2 slots of mbarrier 'full'", "ARRIVE full[1]"),
    (
        "FOR i in 0..4:\n  acc[i] = neg(r)",
        "index i of Local 'acc' is not a constant after unrolling: 'i' is not the variable of an unrolled loop",
        "FOR i in 0..4 UNROLL:\n  acc[2*i + 1] = neg(r)",
    ),
    (
        "p = CURSOR(slots 2, slot 0, parity 0)\nacc[p.slot] = neg(r)",
        "index p.slot of Local 'acc' is not a constant after unrolling: 'p.slot' is not the variable of an unrolled loop",
        "p = CURSOR(slots 2, slot 0, parity 0)\ns[p.slot, 0, 0] = neg(r)",
    ),
    ("x[0, 0] = neg(r)", "input 'x' is written", "y[0, 0] = neg(r)"),
    ("TMA map_x(0, 0) <- s[0, 0, 0]", "input 'x' is written", "TMA map_y(0, 0) <- s[0, 0, 0]"),
    # conditions and loops
    ("IF N:\n  PASS", "the condition N is not a boolean", "IF N != 0:\n  PASS"),
    ("r = cat(b[0] if S, otherwise 0.0)", "the condition S is not a boolean", "r = cat(b[0] if S > 0, otherwise 0.0)"),
    (WGMMA.replace("accumulate 0", "accumulate N"), "the condition N is not a boolean", WGMMA.replace("accumulate 0", "accumulate N > 0")),
    ("FOR N in 0..4:\n  PASS", "the loop variable 'N' is already defined here", "FOR n in 0..4:\n  PASS"),
    (
        "FOR i in 0..4:\n  FOR i in 0..4:\n    PASS",
        "the loop variable 'i' is already defined here",
        "FOR i in 0..4:\n  PASS\nFOR i in 0..4:\n  PASS",
    ),
    ("FOR i in 0..4 step 0:\n  PASS", "the step 0 is not positive", "FOR i in 0..4 step N:\n  PASS"),
    (
        "FOR i in 0..N UNROLL:\n  PASS",
        "the unrolled loop's bound N is not a constant",
        "FOR i in 0..4 UNROLL:\n  FOR j in i..4 UNROLL:\n    PASS",
    ),
    # computations
    ("r = add(b[0])", "add takes 2 operands, not 1", "r = add(b[0], 1.0)"),
    ("r = sin.int32(b[0])", "sin does not compute in int32", "r = sin.float64(b[0])"),
    ("r = neg.bool(b[0])", "neg does not compute in bool", "r = abs.bool(b[0])"),
    ("r = bitwise_not(b[0])", "bitwise_not does not compute in float32", "r = bitwise_not.int32(b[0])"),
    ("r = left_shift.bool(b[0], true)", "left_shift does not compute in bool", "r = left_shift.uint8(b[0], 1)"),
    ("r = copy.int8(300)", "300 is not a value of int8", "r = copy.int8(100)"),
    ("r = cat(0.5:int32 if N < 3, otherwise 0.0)", "0.5 is not a value of int32", "r = cat(5:int32 if N < 3, otherwise 0.0)"),
    ("COPY.async f[0] <- b[0] width 4 if N", "the condition N is not a boolean", "COPY.async f[0] <- b[0] width 4 if N > 0"),
    ("FOR threadIdx.w in 0..4:\n  PASS", NO_NAME.format("threadIdx.w"), "FOR w.threadIdx in 0..4:\n  PASS"),
    ("FOR min in 0..4:\n  PASS", NO_NAME.format("min"), "FOR minimum in 0..4:\n  PASS"),
    (
        "FOR p.slot in 0..4:\n  PASS\np = CURSOR(slots 2, slot 0, parity 0)",
        NO_NAME.format("p.slot"),
        "FOR n.slot in 0..4:\n  PASS\np = CURSOR(slots 2, slot 0, parity 0)",
    ),
    (
        "FOR p in 0..4:\n  PASS\np = CURSOR(slots 2, slot 0, parity 0)",
        "the loop variable 'p' is already defined here",
        "FOR n in 0..4:\n  PASS\np = CURSOR(slots 2, slot 0, parity 0)",
    ),
    (
        "p = CURSOR(slots 2, slot 0, parity 0)\nFOR n in 0..p.slot:\n  p.advance(1)",
        "the loop moves the cursor 'p', on which its own bounds depend",
        "p = CURSOR(slots 2, slot 0, parity 0)\nFOR n in 0..p.slot:\n  PASS\np.advance(1)",
    ),
    (
        "FOR i in 0..4:\n  SHUFFLE acc[i] <- r xor 8",
        "index i of Local 'acc' is not a constant after unrolling: 'i' is not the variable of an unrolled loop",
        "FOR i in 0..4 UNROLL:\n  SHUFFLE acc[i] <- r xor 8",
    ),
]


@pytest.mark.parametrize(("bad", "text", "good"), STATEMENTS, ids=[s[1][:40] for s in STATEMENTS])
def test_statement_rules(bad: str, text: str, good: str) -> None:
    is_refused(bad, text, good)


NODES = [
    (If(()), "an IF without branches"),
    (Barrier(BarrierScope.NAMED, const(64)), "a named barrier without an id"),
    (Barrier(BarrierScope.GRID, const(64)), "a grid barrier without a counter"),
    (Barrier(BarrierScope.GRID, const(64), counter="gone"), "there is no counter 'gone'"),
    (Barrier(BarrierScope.WARP, const(32), id=const(1)), "a warp barrier has no id"),
    (Barrier(BarrierScope.BLOCK, const(128), counter="done"), "a block barrier has no counter"),
    (Bind(const(0), ParallelType.Serial, const(1), ()), "Serial is not a block or thread type"),
]


@pytest.mark.parametrize(("stmt", "text"), NODES, ids=[n[1] for n in NODES])
def test_nodes_that_text_cannot_say(stmt: Stmt, text: str) -> None:
    found = body_of(stmt)
    with pytest.raises(VerifyError) as caught:
        verify_kernel(found)
    assert str(caught.value).startswith(f"kernel 'k': {text}\n")


def test_undeclared_names() -> None:
    other = parse_kernel(
        """\
KERNEL k(q: float32[4], beta: float32, z: float32[4, 4]) -> (t: float32[4])
  TENSORMAP map_z = z box (4, 4) swizzle 0
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL r: float32[]
  LOCAL acc: float32[64]
  SHARED s: float32[2, 64, 64] align 1024
  MBARRIER gone[1], full[2]

r = neg(q[0])
r = neg(beta)
ARRIVE gone[0]
TMA s[0, 0, 0] <- map_z(0, 0) on full[0]
acc[0] = cat(q[0] if threadIdx.x < 1, otherwise 0.0)"""
    )
    texts = [
        "there is no buffer or tensor 'q'",
        "there is no scalar argument 'beta'",
        "there is no mbarrier 'gone'",
        "there is no tensor map 'map_z'",
        "there is no buffer or tensor 'q'",
    ]
    for stmt, text in zip(other.body, texts, strict=True):
        assert message(body_of(stmt))[0] == text


def test_a_choice_has_cases() -> None:
    stmt = kernel("r = cat(b[0] if N < 1, otherwise 0.0)").body[0]
    assert isinstance(stmt, Choose)
    assert message(body_of(Choose(stmt.out, "cat", ())))[0] == "a choice without cases"
    verify_kernel(body_of(stmt))


@pytest.mark.parametrize(("most", "is_fine"), [(0, True), (1, False)])
def test_of_an_extent_that_is_zero_nothing_is_accessed(most: int, is_fine: bool) -> None:
    """Also where a symbol may only have this value."""
    text = f"""\
KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N min 0 max {most}
  GRID (1, 1, 1)  BLOCK (1, 1, 1)

FOR i in 0..N:
  y[i] = neg(x[-1])
"""
    if is_fine:
        parse_kernel(text).check_ir()
    else:
        with pytest.raises(VerifyError, match="index -1 is outside axis 0 of 'x', whose extent is N"):
            parse_kernel(text).check_ir()
