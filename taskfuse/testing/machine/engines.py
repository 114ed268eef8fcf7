"""Asynchronous engines: bulk copies, asynchronous copies, wgmma; the queues in which threads wait for them (PTX ISA, the section of each)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from taskfuse.ir.shared_layouts import Major
from taskfuse.testing.machine.barriers import MachineBarriers
from taskfuse.testing.machine.fault import FaultFound, FaultKind
from taskfuse.testing.machine.launch import BLOCK_BYTES, MachinePlace
from taskfuse.testing.machine.memory import MachineMemory, MachineOperation
from taskfuse.testing.machine.threads import Clock, MachineThreads

TMA_ALIGNMENT = 128
LINE = 16
"""Bytes of which the start of a box is a multiple along the last axis of its tensor."""
CHUNK = 16
"""Bytes of a row of a core matrix, which a swizzle moves as a unit."""


@dataclass(slots=True)
class Batches:
    """Operations of a queue: those since the last commit, and the batches before."""

    open: list[MachineOperation] = field(default_factory=list[MachineOperation])
    closed: list[list[MachineOperation]] = field(default_factory=list[list[MachineOperation]])

    def commit(self) -> None:
        """Close the batch."""
        self.closed.append(self.open)
        self.open = []

    def finished(self, pending: int) -> Iterator[MachineOperation]:
        """The operations that are complete when at most ``pending`` batches are not."""
        for batch in self.closed[: max(0, len(self.closed) - pending)]:
            yield from batch

    def all(self) -> Iterator[MachineOperation]:
        """Every operation."""
        for batch in (*self.closed, self.open):
            yield from batch


@dataclass(frozen=True, slots=True)
class MachineTile:
    """A wgmma operand: its address in the machine, and its byte offsets (:class:`taskfuse.kir.operands.Descriptor`)."""

    address: int
    swizzle: int
    lbo: int
    sbo: int
    major: Major
    itemsize: int
    place: MachinePlace

    def chunks(self, first: int, last: int) -> Iterator[int]:
        """Addresses, before the swizzle, of all 16 bytes of rows (of A and B) ``first`` to ``last`` along the 32 bytes of k."""
        if self.major is Major.K:
            for row in range(first, last):
                start = self.address + row // 8 * self.sbo + row % 8 * (self.swizzle or CHUNK)
                yield start
                yield start + (CHUNK if self.swizzle else self.lbo)
            return
        span = self.swizzle or CHUNK
        along, beyond = (self.lbo, self.sbo) if self.swizzle else (self.sbo, self.lbo)
        for byte in range(first * self.itemsize, last * self.itemsize, CHUNK):
            for k in range(32 // self.itemsize):
                yield self.address + byte // span * along + k // 8 * beyond + k % 8 * span + byte % span

    def swizzled(self, chunk: int) -> int:
        """The address of a chunk after the swizzle."""
        bits = {0: 0, 32: 0x10, 64: 0x30, 128: 0x70}[self.swizzle]
        return chunk ^ (chunk >> 3 & bits)


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a tensor, as described by its map."""

    tensor: MachinePlace
    coords: tuple[int, ...]
    shape: tuple[int, ...]
    swizzle: int
    steps: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes, including those outside the tensor."""
        return math.prod(self.shape) * self.tensor.itemsize


@dataclass(frozen=True, slots=True)
class MachineRegisters:
    """Consecutive registers of each thread."""

    name: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class WgmmaFactors:
    """The operands of a thread for a wgmma."""

    acc: MachineRegisters
    shape: tuple[object, ...]
    a: MachineTile | MachineRegisters
    b: MachineTile
    n: int
    accumulate: bool


class MachineEngines:
    """The engines of a launch.

    Args:
        shared_cell, global_cell: bytes of a cell.
        later: schedules a step for any later time.
    """

    def __init__(
        self,
        threads: MachineThreads,
        memory: MachineMemory,
        barriers: MachineBarriers,
        shared_cell: int,
        global_cell: int,
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self.threads, self.memory, self.barriers, self.later = threads, memory, barriers, later
        self.shared_cell, self.global_cell = shared_cell, global_cell
        self.bulk: dict[int, Batches] = {}
        self.copies: dict[int, Batches] = {}
        self.covered: dict[int, int] = {}
        self.wgmmas: dict[int, Batches] = {}
        self.loads: list[tuple[int, MachineOperation]] = []
        self.touched: dict[int, set[tuple[str, int]]] = {}
        self.fenced: set[int] = set()
        self.in_flight: dict[int, dict[tuple[str, int], tuple[int, tuple[object, ...] | None]]] = {}

    # -- addresses ----------------------------------------------------------------------------------------------------------------------

    def shared_cells(self, address: int, size: int) -> range:
        """Cells of bytes in Shared memory."""
        return range(address // self.shared_cell, (address + size - 1) // self.shared_cell + 1)

    def _box(self, t: int, site: int, box: Box) -> Iterator[int]:
        """Cells of the part of a box that lies in the tensor."""
        place = box.tensor
        if not place.size:
            raise FaultFound(FaultKind.BOUNDS, f"a copy of '{place.name}', which has no element and so no map", t, site)
        if box.coords[-1] * place.itemsize % LINE:
            raise FaultFound(FaultKind.ALIGNMENT, f"a box at {box.coords[-1]} along the last axis of '{place.name}'", t, site)
        every = zip(box.coords, box.shape, box.steps, place.shape, strict=True)
        axes = [[i for i in range(c, c + n * step, step) if 0 <= i < extent] for c, n, step, extent in every]

        def rows(axis: int, index: int) -> Iterator[int]:
            if axis == len(axes) - 1:
                inner = axes[axis]
                if inner:
                    first = place.base + (index * place.shape[axis] + inner[0]) * place.itemsize
                    yield from range(first // self.global_cell, (first + len(inner) * place.itemsize - 1) // self.global_cell + 1)
                return
            for i in axes[axis]:
                yield from rows(axis + 1, index * place.shape[axis] + i)

        return rows(0, 0)

    def _tile(self, t: int, site: int, address: int, box: Box, place: MachinePlace) -> range:
        """The cells of a box in Shared memory."""
        offset, size = address % BLOCK_BYTES, box.size
        if offset < place.base or offset + size > place.base + place.size:
            raise FaultFound(FaultKind.BOUNDS, f"a box of {size} bytes leaves '{place.name}'", t, site)
        if offset % max(TMA_ALIGNMENT, 8 * box.swizzle):
            raise FaultFound(FaultKind.ALIGNMENT, f"a box at byte {offset} of Shared memory", t, site)
        return self.shared_cells(address, size)

    # -- bulk copies --------------------------------------------------------------------------------------------------------------------

    def load(self, t: int, site: int, address: int, place: MachinePlace, box: Box, reached: Sequence[tuple[int, int]]) -> None:
        """A box from Global to Shared memory; ``reached``: blocks, and the mbarrier of each."""
        own_block = address // BLOCK_BYTES
        clock = self.threads.clock([t])
        for block, k in reached:
            there = address + (block - own_block) * BLOCK_BYTES
            self.barriers.used_by_engine(t, site, k)
            op = self.memory.operation(clock, t, site)
            cells = self._box(t, site, box)
            if not box.tensor.is_input:
                self.memory.engine_reads(op, cells, self.threads.global_fences)
            self.memory.engine_writes(op, self._tile(t, site, there, box, place), self.threads.shared_fences, fills=True)
            self.loads.append((block, op))
            self.later(lambda k=k, op=op: self.barriers.bytes_come(t, site, k, box.size, 3 << op.bit, op.clock))

    def store(self, t: int, site: int, address: int, place: MachinePlace, box: Box, function: str | None = None) -> None:
        """A box from Shared to Global memory, clipped; or one that is combined with it by a function."""
        op = self.memory.operation(self.threads.clock([t]), t, site)
        op.is_store = True
        self.memory.engine_reads(op, self._tile(t, site, address, box, place), self.threads.shared_fences)
        cells, fences = self._box(t, site, box), self.threads.global_fences
        if function is None:
            self.memory.engine_writes(op, cells, fences)
        else:
            self.memory.engine_updates(op, cells, fences, function)
        self.bulk.setdefault(t, Batches()).open.append(op)

    # -- asynchronous copies -------------------------------------------------------------------------------------------------------------

    def copy(self, t: int, site: int, cells: Sequence[int], source: Sequence[int]) -> None:
        """``cp.async``."""
        op = self.memory.operation(self.threads.clock([t]), t, site, generic=True)
        self.memory.engine_reads(op, source, [])
        self.memory.engine_writes(op, cells, [])
        self.copies.setdefault(t, Batches()).open.append(op)

    def arrive_after_copies(self, t: int, site: int, k: int) -> None:
        """``cp.async.mbarrier.arrive.noinc``."""
        self.barriers.used(t, site, k)
        done = 0
        for op in self.copies.get(t, Batches()).all():
            done |= 3 << op.bit
        self.covered[t] = self.covered.get(t, 0) | done
        control = self.threads.control(self.threads.clock([t]))
        self.later(lambda: self.barriers.arrive_later(t, site, k, done, control))

    def commit(self, t: int, *, bulk: bool) -> None:
        """The thread closes its batch."""
        (self.bulk if bulk else self.copies).setdefault(t, Batches()).commit()

    def wait_for_bulk(self, t: int, pending: int, read_only: bool) -> None:
        """``cp.async.bulk.wait_group``."""
        for op in self.bulk.get(t, Batches()).finished(pending):
            self.threads.finish(t, 1 << op.read_bit if read_only else 3 << op.bit)
            if not read_only and op.waited is None:
                op.waited = self.threads.own[t]

    def wait_for_copies(self, t: int, pending: int) -> None:
        """``cp.async.wait_group``."""
        for op in self.copies.get(t, Batches()).finished(pending):
            op.waited = self.threads.own[t] if op.waited is None else op.waited
            self.threads.finish(t, 3 << op.bit)

    # -- wgmma --------------------------------------------------------------------------------------------------------------------------

    def register(self, t: int, site: int, name: str, index: int) -> None:
        """A thread accesses a register."""
        flying = self.in_flight.get(t)
        if flying is not None and (name, index) in flying and not self.threads.base[t].done >> flying[name, index][0] & 1:
            raise FaultFound(FaultKind.REGISTERS, f"register {index} of '{name}' belongs to a wgmma in flight", t, site)
        self.touched.setdefault(t, set()).add((name, index))

    def fence_registers(self, threads: Sequence[int]) -> None:
        """``wgmma.fence``."""
        for t in threads:
            self.touched.pop(t, None)
            self.fenced.add(t)
            for register, (bit, _) in self.in_flight.get(t, {}).items():
                self.in_flight[t][register] = bit, None

    def wgmma(self, site: int, group: Sequence[int], product: WgmmaFactors) -> None:
        """One product of a warpgroup: an operation of each warp, which reads a quarter of A and all of B. Nothing says which lane of the warp reads."""
        for w in range(4):
            lanes = group[32 * w : 32 * w + 32]
            op = self.memory.operation(self.threads.common(lanes), lanes[0], site)
            if isinstance(product.a, MachineTile):
                self._operand(op, product.a, 16 * w, 16 * w + 16)
            self._operand(op, product.b, 0, product.n)
            self.wgmmas.setdefault(lanes[0], Batches()).open.append(op)
            for t in lanes:
                self._take(t, site, op, product.acc, (product.acc.first, *product.shape))
                if isinstance(product.a, MachineRegisters):
                    self._take(t, site, op, product.a, ("A",))

    def _operand(self, op: MachineOperation, tile: MachineTile, first: int, last: int) -> None:
        place = tile.place
        period = 8 * tile.swizzle
        beyond = tile.address % period if period else 0
        if tile.address % CHUNK or beyond > (max(tile.swizzle - 32, 0) if tile.major is Major.K else 0) or (period and tile.sbo % period):
            raise FaultFound(FaultKind.ALIGNMENT, f"a tile at byte {tile.address % BLOCK_BYTES} of Shared memory", op.issuer, op.site)
        cells: dict[int, None] = {}
        for chunk in tile.chunks(first, last):
            address = tile.swizzled(chunk)
            offset = address % BLOCK_BYTES
            if offset < place.base or offset + CHUNK > place.base + place.size or chunk < 0:
                raise FaultFound(FaultKind.BOUNDS, f"a tile reads byte {offset - place.base} of the {place.size} of '{place.name}'", op.issuer, op.site)
            for cell in self.shared_cells(address, CHUNK):
                cells[cell] = None
        self.memory.engine_reads(op, cells, self.threads.shared_fences)

    def _take(self, t: int, site: int, op: MachineOperation, registers: MachineRegisters, shape: tuple[object, ...]) -> None:
        if t not in self.fenced:
            raise FaultFound(FaultKind.REGISTERS, "a wgmma without FENCE wgmma before it", t, site)
        touched = self.touched.get(t, ())
        flying = self.in_flight.setdefault(t, {})
        done = self.threads.base[t].done
        name = registers.name
        for k in range(registers.first, registers.first + registers.count):
            register = name, k
            if register in touched:
                raise FaultFound(FaultKind.REGISTERS, f"no FENCE wgmma stands between the access of register {k} of '{name}' and this", t, site)
            before = flying.get(register)
            if before is not None and not done >> before[0] & 1 and before[1] is not None and before[1] != shape:
                raise FaultFound(FaultKind.REGISTERS, f"register {k} of '{name}' belongs to a wgmma in flight of another shape or at other registers", t, site)
            flying[register] = op.bit, shape

    def commit_wgmma(self, lanes: Sequence[int]) -> None:
        """``wgmma.commit_group`` of a warp."""
        self.wgmmas.setdefault(lanes[0], Batches()).commit()

    def wait_for_wgmma(self, lanes: Sequence[int], pending: int) -> None:
        """``wgmma.wait_group`` of a warp."""
        done = 0
        for op in self.wgmmas.get(lanes[0], Batches()).finished(pending):
            done |= 3 << op.bit
        for t in lanes:
            self.threads.finish(t, done)

    # -- ends ---------------------------------------------------------------------------------------------------------------------------

    def exits(self, t: int, site: int) -> None:
        """A thread exits: none of its operations is in flight."""
        if not self.memory.operations:
            return
        done = self.threads.base[t].done
        for queue, what in ((self.bulk, "a bulk store"), (self.wgmmas, "a wgmma")):
            for op in queue.get(t, Batches()).all():
                if not done >> op.bit & 1:
                    raise FaultFound(FaultKind.LIFE, f"{what} is in flight when its thread exits", t, op.site)
        for op in self.copies.get(t, Batches()).all():
            if not (done | self.covered.get(t, 0)) >> op.bit & 1:
                raise FaultFound(FaultKind.LIFE, "an asynchronous copy is in flight when its thread exits", t, op.site)

    def ends(self, block: int, clock: Clock) -> None:
        """A block exits; ``clock``: that of its threads."""
        for there, op in self.loads:
            if there == block and not clock.done >> op.bit & 1:
                raise FaultFound(FaultKind.LIFE, "a load is in flight when its block exits", op.issuer, op.site)
