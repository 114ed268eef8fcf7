"""The effect of updates: each thread sends a point of a part to the element that data selects, for every tried value of that data."""

from __future__ import annotations

import numpy as np

from taskfuse.check.values.copies import indexed_otherwise
from taskfuse.check.values.elements import Tensor
from taskfuse.check.values.lanes import ExecutedLanes
from taskfuse.check.values.matching import claimed
from taskfuse.check.values.sent_points import NOWHERE, SentPoints, SentRound
from taskfuse.check.values.state import RunState, points
from taskfuse.check.values.terms import Bools, Ints, Terms
from taskfuse.kir.nodes import AtomicUpdate
from taskfuse.kir.witness import Send


def update(state: RunState, stmt: AtomicUpdate, lanes: ExecutedLanes) -> None:
    """Threads combine their operands with elements of a tensor in Global memory."""
    sent = state.sent.get(stmt.out.buffer)
    if sent is None:
        return  # no definition says anything of this array
    tensor = None if stmt.holds is None else state.elements.tensors.get(stmt.holds.tensor)
    rule = None if tensor is None or tensor.definition is None or tensor.name not in sent.rule.parts else tensor.definition.rule
    if stmt.holds is None or tensor is None or not isinstance(rule, Send) or len(rule.values) != len(stmt.values):
        everywhere = np.tile(np.arange(sent.tensor.size), (len(lanes), 1))
        said = dict.fromkeys(range(len(lanes)), "is updated as no definition says")
        sent.send(SentRound("", np.zeros(len(lanes), np.int64), everywhere, lanes.ids, stmt, lanes.role, said))
        return
    held = state.read_wide(stmt.source, lanes, stmt.width, stmt).flat()
    here = lanes.some(np.repeat(np.arange(len(lanes)), stmt.width))  # an element of each
    here.own["tile.0"] = np.tile(np.arange(stmt.width), len(lanes))
    places, inside = claimed(state, stmt.holds, tensor, here)
    wrong = _wrong(state, stmt, here, held, tensor, rule, inside)
    sent.send(SentRound(tensor.name, places, _where(state, sent, stmt, here, rule), here.ids, stmt, lanes.role, wrong))


def _wrong(state: RunState, stmt: AtomicUpdate, lanes: ExecutedLanes, held: Terms, tensor: Tensor, rule: Send, inside: Bools) -> dict[int, str]:
    """Why elements that are sent are not points of a tensor: another operand or function than its definition's, or a point that does not exist."""
    assert stmt.holds is not None
    at, n = points(lanes, stmt.holds.index), len(lanes)
    found: dict[int, str] = {}
    if stmt.combine is not rule.combine:
        found = dict.fromkeys(range(n), f"is combined by {stmt.combine} where {tensor.name} is sent by {rule.combine}")
    for k in np.flatnonzero(~inside).tolist():
        found.setdefault(k, f"is combined with a point past the end of {tensor.name}")
    for k in np.flatnonzero(indexed_otherwise(state, stmt, rule, lanes, at)).tolist():
        found.setdefault(k, f"is combined with an element of {tensor.name} at other integers than those of its definition")
    want = state.elements.operand(rule.operand, at, n)
    for k in np.flatnonzero(~state.same(held, want, state.elements.operand_dtype(rule.operand))).tolist():
        if k not in found:
            found[k] = f"is combined wrongly with {tensor.name}: {state.difference(held[k : k + 1], want[k : k + 1])[0]}"
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
