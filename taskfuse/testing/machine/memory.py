"""Shared and Global memory: the last accesses of each cell, and whether an access is ordered after them.

An element is one cell or fills several: a cell is as large as the smallest element that statements access in that memory. A stamp is of a thread
(its number, its epoch) or of an operation (``~`` its bit).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from taskfuse.testing.machine.fault import FaultFound, FaultKind
from taskfuse.testing.machine.threads import Clock, MachineThreads

Stamp = tuple[int, int, int]
"""Who, in which epoch, at which statement."""


@dataclass(slots=True)
class MachineOperation:
    """An operation of an asynchronous engine.

    Attributes:
        clock: the events that happened before it begins.
        bit, read_bit: bits of its completion, and of the completion of its reads.
        site: the statement that issued it; issuer: the thread.
        generic: it belongs to the generic proxy.
        is_store: it is a bulk store.
        waited: the issuer's epoch at the wait_group after which both are visible to it; ``None`` before.
    """

    clock: Clock
    bit: int
    read_bit: int
    site: int
    issuer: int
    generic: bool = False
    is_store: bool = False
    waited: int | None = None


class MachineMemory:
    """The cells of a launch."""

    def __init__(self, threads: MachineThreads) -> None:
        self.threads = threads
        self.cells: dict[int, tuple[list[Stamp], dict[int, Stamp]]] = {}
        self.updates: dict[int, dict[tuple[int, str], Stamp]] = {}
        self.operations: list[MachineOperation] = []
        self._bits: dict[int, MachineOperation] = {}

    def operation(self, clock: Clock, issuer: int, site: int, *, generic: bool = False) -> MachineOperation:
        """A new operation."""
        bit = 2 * len(self.operations)
        made = MachineOperation(clock, bit, bit + 1, site, issuer, generic)
        self.operations.append(made)
        self._bits[bit] = self._bits[bit + 1] = made
        return made

    # -- threads ----------------------------------------------------------------------------------------------------------------------

    def read(self, t: int, cell: int, site: int) -> None:
        """A thread reads."""
        if cell in self.updates:
            self._updated(t, cell, site, "an update and a read")
        threads = self.threads
        found = self.cells.get(cell)
        if found is None:
            self.cells[cell] = [], {t: (t, threads.own[t], site)}
            return
        for c, e, other in found[0]:
            if c != t and not ((threads.base[t].known[c] >= e) if c >= 0 else threads.base[t].done >> ~c & 1):
                raise self._race("a write and a read", t, site, other)
        found[1][t] = t, threads.own[t], site

    def write(self, t: int, cell: int, site: int) -> None:
        """A thread writes."""
        if cell in self.updates:
            self._updated(t, cell, site, "an update and a write")
            del self.updates[cell]
        threads = self.threads
        found = self.cells.get(cell)
        if found is not None:
            known, done = threads.base[t].known, threads.base[t].done
            for c, e, other in found[0]:
                if c != t and not ((known[c] >= e) if c >= 0 else done >> ~c & 1):
                    raise self._race("two writes", t, site, other)
            for c, e, other in found[1].values():
                if c != t and not ((known[c] >= e) if c >= 0 else done >> ~c & 1):
                    raise self._race("a read and a write", t, site, other)
        self.cells[cell] = [(t, threads.own[t], site)], {}

    def update(self, t: int, cells: Iterable[int], site: int, function: str) -> None:
        """A thread updates an element atomically: ordered with reads, writes and updates of engines, but not with updates of threads by the same function."""
        for cell in cells:
            for (c, other), stamp in self.updates.get(cell, {}).items():
                if c < 0 or other != function:
                    self._ordered(t, stamp, site, "two updates")
            writes, reads = self.cells.setdefault(cell, ([], {}))
            for stamp in writes:
                self._ordered(t, stamp, site, "a write and an update")
            for stamp in reads.values():
                self._ordered(t, stamp, site, "a read and an update")
            self.updates.setdefault(cell, {})[t, function] = t, self.threads.own[t], site

    def _updated(self, t: int, cell: int, site: int, what: str) -> None:
        for stamp in self.updates[cell].values():
            self._ordered(t, stamp, site, what)

    def _ordered(self, t: int, stamp: Stamp, site: int, what: str) -> None:
        c, e, other = stamp
        base = self.threads.base[t]
        if c != t and not ((base.known[c] >= e) if c >= 0 else base.done >> ~c & 1):
            raise self._race(what, t, site, other)

    def read_all(self, t: int, cells: Iterable[int], site: int) -> None:
        """A thread reads several cells."""
        for cell in cells:
            self.read(t, cell, site)

    def write_all(self, t: int, cells: Iterable[int], site: int) -> None:
        """A thread writes several cells."""
        for cell in cells:
            self.write(t, cell, site)

    def _race(self, what: str, t: int | None, site: int, other: int) -> FaultFound:
        return FaultFound(FaultKind.RACE, f"nothing orders {what} of one element; the other is statement {other}", t, site)

    # -- engines ----------------------------------------------------------------------------------------------------------------------

    def engine_reads(self, op: MachineOperation, cells: Iterable[int], fences: list[list[int]]) -> None:
        """An operation reads; ``fences``: those of the memory."""
        for cell in cells:
            found = self.cells.get(cell)
            if found is None:
                found = self.cells[cell] = [], {}
            for stamp in (*found[0], *self.updates.get(cell, {}).values()):
                self._check_write(op, stamp, fences, "a write and a read")
            found[1][~op.read_bit] = ~op.read_bit, 0, op.site

    def engine_writes(self, op: MachineOperation, cells: Iterable[int], fences: list[list[int]], *, fills: bool = False) -> None:
        """An operation writes; ``fills``: a slot in Shared memory, whose reads and last fill need only be over, though another block of the cluster says so."""
        known, done = op.clock.known, op.clock.done
        reads, over = (self.threads.reads, done | op.clock.over) if fills else (0, done)
        for cell in cells:
            found = self.cells.get(cell)
            if found is not None:
                for stamp in (*found[0], *self.updates.pop(cell, {}).values()):
                    self._check_write(op, stamp, fences, "two writes", over)
                for c, e, other in found[1].values():
                    if not ((known[c] >= e or known[reads + c] >= e) if c >= 0 else over >> ~c & 1):
                        raise self._race("a read and an asynchronous write", op.issuer, op.site, other)
            self.cells[cell] = [(~op.bit, 0, op.site)], {}

    def engine_updates(self, op: MachineOperation, cells: Iterable[int], fences: list[list[int]], function: str) -> None:
        """An operation updates elements atomically: ordered with reads, writes and updates of threads, but not with operations by the same function."""
        for cell in cells:
            writes, reads = self.cells.setdefault(cell, ([], {}))
            updates = self.updates.setdefault(cell, {})
            for stamp in (*writes, *(stamp for (c, other), stamp in updates.items() if c >= 0 or other != function)):
                self._check_write(op, stamp, fences, "a write and an update")
            for c, e, other in reads.values():
                if not ((op.clock.known[c] >= e) if c >= 0 else op.clock.done >> ~c & 1):
                    raise self._race("a read and an asynchronous update", op.issuer, op.site, other)
            updates[~op.bit, function] = ~op.bit, 0, op.site

    def _check_write(self, op: MachineOperation, stamp: Stamp, fences: list[list[int]], what: str, over: int = 0) -> None:
        c, e, other = stamp
        known = op.clock.known
        if c >= 0:
            if known[c] < e:
                raise self._race(what + " by an engine", op.issuer, op.site, other)
            writer, epoch = c, e
        else:
            before = self._bits[~c]
            is_load = not (before.generic or before.is_store)
            if not (op.clock.done | (over if is_load else 0)) >> ~c & 1:
                raise self._race(what + " by an engine", op.issuer, op.site, other)
            if op.generic or is_load or (before.is_store and before.issuer == op.issuer):
                return
            if before.waited is None:
                raise FaultFound(FaultKind.PROXY, "a copy that its issuer has not waited for is seen by an engine", op.issuer, op.site)
            writer, epoch = before.issuer, before.waited
        if not op.generic and not any(epoch < f <= known[writer] for f in fences[writer]):
            raise FaultFound(FaultKind.PROXY, f"no proxy fence of the writer stands behind statement {other}", op.issuer, op.site)
