"""What statements that copy make of terms: choices, vectors, shuffles, gathers. A copy claims nothing: a term is the same wherever it lies."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from taskfuse.check.refuted import Refuted
from taskfuse.check.values.elements import value
from taskfuse.check.values.lanes import Lanes
from taskfuse.check.values.matching import claimed
from taskfuse.check.values.state import State, points
from taskfuse.check.values.terms import NOTHING, Terms
from taskfuse.kir import Kernel
from taskfuse.kir.nodes import AsyncCopy, Choose, Gather, VectorCopy
from taskfuse.kir.products import Shuffle
from taskfuse.kir.witness import Find

SAMPLES = 64
"""How many values of an index that is data are tried one by one."""


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
    if left.any():
        thread = int(lanes.ids[np.flatnonzero(left)[0]])
        raise Refuted(stmt.out.buffer, "no case of its choice holds", *state.who(thread, stmt, lanes.role))
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
    """Elements at an index that is data: what is defined, for every value of the index that is tried."""
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

        def say(k: int) -> str:
            return f"gathers for element {state.index(int(where[k]), tensor.extents)} of {name} from where it is not defined"

        found[bad] = state.wrong(stmt, lanes.role, some.ids[bad], say)
    state.write_wide(stmt.out, lanes, found.reshape(n, width), stmt)


def is_sampled(kernel: Kernel, stmt: Gather) -> bool:
    """True if a run at constant extents does not look at all values of the indices of a gather."""
    tensor = None if stmt.holds is None else stmt.holds.tensor
    rule = next((d.rule for d in kernel.definitions if d.tensor == tensor), None)
    return isinstance(rule, Find) and prod(int(value(e, {})) for e in rule.extents) > SAMPLES


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
