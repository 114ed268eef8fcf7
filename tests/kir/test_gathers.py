"""Gathers in kernel text: rules, text, simulation, proof."""

import numpy as np
import pytest

from taskfuse.check import Verdict
from taskfuse.errors import ParseError, VerifyError
from taskfuse.ir.scalar import sym
from taskfuse.kir import parse_kernel, verify_kernel
from taskfuse.kir.nodes import GatherCopy
from taskfuse.kir.operands import Access, GatherValue
from taskfuse.kir.walk import accesses, expressions, map_expressions, own_symbols
from tests.sim.kernels import INTERLEAVINGS, X, error, kernel, run_all

INPUTS = "x: float32[32], i: int32[32], u: uint64[32], h: bfloat16[32]"
LOCALS = ("LOCAL r: float32[]", "LOCAL q: float32[4]", "SHARED s: float32[32] align 16")
INDICES = np.array([0, 31, -1, -32, 32, -33, 7, 2**31 - 1] * 4, np.int32)


GOOD = "GATHER r <- x[v] at v = i[0] of 32"


@pytest.mark.parametrize(
    ("bad", "text", "good"),
    [
        ("GATHER r <- x[v] at v = x[0] of 32", "a value of a gather is an integer of at most 64 bits with a sign, and 'x' is float32", GOOD),
        ("GATHER r <- x[v] at v = u[0] of 32", "a value of a gather is an integer of at most 64 bits with a sign, and 'u' is uint64", GOOD),
        ("GATHER r <- x[w] at v = i[0] of 32", "'w' is not in scope", "GATHER r <- x[v + 0*threadIdx.x] at v = i[0] of 32"),
        ("GATHER s[v] <- x[v] at v = i[0] of 32", "'v' is used outside the index that is read", "GATHER s[3] <- x[v] at v = i[0] of 32"),
        (
            "GATHER r <- x[v] at v = i[0] of 32, w = i[v] of 32",
            "'v' is used outside the index that is read",
            "GATHER r <- x[v] at v = i[0] of 32, w = i[1] of 32",
        ),
        ("GATHER r <- x[v] at v = i[0] of 32, v = i[1] of 32", "the symbol 'v' is already defined here", GOOD),
        (
            "FOR v in 0..4:\n  GATHER r <- x[v] at v = i[0] of 32",
            "the symbol 'v' is already defined here",
            "FOR w in 0..4:\n  GATHER r <- x[v] at v = i[w] of 32",
        ),
        ("GATHER r <- h[v] at v = i[0] of 32", "a gather does not convert: 'r' is float32, 'h' is bfloat16", GOOD),
        (
            "GATHER q[0] <- x[v] width 4 at v = i[0] of 32",
            "a gather of vectors needs a last axis on both sides, at an index without values",
            "GATHER q[0] <- x[v] at v = i[0] of 32",
        ),
        (
            "GATHER q[0] <- x[0] width 3 at v = i[0] of 32",
            "a vector of 3 float32: widths are 2, 4, 8 and 16, and at most 16 bytes",
            "GATHER q[0] <- x[0] width 4 at v = i[0] of 32",
        ),
        (
            "GATHER r <- q[v] at v = i[0] of 4",
            "index v of Local 'q' is not a constant after unrolling: 'v' is not the variable of an unrolled loop",
            "GATHER r <- s[v] at v = i[0] of 4",
        ),
        ("GATHER r <- x[v, 0] at v = i[0] of 32", "'x' has 1 axes, the access 2 indices", "GATHER r <- x[31 - v] at v = i[0] of 32"),
        ("GATHER x[0] <- x[v] at v = i[0] of 32", "input 'x' is written", "GATHER y[0] <- x[v] at v = i[0] of 32"),
    ],
)
def test_rules(bad: str, text: str, good: str) -> None:
    broken = kernel(bad, *LOCALS, inputs=INPUTS)
    assert parse_kernel(str(broken)) == broken
    with pytest.raises(VerifyError) as caught:
        verify_kernel(broken)
    assert text in str(caught.value).split("\n")[0]
    fine = kernel(good, *LOCALS, inputs=INPUTS)
    assert parse_kernel(str(fine)) == fine
    verify_kernel(fine)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("GATHER r <- x[v]", "expected 'at', found end of line"),
        ("GATHER r <- x[v] at v i[0] of 32", "expected '=', found 'i'"),
        ("GATHER r <- x[v] at v = i[0]", "expected 'of', found end of line"),
        ("GATHER r <- x[v] at IF = i[0] of 32", "'IF' is a word of the grammar, not a name"),
        ("GATHER r <- x[v] at v = z[0] of 32", "there is no buffer or argument 'z'"),
    ],
)
def test_what_is_no_gather(line: str, text: str) -> None:
    with pytest.raises(ParseError) as caught:
        kernel(line, *LOCALS, inputs=INPUTS)
    assert text in str(caught.value)


