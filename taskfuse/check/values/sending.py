"""The effect of updates: threads, or the copy engine, send points of a part to elements: those that data selects, for every tried value of that data."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from taskfuse.check.values.copies import indexed_otherwise
from taskfuse.check.values.elements import Tensor
from taskfuse.check.values.lanes import ExecutedLanes
from taskfuse.check.values.matching import claimed
from taskfuse.check.values.sent_points import NOWHERE, SentPoints, SentRound
from taskfuse.check.values.state import RunState, points
from taskfuse.check.values.terms import Bools, Ints, Terms
from taskfuse.kir.nodes import AtomicUpdate, TmaStore
from taskfuse.kir.operands import Holds
from taskfuse.kir.witness import Send


@dataclass(frozen=True, slots=True, eq=False)
class _Said:
    """What a statement claims to send: points of a part of a tensor, by its definition."""

    holds: Holds
    part: Tensor
    rule: Send


def update(state: RunState, stmt: AtomicUpdate, lanes: ExecutedLanes) -> None:
    """Threads combine their operands with elements of a tensor in Global memory."""
    sent = state.sent.get(stmt.out.buffer)
    if sent is None:
        return  # no definition says anything of this array
    said = _said(state, sent, stmt.holds, len(stmt.values))
    if said is None:
        _send_anywhere(sent, stmt, lanes)
        return
    held = state.read_wide(stmt.source, lanes, stmt.width, stmt).flat()
    here = lanes.some(np.repeat(np.arange(len(lanes)), stmt.width))  # an element of each
    here.own["tile.0"] = np.tile(np.arange(stmt.width), len(lanes))
    wrong = _wrong(state, stmt, said, here, held)
    where = _where(state, sent, stmt, here, said.rule)
    sent.send(SentRound(said.part.name, claimed(state, said.holds, said.part, here)[0], where, here.ids, stmt, here.role, wrong))


def update_box(state: RunState, sent: SentPoints, stmt: TmaStore, lanes: ExecutedLanes, places: Ints, inside: Bools, held: Terms) -> None:
    """The copy engine combines boxes with a tensor in Global memory.

    Args:
        places: the elements of the tensor, ``[threads, elements]``; inside: those that there are; held: what each of these is combined with.
    """
    said = _said(state, sent, stmt.holds, 0)
    if said is None:
        _send_anywhere(sent, stmt, lanes)
        return
    count = prod(said.holds.tile)
    every = lanes.some(np.repeat(np.arange(len(lanes)), count))  # the points of the tiles
    for k, values in enumerate(np.indices(said.holds.tile).reshape(-1, count)):
        every.own[f"tile.{k}"] = np.tile(values, len(lanes))
    points_of_part, exist = claimed(state, said.holds, said.part, every)
    reached = np.full(len(every), NOWHERE)
    reached[exist] = sent.reach[said.part.name][points_of_part[exist], 0]
    reached += np.where(reached == NOWHERE, 0, np.repeat(np.arange(len(lanes)), count) * sent.tensor.size)
    order = np.argsort(reached, kind="stable")
    wanted = (np.arange(len(lanes))[:, None] * sent.tensor.size + places)[inside]
    at = order[np.minimum(np.searchsorted(reached[order], wanted), len(order) - 1)]  # the point that goes to each element
    here = every.some(at)
    wrong = {k: f"is combined with no point of {said.part.name} by one element of a box" for k in np.flatnonzero(reached[at] != wanted).tolist()}
    wrong |= {k: text for k, text in _wrong(state, stmt, said, here, held).items() if k not in wrong}
    sent.send(SentRound(said.part.name, points_of_part[at], places[inside][:, None], here.ids, stmt, here.role, wrong))


def _said(state: RunState, sent: SentPoints, holds: Holds | None, values: int) -> _Said | None:
    """What a claim says; ``None``: nothing that a definition says of an update at so many integers."""
    part = None if holds is None else state.elements.tensors.get(holds.tensor)
    rule = None if part is None or part.definition is None or part.name not in sent.rule.parts else part.definition.rule
    if holds is None or part is None or not isinstance(rule, Send) or len(rule.values) != values:
        return None
    return _Said(holds, part, rule)


def _send_anywhere(sent: SentPoints, stmt: AtomicUpdate | TmaStore, lanes: ExecutedLanes) -> None:
    """Nothing says what is sent: every element may be wrong."""
    everywhere = np.tile(np.arange(sent.tensor.size), (len(lanes), 1))
    wrong = dict.fromkeys(range(len(lanes)), "is updated as no definition says")
    sent.send(SentRound("", np.zeros(len(lanes), np.int64), everywhere, lanes.ids, stmt, lanes.role, wrong))


def _wrong(state: RunState, stmt: AtomicUpdate | TmaStore, said: _Said, lanes: ExecutedLanes, held: Terms) -> dict[int, str]:
    """Why elements that are sent are not points of a tensor: another operand or function than its definition's, or a point that does not exist."""
    part, rule = said.part, said.rule
    at, n = points(lanes, said.holds.index), len(lanes)
    found: dict[int, str] = {}
    if stmt.combine is not rule.combine:
        found = dict.fromkeys(range(n), f"is combined by {stmt.combine} where {part.name} is sent by {rule.combine}")
    for k in np.flatnonzero(~claimed(state, said.holds, part, lanes)[1]).tolist():
        found.setdefault(k, f"is combined with a point past the end of {part.name}")
    if isinstance(stmt, AtomicUpdate):
        for k in np.flatnonzero(indexed_otherwise(state, stmt, rule, lanes, at)).tolist():
            found.setdefault(k, f"is combined with an element of {part.name} at other integers than those of its definition")
    want = state.elements.operand(rule.operand, at, n)
    for k in np.flatnonzero(~state.same(held, want, state.elements.operand_dtype(rule.operand))).tolist():
        if k not in found:
            found[k] = f"is combined wrongly with {part.name}: {state.difference(held[k : k + 1], want[k : k + 1])[0]}"
    return found


def _where(state: RunState, sent: SentPoints, stmt: AtomicUpdate, lanes: ExecutedLanes, rule: Send) -> Ints:
    """The elements that threads update, ``[elements of threads, values]``."""
    tried = sent.values(rule)
    count, each = len(lanes), len(tried)
    here = lanes.some(np.repeat(np.arange(count), each))
    inside = np.ones(count * each, np.bool_)
    for k, v in enumerate(stmt.values):
        here.own[v.symbol] = np.tile(tried[:, k], count)
        inside &= np.asarray(here.own[v.symbol] < here.value(v.extent))
    state.budget.spend(count * each // 8)
    found = np.full(count * each, NOWHERE)
    if inside.any():
        element = np.repeat(np.arange(count) % stmt.width, each)
        found[inside] = state.places(stmt.out, here.some(inside)) + element[inside]
    return found.reshape(count, each)
