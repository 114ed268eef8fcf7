"""Samples of what is known: a condition that fails at one does not follow; one that follows fails at none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.check import Verdict, verify
from taskfuse.check.constraints import Constraints
from taskfuse.check.samples import fails
from taskfuse.check.statement_tree import Node, StatementTree
from taskfuse.ir.scalar import parse_expr, prove
from taskfuse.kir import parse_kernel
from taskfuse.kir.nodes import Compute

TEXT = """KERNEL k(x: float32[M, N]) -> (y: float32[M, N])
  DIM M min 1, N multiple_of 8 min 1
  GRID (ceildiv(M, 4), 1, 1)  BLOCK (32, 4, 1)

IF 4*blockIdx.x + threadIdx.y < M:
  FOR i in 0..ceildiv(N, 32):
    IF 32*i + threadIdx.x < N:
      y[4*blockIdx.x + threadIdx.y, 32*i + threadIdx.x] = neg(x[4*blockIdx.x + threadIdx.y, 32*i + threadIdx.x])
"""


def inside() -> Constraints:
    (node,) = (n for n in StatementTree.of(parse_kernel(TEXT)).leaves() if isinstance(n.stmt, Compute))
    assert isinstance(node, Node)
    return node.context.constraints


HOLD = ("32*i + threadIdx.x < N", "4*blockIdx.x < M", "N % 8 == 0", "threadIdx.y < 4", "i*32 < N", "N >= 8", "M >= 1", "4*blockIdx.x + threadIdx.y < M")
SMALL, LARGE = st.sampled_from(["i", "threadIdx.x", "blockIdx.x"]), st.sampled_from(["M", "N", "threadIdx.y"])
FAIL = ("32*i + 31 < N", "4*blockIdx.x + 3 < M", "N % 16 == 0", "threadIdx.y < 3", "i == 0", "N >= 16", "M >= 2", "threadIdx.x == threadIdx.y")


@pytest.mark.parametrize("text", HOLD)
def test_what_follows_fails_nowhere(text: str) -> None:
    assert not fails(inside(), parse_expr(text))


@pytest.mark.parametrize("text", FAIL)
def test_what_does_not_follow_fails_at_a_sample(text: str) -> None:
    assert fails(inside(), parse_expr(text))


@pytest.mark.parametrize(("text", "expected"), [("other < 3", True), ("other % 4 < M + 4", False), ("M//(other*other) <= M", False), ("other == N", True)])
def test_a_symbol_of_which_nothing_is_known_may_be_any_integer(text: str, expected: bool) -> None:
    assert fails(inside(), parse_expr(text)) is expected


@pytest.mark.parametrize(
    ("text", "expected"), [("clamp(a[i of N], 0, 4) < 3", True), ("clamp(a[i of N], 0, 4) < 5", False), ("upper_bound(a[k of 9]//1, i, 0, 9) < 7", True)]
)
def test_tables(text: str, expected: bool) -> None:
    assert fails(inside(), parse_expr(text)) is expected


def test_a_condition_that_has_no_value_does_not_follow() -> None:
    assert fails(inside(), parse_expr("M < 5//0"))


def test_contradictions_have_no_samples() -> None:
    assert not fails(inside().given(parse_expr("threadIdx.x < 0")), parse_expr("M < 0"))


@given(st.integers(-3, 3), st.integers(-33, 33), SMALL, st.integers(-9, 9), LARGE)
@settings(max_examples=60)
def test_what_is_proved_fails_at_no_sample(k: int, m: int, a: str, n: int, b: str) -> None:
    constraints, condition = inside(), parse_expr(f"{k}*{a} + {m} < {n}*{b}")
    assert not (fails(constraints, condition) and prove(condition, constraints.facts))


@pytest.mark.parametrize("part", ["ceildiv(M, 4)", "0..ceildiv(N, 32)", "32*i + threadIdx.x < N", "4*blockIdx.x + threadIdx.y < M", "32*i + threadIdx.x]"])
@pytest.mark.parametrize("without_value", ["M//0", "(M - 1) % 0"])
def test_an_assumption_that_has_no_value_has_no_samples(part: str, without_value: str) -> None:
    other = "0.." * part.startswith("0.") + without_value + " < N" * ("<" in part) + "]" * part.endswith("]")
    assert part in TEXT
    assert verify(parse_kernel(TEXT.replace(part, other))).verdict is not Verdict.PROVED
