"""What is asked, and of what: questions under what bears on them, equations, cuts, overlapping rows of buffers, conditions that always hold."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.check.accesses import overlapping
from taskfuse.check.barriers import Barriers
from taskfuse.check.linear import Linear
from taskfuse.check.paths import SyncPoints
from taskfuse.check.statement_tree import Node, StatementTree
from taskfuse.check.threads import Threads
from taskfuse.ir.scalar import Expr, evaluate, parse_expr, to_text
from taskfuse.kir import parse_kernel
from taskfuse.kir.nodes import Compute

RING = (Path(__file__).parent.parent / "kernels" / "ring.kir").read_text(encoding="utf-8")


def e(text: str) -> Expr:
    return parse_expr(text)


def tree(
    body: str, block: str = "(32, 4, 1)", dims: str = "M min 1, N multiple_of 8 min 1", declarations: str = "  SHARED s: float32[4, 64] align 16\n"
) -> StatementTree:
    text = f"KERNEL k(x: float32[M, N]) -> (y: float32[M, N])\n  DIM {dims}\n  GRID (1, 1, 1)  BLOCK {block}\n{declarations}\n{body.strip()}\n"
    return StatementTree.of(parse_kernel(text))


def leaves(found: StatementTree) -> list[Node]:
    return [n for n in found.leaves() if isinstance(n.stmt, Compute)]


TWO_ROLES = """
IF threadIdx.y == 0:
  FOR i in 0..M:
    FOR j in 0..8:
      y[i, j] = neg(x[i, j])
ELSE IF threadIdx.y == 1:
  FOR k in 0..M:
    IF k < 5:
      y[k, 0] = neg(x[k, 0])
