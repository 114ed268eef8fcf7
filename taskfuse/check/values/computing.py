"""What statements of threads make of terms: computations, choices, copies, gathers.

What a statement claims to hold names a tensor and an index. It says which definition to compare with; the term is what the operands' own terms give. A
computation that is not what the definition says, of what the definition says, gives a wrong term, which is reported if it gets to an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from taskfuse.check.values.elements import MOVES, Tensor, row_major, value
from taskfuse.check.values.lanes import Lanes
from taskfuse.check.values.partials import Fold
from taskfuse.check.values.state import NUMBERS, State, points
from taskfuse.check.values.terms import NOTHING, WRONG, Bools, Ints, Terms, constant_dtype, constants, converted, is_constant, numbers
from taskfuse.dtypes import DType, bool_
from taskfuse.ir.elementwise import ELEMENTWISE, DTypeRule, Elementwise
from taskfuse.kir.nodes import AsyncCopy, Choose, Compute, Content, Gather, Holds, Shuffle, Stmt, VectorCopy
from taskfuse.kir.witness import Accumulate, Apply, Find, Reduce

ADD, MUL, FMA, COPY = (ELEMENTWISE[name] for name in ("add", "mul", "fma", "copy"))
SAMPLES = 64
"""Values of an index that is data, looked at one by one."""


def compute(state: State, stmt: Compute, lanes: Lanes) -> None:
    """``out = op(operands)``."""
    operands = [state.operand(o, lanes, stmt) for o in stmt.operands]
    state.write(stmt.out, lanes, _computed(state, stmt, lanes, operands), stmt)


def _computed(state: State, stmt: Compute, lanes: Lanes, operands: list[Terms]) -> Terms:
    holds = stmt.holds
    tensor = None if holds is None else state.elements.tensors.get(holds.tensor)
    if holds is None or tensor is None or tensor.definition is None:
        return _moved(state, stmt, lanes, operands[0]) if stmt.op in MOVES else _plain(state, stmt, lanes, operands)
    fold, rule = state.partials.folds.get(tensor.number), tensor.definition.rule
    if fold is None or holds.content is Content.VALUE:
        if isinstance(rule, Apply) and (stmt.op is rule.op or stmt.op not in MOVES):
            if stmt.op not in MOVES or not all(o is tensor.dtype for o in (stmt.dtype, *map(state.elements.operand_dtype, rule.operands))):
                return _applied(state, stmt, lanes, operands, tensor, rule)
        if stmt.op in MOVES:
            return _moved(state, stmt, lanes, operands[0], fold)
        return _plain(state, stmt, lanes, operands)
    if stmt.op is fold.combine.op and len(operands) == 2 and holds.content is not Content.BODY:
        mine = 1 if stmt.operands[1] == stmt.out and stmt.operands[0] != stmt.out else 0
        other = operands[1 - mine]
        if holds.content is Content.TERM and _body_is_copy(fold):
            other = _term(state, stmt, fold, holds, lanes, [other], COPY)
        return _combined(state, stmt, fold, lanes, operands[mine], other)
    if stmt.op is FMA and (fold.combine.op, holds.content) == (ADD, Content.TERM) and isinstance(fold.rule, Reduce) and fold.rule.body is MUL:
        return _combined(state, stmt, fold, lanes, operands[2], _term(state, stmt, fold, holds, lanes, operands[:2], MUL))
    if holds.content is Content.BODY:
        return _term(state, stmt, fold, holds, lanes, operands, stmt.op)
    if stmt.op in MOVES:
        return _moved(state, stmt, lanes, operands[0])
    return _plain(state, stmt, lanes, operands)


# -- values -------------------------------------------------------------------------------------------------------------------------


def _moved(state: State, stmt: Compute, lanes: Lanes, term: Terms, fold: Fold | None = None) -> Terms:
    """A term as it is, converted if it is a constant; a complete result of ``fold`` is the element that it is of."""
    if fold is not None and stmt.holds is not None:
        places, inside = _claimed(state, stmt.holds, fold.tensor, lanes)
        nodes, known = state.partials.nodes(fold, term)
        known &= inside
        if known.any() and state.cells.stores[stmt.out.buffer].dtype is fold.tensor.dtype and stmt.dtype in (fold.dtype, fold.tensor.dtype):
            where = np.flatnonzero(known)
            full = state.partials.is_complete(fold, nodes[where], places[where])
            term = term.copy()
            term[where[full]] = state.elements.at(fold.tensor, places[where[full]])
            if full.all() and len(where) == len(places):
                return term
    held = state.dtype_numbers(term)
    bad = (term.tag > WRONG) & ~is_constant(term.tag) & (held != NUMBERS[stmt.dtype])
    done = np.zeros(len(term), np.bool_) if fold is None else term.tag == fold.tensor.element
    bad &= ~done
    term = converted(term, stmt.dtype)
    if bad.any():
        was = term[bad]
        term = term.copy()
        term[bad] = state.wrong(stmt, lanes.role, lanes.ids[bad], lambda k: f"converts {state.text(was[k : k + 1])} to {stmt.dtype}")
    return term


def _claimed(state: State, holds: Holds, tensor: Tensor, lanes: Lanes) -> tuple[Ints, Bools]:
    """The element that a statement claims to make, and whether there is one."""
    return row_major([lanes.value(e) for e in holds.index], tensor.extents, len(lanes))


def _applied(state: State, stmt: Compute, lanes: Lanes, operands: list[Terms], tensor: Tensor, rule: Apply) -> Terms:
    """A function of operands, compared with its definition at the element that the statement claims."""
    assert stmt.holds is not None
    places, inside = _claimed(state, stmt.holds, tensor, lanes)
    out = state.cells.stores[stmt.out.buffer].dtype
    n = len(lanes)
    if stmt.op is not rule.op or stmt.dtype is not rule.dtype or out is not tensor.dtype:
        said = f"{rule.op} in {rule.dtype}, a {tensor.dtype}" if rule.op is stmt.op else str(rule.op)
        made = f"{stmt.op} in {stmt.dtype}, a {out}" if rule.op is stmt.op else str(stmt.op)
        wrong = state.wrong(stmt, lanes.role, lanes.ids, lambda k: f"computes {made} where {tensor.name} is {said}")
        return _chosen(inside, wrong, _folded(state, stmt.op, stmt.dtype, operands, wrong))
    at = points(lanes, stmt.holds.index)
    expected = [state.elements.operand(o, at, n) for o in rule.operands]
    good, reason = _matches(state, stmt, lanes, operands, expected, rule.op, rule.dtype, inside, tensor, places)
    done = state.elements.at(tensor, places)
    if good.all():
        return done
    past = ~inside
    found = _chosen(good, done, reason)
    if past.any():
        mine = np.flatnonzero(past)
        found[mine] = _folded(state, stmt.op, stmt.dtype, [o[mine] for o in operands], found[mine])
    return found


def _matches(
    state: State,
    stmt: Stmt,
    lanes: Lanes,
    operands: Sequence[Terms],
    expected: Sequence[Terms],
    op: Elementwise,
    dtype: DType,
    inside: Bools,
    tensor: Tensor,
    places: Ints,
) -> tuple[Bools, Terms]:
    """Where operands are those expected, and wrong terms for where they are not."""
    n = len(lanes)
    if len(operands) != len(expected):
        return np.zeros(n, np.bool_), state.wrong(stmt, lanes.role, lanes.ids, lambda k: f"computes {op} of {len(operands)} operands")
    dtypes = [bool_ if op.rule is DTypeRule.SELECT and k == 0 else dtype for k in range(len(operands))]
    equal = [state.same(held, want, d) for held, want, d in zip(operands, expected, dtypes, strict=True)]
    good = np.logical_and.reduce(equal) if equal else np.ones(n, np.bool_)
    if op.commutative and not good[inside].all():
        swapped = state.same(operands[0], expected[1], dtype) & state.same(operands[1], expected[0], dtype)
        good = good | (swapped if len(equal) == 2 else np.logical_and.reduce([swapped, *equal[2:]]))
    good = good & inside
    if good.all():
        return good, Terms.full((n,), NOTHING)
    bad = np.flatnonzero(~good)
    first = np.argmax(np.stack([~e[bad] for e in equal]), axis=0) if equal else np.zeros(len(bad), np.int64)
    held = Terms(np.choose(first, [o.tag[bad] for o in operands]), np.choose(first, [o.data[bad] for o in operands]))
    want = Terms(np.choose(first, [o.tag[bad] for o in expected]), np.choose(first, [o.data[bad] for o in expected]))
    past, at = ~inside[bad], places[bad]

    def say(k: int) -> str:
        if past[k]:
            return f"is computed past the end of {tensor.name}"
        return f"for element {state.index(int(at[k]), tensor.extents)} of {tensor.name}: reads {state.text(held[k : k + 1])} where {state.text(want[k : k + 1])} is defined"

    return good, _spread(n, bad, _inherited(operands, bad, state.wrong(stmt, lanes.role, lanes.ids[bad], say)))


def _inherited(operands: Sequence[Terms], at: Ints, wrong: Terms) -> Terms:
    """Wrong terms: those of the first wrong operand, where there is one."""
    for o in reversed(operands):
        theirs = o[at]
        wrong = _chosen(theirs.tag == WRONG, theirs, wrong)
    return wrong


def _spread(n: int, at: Ints, terms: Terms) -> Terms:
    found = Terms.full((n,), NOTHING)
    found[at] = terms
    return found


def _chosen(where: Bools, yes: Terms, no: Terms) -> Terms:
    return Terms(np.where(where, yes.tag, no.tag), np.where(where, yes.data, no.data))


def _plain(state: State, stmt: Compute, lanes: Lanes, operands: list[Terms]) -> Terms:
    """A computation that no definition says: of constants."""
    everywhere = np.arange(len(lanes))
    wrong = state.wrong(stmt, lanes.role, lanes.ids, lambda k: f"computes {stmt.op}, which no definition says")
    return _folded(state, stmt.op, stmt.dtype, operands, _inherited(operands, everywhere, wrong))


def _folded(state: State, op: Elementwise, dtype: DType, operands: Sequence[Terms], otherwise: Terms) -> Terms:
    """The result where all operands are constants; ``otherwise`` elsewhere."""
    where = np.ones(len(otherwise), np.bool_)
    for o in operands:
        where &= is_constant(o.tag)
    if not where.any():
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


# -- reductions ---------------------------------------------------------------------------------------------------------------------


def _body_is_copy(fold: Fold) -> bool:
    return isinstance(fold.rule, Accumulate) or fold.rule.body is COPY


def _term(state: State, stmt: Compute, fold: Fold, holds: Holds, lanes: Lanes, operands: list[Terms], op: Elementwise) -> Terms:
    """The term of a reduction at the point that a statement claims: what it makes of its operands, compared with the body."""
    tensor, n = fold.tensor, len(lanes)
    rule = fold.rule
    body, wanted = (COPY, (rule.operand,)) if isinstance(rule, Accumulate) else (rule.body, rule.operands)
    places, inside = row_major([lanes.value(e) for e in holds.index], tensor.space, n)
    if holds.content is Content.START or op is not body or stmt.dtype is not fold.dtype:
        wrong = state.wrong(stmt, lanes.role, lanes.ids, lambda k: f"takes {op} in {stmt.dtype} where a term of {tensor.name} is {body} in {fold.dtype}")
        return _folded(state, op, stmt.dtype, operands, wrong)
    at = points(lanes, holds.index)
    expected = [state.elements.operand(o, at, n) for o in wanted]
    good, reason = _matches(state, stmt, lanes, operands, expected, op, fold.dtype, inside, tensor, np.zeros(n, np.int64))
    done = Terms(np.full(n, fold.body, np.int64), places)
    if good.all():
        return done
    if reason.tag.any():
        reason = _at_points(state, stmt, lanes, operands, expected, fold, good, inside, places, reason)
    found = _chosen(good, done, reason)
    bad = np.flatnonzero(~good)
    if op is COPY:  # what is no term may be a partial result, or neutral
        theirs = operands[0][bad]
        kept = (theirs.tag == fold.part) | (theirs.tag == fold.body)
        found[bad[kept]] = theirs[kept]
    found[bad] = _folded(state, op, fold.dtype, [o[bad] for o in operands], found[bad])
    return found


def _at_points(
    state: State,
    stmt: Compute,
    lanes: Lanes,
    operands: Sequence[Terms],
    expected: Sequence[Terms],
    fold: Fold,
    good: Bools,
    inside: Bools,
    places: Ints,
    found: Terms,
) -> Terms:
    """Wrong terms of a reduction, which say at which point they are."""
    bad = np.flatnonzero(~good)
    tensor = fold.tensor

    def say(k: int) -> str:
        j = int(bad[k])
        if not inside[j]:
            return f"a term past the end of {tensor.name} need not be neutral: it is of {state.text(operands[0][j : j + 1])}"
        for held, want in zip(operands, expected, strict=True):
            if not state.same(held[j : j + 1], want[j : j + 1], fold.dtype)[0]:
                point = state.index(int(places[j]), tensor.space)
                return f"at {point} of {tensor.name}: reads {state.text(held[j : j + 1])} where {state.text(want[j : j + 1])} is defined"
        return f"no term of {tensor.name}"

    found = found.copy()
    found[bad] = _inherited(operands, bad, state.wrong(stmt, lanes.role, lanes.ids[bad], say))
    return found


def _combined(state: State, stmt: Compute, fold: Fold, lanes: Lanes, left: Terms, right: Terms) -> Terms:
    """Two partial results joined."""
    n = len(lanes)
    if stmt.dtype is not fold.dtype:
        return state.wrong(stmt, lanes.role, lanes.ids, lambda k: f"combines in {stmt.dtype} where {fold.tensor.name} is combined in {fold.dtype}")
    (a, a_known), (b, b_known) = (state.partials.nodes(fold, t, lanes.ids, stmt) for t in (left, right))
    good = a_known & b_known
    found = Terms(np.full(n, fold.part, np.int64), state.partials.joins(a, b))
    if good.all():
        return found
    bad = np.flatnonzero(~good)
    sides = [_chosen(a_known[bad], right[bad], left[bad])]

    def say(k: int) -> str:
        return f"joins {state.text(sides[0][k : k + 1])}, which is no partial result of {fold.tensor.name}"

    found[bad] = _inherited([left, right], bad, state.wrong(stmt, lanes.role, lanes.ids[bad], say))
    return found


# -- moves --------------------------------------------------------------------------------------------------------------------------


def choose(state: State, stmt: Choose, lanes: Lanes) -> None:
    """The operand of the first case that holds."""
    n = len(lanes)
    found, left = Terms.full((n,), NOTHING), np.ones(n, np.bool_)
    for case in stmt.cases:
        holds = lanes.holds(case.cond)
        mine = left if holds is True else left & holds
        if mine.any():
            found[mine] = state.operand(case.operand, lanes if mine.all() else lanes.some(mine), stmt)
            left = left & ~mine
    state.write(stmt.out, lanes, found, stmt)


def copy(state: State, stmt: VectorCopy | AsyncCopy, lanes: Lanes) -> None:
    """Elements as they are; zeros where an asynchronous copy is not valid."""
    valid = lanes.holds(stmt.valid) if isinstance(stmt, AsyncCopy) else True
    store = state.cells.stores[stmt.out.buffer]
    if valid is True:
        found = state.read_wide(stmt.source, lanes, stmt.width, stmt)
    else:
        found = state.zero((len(lanes), stmt.width), store.dtype)
        if valid is not False:
            found[valid] = state.read_wide(stmt.source, lanes.some(valid), stmt.width, stmt)
    state.write_wide(stmt.out, lanes, found, stmt)


def shuffle(state: State, stmt: Shuffle, lanes: Lanes) -> None:
    """What another lane of the warp holds."""
    held = state.read(stmt.source, lanes, stmt)
    state.write(stmt.out, lanes, held[np.arange(len(lanes)) ^ stmt.mask], stmt)


def gather(state: State, stmt: Gather, lanes: Lanes) -> None:
    """Elements at an index that is data: what is defined, for every value of the index that is looked at."""
    holds, width, n = stmt.holds, stmt.width, len(lanes)
    tensor = None if holds is None else state.elements.tensors.get(holds.tensor)
    rule = None if tensor is None or tensor.definition is None else tensor.definition.rule
    if holds is None or tensor is None or not isinstance(rule, Find) or len(rule.values) != len(stmt.values):
        wrong = state.wrong(stmt, lanes.role, np.repeat(lanes.ids, width), lambda k: "gathers what no definition says")
        state.write_wide(stmt.out, lanes, wrong.reshape(n, width), stmt)
        return
    some = lanes.some(np.repeat(np.arange(n), width))
    some.own["tile.0"] = np.tile(np.arange(width), n)
    count = len(some)
    places, inside = _claimed(state, holds, tensor, some)
    at = points(some, holds.index)
    found = state.elements.at(tensor, places)
    bad = np.zeros(count, np.bool_)
    for k, (v, want) in enumerate(zip(stmt.values, rule.values, strict=True)):
        bad |= ~state.same(state.read(v.source, some, stmt), state.elements.operand(want, at, count), state.elements.operand_dtype(want))
        bad |= np.asarray(some.value(v.extent) != value(rule.extents[k], at))
    store = state.cells.stores[stmt.source.buffer]
    if width > 1:
        some.own["tile.0"] = np.tile(np.arange(width), n)
    for chosen in _choices([value(e, state.launch.symbols) for e in rule.extents]):
        for k, (v, number) in enumerate(zip(stmt.values, chosen, strict=True)):
            some.own[v.symbol] = number
            at[f"v{k}"] = number
        here = state.places(stmt.source, some, 1) + np.tile(np.arange(width), n)
        held = state.fetch(store, state.owners(store, some), here, stmt, some.ids, some.role)
        bad |= ~state.same(held, state.elements.operand(rule.source, at, count), tensor.dtype)
    bad &= inside
    if bad.any():
        found = found.copy()
        name = tensor.name
        where = places[bad]
        found[bad] = state.wrong(
            stmt, lanes.role, some.ids[bad], lambda k: f"gathers for element {state.index(int(where[k]), tensor.extents)} of {name} from where it is not defined"
        )
    state.write_wide(stmt.out, lanes, found.reshape(n, width), stmt)


def _choices(extents: list[Any]) -> list[tuple[int, ...]]:
    """Values of the symbols of a gather: all if they are few, else the first, the last and some between, each alone and all together."""
    total = 1
    for n in extents:
        total *= max(0, int(n))
    if total == 0:
        return []
    if total <= SAMPLES:
        return [tuple(int(i) for i in np.unravel_index(k, [int(n) for n in extents])) for k in range(total)]
    found: set[tuple[int, ...]] = set()
    for part in range(8):
        found.add(tuple((int(n) - 1) * part // 7 for n in extents))
    for k, n in enumerate(extents):
        for part in range(8):
            found.add(tuple((int(n) - 1) * part // 7 if j == k else int(m) // 2 for j, m in enumerate(extents)))
    return sorted(found)

