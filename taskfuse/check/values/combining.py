"""Computations of reductions and scans: terms at points of the iteration space, and combinations of partial results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taskfuse.check.flags import all_of, any_of
from taskfuse.check.values.elements import row_major, value
from taskfuse.check.values.lanes import ExecutedLanes
from taskfuse.check.values.matching import chosen, folded, inherited, matches
from taskfuse.check.values.partials import Accumulation
from taskfuse.check.values.state import RunState, points
from taskfuse.check.values.terms import Bools, Ints, Terms
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.kir.nodes import Compute
from taskfuse.kir.operands import Content, Holds
from taskfuse.kir.witness import Accumulate, Iterate, Reduce

ADD, MUL, FMA, COPY = (ELEMENTWISE[name] for name in ("add", "mul", "fma", "copy"))


def reduced(state: RunState, stmt: Compute, fold: Accumulation, holds: Holds, lanes: ExecutedLanes, operands: list[Terms]) -> Terms | None:
    """The term that a computation for a reduction or a scan produces; ``None`` for one that moves a partial result.

    A multiply-add is both the body of a sum of products and the sum.
    """
    if isinstance(fold.rule, Iterate):
        return _stepped(state, stmt, fold, fold.rule, holds, lanes, operands)
    assert fold.combine is not None
    if holds.content is Content.RESCALED:
        return _rescaled(state, stmt, fold, holds, lanes, operands)
    is_term = holds.content is Content.TERM
    if holds.content is Content.BODY:
        return _term(state, stmt, fold, holds, lanes, operands, stmt.op)
    if stmt.op is fold.combine.op and len(operands) == 2:
        mine = 1 if stmt.operands[1] == stmt.out and stmt.operands[0] != stmt.out else 0
        other = operands[1 - mine]
        if is_term and _body_is_copy(fold):
            other = _term(state, stmt, fold, holds, lanes, [other], COPY)
        return _combined(state, stmt, fold, lanes, operands[mine], other, is_term=is_term)
    if is_term and stmt.op is FMA and fold.combine.op is ADD and isinstance(fold.rule, Reduce) and fold.rule.body is MUL:
        return _combined(state, stmt, fold, lanes, operands[2], _term(state, stmt, fold, holds, lanes, operands[:2], MUL), is_term=True)
    return None


def _stepped(state: RunState, stmt: Compute, fold: Accumulation, rule: Iterate, holds: Holds, lanes: ExecutedLanes, operands: list[Terms]) -> Terms | None:
    """The state of a fold after the step at the point that a statement claims."""
    if holds.content is not Content.TERM:
        return None
    n = len(lanes)
    places, inside = row_major([lanes.value(e) for e in holds.index], fold.tensor.space, n)
    if stmt.op is not rule.op or stmt.dtype is not fold.dtype:
        step = f"takes {stmt.op} in {stmt.dtype} where a step of {fold.tensor.name} is {rule.op} in {fold.dtype}"
        return state.wrong(stmt, lanes.role, lanes.ids, lambda k: step)
    if not fold.before.size:
        return state.wrong(stmt, lanes.role, lanes.ids, lambda k: f"takes a step of {fold.tensor.name}, which has none")
    at = points(lanes, holds.index)
    held, known = state.partials.nodes(fold, operands[0], lanes.ids, stmt)
    known &= inside & (state.partials.sums[held] == fold.before[places])
    good = known.copy()
    for mine, o in zip(operands[1:], rule.operands, strict=True):
        good &= state.same(mine, state.elements.operand(o, at, n), fold.dtype)
    leaf, _ = state.partials.nodes(fold, Terms(np.full(n, fold.body, np.int64), places), lanes.ids, stmt)
    found = Terms(np.full(n, fold.part, np.int64), state.partials.joins(held, leaf))
    if all_of(good):
        return found
    bad = np.flatnonzero(~good)

    def say(k: int) -> str:
        j = int(bad[k])
        if not inside[j]:
            return f"takes a step past the end of {fold.tensor.name}"
        point = state.index(int(places[j]), fold.tensor.space)
        return f"takes the step at {point} of {fold.tensor.name} {'from another state than that before it' if not known[j] else 'with other operands'}"

    found[bad] = inherited(operands, bad, state.wrong(stmt, lanes.role, lanes.ids[bad], say))
    return found


def _rescaled(state: RunState, stmt: Compute, fold: Accumulation, holds: Holds, lanes: ExecutedLanes, operands: list[Terms]) -> Terms:
    """A partial result times the factor at the index that a statement claims."""
    n, rule = len(lanes), fold.rule
    assert isinstance(rule, Reduce)
    definition = fold.tensor.definition
    assert fold.rescaled is not None
    assert definition is not None
    if stmt.op is not MUL or stmt.dtype is not fold.dtype:
        return state.wrong(stmt, lanes.role, lanes.ids, lambda k: f"takes {stmt.op} in {stmt.dtype} where {fold.tensor.name} is rescaled in {fold.dtype}")
    mine = 1 if stmt.operands[1] == stmt.out and stmt.operands[0] != stmt.out else 0
    _, inside = row_major([lanes.value(e) for e in holds.index], fold.tensor.space, n)
    nodes, known = state.partials.nodes(fold, operands[mine], lanes.ids, stmt)
    steps = np.broadcast_to(np.asarray(lanes.value(holds.index[fold.rescaled]), np.int64), n)
    elements, _ = row_major([value(e, points(lanes, holds.index)) for e in definition.place], fold.tensor.extents, n)
    found, follows = state.partials.rescaled(nodes, steps, fold.first[elements])
    same = state.same(operands[1 - mine], state.elements.operand(rule.operands[-1], points(lanes, holds.index), n), fold.dtype)
    good = known & inside & follows & same
    done = Terms(np.full(n, fold.part, np.int64), found)
    if all_of(good):
        return done
    bad = np.flatnonzero(~good)

    def say(k: int) -> str:
        j = int(bad[k])
        if not known[j]:
            return f"multiplies {state.text(operands[mine][j : j + 1])}, which is not a partial result of {fold.tensor.name}"
        if not inside[j] or not same[j]:
            return f"rescales {fold.tensor.name} by another factor than that at {steps[j]}"
        return f"rescales {fold.tensor.name} at {steps[j]}, which does not follow the index up to which it was rescaled"

    done[bad] = inherited(operands, bad, state.wrong(stmt, lanes.role, lanes.ids[bad], say))
    return done


def _body_is_copy(fold: Accumulation) -> bool:
    return isinstance(fold.rule, Accumulate) or (isinstance(fold.rule, Reduce) and fold.rule.body is COPY)


def _term(state: RunState, stmt: Compute, fold: Accumulation, holds: Holds, lanes: ExecutedLanes, operands: list[Terms], op: Elementwise) -> Terms:
    """The term of a reduction at the point that a statement claims: what it makes of its operands, compared with the body."""
    tensor, n = fold.tensor, len(lanes)
    rule = fold.rule
    assert not isinstance(rule, Iterate)
    body, wanted = (COPY, (rule.operand,)) if isinstance(rule, Accumulate) else (rule.body, rule.terms)
    places, inside = row_major([lanes.value(e) for e in holds.index], tensor.space, n)
    inside = inside if fold.outside is None or not any_of(inside) else inside & ~fold.outside[places]
    if holds.content is Content.START or op is not body or stmt.dtype is not fold.dtype:
        wrong = state.wrong(stmt, lanes.role, lanes.ids, lambda k: f"takes {op} in {stmt.dtype} where a term of {tensor.name} is {body} in {fold.dtype}")
        return folded(state, op, stmt.dtype, operands, wrong)
    at = points(lanes, holds.index)
    expected = [state.elements.operand(o, at, n) for o in wanted]
    good, reason = matches(state, stmt, lanes, operands, expected, op, fold.dtype, inside, tensor, np.zeros(n, np.int64))
    done = Terms(np.full(n, fold.body, np.int64), places)
    if all_of(good):
        return done
    if any_of(reason.tag):
        reason = _at_points(state, stmt, lanes, operands, expected, fold, good, inside, places, reason)
    found = chosen(good, done, reason)
    bad = np.flatnonzero(~good)
    if op is COPY:  # an operand other than a term may be a partial result, or neutral
        theirs = operands[0][bad]
        kept = (theirs.tag == fold.part) | (theirs.tag == fold.body)
        found[bad[kept]] = theirs[kept]
    found[bad] = folded(state, op, fold.dtype, [o[bad] for o in operands], found[bad])
    return found


def _at_points(
    state: RunState,
    stmt: Compute,
    lanes: ExecutedLanes,
    operands: Sequence[Terms],
    expected: Sequence[Terms],
    fold: Accumulation,
    good: Bools,
    inside: Bools,
    places: Ints,
    found: Terms,
) -> Terms:
    """Wrong terms of a reduction, with their points."""
    bad = np.flatnonzero(~good)
    tensor = fold.tensor

    def say(k: int) -> str:
        j = int(bad[k])
        if not inside[j]:
            return f"a term past the end of {tensor.name} need not be neutral: it is of {state.text(operands[0][j : j + 1])}"
        for held, want in zip(operands, expected, strict=True):
            if not state.same(held[j : j + 1], want[j : j + 1], fold.dtype)[0]:
                point = state.index(int(places[j]), tensor.space)
                return f"at {point} of {tensor.name}: {state.difference(held[j : j + 1], want[j : j + 1])[0]}"
        return f"no term of {tensor.name}"

    found = found.copy()
    found[bad] = inherited(operands, bad, state.wrong(stmt, lanes.role, lanes.ids[bad], say))
    return found


def _combined(state: RunState, stmt: Compute, fold: Accumulation, lanes: ExecutedLanes, left: Terms, right: Terms, *, is_term: bool) -> Terms:
    """Two partial results joined, or a term added to one."""
    n = len(lanes)
    if stmt.dtype is not fold.dtype:
        return state.wrong(stmt, lanes.role, lanes.ids, lambda k: f"combines in {stmt.dtype} where {fold.tensor.name} is combined in {fold.dtype}")
    (a, a_known), (b, b_known) = (state.partials.nodes(fold, t, lanes.ids, stmt) for t in (left, right))
    alike = state.partials.are_alike(fold, a, b, is_term=is_term)
    good = a_known & b_known & alike
    found = Terms(np.full(n, fold.part, np.int64), state.partials.joins(a, b))
    if all_of(good):
        return found
    bad = np.flatnonzero(~good)
    sides = [chosen(a_known[bad], right[bad], left[bad])]

    def say(k: int) -> str:
        if not alike[bad[k]]:
            return f"joins partial results of {fold.tensor.name} that were rescaled up to different indices"
        return f"joins {state.text(sides[0][k : k + 1])}, which is not a partial result of {fold.tensor.name}"

    found[bad] = inherited([left, right], bad, state.wrong(stmt, lanes.role, lanes.ids[bad], say))
    return found
