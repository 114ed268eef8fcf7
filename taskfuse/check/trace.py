"""The events of every thread of one launch. Control flow in kernel IR depends on indices alone, so they are known before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.alignment import COORDINATE_BYTES, of_tile
from taskfuse.check.defined import Demand, demands, of_statement
from taskfuse.check.drawn_tables import drawn_tables
from taskfuse.check.fences import Fences, operands
from taskfuse.check.statement_tree import BLOCK_NAMES, CLUSTER_NAMES, THREAD_NAMES, together
from taskfuse.check.tiles import Storage, tile_elements
from taskfuse.ir.dims import nearest
from taskfuse.ir.fragments import MATRIX_ROW_BYTES, MATRIX_ROWS, matrices
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import TRUE, ZERO, Const, Expr, compile_expr, evaluate
from taskfuse.ir.shared_layouts import swizzle_period
from taskfuse.ir.types import MemoryType
from taskfuse.kir import Kernel, stmt_text
from taskfuse.kir.declarations import TensorMapParam, TensorParam
from taskfuse.kir.nodes import AsyncCopy, Bind, Choose, Compute, For, Gather, If, Stmt, TmaLoad, TmaStore, Update, VectorCopy
from taskfuse.kir.operands import Access, Descriptor, Queue, SemaphoreSlot
from taskfuse.kir.products import LdMatrix, Mma, Shuffle, StMatrix, Wgmma
from taskfuse.kir.synchronization import (
    Acquire,
    Advance,
    Arrive,
    ArriveAsync,
    Barrier,
    Commit,
    CursorInit,
    Expect,
    FenceInit,
    FenceProxyAsync,
    InitBarrier,
    Release,
    SetMaxNReg,
    Wait,
    WaitGroup,
    WgmmaFence,
)
from taskfuse.location import Quote
from taskfuse.target import MAX_THREADS, WARP, WARPGROUP

Ints = NDArray[np.int64]
Clock = NDArray[np.int32]
EVENTS = 200_000
GRAIN = 4  # granularity of Shared memory in bytes; smaller elements are tracked by themselves
BLOCKS = 8
LARGE = 330


class Refuted(Exception):
    """A counterexample."""

    def __init__(self, subject: str, reason: str, *notes: str) -> None:
        super().__init__(reason)
        self.subject = subject
        self.reason = reason
        self.notes = notes

    def quoting(self, statement: Quote) -> Refuted:
        """The same, with the statement that was executed, unless a note quotes one."""
        if not any(isinstance(n, Quote) for n in self.notes):
            self.notes = (*self.notes, statement)
        return self


class TooLarge(Exception):
    """The launch has more threads, statements or events than the limit."""


@dataclass(slots=True)
class Budget:
    """A limit on the work of all launches together.

    Attributes:
        statements: executions of a statement by some threads at once.
        events: executions by single threads; an access to many elements counts more.
    """

    statements: int = 80_000
    events: int = 600_000

    def spend(self, events: int) -> None:
        """Raises :class:`TooLarge` if nothing is left."""
        self.statements -= 1
        self.events -= events
        if self.statements < 0 or self.events < 0:
            raise TooLarge

    @property
    def spent(self) -> bool:
        """Nothing is left."""
        return self.statements < 0 or self.events < 0


@dataclass(frozen=True, slots=True)
class Event:
    """Something that one thread does.

    Attributes:
        role: label of the innermost labelled arm.
        key: barrier and slot, named barrier, buffer, or queue, by kind of statement.
        values: elements of an access; the arguments of the others.
        again: how often the thread has executed the statement before.
    """

    stmt: Stmt
    role: str
    key: Any
    values: Any = None
    is_write: bool = False
    again: int = 0


class Trace:
    """The events of every thread of one block."""

    def __init__(self, kernel: Kernel, symbols: Mapping[str, int], block: tuple[int, int, int], budget: Budget) -> None:
        self.kernel = kernel
        self.budget = budget
        shape = [int(evaluate(e, symbols)) for e in kernel.block]
        self.threads = shape[0] * shape[1] * shape[2]
        if not 0 < self.threads <= MAX_THREADS:
            raise TooLarge
        ids = np.arange(self.threads)
        self.env: dict[str, int | Ints] = dict(symbols)
        self.env |= dict(zip(BLOCK_NAMES, block, strict=True))
        self.env |= {name: b % int(evaluate(c, symbols)) for name, b, c in zip(CLUSTER_NAMES, block, kernel.cluster, strict=True)}
        self.env |= {THREAD_NAMES[0]: ids % shape[0], THREAD_NAMES[1]: ids // shape[0] % shape[1], THREAD_NAMES[2]: ids // (shape[0] * shape[1])}
        self._tables = drawn_tables(kernel, symbols)
        self.events: list[list[Event]] = [[] for _ in range(self.threads)]
        self.count = 0
        self._seen: dict[int, Ints] = {}
        self._role = ""
        self._barriers = {m.name: m.slots for m in kernel.mbarriers}
        self._slots: dict[str, int] = {}
        self.memory = {b.name: b.memory for b in kernel.buffers} | {
            p.name: MemoryType.Global for p in kernel.params if isinstance(p, TensorParam) and (p.is_output or p.name in kernel.in_place.values())
        }
        storage = Storage.of(kernel)
        self.shapes, self.sizes, self.maps = storage.shapes, storage.sizes, storage.maps
        self.origins = places(kernel, symbols)
        self._extents: dict[str, tuple[int, ...]] = {}
        self._fences = Fences({name: int(np.prod(self._shape(name))) for name in operands(kernel)}, self.threads)
        self._run(kernel.body, ids)

    def _value(self, e: Expr, ids: Ints) -> Ints:
        if isinstance(e, Const):
            return np.full(len(ids), e.value, np.int64)
        for d in demands(e):
            self._demand(d, ids)
        names = sorted(e.free)
        given = (self._tables[n] if n in self._tables else self._of(self.env[n], ids) for n in names)
        found: Any = compile_expr(e, names)(*given)
        return np.full(len(ids), int(found), np.int64) if np.ndim(found) == 0 else np.asarray(found, np.int64)

    def _demand(self, d: Demand, ids: Ints) -> None:
        """Raises :class:`Refuted` if a thread asks for what has no value, or for what it cannot do."""
        for c in d.conditions:
            ids = ids[self._value(c, ids).astype(np.bool_)]
        if not len(ids):
            return
        values = self._value(d.value, ids)
        bad = values < d.low
        if d.high is not None:
            bad |= values > (self._value(d.high, ids) if isinstance(d.high, Expr) else d.high)
        if bad.any():
            k = int(np.argmax(bad))
            raise Refuted(d.kind, f"{d.what} {d.value} is {values[k]}, and must be {d.bound}", f"thread {ids[k]}" + (f" in {self._role}" if self._role else ""))

    @staticmethod
    def _of(value: int | Ints, ids: Ints) -> int | Ints:
        return value if isinstance(value, int) else value[ids]

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
                            holds = self._value(arm.cond, left).astype(np.bool_)
                            before, self._role = self._role, arm.label or self._role
                            self._run(arm.body, left[holds])
                            self._role = before
                            left = left[~holds]
                    case For(var=var):
                        self._demands(stmt, ids)
                        at, stop, step = (self._value(e, ids) for e in (stmt.start, stmt.stop, stmt.step))
                        outer = self.env.get(var)
                        while True:
                            active = at < stop
                            if not active.any():
                                break
                            values = np.zeros(self.threads, np.int64)
                            values[ids] = at
                            same = at[active][0] if (at[active] == at[active][0]).all() else None
                            self.env[var] = values if same is None else int(same)
                            self._run(stmt.body, ids[active])
                            at = np.where(active, at + step, at)
                        if outer is not None:
                            self.env[var] = outer
                    case CursorInit(name=name, slots=slots, slot=slot, parity=parity):
                        self._slots[name] = slots
                        for part, value in (("slot", slot), ("parity", parity), ("phase", 0)):
                            self._state(f"{name}.{part}")[ids] = value
                    case Advance(cursor=name, count=count):
                        self._demands(stmt, ids)
                        slots, slot, parity = self._slots[name], self._state(f"{name}.slot"), self._state(f"{name}.parity")
                        at = slot[ids] + self._value(count, ids)
                        parity[ids] ^= (at // slots) & 1
                        self._state(f"{name}.phase")[ids] += at // slots
                        slot[ids] = at % slots
                    case _:
                        self._leaf(stmt, ids)
            except Refuted as found:
                raise found.quoting(stmt_text(stmt, self.kernel)) from None

    def _demands(self, stmt: Stmt, ids: Ints) -> None:
        for d in of_statement(stmt, self._barriers):
            self._demand(d, ids)

    def _state(self, name: str) -> Ints:
        """A part of a cursor, per thread."""
        found = self.env.setdefault(name, np.zeros(self.threads, np.int64))
        assert not isinstance(found, int)
        return found

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
            self.events[t].append(Event(stmt, self._role, keys[k], None if values is None else values[k], write, again[k]))

    def _leaf(self, stmt: Stmt, ids: Ints) -> None:
        match stmt:
            case Compute(out=out, operands=operands):
                for o in operands:
                    if isinstance(o, Access):
                        self._access(stmt, o, ids, write=False)
                self._access(stmt, out, ids, write=True)
            case Choose(out=out, cases=cases):
                left = ids
                for case in cases:
                    holds = self._value(TRUE if case is cases[-1] else case.cond, left).astype(np.bool_)  # nobody asks for the last one
                    if isinstance(case.operand, Access):
                        self._access(stmt, case.operand, left[holds], write=False)
                    left = left[~holds]
                self._access(stmt, out, ids, write=True)
            case Gather(out=out, values=found, width=width):
                # which element it reads depends on data: none is looked at, so that what is found holds whatever the data
                for v in found:
                    self._access(stmt, v.source, ids, write=False)
                self._access(stmt, out, ids, write=True, width=width)
                self._begin_at(stmt, out, ids, width * self.sizes[out.buffer])
            case Update(source=source, values=found):
                for access in (source, *(v.source for v in found)):  # which element it changes depends on data
                    self._access(stmt, access, ids, write=False)
            case VectorCopy(out=out, source=source, width=width):
                self._access(stmt, source, ids, write=False, width=width)
                self._access(stmt, out, ids, write=True, width=width)
                for access in (source, out):
                    self._begin_at(stmt, access, ids, width * self.sizes[access.buffer])
            case AsyncCopy(out=out, source=source, width=width, valid=valid):
                reads = ids[self._value(valid, ids).astype(np.bool_)]
                self._begin_at(stmt, source, reads, width * self.sizes[source.buffer])
                self._begin_at(stmt, out, ids, width * self.sizes[out.buffer])
                sources = dict(zip(reads.tolist(), self._elements(source, reads, width).tolist(), strict=True))
                firsts: list[int] = self._elements(out, ids, width).tolist()
                values: list[Any] = []
                for t, first in zip(ids.tolist(), firsts, strict=True):
                    at = sources.get(t)
                    values.append((out.buffer, np.arange(first, first + width), source.buffer, np.arange(0) if at is None else np.arange(at, at + width)))
                self._emit(stmt, ids, [Queue.COPY] * len(ids), values, write=True)
            case LdMatrix(out=out, source=source):
                self._access(stmt, out, ids, write=True, width=matrices(stmt.matrices, self.sizes[source.buffer]).count)
                self._rows(stmt, source, ids, write=False)
            case StMatrix(out=out, source=source):
                self._access(stmt, source, ids, write=False, width=matrices(stmt.matrices, self.sizes[out.buffer]).count)
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
                numbers = self._value(stmt.id, ids).tolist() if stmt.id is not None else [stmt.counter] * len(ids)
                self._emit(stmt, ids, [(scope, n) for n in numbers], self._value(stmt.threads, ids).tolist())
            case InitBarrier(barrier=slot, count=count):
                self._demands(stmt, ids)
                self._emit(stmt, ids, [(slot.name, s) for s in self._value(slot.slot, ids).tolist()], self._value(count, ids).tolist())
            case Arrive(barrier=slot) | ArriveAsync(barrier=slot):
                self._emit(stmt, ids, [(slot.name, s) for s in self._value(slot.slot, ids).tolist()])
            case Expect(barrier=slot, bytes=size):
                self._emit(stmt, ids, [(slot.name, s) for s in self._value(slot.slot, ids).tolist()], self._value(size, ids).tolist())
            case Wait(barrier=slot, parity=parity):
                self._emit(stmt, ids, [(slot.name, s) for s in self._value(slot.slot, ids).tolist()], self._value(parity, ids).tolist())
            case Release(semaphore=counter):
                self._emit(stmt, ids, self._counters(counter, ids))
            case Acquire(semaphore=counter, phases=phases):
                self._emit(stmt, ids, self._counters(counter, ids), self._value(phases, ids).tolist())
            case TmaLoad(out=out, map=name, barrier=slot, coords=coords):
                box = self.maps[name]
                size = int(np.prod(box.box))
                first = self._box_in_shared(stmt, out, box, coords, ids)
                keys = [(slot.name, s) for s in self._value(slot.slot, ids).tolist()]
                boxes = self._boxes(box, coords, ids) if box.tensor in self.memory else [np.arange(0)] * len(ids)
                self._emit(
                    stmt,
                    ids,
                    keys,
                    [(out.buffer, np.arange(f, f + size), size * self.sizes[box.tensor], box.tensor, g) for f, g in zip(first.tolist(), boxes, strict=True)],
                    write=True,
                    weight=size // 16,
                )
            case TmaStore(map=name, source=source, coords=coords):
                box = self.maps[name]
                size = int(np.prod(box.box))
                first = self._box_in_shared(stmt, source, box, coords, ids)
                boxes = self._boxes(box, coords, ids)
                self._emit(
                    stmt,
                    ids,
                    [Queue.BULK] * len(ids),
                    [(source.buffer, np.arange(f, f + size), box.tensor, g) for f, g in zip(first.tolist(), boxes, strict=True)],
                )
            case Wgmma(a=a, b=b):
                self._fenced(stmt, ids)
                tiles = [(d.base.buffer, self._tiles(stmt, d, rows, ids)) for d, rows in ((a, stmt.row.m), (b, stmt.n)) if isinstance(d, Descriptor)]
                self._emit(stmt, ids, [Queue.WGMMA] * len(ids), [[(buffer, elements[k]) for buffer, elements in tiles] for k in range(len(ids))])
            case Commit(queue=queue) | WaitGroup(queue=queue):
                if queue is Queue.WGMMA and isinstance(stmt, WaitGroup):
                    self._fences.retire(ids, stmt.pending)
                elif queue is Queue.WGMMA:
                    self._fences.commit(ids)
                self._emit(stmt, ids, [queue] * len(ids))
            case WgmmaFence():
                self._fences.fence(ids)
                self._emit(stmt, ids, [None] * len(ids))
            case FenceProxyAsync() | FenceInit() | SetMaxNReg():
                self._emit(stmt, ids, [None] * len(ids))
            case _:
                pass

    def _counters(self, slot: SemaphoreSlot, ids: Ints) -> list[tuple[str, tuple[int, ...]]]:
        """Name and index of a semaphore, per thread."""
        index = [self._value(e, ids).tolist() for e in slot.index]
        return [(slot.name, at) for at in zip(*index, strict=True)]

    def _shape(self, buffer: str) -> tuple[int, ...]:
        found = self._extents.get(buffer)
        if found is None:
            found = self._extents[buffer] = tuple(int(evaluate(e, self.env)) for e in self.shapes[buffer])
        return found

    def _elements(self, access: Access, ids: Ints, width: int = 1) -> Ints:
        """Row-major places of the first of ``width`` elements. Raises :class:`Refuted` outside the buffer."""
        place = np.zeros(len(ids), np.int64)
        for axis, (e, extent) in enumerate(zip(access.index, self._shape(access.buffer), strict=True)):
            values = self._value(e, ids)
            last = values + (width - 1 if axis == len(access.index) - 1 else 0)
            bad = (values < 0) | (last >= extent)
            if bad.any():
                t = int(ids[int(np.argmax(bad))])
                raise Refuted(
                    access.buffer,
                    f"index {last[bad][0] if values[bad][0] >= 0 else values[bad][0]} of axis {axis} is outside 0..{extent}",
                    f"thread {t}" + (f" in {self._role}" if self._role else ""),
                )
            place = place * extent + values
        return place

    def _begin_at(self, stmt: Stmt, access: Access, ids: Ints, multiple: int, first: Ints | None = None, below: int = 1) -> None:
        """Raises :class:`Refuted` if an access, or what begins ``first`` bytes behind the beginning of its buffer, is not at a multiple of some bytes.

        Args:
            below: how far it may be behind a multiple.
        """
        if not len(ids):
            return
        bytes_ = self.origins[access.buffer][1] + (self._elements(access, ids) * self.sizes[access.buffer] if first is None else first)
        behind = f", nor less than {below} behind one" if below > 1 else ""
        where = "Shared memory" if self.memory.get(access.buffer) is MemoryType.Shared else access.buffer
        what = f"of {where}, which is not a multiple of the {multiple} that it needs{behind}"
        self._check(stmt, access.buffer, ids, bytes_ % multiple >= below, bytes_, what)

    def _check(self, stmt: Stmt, buffer: str, ids: Ints, bad: NDArray[np.bool_], bytes_: Ints, what: str) -> None:
        """Raises :class:`Refuted` where ``bad``."""
        if bad.any():
            k = int(np.argmax(bad))
            who = f"thread {int(ids[k])}" + (f" in {self._role}" if self._role else "")
            raise Refuted(buffer, f"an access begins at byte {int(bytes_[k])} {what}", f"{who}: " + stmt_text(stmt, self.kernel))

    def _box_in_shared(self, stmt: Stmt, access: Access, box: TensorMapParam, coords: tuple[Expr, ...], ids: Ints) -> Ints:
        """The first elements of boxes in Shared memory. Raises :class:`Refuted` if one does not fit, or does not begin where it can."""
        if 0 in self._shape(box.tensor):
            raise Refuted(box.tensor, "a transfer of an empty tensor: it has no map", f"thread {int(ids[0])}: " + stmt_text(stmt, self.kernel))
        first, size = self._elements(access, ids), self.sizes[access.buffer]
        bytes_ = int(np.prod(box.box)) * size
        whole = int(np.prod(self._shape(access.buffer))) * size
        ends = f"of {access.buffer}, and its box of {bytes_} bytes ends behind the {whole} of the buffer"
        self._check(stmt, access.buffer, ids, first * size + bytes_ > whole, first * size, ends)
        self._begin_at(stmt, access, ids, swizzle_period(box.swizzle))
        last = self._value(coords[-1], ids) * self.sizes[box.tensor]
        odd = f"of the last axis of {box.tensor}, which is not a multiple of {COORDINATE_BYTES}"
        self._check(stmt, box.tensor, ids, last % COORDINATE_BYTES != 0, last, odd)
        return first

    def _tiles(self, stmt: Wgmma, d: Descriptor, rows: int, ids: Ints) -> list[Ints]:
        """The elements of tiles, of the first thread of each warpgroup. Raises :class:`Refuted` if one does not fit, or does not begin where it can."""
        size = self.sizes[d.base.buffer]
        start = self._elements(d.base, ids) * size + self._value(d.offset, ids)
        whole = int(np.prod(self._shape(d.base.buffer)))
        for need in of_tile(d, rows, stmt.k, ZERO, size):
            if need.begins:
                self._begin_at(stmt, d.base, ids, need.of, start, need.below)
            elif int(evaluate(need.bytes, {})) % need.of:
                raise Refuted(d.base.buffer, f"{need.what} is {need.bytes}, not a multiple of {need.of}", stmt_text(stmt, self.kernel))
        found: dict[int, Ints] = {}
        for at in np.unique(start).tolist():
            found[at] = tile_elements(d, rows, stmt.k, size, at)
            ends = f"of {d.base.buffer}, and its tile of {rows} x {stmt.k} elements reaches behind the {whole * size} of the buffer"
            self._check(stmt, d.base.buffer, ids, (start == at) & (at < 0 or int(found[at].max()) >= whole), start, ends)
        nothing = np.arange(0)
        return [found[at] if t % WARPGROUP == 0 else nothing for t, at in zip(ids.tolist(), start.tolist(), strict=True)]

    def _boxes(self, box: TensorMapParam, coords: tuple[Expr, ...], ids: Ints) -> list[Ints]:
        """The elements of a tensor that the box of each thread has."""
        at = np.stack([self._value(c, ids) for c in coords])
        return [self._box(box, at[:, k]) for k in range(len(ids))]

    def _box(self, box: TensorMapParam, at: Ints) -> Ints:
        shape = self._shape(box.tensor)
        grids = np.meshgrid(*(np.arange(max(0, o), max(0, min(o + e, n))) for o, e, n in zip(at.tolist(), box.box, shape, strict=True)), indexing="ij")
        place = np.zeros(grids[0].size, np.int64)
        for g, n in zip(grids, shape, strict=True):
            place = place * n + g.reshape(-1)
        return place

    def _rows(self, stmt: LdMatrix | StMatrix, access: Access, ids: Ints, *, write: bool) -> None:
        """Rows of matrices. A lane stores the row that it addresses, if its address is used, and loads the elements that it gets."""
        itemsize = self.sizes[access.buffer]
        used = ids[ids % WARP < MATRIX_ROWS * stmt.matrices]
        places = np.zeros(self.threads + WARP, np.int64)
        places[used] = self._elements(access, used)
        self._begin_at(stmt, access, used, MATRIX_ROW_BYTES)
        elements: list[Ints] = []
        rows, columns = matrices(stmt.matrices, itemsize, transpose=stmt.transpose).table()
        for t in ids.tolist():
            if write:
                is_used = t % WARP < MATRIX_ROWS * stmt.matrices
                elements.append(places[t] + np.arange(MATRIX_ROW_BYTES // itemsize if is_used else 0))
            else:
                elements.append(places[t - t % WARP + rows[t % WARP]] + columns[t % WARP])
        self._emit(stmt, ids, [access.buffer] * len(ids), elements, write=write)

    def _access(self, stmt: Stmt, access: Access, ids: Ints, *, write: bool, width: int = 1) -> None:
        if not len(ids):
            return
        memory = self.memory.get(access.buffer)
        is_register = memory is not None and not MEDIA[memory].has_addresses
        if is_register and not access.index:
            return
        place = self._elements(access, ids, width)
        if is_register:
            self._idle(stmt, access.buffer, ids, place, width, "its registers are those of a wgmma that may be in flight")
            self._fences.touch(access.buffer, ids, place, width)
        if memory is None or is_register:
            return
        elements: list[Ints] = [np.arange(p, p + width) for p in place.tolist()]
        self._emit(stmt, ids, [access.buffer] * len(ids), elements, write=write)

    def _fenced(self, stmt: Wgmma, ids: Ints) -> None:
        """Raises :class:`Refuted` if a thread has not fenced its registers of a wgmma, or another wgmma has them."""
        self._refute(stmt, self._fences.missing(ids), "no FENCE wgmma stands before it")
        held: list[tuple[str, Ints, int, object]] = []
        for access, what, fragment in ((stmt.acc, "accumulators", stmt.accumulators), (stmt.a, "operand registers", stmt.row.a_registers)):
            if isinstance(access, Access) and fragment is not None:
                count = fragment.count
                first = self._elements(access, ids)
                # one shape adds up in equal accumulators; operands are only read
                how: object = (stmt.n, stmt.k, tuple(first.tolist())) if access is stmt.acc else what
                held.append((access.buffer, first, count, how))
                self._refute(stmt, self._fences.open(access.buffer, ids, first, count), f"no FENCE wgmma stands between an access to its {what} and it")
                self._idle(stmt, access.buffer, ids, first, count, f"its {what} are registers of another wgmma that may be in flight", how)
                late = self._fences.busy(access.buffer, ids, first, count, how, retired=True)
                self._refute(stmt, late, f"no FENCE wgmma stands between the wait_group of another wgmma that has its {what} and it")
        for buffer, first, count, how in held:
            self._fences.issue(buffer, ids, first, count, how)

    def _idle(self, stmt: Stmt, buffer: str, ids: Ints, first: Ints, count: int, reason: str, how: object = None) -> None:
        """Raises :class:`Refuted` if a wgmma in flight has some of ``count`` registers of a thread from its ``first`` on, otherwise than ``how``."""
        self._refute(stmt, self._fences.busy(buffer, ids, first, count, how), reason)

    def _refute(self, stmt: Stmt, thread: int | None, reason: str) -> None:
        if thread is not None:
            text = stmt_text(stmt, self.kernel)
            raise Refuted(text.split(" ")[0], reason, f"thread {thread}{' in ' + self._role if self._role else ''}: " + text)


def places(kernel: Kernel, symbols: Mapping[str, int]) -> dict[str, tuple[str, int, int]]:
    """Address space, first byte and element size of every buffer; Shared ones in one space."""
    found: dict[str, tuple[str, int, int]] = {p.name: (p.into or p.name, 0, p.dtype.itemsize) for p in kernel.params if isinstance(p, TensorParam)}
    end = 0
    for b in kernel.buffers:
        if not MEDIA[b.memory].is_placed:
            found[b.name] = (b.name, 0, b.dtype.itemsize)
            continue
        size = b.dtype.itemsize
        for e in b.shape:
            size *= int(evaluate(e, symbols))
        first = -(-end // b.align) * b.align if b.offset is None else int(evaluate(b.offset, symbols))
        found[b.name] = ("shared", first, b.dtype.itemsize)
        end = max(end, first + size)
    return found


def samples(kernel: Kernel) -> Iterator[dict[str, int]]:
    """Extents to look at, within what is known of them: small ones; each alone large, for many trips in few blocks; all of some size."""
    seen: set[tuple[int, ...]] = set()
    count = len(kernel.extents)
    wanted = [[2 + k for k in range(count)]]
    wanted += [[LARGE if k == i else 1 for k in range(count)] for i in reversed(range(count))]
    wanted += [[base + k for k in range(count)] for base in (1, 0, 5, 9, 40, LARGE, 130)]
    for values in wanted:
        extents = nearest(kernel.extents, {e.name: value for value, e in zip(values, kernel.extents, strict=True)})
        if extents is not None and tuple(extents.values()) not in seen:
            seen.add(tuple(extents.values()))
            yield extents
