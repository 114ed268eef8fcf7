"""The elements of a launch: the last write and reads of each, with their clocks.

An access that does not know of an earlier conflicting one is a race. An asynchronous engine also sees generic writes only after a fence of the writer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taskfuse.check.clocks import Clocks
from taskfuse.check.refuted import Refuted
from taskfuse.check.trace import GRAIN, Clock, Event
from taskfuse.ir.combine import Combine
from taskfuse.ir.medium import MEDIA, Reach
from taskfuse.ir.types import MemoryType
from taskfuse.kir.operands import Queue
from taskfuse.kir.walk import updating


@dataclass(slots=True, eq=False)
class _Element:
    """The last accesses of an element: (clock component, time, event, generic) of the write; of each reader since, by component, (time, event).

    So, too, of each thread that has updated it since, by a function and in the asynchronous proxy or not; of those before, other updates need know nothing.
    """

    write: tuple[int, int, Event, bool] | None = None
    reads: dict[int, tuple[int, Event]] | None = None
    updates: dict[tuple[int, tuple[Combine, bool]], tuple[int, Event]] | None = None


class Shadow:
    """The last accesses of every element, and the fences between proxies.

    Args:
        time: the clocks of the launch.
        memory: layout of buffers and tensors.
        places: address space, first byte and element size of each (:func:`taskfuse.check.touched_elements.places`).
    """

    def __init__(self, time: Clocks, memory: Mapping[str, MemoryType], places: Mapping[str, tuple[str, int, int]]) -> None:
        self.memory = memory
        self._time = time
        self._places = places
        self._cells: dict[tuple[int, str], dict[int, _Element]] = {}
        self._fences: dict[tuple[int, MemoryType], list[tuple[int, int, int]]] = {}

    def fence(self, t: int, memory: MemoryType) -> None:
        """``fence.proxy.async`` of a thread, with the times of its copies and stores that it has waited for."""
        time = self._time
        tick = time.tick(t)
        copies, stores = (0 if c is None else int(time.clocks[t, c]) for c in map(time.engines.get, ((t, Queue.COPY), (t, Queue.BULK, "write"))))
        self._fences.setdefault((t, memory), []).append((tick, copies, stores))

    def touch(self, t: int, e: Event, buffer: str, elements: Any, write: bool, clock: Clock, component: int, block: int | None = None) -> None:
        """An access; ``block``: the block whose Shared memory it accesses, if not the thread's own."""
        shared = MEDIA[self.memory[buffer]].reach is Reach.BLOCK
        name, first, size = self._places[buffer]
        shadow = self._cells.setdefault(((t // self._time.per if block is None else block) if shared else -1, name), {})
        is_async = component >= self._time.size
        time = int(clock[component]) if is_async else self._time.tick(t)
        cells = [first + at * size + part for at in elements.tolist() for part in range(0, size, GRAIN)] if shared else elements.tolist()
        in_async_proxy = is_async and component not in self._time.copies
        combine = updating(e.stmt) if write else None
        combined = None if combine is None else (combine, in_async_proxy)
        written, read = (component, time, e, not in_async_proxy), (time, e)
        for at in cells:
            cell = shadow.get(at)
            if cell is None:
                cell = shadow[at] = _Element()
            if cell.write is not None:
                other, when, event, generic = cell.write
                if clock[other] < when:
                    raise self._race(buffer, t, e, write, other, event, True)
                writer = self._time.owners[other]
                if in_async_proxy and (generic or (not shared and writer != self._time.owners[component])):
                    fence = self._fenced_at(writer, when, other, self.memory[buffer])
                    if fence is None or clock[writer] < fence:
                        name = "FENCE proxy.async" if shared else "FENCE proxy.async.global"
                        reason = f"an asynchronous engine sees what a thread {'wrote' if generic else 'stored in bulk'}, without {name} of the writer"
                        raise Refuted(buffer, reason, self._time.who(writer, event), self._time.who(t, e))
            if cell.updates:
                for (other, combine), (when, event) in cell.updates.items():
                    if clock[other] < when and combine != combined:
                        raise self._race(buffer, t, e, write, other, event, True)
            if write:
                if cell.reads:
                    for other, (when, event) in cell.reads.items():
                        if clock[other] < when:
                            raise self._race(buffer, t, e, write, other, event, False)
                    cell.reads = None
                if combined is not None:
                    cell.updates = {**(cell.updates or {}), (component, combined): read}
                    continue
                cell.write, cell.updates = written, None
            elif cell.reads is None:
                cell.reads = {component: read}
            else:
                cell.reads[component] = read

    def _fenced_at(self, t: int, when: int, component: int, memory: MemoryType) -> int | None:
        """The time of the first proxy fence of a thread past its time ``when``; of an operation of its own, past its wait_group of that of that time."""
        fences = self._fences.get((t, memory), [])
        if component == t:
            later = bisect_right(fences, when, key=lambda f: f[0])
        else:
            part = 2 if component in self._time.stores else 1
            later = bisect_left(fences, when, key=lambda f: f[part])
        return fences[later][0] if later < len(fences) else None

    def _race(self, buffer: str, t: int, e: Event, write: bool, other: int, event: Event, other_write: bool) -> Refuted:
        reason = f"race: nothing orders a {'write' if other_write else 'read'} and a {'write' if write else 'read'} of one element"
        return Refuted(buffer, reason, self._time.who(self._time.owners[other], event), self._time.who(t, e))
