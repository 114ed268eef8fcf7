"""The effect of threads' computations on terms.

The claim of a statement names a tensor and an index, and so the definition to compare with; the term follows from the operands' own terms. A
computation that differs from the definition gives a wrong term, which is reported if it reaches an output.
"""

from __future__ import annotations

import numpy as np

from taskfuse.check.flags import all_of, any_of
from taskfuse.check.values.combining import reduced
from taskfuse.check.values.elements import MOVES, Tensor
from taskfuse.check.values.lanes import ExecutedLanes
from taskfuse.check.values.matching import chosen, claimed, folded, inherited, matches
from taskfuse.check.values.partials import Accumulation
from taskfuse.check.values.state import NUMBERS, RunState, points
from taskfuse.check.values.terms import WRONG, Terms, converted, is_constant
from taskfuse.dtypes import converts_once
from taskfuse.kir.nodes import Compute
from taskfuse.kir.operands import Content
from taskfuse.kir.witness import Apply


def compute(state: RunState, stmt: Compute, lanes: ExecutedLanes) -> None:
    """``out = op(operands)``."""
    operands = [state.operand(o, lanes, stmt) for o in stmt.operands]
    state.write(stmt.out, lanes, _computed(state, stmt, lanes, operands), stmt)


def _computed(state: RunState, stmt: Compute, lanes: ExecutedLanes, operands: list[Terms]) -> Terms:
    holds = stmt.holds
    tensor = None if holds is None else state.elements.tensors.get(holds.tensor)
    fold = None if tensor is None else state.partials.folds.get(tensor.number)
    found: Terms | None = None
    if holds is None or tensor is None or tensor.definition is None:
        fold = None
    elif holds.content is not Content.VALUE:
        found = None if fold is None else reduced(state, stmt, fold, holds, lanes, operands)
        fold = None
    elif fold is not None and stmt.op not in MOVES:
        found = reduced(state, stmt, fold, holds, lanes, operands)  # the last step of joining, which stores the result
        if found is not None:
            return _moved(state, stmt, lanes, found, fold)
    elif isinstance(tensor.definition.rule, Apply) and not _is_copy(state, tensor, tensor.definition.rule):
        return _applied(state, stmt, lanes, operands, tensor, tensor.definition.rule)
    if found is not None:
        return found
    return _moved(state, stmt, lanes, operands[0], fold) if stmt.op in MOVES else _plain(state, stmt, lanes, operands)


def _is_copy(state: RunState, tensor: Tensor, rule: Apply) -> bool:
    """True if the elements of a tensor are those of another."""
    return rule.op in MOVES and all(o is tensor.dtype for o in (rule.dtype, *map(state.elements.operand_dtype, rule.operands)))


def _moved(state: RunState, stmt: Compute, lanes: ExecutedLanes, term: Terms, fold: Accumulation | None = None) -> Terms:
    """A term, converted if it is a constant; a complete result of ``fold`` becomes its element."""
    if fold is not None and stmt.holds is not None:
        places, inside = claimed(state, stmt.holds, fold.tensor, lanes)
        nodes, known = state.partials.nodes(fold, term)
        known &= inside
        if any_of(known) and state.cells.stores[stmt.out.buffer].dtype is fold.tensor.dtype and stmt.dtype in (fold.dtype, fold.tensor.dtype):
            where = np.flatnonzero(known)
            full = state.partials.is_complete(fold, nodes[where], places[where])
            term = term.copy()
            term[where[full]] = state.elements.at(fold.tensor, places[where[full]])
            if all_of(full) and len(where) == len(places):
                return term
    held = state.dtype_numbers(term)
    bad = (term.tag > WRONG) & ~is_constant(term.tag) & (held != NUMBERS[stmt.dtype])
    done = np.zeros(len(term), np.bool_) if fold is None else term.tag == fold.tensor.element
    bad &= ~done
    term = converted(term, stmt.dtype)
    if any_of(bad):
        was = term[bad]
        term = term.copy()
        term[bad] = state.wrong(stmt, lanes.role, lanes.ids[bad], lambda k: f"converts {state.text(was[k : k + 1])} to {stmt.dtype}")
    return term


def _applied(state: RunState, stmt: Compute, lanes: ExecutedLanes, operands: list[Terms], tensor: Tensor, rule: Apply) -> Terms:
    """A function of operands, compared with its definition at the element that the statement claims."""
    assert stmt.holds is not None
    places, inside = claimed(state, stmt.holds, tensor, lanes)
    out = state.cells.stores[stmt.out.buffer].dtype
    n = len(lanes)
    given = tuple(map(state.elements.operand_dtype, rule.operands))
    converts = stmt.op in MOVES and rule.op in MOVES and all(converts_once(d, given[0], tensor.dtype) for d in (stmt.dtype, rule.dtype))
    if not (converts or (stmt.op is rule.op and stmt.dtype is rule.dtype)) or out is not tensor.dtype:
        said = f"{rule.op} in {rule.dtype}, a {tensor.dtype}" if rule.op is stmt.op else str(rule.op)
        made = f"{stmt.op} in {stmt.dtype}, a {out}" if rule.op is stmt.op else str(stmt.op)
        wrong = state.wrong(stmt, lanes.role, lanes.ids, lambda k: f"computes {made} where {tensor.name} is {said}")
        return chosen(inside, wrong, folded(state, stmt.op, stmt.dtype, operands, wrong))
    at = points(lanes, stmt.holds.index)
    expected = [state.elements.operand(o, at, n) for o in rule.operands]
    good, reason = matches(state, stmt, lanes, operands, expected, rule.op, rule.dtype, inside, tensor, places)
    done = state.elements.at(tensor, places)
    if all_of(good):
        return done
    past = ~inside
    found = chosen(good, done, reason)
    if any_of(past):
        mine = np.flatnonzero(past)
        found[mine] = folded(state, stmt.op, stmt.dtype, [o[mine] for o in operands], found[mine])
    return found


def _plain(state: RunState, stmt: Compute, lanes: ExecutedLanes, operands: list[Terms]) -> Terms:
    """A computation without a definition to compare with."""
    everywhere = np.arange(len(lanes))
    wrong = state.wrong(stmt, lanes.role, lanes.ids, lambda k: f"computes {stmt.op}, which no definition says")
    return inherited(operands, everywhere, wrong)
