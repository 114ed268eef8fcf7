"""The events of every thread of one launch, known before it runs, since control flow in kernel IR depends only on indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.defined import of_statement
from taskfuse.check.drawn_launches import drawn_values
from taskfuse.check.fences import Fences, operands
from taskfuse.check.known import together
from taskfuse.check.refuted import Refuted, TooLarge, WorkBudget
from taskfuse.check.thread_values import Ints, ThreadValues
from taskfuse.check.touched_elements import TouchedElements
from taskfuse.ir.fragments import MATRIX_ROW_BYTES, MATRIX_ROWS, matrices
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import TRUE
from taskfuse.kir import Kernel, stmt_text
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Bind, Choose, Compute, For, GatherCopy, If, Stmt, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Access, Descriptor, Queue, SemaphoreSlot
from taskfuse.kir.products import LdMatrix, Mma, Shuffle, StMatrix, Wgmma
from taskfuse.kir.synchronization import (
    Acquire,
    Advance,
    Arrive,
    ArriveAsync,
    Barrier,
    Commit,
    Cursor,
    CursorInit,
    Expect,
    InitBarrier,
    Release,
    Wait,
    WaitGroup,
    WgmmaFence,
)
from taskfuse.target import WARP

Clock = NDArray[np.int32]
EVENTS = 200_000
GRAIN = 4  # granularity of Shared memory in bytes; smaller elements are tracked by themselves
BLOCKS = 8


@dataclass(frozen=True, slots=True)
class Event:
    """An action of one thread.

    Attributes:
        role: label of the innermost labelled arm.
        key: barrier and slot, named barrier, buffer, or queue, depending on the statement.
        values: elements of an access; the arguments of other statements.
        again: number of previous executions of the statement by the thread.
    """

    stmt: Stmt
    role: str
    key: Any
    values: Any = None
    is_write: bool = False
    again: int = 0


class Trace:
    """The events of every thread of one block."""

    def __init__(self, kernel: Kernel, symbols: Mapping[str, int], block: tuple[int, int, int], budget: WorkBudget) -> None:
        self.kernel = kernel
        self.budget = budget
        self._values = ThreadValues(kernel, symbols, block)
        self._touched = TouchedElements(kernel, symbols, self._values)
        self.threads = self._values.threads
        self.memory = self._touched.memory
        self.events: list[list[Event]] = [[] for _ in range(self.threads)]
        self.count = 0
        self._seen: dict[int, Ints] = {}
        self._barriers = {m.name: m.slots for m in kernel.mbarriers}
        self._slots: dict[str, int] = {}
        self._fences = Fences({name: int(np.prod(self._touched.shape(name))) for name in operands(kernel)}, self.threads)
        self._run(kernel.body, np.arange(self.threads))

    def _run(self, body: tuple[Stmt, ...], ids: Ints) -> None:
        for stmt in body:
            if not len(ids):
                return
            self.budget.spend(0)
            try:
                match stmt:
                    case Bind():
                        self._run(stmt.body, ids)
                    case If(branches=branches):
                        left = ids
                        for arm in branches:
                            holds = self._values.of(arm.cond, left).astype(np.bool_)
                            before, self._values.role = self._values.role, arm.label or self._values.role
                            self._run(arm.body, left[holds])
                            self._values.role = before
                            left = left[~holds]
                    case For(var=var):
                        self._demands(stmt, ids)
                        at, stop, step = (self._values.of(e, ids) for e in (stmt.start, stmt.stop, stmt.step))
                        outer = self._values.env.get(var)
                        while True:
                            active = at < stop
                            if not active.any():
                                break
                            values = np.zeros(self.threads, np.int64)
                            values[ids] = at
                            same = at[active][0] if (at[active] == at[active][0]).all() else None
                            self._values.env[var] = values if same is None else int(same)
                            self._run(stmt.body, ids[active])
                            at = np.where(active, at + step, at)
                        if outer is not None:
                            self._values.env[var] = outer
                    case CursorInit(name=name, slots=slots, slot=slot, parity=parity):
                        self._slots[name] = slots
                        for symbol, value in zip(Cursor(name).symbols, (slot, parity, 0), strict=True):
                            self._values.state(symbol)[ids] = value
                    case Advance(cursor=name, count=count):
                        self._demands(stmt, ids)
                        slots, (slot, parity, phase) = self._slots[name], map(self._values.state, Cursor(name).symbols)
                        at = slot[ids] + self._values.of(count, ids)
                        parity[ids] ^= (at // slots) & 1
                        phase[ids] += at // slots
                        slot[ids] = at % slots
                    case _:
                        self._leaf(stmt, ids)
            except Refuted as found:
                raise found.quoting(stmt_text(stmt, self.kernel)) from None

    def _demands(self, stmt: Stmt, ids: Ints) -> None:
        for d in of_statement(stmt, self._barriers):
            self._values.demand(d, ids)

    def _again(self, stmt: Stmt, ids: Ints) -> Ints:
        seen = self._seen.setdefault(id(stmt), np.zeros(self.threads, np.int64))
        seen[ids] += 1
        return seen[ids] - 1

    def _emit(self, stmt: Stmt, ids: Ints, keys: list[Any], values: list[Any] | None = None, *, write: bool = False, weight: int = 0) -> None:
        self.count += len(ids) + weight
        if self.count > EVENTS:
            raise TooLarge
        self.budget.spend((len(ids) * (4 + self.threads // 64) + 16 * weight) // 4)
        again = self._again(stmt, ids).tolist() if isinstance(stmt, Barrier) or together(stmt) else [0] * len(ids)
        threads: list[int] = ids.tolist()
        for k, t in enumerate(threads):
            self.events[t].append(Event(stmt, self._values.role, keys[k], None if values is None else values[k], write, again[k]))

    def _leaf(self, stmt: Stmt, ids: Ints) -> None:
        match stmt:
            case Compute(out=out, operands=operands):
                for o in operands:
                    if isinstance(o, Access):
                        self._access(stmt, o, ids, write=False)
                self._access(stmt, out, ids, write=True)
            case Choose(out=out, cases=cases):
                if not self.kernel.definitions:
                    self._demands(stmt, ids)
                left = ids
                for case in cases:
                    holds = self._values.of(TRUE if case is cases[-1] else case.cond, left).astype(np.bool_)  # nobody asks for the last one
                    if isinstance(case.operand, Access):
                        self._access(stmt, case.operand, left[holds], write=False)
                    left = left[~holds]
                self._access(stmt, out, ids, write=True)
            case GatherCopy(out=out, values=found, width=width):
                # which element it reads depends on data: none is looked at, so that what is found holds whatever the data
                for v in found:
                    self._access(stmt, v.source, ids, write=False)
                self._access(stmt, out, ids, write=True, width=width)
                self._touched.begin_at(stmt, out, ids, width * self._touched.sizes[out.buffer])
            case AtomicUpdate(out=out, source=source, values=found, width=width):
                for v in found:
                    self._access(stmt, v.source, ids, write=False)
                self._access(stmt, source, ids, write=False, width=width)
                self._update(stmt, ids)
                if width > 1 and not found:
                    self._touched.begin_at(stmt, out, ids, width * self._touched.sizes[out.buffer])
            case VectorCopy(out=out, source=source, width=width):
                self._access(stmt, source, ids, write=False, width=width)
                self._access(stmt, out, ids, write=True, width=width)
                for access in (source, out):
                    self._touched.begin_at(stmt, access, ids, width * self._touched.sizes[access.buffer])
            case AsyncCopy(out=out, source=source, width=width, valid=valid):
                reads = ids[self._values.of(valid, ids).astype(np.bool_)]
                self._touched.begin_at(stmt, source, reads, width * self._touched.sizes[source.buffer])
                self._touched.begin_at(stmt, out, ids, width * self._touched.sizes[out.buffer])
                sources = dict(zip(reads.tolist(), self._touched.elements(source, reads, width).tolist(), strict=True))
                firsts: list[int] = self._touched.elements(out, ids, width).tolist()
                values: list[Any] = []
                for t, first in zip(ids.tolist(), firsts, strict=True):
                    at = sources.get(t)
                    values.append((out.buffer, np.arange(first, first + width), source.buffer, np.arange(0) if at is None else np.arange(at, at + width)))
                self._emit(stmt, ids, [Queue.COPY] * len(ids), values, write=True)
            case LdMatrix(out=out, source=source):
                self._access(stmt, out, ids, write=True, width=matrices(stmt.matrices, self._touched.sizes[source.buffer]).count)
                self._rows(stmt, source, ids, write=False)
            case StMatrix(out=out, source=source):
                self._access(stmt, source, ids, write=False, width=matrices(stmt.matrices, self._touched.sizes[out.buffer]).count)
                self._rows(stmt, out, ids, write=True)
            case Mma(acc=acc, a=a, b=b):
                for registers in (acc, a, b):
                    self._access(stmt, registers, ids, write=False)
                self._emit(stmt, ids, [None] * len(ids))
            case Shuffle(out=out, source=source):
                self._access(stmt, source, ids, write=False)
                self._access(stmt, out, ids, write=True)
                self._emit(stmt, ids, [None] * len(ids))
            case Barrier(scope=scope):
                numbers = self._values.of(stmt.id, ids).tolist() if stmt.id is not None else [stmt.counter] * len(ids)
                self._emit(stmt, ids, [(scope, n) for n in numbers], self._values.of(stmt.threads, ids).tolist())
            case InitBarrier(barrier=slot, count=count):
                self._demands(stmt, ids)
                self._emit(stmt, ids, [(slot.name, s) for s in self._values.of(slot.slot, ids).tolist()], self._values.of(count, ids).tolist())
            case Arrive(barrier=slot) | ArriveAsync(barrier=slot):
                self._emit(stmt, ids, [(slot.name, s) for s in self._values.of(slot.slot, ids).tolist()])
            case Expect(barrier=slot, bytes=size):
                self._emit(stmt, ids, [(slot.name, s) for s in self._values.of(slot.slot, ids).tolist()], self._values.of(size, ids).tolist())
            case Wait(barrier=slot, parity=parity):
                self._emit(stmt, ids, [(slot.name, s) for s in self._values.of(slot.slot, ids).tolist()], self._values.of(parity, ids).tolist())
            case Release(semaphore=counter):
                self._emit(stmt, ids, self._counters(counter, ids))
            case Acquire(semaphore=counter, phases=phases):
                self._emit(stmt, ids, self._counters(counter, ids), self._values.of(phases, ids).tolist())
            case TmaLoad(out=out, map=name, barrier=slot, coords=coords):
                box = self._touched.maps[name]
                size = int(np.prod(box.box))
                first = self._touched.box_in_shared(stmt, out, box, coords, ids)
                keys = [(slot.name, s) for s in self._values.of(slot.slot, ids).tolist()]
                boxes = self._touched.boxes(box, coords, ids) if box.tensor in self.memory else [np.arange(0)] * len(ids)
                self._emit(
                    stmt,
                    ids,
                    keys,
                    [
                        (out.buffer, np.arange(f, f + size), size * self._touched.sizes[box.tensor], box.tensor, g)
                        for f, g in zip(first.tolist(), boxes, strict=True)
                    ],
                    write=True,
                    weight=size // 16,
                )
            case TmaStore(map=name, source=source, coords=coords):
                box = self._touched.maps[name]
                size = int(np.prod(box.box))
                first = self._touched.box_in_shared(stmt, source, box, coords, ids)
                boxes = self._touched.boxes(box, coords, ids)
                self._emit(
                    stmt,
                    ids,
                    [Queue.BULK] * len(ids),
                    [(source.buffer, np.arange(f, f + size), box.tensor, g) for f, g in zip(first.tolist(), boxes, strict=True)],
                )
            case Wgmma(a=a, b=b):
                self._fenced(stmt, ids)
                tiles = [(d.base.buffer, self._touched.tiles(stmt, d, rows, ids)) for d, rows in ((a, stmt.row.m), (b, stmt.n)) if isinstance(d, Descriptor)]
                self._emit(stmt, ids, [Queue.WGMMA] * len(ids), [[(buffer, elements[k]) for buffer, elements in tiles] for k in range(len(ids))])
            case Commit(queue=queue) | WaitGroup(queue=queue):
                if queue is Queue.WGMMA and isinstance(stmt, WaitGroup):
                    self._fences.wait(ids, stmt.pending)
                elif queue is Queue.WGMMA:
                    self._fences.commit(ids)
                self._emit(stmt, ids, [queue] * len(ids))
            case WgmmaFence():
                self._fences.fence(ids)
                self._emit(stmt, ids, [None] * len(ids))
            case _:
                self._emit(stmt, ids, [None] * len(ids))

    def _counters(self, slot: SemaphoreSlot, ids: Ints) -> list[tuple[str, tuple[int, ...]]]:
        """Name and index of a semaphore, per thread."""
        index = [self._values.of(e, ids).tolist() for e in slot.index]
        return [(slot.name, at) for at in zip(*index, strict=True)]

    def _access(self, stmt: Stmt, access: Access, ids: Ints, *, write: bool, width: int = 1) -> None:
        if not len(ids):
            return
        memory = self.memory.get(access.buffer)
        is_register = memory is not None and not MEDIA[memory].has_addresses
        if is_register and not access.index:
            return
        place = self._touched.elements(access, ids, width)
        if is_register:
            self._idle(stmt, access.buffer, ids, place, width, "its registers are those of a wgmma that may be in flight")
            self._fences.touch(access.buffer, ids, place, width)
        if memory is None or is_register:
            return
        elements: list[Ints] = [np.arange(p, p + width) for p in place.tolist()]
        self._emit(stmt, ids, [access.buffer] * len(ids), elements, write=write)

    def _update(self, stmt: AtomicUpdate, ids: Ints) -> None:
        """Elements that threads may combine something with, whatever other threads' data are. None if the integers that say so may not be any."""
        sources = [v.source.buffer for v in stmt.values]
        if len({*sources}) < len(sources) or not {p.name for p in self.kernel.inputs if p.name not in self.memory}.issuperset(sources):
            return
        found: list[Ints] = []
        for row in drawn_values([int(self._values.of(v.extent, ids[:1])[0]) for v in stmt.values]).tolist():
            self._values.env.update({v.symbol: number for v, number in zip(stmt.values, row, strict=True)})
            first = self._touched.elements(stmt.out, ids, stmt.width)
            found += (first + k for k in range(stmt.width))
        if found:
            each = np.stack(found, axis=1)
            self._emit(stmt, ids, [stmt.out.buffer] * len(ids), [np.unique(elements) for elements in each], write=True, weight=each.size // 16)

    def _rows(self, stmt: LdMatrix | StMatrix, access: Access, ids: Ints, *, write: bool) -> None:
        """Rows of matrices. A lane stores the row that it addresses, if its address is used, and loads the elements that it gets."""
        itemsize = self._touched.sizes[access.buffer]
        used = ids[ids % WARP < MATRIX_ROWS * stmt.matrices]
        places = np.zeros(self.threads + WARP, np.int64)
        places[used] = self._touched.elements(access, used)
        self._touched.begin_at(stmt, access, used, MATRIX_ROW_BYTES)
        elements: list[Ints] = []
        rows, columns = matrices(stmt.matrices, itemsize, transpose=stmt.transpose).table()
        for t in ids.tolist():
            if write:
                is_used = t % WARP < MATRIX_ROWS * stmt.matrices
                elements.append(places[t] + np.arange(MATRIX_ROW_BYTES // itemsize if is_used else 0))
            else:
                elements.append(places[t - t % WARP + rows[t % WARP]] + columns[t % WARP])
        self._emit(stmt, ids, [access.buffer] * len(ids), elements, write=write)

    def _fenced(self, stmt: Wgmma, ids: Ints) -> None:
        """Raises :class:`Refuted` if a thread has not fenced its registers of a wgmma, or another wgmma has them."""
        self._refute(stmt, self._fences.missing(ids), "no FENCE wgmma stands before it")
        held: list[tuple[str, Ints, int, object]] = []
        for access, what, fragment in ((stmt.acc, "accumulators", stmt.accumulators), (stmt.a, "operand registers", stmt.row.a_registers)):
            if isinstance(access, Access) and fragment is not None:
                count = fragment.count
                first = self._touched.elements(access, ids)
                # one shape adds up in equal accumulators; operands are only read
                how: object = (stmt.n, stmt.k, tuple(first.tolist())) if access is stmt.acc else what
                held.append((access.buffer, first, count, how))
                self._refute(stmt, self._fences.open(access.buffer, ids, first, count), f"no FENCE wgmma stands between an access to its {what} and it")
                self._idle(stmt, access.buffer, ids, first, count, f"its {what} are registers of another wgmma that may be in flight", how)
                late = self._fences.busy(access.buffer, ids, first, count, how, waited=True)
                self._refute(stmt, late, f"no FENCE wgmma stands between the wait_group of another wgmma that has its {what} and it")
        for buffer, first, count, how in held:
            self._fences.issue(buffer, ids, first, count, how)

    def _idle(self, stmt: Stmt, buffer: str, ids: Ints, first: Ints, count: int, reason: str, how: object = None) -> None:
        """Raises :class:`Refuted` if a wgmma in flight has some of ``count`` registers of a thread from its ``first`` on, otherwise than ``how``."""
        self._refute(stmt, self._fences.busy(buffer, ids, first, count, how), reason)

    def _refute(self, stmt: Stmt, thread: int | None, reason: str) -> None:
        if thread is not None:
            text = stmt_text(stmt, self.kernel)
            raise Refuted(text.split(" ")[0], reason, f"thread {thread}{' in ' + self._values.role if self._values.role else ''}: " + text)
