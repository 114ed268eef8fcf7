"""Instructions on several elements per thread, or on all threads of a warp at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from taskfuse.ir.medium import MEDIA
from taskfuse.kir.products import Shuffle
from taskfuse.sim.agent import Agent, Signal
from taskfuse.sim.fault import Fault, TornWarp
from taskfuse.sim.lanes import Lanes, LaneTable
from taskfuse.sim.memory import Site, read, write
from taskfuse.sim.names import Names
from taskfuse.sim.synchronization import Path, assemble, pause, selected
from taskfuse.target import WARP


def addresses(agent: Agent, site: Site) -> Any:
    """Byte address of the element of each lane: in Shared memory of the block, or from the start of a tensor."""
    region = agent.block.memory.regions[site.buffer]
    return region.origin + site.offset(agent.lanes, agent.env, region) * region.dtype.itemsize


def check_alignment(agent: Agent, site: Site, size: int) -> None:
    """Raises :class:`Fault` if an address is not a multiple of ``size`` (registers have none)."""
    region = agent.block.memory.regions[site.buffer]
    key = (site.number, site.key(agent.env), size)
    if not MEDIA[region.memory].has_addresses or key in agent.lanes.cache:
        return
    check_addresses(agent, site, size)
    agent.lanes.remember(key, True)


def check_addresses(agent: Agent, site: Site, size: int) -> None:
    """:func:`check_alignment` of memory that has addresses, anew."""
    region = agent.block.memory.regions[site.buffer]
    bad = np.atleast_1d(addresses(agent, site) % size != 0)
    if bad.any():
        thread = int(agent.lanes.ids[int(np.argmax(bad))])
        raise Fault(
            f"access of {size} bytes to {region} at an address that is not a multiple of {size}",
            thread=thread,
            notes=(f"index {site.index_text(agent.lanes, agent.env, thread)}",),
        )


def check_warps(agent: Agent, what: str) -> None:
    """Raises :class:`TornWarp` if the agent has only a part of a warp."""
    if not agent.lanes.has_whole_units(WARP):
        warps = (agent.lanes.ids // WARP).tolist()
        torn = next(w for w in warps if warps.count(w) != WARP)
        thread = int(agent.lanes.ids[warps.index(torn)])
        raise TornWarp(f"{what} executed by {warps.count(torn)} threads of warp {torn}", thread=thread, help=f"all {WARP} threads must execute it together")


def by_warps(lanes: Lanes, table: LaneTable) -> list[Lanes]:
    """The lanes of all whole warps together, and those of each partial warp."""
    if lanes.has_whole_units(WARP):
        return [lanes]
    warps = lanes.ids // WARP
    whole = np.bincount(warps)[warps] == WARP
    torn = [table.get(lanes.ids[warps == w]) for w in np.unique(warps[~whole])]
    return [table.get(lanes.ids[whole]), *torn] if whole.any() else torn


def shuffle(names: Names, stmt: Shuffle, path: Path) -> Callable[[Agent], Signal | None]:
    """``shfl.sync.bfly`` by whole warps, or by a part of one that waits for the rest; ``path``, the enclosing branches, must select all of the warp."""
    out, source, mask = names.site(stmt.out), names.site(stmt.source), stmt.mask

    def exchange(agent: Agent, lanes: Lanes) -> None:
        held = read(agent.block.memory, source, lanes, agent.env)
        write(agent.block.memory, out, lanes, agent.env, held[np.arange(lanes.count) ^ mask])

    def run(agent: Agent) -> Signal | None:
        lanes, table = agent.lanes, agent.block.machine.table
        if lanes.has_whole_units(WARP):
            exchange(agent, lanes)
            return None
        warp = lanes.first // WARP
        everyone = table.span(warp * WARP, min((warp + 1) * WARP, table.threads))
        count = selected(path, everyone, agent.env, agent)
        if count != WARP:
            raise Fault(f"shuffle executed by {count} threads of warp {warp}", help=f"all {WARP} threads must execute it together")
        if assemble(agent, WARP, [(warp, WARP, lanes.count)]):
            exchange(agent, everyone)
        return pause(agent, agent.pc - 1)

    return run
