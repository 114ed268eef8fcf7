"""Instructions that compute and copy elements, gathers and updates included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from taskfuse.dtypes import DType, int64
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.kir.nodes import AtomicUpdate, Choose, Compute, GatherCopy, VectorCopy
from taskfuse.kir.operands import Access, GatherValue, Immediate, IndexOf, Operand, ScalarValue
from taskfuse.sim.agent import Agent, Instruction, Signal
from taskfuse.sim.collectives import check_addresses, check_alignment
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import Env, Lanes
from taskfuse.sim.memory import Site, StorePlace, place_of, read, update, write
from taskfuse.sim.names import Meaning, Meanings, Names
from taskfuse.sim.region import Region

Fetch = Callable[[Agent], Any]
_CAST = ELEMENTWISE["cast"]


def _operand(names: Names, operand: Operand) -> tuple[Fetch, DType]:
    values = names.values
    match operand:
        case Access():
            site = names.site(operand)
            return (lambda agent: read(agent.block.memory, site, agent.lanes, agent.env)), names.dtypes[operand.buffer]
        case Immediate():
            constant = values.literal(operand.value, operand.dtype)
            return (lambda agent: constant), operand.dtype
        case ScalarValue():
            name = operand.name
            return (lambda agent: agent.block.machine.scalars[name]), names.scalars[name]
        case IndexOf():
            code = names.expr(operand.value)
            return (lambda agent: np.asarray(code.at(agent.lanes, agent.env), np.int64)), int64


def compute(names: Names, stmt: Compute) -> Instruction:
    """``out = op(operands)``."""
    out, op, dtype = names.site(stmt.out), stmt.op, stmt.dtype
    fetches, dtypes = zip(*(_operand(names, o) for o in stmt.operands), strict=True)
    apply, out_dtype = names.values.apply, names.dtypes[stmt.out.buffer]
    signal = Signal.POINT if names.is_point(stmt.out, *stmt.operands) else None

    def run(agent: Agent) -> Signal | None:
        value = apply(op, [fetch(agent) for fetch in fetches], dtypes, dtype, out_dtype)
        write(agent.block.memory, out, agent.lanes, agent.env, value)
        return signal

    return run


def choose(names: Names, stmt: Choose) -> Instruction:
    """Every lane reads only the operand of its first case that holds."""
    out, out_dtype, apply = names.site(stmt.out), names.dtypes[stmt.out.buffer], names.values.apply
    storage = names.values.storage(out_dtype)
    cases = [(names.expr(c.cond), *_operand(names, c.operand)) for c in stmt.cases]
    signal = Signal.POINT if names.is_point(stmt.out, *(c.operand for c in stmt.cases)) else None

    def run(agent: Agent) -> Signal | None:
        everyone = agent.lanes
        left = everyone
        result: Any = None
        for cond, fetch, dtype in cases:
            yes, no = cond.split(left, agent.env, agent.block.machine.table)
            if yes is None:
                continue
            agent.lanes = yes
            value = apply(_CAST, [fetch(agent)], (dtype,), out_dtype, out_dtype)
            if yes is everyone:
                result = value
            else:
                if result is None:
                    result = np.empty(everyone.count, storage)
                result[np.searchsorted(everyone.ids, yes.ids)] = value
            if no is None:
                break
            left = no
        else:
            raise Fault("no case of the choice holds", thread=left.first)
        agent.lanes = everyone
        write(agent.block.memory, out, everyone, agent.env, result)
        return signal

    return run


def vector_copy(names: Names, stmt: VectorCopy) -> Instruction:
    """Consecutive elements by one instruction."""
    out, source = names.site(stmt.out, stmt.width), names.site(stmt.source, stmt.width)
    size = stmt.width * names.dtypes[stmt.out.buffer].itemsize
    signal = Signal.POINT if names.is_point(stmt.out, stmt.source) else None

    def run(agent: Agent) -> Signal | None:
        memory = agent.block.memory
        for site in (source, out):
            check_alignment(agent, site, size)
        value = read(memory, source, agent.lanes, agent.env)
        write(memory, out, agent.lanes, agent.env, value)
        return signal

    return run


class ValueSite(Site):
    """A site whose indices contain symbols that differ between lanes: evaluated anew at each access."""

    __slots__ = ()

    def place(self, lanes: Lanes, env: Env, region: Region) -> StorePlace:
        return place_of(self.offset(lanes, env, region), lanes, region, self.width)

    def offset(self, lanes: Lanes, env: Env, region: Region) -> Any:
        offset: Any = 0
        for axis, value in enumerate(self._values(lanes, env)):
            bad = (value < 0) | (value >= self._limit(axis, region))
            if np.any(bad):
                raise self._out_of_bounds(lanes, env, region, 0 if np.ndim(bad) == 0 else int(np.argmax(bad)))
            offset = offset + value * region.strides[axis]
        first = np.asarray(offset).reshape(-1)
        return int(first[0]) if len(first) == 1 or bool((first == first[0]).all()) else first

    def index_text(self, lanes: Lanes, env: Env, thread: int) -> str:
        lane = int(np.searchsorted(lanes.ids, thread))
        return f"[{', '.join(str(v if np.ndim(v) == 0 else v[lane]) for v in self._values(lanes, env))}]"

    def _values(self, lanes: Lanes, env: Env) -> list[Any]:
        return [c.evaluate({**env, **lanes.index}) for c in self.codes]


Found = Callable[[Agent], tuple[Any, dict[str, Any]]]


def _found(names: Names, values: Sequence[GatherValue]) -> Found:
    """The values of a statement: for which lanes all are inside their extents, and what they are."""
    sites = [(v.symbol, names.site(v.source), names.expr(v.extent)) for v in values]

    def run(agent: Agent) -> tuple[Any, dict[str, Any]]:
        everyone, env, memory = agent.lanes, agent.env, agent.block.memory
        inside = np.ones(everyone.count, np.bool_)
        found: dict[str, Any] = {}
        for symbol, site, extent in sites:
            end = extent.at(everyone, env)
            value = np.broadcast_to(np.asarray(read(memory, site, everyone, env)).astype(np.int64), everyone.count)
            found[symbol] = value = value + end * (value < 0)
            inside &= (value >= 0) & (value < end)
        return inside, found

    return run


def gather(names: Names, stmt: GatherCopy) -> Instruction:
    """Lanes whose values are all inside their extents read; the others write 0."""
    out = names.site(stmt.out, stmt.width)
    source = ValueSite(names.numbers[stmt.source.buffer], tuple(map(names.expr, stmt.source.index)), stmt.width)
    values = _found(names, stmt.values)
    storage = names.values.storage(names.dtypes[stmt.out.buffer])
    size = stmt.width * names.dtypes[stmt.out.buffer].itemsize
    signal = Signal.POINT if names.is_point(stmt.out, stmt.source, *(v.source for v in stmt.values)) else None

    def run(agent: Agent) -> Signal | None:
        everyone, env, memory = agent.lanes, agent.env, agent.block.memory
        inside, found = values(agent)
        shape = (everyone.count,) if stmt.width == 1 else (everyone.count, stmt.width)
        result = np.zeros(shape, storage)
        if inside.any():
            agent.lanes = agent.block.machine.table.get(everyone.ids[inside])
            agent.env = {**env, **{symbol: value[inside] for symbol, value in found.items()}}
            if stmt.width > 1:
                check_addresses(agent, source, size)
            result[inside] = read(memory, source, agent.lanes, agent.env)
            agent.lanes, agent.env = everyone, env
        if stmt.width > 1:
            check_alignment(agent, out, size)
        write(memory, out, everyone, env, result[0] if result.shape == (1,) else result)
        return signal

    return run


def update_element(names: Names, stmt: AtomicUpdate) -> Instruction:
    """Lanes whose values are all inside their extents combine their elements, one after the other; the others do nothing."""
    width = stmt.width
    out = ValueSite(names.numbers[stmt.out.buffer], tuple(map(names.expr, stmt.out.index)), width)
    source, values, dtype, combine = names.site(stmt.source, width), _found(names, stmt.values), names.dtypes[stmt.out.buffer], stmt.combine

    def combined(a: Any, b: Any) -> Any:
        return names.values.combine(combine, a, b, dtype)

    def run(agent: Agent) -> Signal | None:
        everyone, env, memory = agent.lanes, agent.env, agent.block.memory
        inside, found = values(agent)
        value = np.broadcast_to(read(memory, source, everyone, env), (everyone.count,) if width == 1 else (everyone.count, width))
        if inside.any():
            agent.lanes = agent.block.machine.table.get(everyone.ids[inside])
            agent.env = {**env, **{symbol: v[inside] for symbol, v in found.items()}}
            if width > 1:
                check_addresses(agent, out, width * dtype.itemsize)
            update(memory, out, agent.lanes, agent.env, value[inside], combine, combined)
            agent.lanes, agent.env = everyone, env
        return Signal.POINT

    return run


MEANINGS: Meanings = {
    Compute: Meaning(compute),
    Choose: Meaning(choose),
    VectorCopy: Meaning(vector_copy),
    GatherCopy: Meaning(gather),
    AtomicUpdate: Meaning(update_element),
}
