"""Operands: what a statement reads is what its tensor's definition takes, in its order unless the function is commutative."""

import pytest

from tests.check.values.written import unproved

ONE = """\
KERNEL k(a: float32[N], b: float32[N]) -> (y: float32[N])
  DIM N
  GRID (N, 1, 1)  BLOCK (1, 1, 1)
  DEFINE y: float32[N] = {}

y[blockIdx.x] = {}  ~ value y[blockIdx.x]
"""
COPIED = """\
KERNEL k(a: float32[N]) -> (y: float32[N])
  DIM N multiple_of 4
  GRID (N // 4, 1, 1)  BLOCK (1, 1, 1)
  DEFINE y: float32[N] = {}

COPY y[4*blockIdx.x] <- {} width 4  ~ value y[4*blockIdx.x + tile.0] tile (4)
"""


@pytest.mark.parametrize(
    ("definition", "statement"),
    [
        ("sub(a[i0], b[i0])", "sub(a[blockIdx.x], b[blockIdx.x])"),
        ("add(a[i0], b[i0])", "add(b[blockIdx.x], a[blockIdx.x])"),
        ("where(index(i0 < 4), a[i0], 2.0)", "where(index(blockIdx.x <= 3), a[blockIdx.x], 2.0)"),
    ],
)
def test_operands_of_the_definition(definition: str, statement: str) -> None:
    assert unproved(ONE.format(definition, statement)) == []


@pytest.mark.parametrize(
    ("definition", "statement", "reason"),
    [
        ("sub(a[i0], b[i0])", "sub(b[blockIdx.x], a[blockIdx.x])", "it reads b where a is wanted"),
        ("add(a[i0], 1.0)", "add(a[blockIdx.x], 2.0)", "an operand is another than its definition's"),
        ("add(a[i0], -0.0)", "add(a[blockIdx.x], 0.0)", "an operand is another than its definition's"),
        ("add(a[i0], b[i0])", "add(a[blockIdx.x], a[blockIdx.x])", "it reads a where b is wanted"),
        ("where(index(i0 < 4), a[i0], 2.0)", "where(index(blockIdx.x < 3), a[blockIdx.x], 2.0)", "it takes the index"),
    ],
)
def test_other_operands(definition: str, statement: str, reason: str) -> None:
    found = unproved(ONE.format(definition, statement))
    assert any(reason in r for r in found), found


def test_copies() -> None:
    assert unproved(COPIED.format("copy(a[i0])", "a[4*blockIdx.x]")) == []


@pytest.mark.parametrize(
    ("definition", "source", "reason"),
    [
        ("copy(a[i0])", "a[N - 4 - 4*blockIdx.x]", "where 4*blockIdx.x + tile.0 is wanted"),
        ("neg(a[i0])", "a[4*blockIdx.x]", "it is a copy, and y is neg"),
        ("copy(1.0)", "a[4*blockIdx.x]", "it is a copy, and y is copy"),
    ],
)
def test_copies_of_something_else(definition: str, source: str, reason: str) -> None:
    found = unproved(COPIED.format(definition, source))
    assert any(reason in r for r in found), found
