"""Warpgroups whose rows nobody reads: the conditions under which they multiply, what passes their accumulators on, and where there are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ml_dtypes import bfloat16

import taskfuse as tf
from taskfuse.ir.axes import axis
from taskfuse.ir.scalar import Compare, Expr, Facts, and_, compare, conjuncts, const, parse_expr, prove, substitute, sym
from taskfuse.kir import map_stmts, walk
from taskfuse.kir.nodes import Branch, If, Stmt
from taskfuse.kir.products import Wgmma
from taskfuse.lowering.read_parts import ReadPart
from tests.lowering.shared_tiles import COLUMNS, CONFIG, GROUPS, ROWS, TERMS, kernel

OFFSETS = ([0, 50, 180, 256], [0, 0, 64, 256], [0, 250, 251, 256])
COUNTS = ([0, 64, 128], [65, 1, 200])
A, B = (np.random.default_rng(k).integers(-2, 3, shape).astype(bfloat16) for k, shape in enumerate([(GROUPS * ROWS, TERMS), (GROUPS, TERMS, COLUMNS)]))


def guards(made: tf.Kernel) -> list[Expr]:
    """The conditions of products."""
    return [s.branches[0].cond for s in walk(made) if isinstance(s, If) and isinstance(s.branches[0].body[0], Wgmma)]


@pytest.mark.parametrize("name", ["ragged", "relu", "padded"])
def test_products_have_a_guard_of_the_warpgroup(name: str) -> None:
    (guard,) = set(guards(kernel(name)))
    assert "threadIdx.y" in guard.free
    assert "threadIdx.x" not in guard.free
    assert kernel(name).verify().is_proved


@pytest.mark.parametrize("offsets", OFFSETS)
def test_groups_that_end_in_a_tile(offsets: list[int]) -> None:
    wanted = np.concatenate([A[s:e].astype(np.float32) @ b.astype(np.float32) for b, s, e in zip(B, offsets, offsets[1:], strict=False)])
    (y,) = kernel("ragged").simulate(A[:ROWS], B, np.array(offsets, np.int32))
    assert (y == wanted.astype(bfloat16)).all()


@pytest.mark.parametrize("counts", COUNTS)
def test_padded_groups_that_end_in_a_tile(counts: list[int]) -> None:
    a = A.reshape(GROUPS, ROWS, TERMS)
    wanted = a.astype(np.float32) @ B.astype(np.float32)
    for rows, count in zip(wanted, counts, strict=True):
        rows[count:] = 0
    (y,) = kernel("padded").simulate(a, B, np.array(counts, np.int32))
    assert (y == wanted.astype(bfloat16)).all()


@pytest.mark.parametrize("name", ["ragged", "padded"])
@pytest.mark.parametrize("is_next", [False, True])
def test_a_guard_that_asks_for_more_rows_is_not_proved(name: str, is_next: bool) -> None:
    """Planted: a warpgroup with one row does not multiply, or one whose neighbor has none."""
    made = kernel(name)
    (guard,) = set(guards(made))
    *others, last = conjuncts(guard)
    assert isinstance(last, Compare)
    late = substitute(guard, {"threadIdx.y": sym("threadIdx.y") + 1}) if is_next else and_(*others, compare(last.op, last.a + 1, last.b))

    def changed(s: Stmt) -> Stmt:
        return replace(s, branches=(Branch(late, s.branches[0].body),)) if isinstance(s, If) and s.branches[0].cond is guard else s

    assert not replace(made, body=map_stmts(made.body, changed)).verify().is_proved


def test_what_is_read_without_a_condition_is_multiplied() -> None:
    """Sums of each column read all rows of a tile."""
    with tf.Fusion("both") as fusion:
        a, b = tf.define_tensor((ROWS, TERMS), tf.bfloat16, name="a"), tf.define_tensor((TERMS, ROWS), tf.bfloat16, name="b")
        y = tf.matmul(a, b, dtype=tf.float32)
        fusion.add_output(tf.tril(y))
        fusion.add_output(tf.cast(y, tf.bfloat16))
    tf.schedulers.matmul(fusion, CONFIG)
    assert guards(tf.lower(fusion)) == []


# -- conditions -------------------------------------------------------------------------------------------------------------------------

M, N = axis(const(128)), axis(const(64))
FACTS = Facts().with_range("x", 0, 127).with_range("y", 0, 1).with_range("j", 0, 63).with_range("t", 0, 99)
VALUES = {M: parse_expr("64*y + 16*(x//32) + x//4%8"), N: parse_expr("j")}


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("i0 < t", ["64*y < t"]),  # the first row
        ("t <= i0", ["t <= 64*y + 55"]),  # the last one: 48 + 7
        ("t <= i0 && i0 < 3*t", ["t <= 64*y + 55", "64*y < 3*t"]),
        ("i1 <= i0", []),  # holds for the first column of the last row
        ("i0 < i1", []),  # says nothing of the tile
        ("i0 < u", []),
        ("i0 < u + t", ["64*y < u + t"]),
        ("t < 5", []),  # says nothing of the part
        ("i1 < t", []),
        ("i0 % 2 < t", []),  # not monotone
        ("i0 == t", []),
    ],
)
def test_conditions_on_a_part(condition: str, found: list[str]) -> None:
    part = ReadPart(parse_expr(condition), (M, N), frozenset("u"), frozenset("t"), frozenset("y"))
    made = part.at(VALUES, FACTS)
    assert len(made) == len(found)
    for one, text in zip(made, found, strict=True):
        wanted = parse_expr(text)
        assert prove(wanted, FACTS.with_assumption(one))
        assert prove(one, FACTS.with_assumption(wanted))


def test_no_condition_where_an_index_has_no_bounds() -> None:
    part = ReadPart(parse_expr("i0 < t"), (M,), frozenset("u"), frozenset("t"), frozenset("y"))
    assert part.at({M: parse_expr("64*y + z")}, FACTS) == ()
    assert part.at({}, FACTS) == ()