"""


def test_a_question_in_two_roles_is_one() -> None:
    one, two = (n.context.constraints for n in leaves(tree(TWO_ROLES.replace("IF k < 5", "IF threadIdx.x < 5"))))
    (first, asked), (second, again) = one.about(e("M - i - 1")), two.about(e("M - k - 1"))
    assert first is second
    assert asked is again
    assert to_text(asked) == "M - 'trip.0 - 1"
    assert Linear.of(first).nonnegative(asked)


def test_what_bears_on_a_question_is_kept() -> None:
    one, two = (n.context.constraints for n in leaves(tree(TWO_ROLES)))
    first, asked = one.about(e("4 - i"))
    second, again = two.about(e("4 - k"))
    assert first is not second
    assert not Linear.of(first).nonnegative(asked)
    assert Linear.of(second).nonnegative(again)
    assert two.proves(e("k <= 4"))
    assert not one.proves(e("i <= 4"))


@pytest.mark.parametrize(("dims", "holds"), [("M min 1, N multiple_of 8 min 1", True), ("M min 1, N multiple_of 4 min 1", False)])
def test_rounding_sees_divisors(dims: str, holds: bool) -> None:
    body = "FOR i in 0..M:\n  IF 8*i < N:\n    y[0, 8*i] = neg(x[0, 8*i])"
    (node,) = leaves(tree(body, dims=dims))
    constraints, asked = node.context.constraints.about(e("N - 8*i - 8"))
    assert Linear.of(constraints).nonnegative(asked) == holds


@settings(max_examples=60)
@given(st.tuples(*(st.integers(-3, 3) for _ in range(6))), st.integers(1, 3))
def test_what_is_found_holds(coefficients: tuple[int, ...], divisor: int) -> None:
    """Of a form over a trip, its extents and quotients and remainders by constants and by symbols: no value is negative that was said not to be."""
    (node,) = leaves(tree(f"FOR i in 0..M*N:\n  IF {divisor}*i < M + N:\n    y[0, 0] = neg(x[0, 0])", dims="M min 1, N min 1"))
    parts = (e("M"), e("N"), e("i"), e("i//N"), e(f"i//{divisor}"), e("i % N"))
    form = sum((part * k for part, k in zip(parts, coefficients, strict=True)), e("0"))
    constraints, asked = node.context.constraints.about(form)
    if any(Linear(constraints).nonnegative(asked, depth) for depth in (1, 2, 3)):
        values = ({"M": m, "N": n, "i": i} for m in range(1, 5) for n in range(1, 5) for i in range(m * n) if divisor * i < m + n)
        assert all(evaluate(form, env) >= 0 for env in values)


@pytest.mark.parametrize(
    ("form", "holds"),
    [
        ("M*N - i - 1", True),  # one form that is known
        ("M - i//N - 1", True),  # what follows from several
        ("M + 3 - i//N", True),
        ("M - i//N - 2", False),
        ("N - i % N - 1", True),
        ("i//N - 1", False),
    ],
)
@pytest.mark.parametrize("depth", [1, 3])
def test_questions_of_one_level(form: str, holds: bool, depth: int) -> None:
    (node,) = leaves(tree("FOR i in 0..M*N:\n  y[0, 0] = neg(x[0, 0])", dims="M min 1, N min 1"))
    constraints, asked = node.context.constraints.about(e(form))
    assert Linear(constraints).nonnegative(asked, depth) is holds


def separated(body: str, equal: frozenset[str] = frozenset(), block: str = "(32, 4, 1)") -> bool:
    found = tree(body, block)
    barriers = Barriers(found, Threads(found))
    assert not barriers.obligations
    a, b = leaves(found)
    sync_points = SyncPoints(c for m in barriers.at.values() if (c := m.sync_point) is not None)
    assert sync_points.separate(a, b, equal) == sync_points.separate(b, a, equal)
    return sync_points.separate(a, b, equal)


WRITE, READ = "s[threadIdx.y, threadIdx.x] = copy(0)", "s[threadIdx.y, threadIdx.x + 1] = copy(1)"


@pytest.mark.parametrize(
    ("body", "sync_point"),
    [
        (f"{WRITE}\nSYNC block\n{READ}", True),
        (f"{WRITE}\n{READ}\nSYNC block", False),
        (f"FOR i in 0..M:\n  {WRITE}\n  SYNC block\n  {READ}", False),
        (f"FOR i in 0..M:\n  {WRITE}\n  SYNC block\n  {READ}\n  SYNC block", True),
        (f"FOR i in 0..M:\n  SYNC block\n  {WRITE}\nFOR j in 0..M:\n  {READ}", False),
        (f"IF threadIdx.x < 4:\n  {WRITE}\nSYNC block\nIF threadIdx.x >= 4:\n  {READ}", True),
        (f"IF threadIdx.x < 4:\n  {WRITE}\nELSE IF threadIdx.x >= 4:\n  {READ}", False),
        (f"IF threadIdx.y == 0:\n  {WRITE}\n  SYNC named 1, 32\n  {READ}", True),
        (f"IF threadIdx.y == 0:\n  {WRITE}\n  SYNC named 1, 32\n{READ}", False),
        (f"{WRITE}\nSYNC warp\n{READ}", False),
    ],
)
def test_cuts(body: str, sync_point: bool) -> None:
    assert separated(body) == sync_point


def test_groups_of_a_named_barrier_cut_what_agrees_on_them() -> None:
    body = f"{WRITE}\nSYNC named threadIdx.y + 1, 32\n{READ}"
    assert not separated(body)
    assert separated(body, frozenset(("threadIdx.y",)))


ROWS = """\
  SHARED a: float32[4*M] align 16 @ 0
  SHARED b: float32[4*M] align 16 @ 16*M
  SHARED c: float32[4*M] align 16 @ 32*M
  SHARED d: float32[4*M] align 16 @ 0
  SHARED f: float32[8*M] align 16 @ 16*M
"""


def test_rows_of_buffers_overlap_where_their_bytes_do() -> None:
    assert sorted(overlapping(tree("SYNC block", declarations=ROWS))) == [("a", "d"), ("b", "f"), ("c", "f")]
    apart = ROWS.replace("d: float32[4*M] align 16 @ 0", "d: float32[4*M] align 16 @ 48*M").replace(
        "f: float32[8*M] align 16 @ 16*M", "f: float32[8*M] align 16 @ 64*M"
    )
    assert overlapping(tree("SYNC block", declarations=apart)) == []


@pytest.mark.parametrize(("grid", "proved"), [(1, True), (2, False)])
def test_a_condition_that_always_holds_decides_nothing(grid: int, proved: bool) -> None:
    consumer = RING[RING.index("  FOR k in 0..N:\n    WAIT full") :]
    text = RING.replace(consumer, "  IF blockIdx.x == 0:\n" + "".join(f"  {line}\n" for line in consumer.splitlines()))
    assert parse_kernel(text.replace("GRID (1,", f"GRID ({grid},")).verify().is_proved == proved
