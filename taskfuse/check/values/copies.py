"""The effect of copying statements on terms: choices, vectors, shuffles, gathers.

A copy claims nothing: a term is the same wherever it lies. A choice that converts makes another element, the one that it claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from taskfuse.check.drawn_launches import SAMPLES, drawn_values
from taskfuse.check.flags import all_of, any_of
from taskfuse.check.refuted import Refuted
from taskfuse.check.values.elements import value
from taskfuse.check.values.lanes import ExecutedLanes
from taskfuse.check.values.matching import chosen, claimed
from taskfuse.check.values.state import RunState, points
from taskfuse.check.values.terms import NOTHING, Bools, Ints, Terms
from taskfuse.dtypes import DType
from taskfuse.kir import Kernel
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Choose, GatherCopy, VectorCopy
from taskfuse.kir.operands import Content
from taskfuse.kir.products import Shuffle
from taskfuse.kir.witness import Find, Pick, Send

ROWS = 1 << 14
"""The number of rows that are processed together."""


def choose(state: RunState, stmt: Choose, lanes: ExecutedLanes) -> None:
    """The operand of the first case that holds."""
    n = len(lanes)
    found, left = Terms.full((n,), NOTHING), np.ones(n, np.bool_)
    for case in stmt.cases:
        holds = lanes.holds(case.cond)
        mine = left if holds is True else left & holds
        if any_of(mine):
            found[mine] = state.operand(case.operand, lanes if all_of(mine) else lanes.some(mine), stmt)
            left = left & ~mine
    if any_of(left):
        thread = int(lanes.ids[np.flatnonzero(left)[0]])
        raise Refuted(stmt.out.buffer, "no case of its choice holds", *state.who(thread, stmt, lanes.role))
    state.write(stmt.out, lanes, _as_claimed(state, stmt, lanes, found), stmt)


def _as_claimed(state: RunState, stmt: Choose, lanes: ExecutedLanes, found: Terms) -> Terms:
    """What a choice has chosen; where it is also what the definition of the claimed element chooses, and converts to another dtype: that element."""
    holds = stmt.holds
    tensor = None if holds is None or holds.content is not Content.VALUE else state.elements.tensors.get(holds.tensor)
    rule = None if tensor is None or tensor.definition is None else tensor.definition.rule
    if holds is None or tensor is None or not isinstance(rule, Pick) or not tensor.size or not state.elements.are_its_own(tensor):
        return found
    if state.cells.stores[stmt.out.buffer].dtype is not tensor.dtype:
        return found
    places, inside = claimed(state, holds, tensor, lanes)
    good = inside & state.same(found, state.elements.chosen(tensor, rule)[places], tensor.dtype)
    return chosen(good, state.elements.at(tensor, places), found)


def copy(state: RunState, stmt: VectorCopy | AsyncCopy, lanes: ExecutedLanes) -> None:
    """Copied elements; zeros where an asynchronous copy is not valid."""
    valid = lanes.holds(stmt.valid) if isinstance(stmt, AsyncCopy) else True
    store = state.cells.stores[stmt.out.buffer]
    if valid is True:
        found = state.read_wide(stmt.source, lanes, stmt.width, stmt)
    else:
        found = state.zero((len(lanes), stmt.width), store.dtype)
        if valid is not False:
            found[valid] = state.read_wide(stmt.source, lanes.some(valid), stmt.width, stmt)
    state.write_wide(stmt.out, lanes, found, stmt)


def shuffle(state: RunState, stmt: Shuffle, lanes: ExecutedLanes) -> None:
    """The term in another lane of the warp."""
    held = state.read(stmt.source, lanes, stmt)
    state.write(stmt.out, lanes, held[np.arange(len(lanes)) ^ stmt.mask], stmt)


def gather(state: RunState, stmt: GatherCopy, lanes: ExecutedLanes) -> None:
    """Elements at an index that is data: the defined ones, for every value of the index that is tried."""
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
    places, inside = claimed(state, holds, tensor, some)
    at = points(some, holds.index)
    found = state.elements.at(tensor, places)
    bad = indexed_otherwise(state, stmt, rule, some, at)
    if width > 1:
        some.own["tile.0"] = np.tile(np.arange(width), n)
    tried = drawn_values([int(value(e, state.launch.symbols)) for e in rule.extents], entirely=tensor.name in state.entirely, lanes=count)
    for start in range(0, len(tried), step := max(1, ROWS // max(count, 1))):
        bad |= _elsewhere(state, stmt, rule, tensor.dtype, some, at, tried[start : start + step], width)
    bad &= inside
    if any_of(bad):
        found = found.copy()
        name = tensor.name
        where = places[bad]

        def say(k: int) -> str:
            return f"gathers for element {state.index(int(where[k]), tensor.extents)} of {name} from where it is not defined"

        found[bad] = state.wrong(stmt, lanes.role, some.ids[bad], say)
    state.write_wide(stmt.out, lanes, found.reshape(n, width), stmt)


def indexed_otherwise(state: RunState, stmt: GatherCopy | AtomicUpdate, rule: Find | Send, lanes: ExecutedLanes, at: Mapping[str, int | Ints]) -> Bools:
    """Which threads gather, or send, at other integers than those of the definition at its points ``at``."""
    bad = np.zeros(len(lanes), np.bool_)
    for k, (v, want) in enumerate(zip(stmt.values, rule.values, strict=True)):
        bad |= ~state.same(state.read(v.source, lanes, stmt), state.elements.operand(want, at, len(lanes)), state.elements.operand_dtype(want))
        bad |= np.asarray(lanes.value(v.extent) != value(rule.extents[k], at))
    return bad


def _elsewhere(state: RunState, stmt: GatherCopy, rule: Find, dtype: DType, lanes: ExecutedLanes, at: dict[str, Any], choices: Ints, width: int) -> Bools:
    """For each element of each thread, whether another one than the definition's is gathered for one of some values of the index."""
    count, tried = len(lanes), len(choices)
    rows, values = np.repeat(np.arange(count), tried), np.tile(choices, (count, 1))
    here = lanes.some(rows)
    point: dict[str, Any] = {name: v if isinstance(v, int) else v[rows] for name, v in at.items()}
    for k, v in enumerate(stmt.values):
        here.own[v.symbol] = values[:, k]
        point[f"v{k}"] = values[:, k]
    store = state.cells.stores[stmt.source.buffer]
    places = state.places(stmt.source, here, 1) + (np.arange(count) % width)[rows]
    held = state.fetch(store, state.owners(store, here), places, stmt, here.ids, here.role)
    good = state.same(held, state.elements.operand(rule.source, point, count * tried), dtype).reshape(count, tried)
    return ~np.logical_and.reduce(good, axis=1)


def is_sampled(kernel: Kernel, stmt: GatherCopy) -> bool:
    """True if a run at constant extents tries only some values of a gather's indices, unless all are requested."""
    tensor = None if stmt.holds is None else stmt.holds.tensor
    rule = next((d.rule for d in kernel.definitions if d.tensor == tensor), None)
    return isinstance(rule, Find) and prod(int(value(e, {})) for e in rule.extents) > SAMPLES
