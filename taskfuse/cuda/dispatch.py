"""Dispatches of many members as binary decision trees instead of chains of comparisons.

The arms of a parallelized group are consecutive ranges of one hardware index. A chain of n comparisons costs the last member's blocks
2n instructions before they begin; a decision tree costs all of them 2 log n. Requires that no two arms overlap: each range begins where the one before it
ends, and none ends before it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from taskfuse.ir.scalar import TRUE, ZERO, And, Compare, CompareOp, Expr, Facts, le, lt, prove, simplify, sym
from taskfuse.ir.types import INDEX_TYPES
from taskfuse.kir.nodes import Branch, If

FEWEST = 8
"""The least number of arms for which a decision tree pays."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An inner node of a decision tree, with arms on both sides of a bound: where ``cond`` holds one of ``below`` may run, elsewhere one of ``above``."""

    cond: Expr
    below: Decision | Branch
    above: Decision | Branch


def decision_tree(stmt: If, facts: Facts) -> Decision | None:
    """The dispatch as a decision tree, whose leaves test only what the decisions above leave open; ``None`` if a chain is as good.

    Args:
        facts: the facts at the statement.
    """
    if len(stmt.branches) < FEWEST:
        return None
    for ptype in INDEX_TYPES:
        index = sym(ptype.index_name)
        arms = [_range(b.cond, index) for b in stmt.branches]
        known = [arm for arm in arms if arm is not None]
        if len(known) < len(arms) or any(simplify(a[1] - b[0], facts) is not ZERO for a, b in pairwise(known)):
            continue
        if all(prove(le(low, high), facts) for low, high in known):
            tree = _tree(stmt.branches, known, index, facts, known[0][0] is ZERO, prove(lt(index, known[-1][1]), facts))
            assert isinstance(tree, Decision)
            return tree
    return None


def _tree(branches: Sequence[Branch], ranges: Sequence[tuple[Expr, Expr]], index: Expr, facts: Facts, from_first: bool, to_last: bool) -> Decision | Branch:
    """``from_first``, ``to_last``: the index is known not to lie before the first range, or after the last one."""
    if len(branches) == 1:
        return replace(branches[0], cond=TRUE) if from_first and to_last else branches[0]
    middle = len(branches) // 2
    below = _tree(branches[:middle], ranges[:middle], index, facts, from_first, True)
    return Decision(lt(index, ranges[middle][0]), below, _tree(branches[middle:], ranges[middle:], index, facts, True, to_last))


def _range(cond: Expr, index: Expr) -> tuple[Expr, Expr] | None:
    """The first index for which a condition holds and the one after the last, if that is all that it says; hardware indices start at 0."""
    lows, highs = list[Expr](), list[Expr]()
    for part in cond.args if isinstance(cond, And) else (cond,):
        if not isinstance(part, Compare):
            return None
        rest = _solved(part.b - part.a, index)
        if rest is None:
            return None
        sign, bound = rest
        match part.op:
            case CompareOp.EQ:
                lows.append(bound)
                highs.append(bound + 1)
            case CompareOp.LE | CompareOp.LT if sign > 0:
                lows.append(bound + (part.op is CompareOp.LT))
            case CompareOp.LE | CompareOp.LT:
                highs.append(bound + (part.op is CompareOp.LE))
            case CompareOp.NE:
                return None
    return (lows[0] if lows else ZERO, highs[0]) if len(lows) <= 1 == len(highs) else None


def _solved(difference: Expr, index: Expr) -> tuple[int, Expr] | None:
    """``difference`` as sign * (index - bound): the sign and the bound."""
    for sign in (1, -1):
        bound = index - difference * sign
        if bound.free.isdisjoint(index.free):
            return sign, bound
    return None
