"""Gathers: elements at an index that values say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from taskfuse.kir.nodes import Gather
from taskfuse.sim.agent import Agent, Signal
from taskfuse.sim.collectives import check_addresses, check_alignment
from taskfuse.sim.lanes import Env, Lanes
from taskfuse.sim.memory import Place, Region, Site, place_of, read, write

if TYPE_CHECKING:
    from taskfuse.sim.program import Program

Instruction = Callable[[Agent], Signal | None]


class ValueSite(Site):
    """A site whose indices have symbols that differ from lane to lane: found anew each time."""

    __slots__ = ()

    def place(self, lanes: Lanes, env: Env, region: Region) -> Place:
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


def gather(program: Program, stmt: Gather) -> Instruction:
    """Every lane whose values are inside of their extents reads, the others write 0."""
    out = program.site(stmt.out, stmt.width)
    source = ValueSite(program.numbers[stmt.source.buffer], tuple(map(program.expr, stmt.source.index)), stmt.width)
    values = [(v.symbol, program.site(v.source), program.expr(v.extent)) for v in stmt.values]
    storage = program.values.storage(program.dtypes[stmt.out.buffer])
    size = stmt.width * program.dtypes[stmt.out.buffer].itemsize
    signal = Signal.POINT if program.is_point(stmt.out, stmt.source, *(v.source for v in stmt.values)) else None

    def run(agent: Agent) -> Signal | None:
        everyone, env, memory = agent.lanes, agent.env, agent.block.memory
        inside = np.ones(everyone.count, np.bool_)
        found: dict[str, Any] = {}
        for symbol, site, extent in values:
            end = extent.at(everyone, env)
            value = np.broadcast_to(np.asarray(read(memory, site, everyone, env)).astype(np.int64), everyone.count)
            found[symbol] = value = value + end * (value < 0)
            inside &= (value >= 0) & (value < end)
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
