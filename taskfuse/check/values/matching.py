"""Operands compared with those of a definition, thread by thread; and the term of a computation whose operands differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from taskfuse.check.flags import all_of, any_of
from taskfuse.check.values.elements import Tensor, row_major
from taskfuse.check.values.lanes import ExecutedLanes
from taskfuse.check.values.state import RunState
from taskfuse.check.values.terms import NOTHING, WRONG, Bools, Ints, Terms, constants, converted, is_constant, numbers
from taskfuse.dtypes import DType, bool_
from taskfuse.ir.elementwise_function import DTypeRule, Elementwise
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.operands import Holds


def claimed(state: RunState, holds: Holds, tensor: Tensor, lanes: ExecutedLanes) -> tuple[Ints, Bools]:
    """The element that a statement claims to write, and whether it exists."""
    return row_major([lanes.value(e) for e in holds.index], tensor.extents, len(lanes))


def matches(
    state: RunState,
    stmt: Stmt,
    lanes: ExecutedLanes,
    operands: Sequence[Terms],
    expected: Sequence[Terms],
    op: Elementwise,
    dtype: DType,
    inside: Bools,
    tensor: Tensor,
    places: Ints,
) -> tuple[Bools, Terms]:
    """A mask of the operands that are the expected ones, and wrong terms for the others."""
    n = len(lanes)
    if len(operands) != len(expected):
        return np.zeros(n, np.bool_), state.wrong(stmt, lanes.role, lanes.ids, lambda k: f"computes {op} of {len(operands)} operands")
    dtypes = [bool_ if op.rule is DTypeRule.SELECT and k == 0 else dtype for k in range(len(operands))]
    equal = [state.same(held, want, d) for held, want, d in zip(operands, expected, dtypes, strict=True)]
    good = np.logical_and.reduce(equal) if equal else np.ones(n, np.bool_)
    if op.commutative and not all_of(good[inside]):
        swapped = state.same(operands[0], expected[1], dtype) & state.same(operands[1], expected[0], dtype)
        good = good | (swapped if len(equal) == 2 else np.logical_and.reduce([swapped, *equal[2:]]))
    good = good & inside
    if all_of(good):
        return good, Terms.full((n,), NOTHING)
    bad = np.flatnonzero(~good)
    first = np.argmax(np.stack([~e[bad] for e in equal]), axis=0) if equal else np.zeros(len(bad), np.int64)
    held = Terms(np.choose(first, [o.tag[bad] for o in operands]), np.choose(first, [o.data[bad] for o in operands]))
    want = Terms(np.choose(first, [o.tag[bad] for o in expected]), np.choose(first, [o.data[bad] for o in expected]))
    past, at = ~inside[bad], places[bad]

    def say(k: int) -> str:
        if past[k]:
            return f"is computed past the end of {tensor.name}"
        element = f"element {state.index(int(at[k]), tensor.extents)} of {tensor.name}"
        return f"for {element}: {state.difference(held[k : k + 1], want[k : k + 1])[0]}"

    def detail(k: int) -> tuple[str, ...]:
        return () if past[k] else state.difference(held[k : k + 1], want[k : k + 1])[1]

    return good, spread(n, bad, inherited(operands, bad, state.wrong(stmt, lanes.role, lanes.ids[bad], say, detail)))


def inherited(operands: Sequence[Terms], at: Ints, wrong: Terms) -> Terms:
    """Wrong terms: those of the first wrong operand, if there is one."""
    for o in reversed(operands):
        theirs = o[at]
        wrong = chosen(theirs.tag == WRONG, theirs, wrong)
    return wrong


def spread(n: int, at: Ints, terms: Terms) -> Terms:
    """``n`` terms: the given ones at their places, empty elsewhere."""
    found = Terms.full((n,), NOTHING)
    found[at] = terms
    return found


def chosen(where: Bools, yes: Terms, no: Terms) -> Terms:
    """Elementwise choice between terms."""
    return Terms(np.where(where, yes.tag, no.tag), np.where(where, yes.data, no.data))


def folded(state: RunState, op: Elementwise, dtype: DType, operands: Sequence[Terms], otherwise: Terms) -> Terms:
    """The result where all operands are constants; ``otherwise`` elsewhere."""
    where = np.ones(len(otherwise), np.bool_)
    for o in operands:
        where &= is_constant(o.tag)
    if not any_of(where):
        return otherwise
    mine = np.flatnonzero(where)
    inputs: list[Any] = []
    for k, o in enumerate(operands):
        to = bool_ if op.rule is DTypeRule.SELECT and k == 0 else dtype
        inputs.append(numbers(converted(o[mine], to).data, to))
    with np.errstate(all="ignore"):
        made = np.asarray(op.function(*inputs))
    found = otherwise.copy()
    found[mine] = constants(made, bool_ if made.dtype == np.bool_ else dtype)
    return found
