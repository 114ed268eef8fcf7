"""Dispatches that are decision_tree choose the member that the chain of comparisons chooses, for every index."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.cuda.dispatch import FEWEST, Decision, decision_tree
from taskfuse.ir.scalar import TRUE, Expr, Facts, and_, const, eq, evaluate, ge, le, lt, sym
from taskfuse.kir.nodes import Branch, If
from tests.schedulers.members import pointwise, row_sum

INDEX = sym("blockIdx.x")


def chain(starts: list[Expr], extents: list[int | Expr]) -> If:
    """As lowering writes it: the box of each member."""
    arms: list[Branch] = []
    for k, (start, extent) in enumerate(zip(starts, extents, strict=True)):
        at = INDEX - start
        arms.append(Branch(eq(INDEX, start) if isinstance(extent, int) and extent == 1 else and_(ge(at, 0), lt(at, extent)), (), f"m{k}"))
    return If(tuple(arms))


def chosen(tree: Decision | Branch, values: dict[str, int]) -> str | None:
    if isinstance(tree, Decision):
        return chosen(tree.below if evaluate(tree.cond, values) else tree.above, values)
    return tree.label if evaluate(tree.cond, values) else None


def depth(tree: Decision | Branch) -> int:
    return 1 + max(depth(tree.below), depth(tree.above)) if isinstance(tree, Decision) else 0


def leaves(tree: Decision | Branch) -> list[Branch]:
    return [*leaves(tree.below), *leaves(tree.above)] if isinstance(tree, Decision) else [tree]


@given(st.lists(st.integers(1, 5), min_size=FEWEST, max_size=40), st.integers(0, 3), st.booleans())
@settings(max_examples=60)
def test_the_same_member(extents: list[int], first: int, whole: bool) -> None:
    starts: list[Expr] = [const(first + sum(extents[:k])) for k in range(len(extents))]
    end = first + sum(extents)
    stmt = chain(starts, list(extents))
    tree = decision_tree(stmt, Facts().with_range("blockIdx.x", 0, end - 1 if whole else None))
    assert tree is not None
    assert depth(tree) == (len(extents) - 1).bit_length()
    for index in range(end if whole else end + 2):
        values = {"blockIdx.x": index}
        assert chosen(tree, values) == next((b.label for b in stmt.branches if evaluate(b.cond, values)), None)
    asked = [b for b in leaves(tree) if b.cond is not TRUE]
    assert len(asked) == (first > 0) + (not whole)  # only the ends ask more than the cuts above


def test_symbolic_boxes() -> None:
    extents: list[int | Expr] = [sym("M"), 3, sym("N")] * 4
    starts: list[Expr] = [const(0)]
    for e in extents[:-1]:
        starts.append(starts[-1] + e)
    facts = Facts().with_range("M", 1, None).with_range("N", 1, None).with_range("blockIdx.x", 0, None)
    tree = decision_tree(chain(starts, extents), facts)
    assert tree is not None
    for index in range(30):
        values = {"blockIdx.x": index, "M": 2, "N": 4}
        expected = next((k for k, (s, e) in enumerate(zip(starts, extents, strict=True)) if evaluate(s, values) <= index < evaluate(s + e, values)), None)
        assert chosen(tree, values) == (None if expected is None else f"m{expected}")


@pytest.mark.parametrize("spoil", ["few", "gap", "overlap", "more"])
def test_other_chains_stay(spoil: str) -> None:
    extents = [2] * FEWEST
    starts: list[Expr] = [const(2 * k) for k in range(FEWEST)]
    if spoil == "few":
        extents, starts = extents[:-1], starts[:-1]
    if spoil == "gap":
        starts[-1] = starts[-1] + 1
    if spoil == "overlap":
        starts[-1] = starts[-1] - 1
    stmt = chain(starts, list(extents))
    if spoil == "more":
        stmt = If((*stmt.branches[:-1], Branch(and_(stmt.branches[-1].cond, lt(sym("threadIdx.x"), 7)), ())))
    assert decision_tree(stmt, Facts()) is None


def test_ranges_that_may_end_before_they_begin() -> None:
    """Of arms up to M, then from M to N, .. the first one holds below M even if N is less."""
    ends = [sym(f"N{k}") for k in range(FEWEST)]
    arms = [Branch(and_(ge(INDEX, a), lt(INDEX, b)) if k else lt(INDEX, b), ()) for k, (a, b) in enumerate(zip([const(0), *ends], ends, strict=False))]
    facts = Facts().with_ranges({str(n): (0, None) for n in ends})
    assert decision_tree(If(tuple(arms)), facts) is None
    for a, b in pairwise(ends):
        facts = facts.with_assumption(le(a, b))
    assert decision_tree(If(tuple(arms)), facts) is not None


def test_two_bounds_are_no_range() -> None:
    arms = [Branch(and_(ge(INDEX, 2 * k), lt(INDEX, 2 * k + 2)), ()) for k in range(FEWEST)]
    arms[-1] = Branch(and_(ge(INDEX, sym("M")), arms[-1].cond), ())
    assert decision_tree(If(tuple(arms)), Facts()) is None


def test_the_text() -> None:
    members = [pointwise(64 * (k + 1), f"p{k}") if k % 2 else row_sum(k + 1, 64, f"s{k}") for k in range(8)]
    text = tf.lower(tf.horizontal(members)).cuda_source()
    found = [line for line in text.splitlines() if re.search(r"if \(blockIdx_x|else", line)]
    assert (
        "\n".join(found)
        == """\
  if (blockIdx_x < 10) {
    if (blockIdx_x < 3) {
      if (blockIdx_x < 1) {  // s0
      } else {  // p1
    } else {
      if (blockIdx_x < 6) {  // s2
      } else {  // p3
  } else {
    if (blockIdx_x < 21) {
      if (blockIdx_x < 15) {  // s4
      } else {  // p5
    } else {
      if (blockIdx_x < 28) {  // s6
      } else {  // p7"""
    )