def test_walk() -> None:
    (stmt,) = kernel("GATHER y[threadIdx.x] <- x[2*v + n] at v = i[threadIdx.x] of N", "DIM N, n", inputs=INPUTS).body
    assert isinstance(stmt, GatherCopy)
    assert [a.buffer for side in accesses(stmt) for a in side] == ["y", "x", "i"]
    assert [str(e) for e in expressions(stmt)] == ["threadIdx.x", "n + 2*v", "threadIdx.x", "N"]
    assert own_symbols(stmt) == {"v": sym("N")}
    moved = map_expressions(stmt, lambda e: e + 1)
    assert isinstance(moved, GatherCopy)
    assert moved.values == (GatherValue("v", Access("i", (sym("threadIdx.x") + 1,)), sym("N") + 1),)


def test_values_wrap_and_outside_is_zero() -> None:
    k = kernel("GATHER y[threadIdx.x] <- x[v] at v = i[threadIdx.x] of 32", inputs="x: float32[32], i: int32[32]")
    x = X + 1
    expected = np.where((INDICES >= -32) & (INDICES < 32), x[INDICES % 32], 0)
    run_all(k, (x, INDICES), expected)
    assert k.verify().verdict is Verdict.PROVED


def test_two_values() -> None:
    k = kernel("GATHER y[threadIdx.x] <- x[v, w] at v = i[threadIdx.x] of 4, w = j[0] of 8", inputs="x: float32[4, 8], i: int8[32], j: int64[1]")
    x, i = X.reshape(4, 8) + 1, (np.arange(32) % 6 - 1).astype(np.int8)
    run_all(k, (x, i, np.array([-3])), np.where(i < 4, x[i % 4, 5], 0))


@pytest.mark.parametrize("interleaving", INTERLEAVINGS[:2])
def test_what_is_read_is_checked(interleaving: object) -> None:
    inputs = "x: float32[32], i: int32[32]"
    args = (X, np.arange(32, dtype=np.int32))
    beyond = kernel("GATHER y[threadIdx.x] <- x[v] at v = i[threadIdx.x] of 40", inputs=inputs)
    assert "input 'x' accessed out of bounds" in error(beyond, (X, np.full(32, 35, np.int32)), interleaving=interleaving)
    certificate = beyond.verify()
    assert not certificate.is_proved
    assert "index v of axis 0 is not known to be in 0..32" in str(certificate)
    poisoned = kernel("GATHER y[threadIdx.x] <- s[v] at v = i[threadIdx.x] of 32", LOCALS[2], inputs=inputs)
    assert "read of uninitialized Shared 's'" in error(poisoned, args, interleaving=interleaving)


def test_a_table_in_shared_memory_needs_a_barrier() -> None:
    text = "s[threadIdx.x] = copy(x[threadIdx.x])\nSYNC block\nGATHER y[threadIdx.x] <- s[v] at v = i[threadIdx.x] of 32"
    inputs = "x: float32[32], i: int32[32]"
    assert kernel(text, LOCALS[2], inputs=inputs).verify().verdict is Verdict.PROVED
    broken = kernel(text.replace("SYNC block\n", ""), LOCALS[2], inputs=inputs).verify()
    assert broken.verdict is Verdict.OUTSIDE
    assert "s[..]" in str(broken)


def test_vectors_are_aligned() -> None:
    text = "GATHER q[0] <- x[v, 2*n] width 4 at v = i[threadIdx.x] of 4\ny[threadIdx.x] = copy(q[3])"
    k = kernel(text, "DIM n", LOCALS[1], inputs="x: float32[4, 8], i: int32[32], o: int8[n]")
    x = X.reshape(4, 8)
    i = (np.arange(32) % 5).astype(np.int32)
    run_all(k, (x, i, np.zeros(2, np.int8)), np.where(i < 4, x[i % 4, 7], 0))
    assert "access of 16 bytes to input 'x' at an address that is not a multiple of 16" in error(k, (x, i, np.zeros(1, np.int8)))
