"""Indices stay inside their extents, or the obligation names the one that may not."""

import pytest

from taskfuse.check.bounds import at_least, inside, row_major_size, touched
from taskfuse.ir.scalar import parse_expr, sym
from taskfuse.kir.nodes import Compute
from taskfuse.reports.certificate import Verdict
from tests.check.structured import nodes, structure


def open_ones(body: str) -> list[tuple[str, str]]:
    return [(o.subject, o.reason) for o in inside(structure(body).tree) if o.verdict is not Verdict.PROVED]


TILES = """\
FOR i in 0..2*ceildiv(N, 4) + 1:
  IF i < 2*ceildiv(N, 4) && threadIdx.x < 32:
    s[0, 32*((i % 8)//min(ceildiv(N, 4) - 4*(i//8), 4)) + threadIdx.x] = copy(1.0)"""
"""The columns of tiles that stand in groups of four rows, in a loop with an iteration more."""


@pytest.mark.parametrize(
    "body",
    [
        "y[0, threadIdx.x] = copy(x[0, threadIdx.x])",
        "s[blockIdx.x, 63 - threadIdx.x] = copy(1.0)",
        "FOR i in 0..N:\n  y[N - 1 - i, 0] = copy(x[i, 0])",
        "IF threadIdx.x < N:\n  y[threadIdx.x, 0] = copy(1.0)",
        "FOR i in 0..N:\n  y[i, 0] = copy(x[i, 0])",
        "FOR i in 0..N:\n  s[i % 4, 0] = copy(1.0)",
        "s[xor(blockIdx.x, 3), xor(threadIdx.x, blockIdx.x)] = copy(1.0)",
        TILES,
        "IF threadIdx.x % (blockIdx.x + 1) < N:\n  y[threadIdx.x % (blockIdx.x + 1), 0] = copy(1.0)",
    ],
)
def test_inside(body: str) -> None:
    assert open_ones(body) == []


@pytest.mark.parametrize(
    ("body", "subject", "reason"),
    [
        ("y[0, threadIdx.x + 1] = copy(1.0)", "y[0, threadIdx.x + 1]", "index threadIdx.x + 1 of axis 1 is not known to be in 0..64"),
        ("y[threadIdx.x, 0] = copy(1.0)", "y[threadIdx.x, 0]", "index threadIdx.x of axis 0 is not known to be in 0..N"),
        ("r[threadIdx.x // 16 - 1] = copy(1.0)", "r[threadIdx.x//16 - 1]", "index threadIdx.x//16 - 1 of axis 0 is not known to be in 0..4"),
        ("FOR i in 0..N:\n  y[N - i, 0] = copy(1.0)", "y[N - i, 0]", "index N - i of axis 0 is not known to be in 0..N"),
        ("FOR i in 0..N + 1:\n  y[i, 0] = copy(1.0)", "y[i, 0]", "index i of axis 0 is not known to be in 0..N"),
        ("s[xor(blockIdx.x, 4), 0] = copy(1.0)", "s[xor(blockIdx.x, 4), 0]", "index xor(blockIdx.x, 4) of axis 0 is not known to be in 0..4"),
    ],
)
def test_outside(body: str, subject: str, reason: str) -> None:
    assert [(s.replace(" ", ""), r.replace(" ", "")) for s, r in open_ones(body)] == [(subject.replace(" ", ""), reason.replace(" ", ""))]


@pytest.mark.parametrize(("old", "new"), [("i < 2*", "i < 3*"), ("threadIdx.x < 32", "threadIdx.x < 33"), ("(N, 4) && ", "(N, 4) + 1 && ")])
def test_tiles_outside(old: str, new: str) -> None:
    assert TILES.count(old) == 1
    assert open_ones(TILES.replace(old, new))


def test_accesses_that_never_happen_are_no_faults() -> None:
    assert open_ones("IF threadIdx.x > 70:\n  s[9, 0] = copy(1.0)") == []


def test_all_of_them_are_one_obligation_with_their_number() -> None:
    (found,) = inside(structure("s[0, 0] = add(s[1, 0], s[2, 0])").tree)
    assert (found.verdict, found.subject) == (Verdict.PROVED, "bounds")
    assert found.reason == "3 accesses stay inside their extents"


def test_the_last_element_of_a_vector_counts() -> None:
    assert open_ones("COPY r[0] <- x[0, 60] width 4") == []
    assert open_ones("COPY r[0] <- x[0, 61] width 4") == [("x[0, 61]", "index 64 of axis 1 is not known to be in 0..64")]


@pytest.mark.parametrize(
    ("text", "low", "expected"),
    [
        ("N", 1, True),
        ("N", 2, False),
        ("N*N", 1, True),
        ("(N + 7)//8", 1, True),
        ("N//2", 1, False),
        ("xor(threadIdx.x, 3)", 0, True),
        ("threadIdx.x - 1", 0, False),
    ],
)
def test_least_values(text: str, low: int, expected: bool) -> None:
    assert at_least(parse_expr(text), low, structure("s[0, 0] = copy(1.0)").tree.root.context) is expected


def test_sizes() -> None:
    assert row_major_size(()) == parse_expr("1")
    assert row_major_size((sym("N"), parse_expr("4"))) is parse_expr("4*N")


def test_a_statement_touches_what_it_reads_and_writes() -> None:
    (node,) = nodes(structure("s[0, 1] = add(s[1, 0], 2.0)"), Compute)
    assert [(str(a.index[0]), str(a.index[1]), width) for a, width, _ in touched(node)] == [("1", "0", 1), ("0", "1", 1)]
