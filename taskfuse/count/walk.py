"""The walk over a kernel's statements that counts: each is visited once, for a sample of warps at a sample of their trips.

A loop's variable has one value in each row, spread over its trips, and the statements inside count once per trip. Conditions and addresses
are evaluated exactly for the lanes of the sample. Indices that are data (gathers) are drawn uniformly, one for each element of the index tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

import numpy as np

from taskfuse.count.known import KnownIntegers
from taskfuse.count.launch import SPREAD, Array, Launch, Sample
from taskfuse.count.memory import kept, lines, passes, sectors
from taskfuse.count.repeats import Repeats
from taskfuse.count.tally import IN_FLIGHT, Count, Traffic
from taskfuse.dtypes import DType
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Evaluation, Expr, FloorDiv, Mod, children, remembered
from taskfuse.ir.types import MemoryType
from taskfuse.kir import Kernel
from taskfuse.kir.arguments import integer
from taskfuse.kir.declarations import TensorMapParam, TensorParam
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Bind, Choose, Compute, For, GatherCopy, If, Stmt, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Access, GatherValue, Immediate
from taskfuse.kir.products import LdMatrix, Mma, StMatrix, Wgmma
from taskfuse.kir.synchronization import Acquire, Barrier, BarrierScope, Cursor, CursorInit, Wait
from taskfuse.kir.walk import accesses, walk
from taskfuse.target import DEFAULT, SECTOR_BYTES, WARP, Target

SEED = 0x5EED
NARROW = 16
"""Bits of an element that is computed in 32."""


class _Place:
    """A tensor, or a buffer: what is counted of it."""

    __slots__ = ("asked", "bytes", "dtype", "fetched", "gathered", "itemsize", "memory", "moved", "strides")

    def __init__(self, memory: MemoryType, shape: tuple[int, ...], dtype: DType) -> None:
        self.memory = memory
        self.dtype = dtype
        self.itemsize = itemsize = dtype.itemsize
        self.strides = tuple(prod(shape[k + 1 :]) * itemsize for k in range(len(shape)))
        self.bytes = prod(shape) * itemsize
        self.asked = [0.0, 0.0]  # read, written
        self.moved = [0.0, 0.0]
        self.fetched = [0.0, 0.0]
        self.gathered = [0.0, 0.0]  # of moved: at random places

    def parts(self, dimensions: int) -> int:
        """How many parts it has along its first dimensions."""
        return self.bytes // max(self.strides[dimensions - 1], 1) if dimensions else 1


class _Trip(NamedTuple):
    """A loop: its variable, where that starts, its step, and how many copies of its body stand one after another: its trips, if it is unrolled."""

    var: str
    start: Array
    step: Array
    copies: float


class _LaunchWalk:
    """The counts of one launch, for each row."""

    def __init__(self, kernel: Kernel, launch: Launch, target: Target) -> None:
        self.launch = launch
        self.target = target
        self.sample = Sample.of(launch)
        rows = len(self.sample.active)
        self.scale = launch.blocks * launch.warps / rows
        self.places: dict[str, _Place] = {}
        self.maps = {p.name: p for p in kernel.params if isinstance(p, TensorMapParam)}
        for p in kernel.params:
            if isinstance(p, TensorParam):
                self._declare(p.name, MemoryType.Global, p.shape, p.dtype)
        for b in kernel.buffers:
            self._declare(b.name, b.memory, b.shape, b.dtype)
        self.instructions, self.overlapped, self.lookups, self.products, self.chain, self.steps = (np.zeros(rows) for _ in range(6))
        self.stores = np.zeros(self.sample.active.shape, bool)
        self.random = np.random.default_rng(SEED)
        looked = (v.source.buffer for s in walk(kernel.body) if isinstance(s, GatherCopy | AtomicUpdate) for v in s.values)
        self.traces_indices = any(not MEDIA[self.places[name].memory].has_addresses for name in looked)
        self.origins: dict[str, Array] = {}
        self.known = KnownIntegers(rows, self.random)
        self._depth = 0
        self._unrolled = 0
        self._around = 0
        self._behind: dict[str, int] = {}
        self._repeats = Repeats(kernel)

    def _declare(self, name: str, memory: MemoryType, shape: tuple[Expr, ...], dtype: DType) -> None:
        self.places[name] = _Place(memory, tuple(integer(e, self.launch.symbols) for e in shape), dtype)

    def body(self, body: tuple[Stmt, ...], at: Evaluation, times: Array, loops: tuple[_Trip, ...]) -> None:
        """Count statements.

        Args:
            times: how often each lane executes them.
            loops: around them.
        """
        for stmt in body:
            match stmt:
                case For():
                    self._loop(stmt, at, times, loops)
                case Bind():
                    self.body(stmt.body, at, times, loops)
                case If():
                    left = times
                    for branch in stmt.branches:
                        holds = at.of(branch.cond)
                        self.instructions += left.max(axis=1)
                        taken = np.where(holds, left, 0.0)
                        if taken.any():
                            self.body(branch.body, at, taken, loops)
                        left = np.where(holds, 0.0, left)
                        if not left.any():
                            break
                case CursorInit():
                    at = Evaluation({**at.env, **dict(zip(Cursor(stmt.name).symbols, (stmt.slot, stmt.parity, 0), strict=True))})
                case _ if self._unrolled and not _accumulates(stmt):  # no iteration waits for the one before
                    before = self.instructions.copy()
                    self._statement(stmt, at, times, loops)
                    self.overlapped += self.instructions - before
                case _:
                    self._statement(stmt, at, times, loops)

    def _loop(self, stmt: For, at: Evaluation, times: Array, loops: tuple[_Trip, ...]) -> None:
        start, stop, step = (np.asarray(at.of(e), np.int64) for e in (stmt.start, stmt.stop, stmt.step))
        trips = np.maximum(-((start - stop) // np.maximum(step, 1)), 0)
        if stmt.queue is not None:
            trips = -(-trips // max(self.launch.blocks, 1))  # a fair share
        self._depth += 1
        spread = (self.sample.spread * (2 * self._depth + 1)) % 1
        value = start + (spread * trips).astype(np.int64) * step
        within = times * trips
        if not within.any():
            return
        if not stmt.unroll:
            own = within.max(axis=1)
            self.steps += own
            self.instructions += self.target.assumed.trip_instructions * own
            inner = [s for s in walk(stmt.body) if isinstance(s, For) and not s.unroll]
            if not inner:
                waits = self.loads(stmt.body)
                synchronizes = any(isinstance(s, Barrier | Wait | Acquire) for s in walk(stmt.body))
                self.chain += waits * self.target.assumed.load_cycles * own / (1 if synchronizes else IN_FLIGHT)
        inside = Evaluation({**at.env, stmt.var: value})
        changing, same = self._repeats.of(stmt) if stmt.unroll else (stmt.body, ())
        self._unrolled += stmt.unroll
        self._around += not stmt.unroll
        copies = float(trips.max()) if stmt.unroll else 1.0
        self.body(changing, inside, within, (*loops, _Trip(stmt.var, start, step, copies)))
        self.body(same, inside, np.minimum(within, times), loops)
        self._unrolled -= stmt.unroll
        self._around -= not stmt.unroll

    def loads(self, body: tuple[Stmt, ...]) -> bool:
        """Whether threads wait for Global memory in a body."""
        found = (a for s in walk(body) if isinstance(s, Compute | Choose | GatherCopy | AtomicUpdate | VectorCopy) for a in accesses(s)[1])
        return any(self.places[a.buffer].memory is MemoryType.Global for a in found)

    def _statement(self, stmt: Stmt, at: Evaluation, times: Array, loops: tuple[_Trip, ...]) -> None:
        warp = times.max(axis=1)
        code, figures = 1.0, self.target.assumed
        if self.traces_indices:
            self._trace(stmt, at)
        if not self._around:
            self._wait(stmt)
        match stmt:
            case Compute(op=op, operands=(Access() as source,)) if (
                op is ELEMENTWISE["copy"] and self._is_in_registers(stmt) and self.places[source.buffer].itemsize == self.places[stmt.out.buffer].itemsize
            ):
                return  # the compiler gives both one register
            case Compute(op=op, operands=operands, dtype=dtype):
                narrow = self.places[stmt.out.buffer].dtype
                code = op.issue_slots(dtype if dtype.bits == 64 else narrow, is_constant=isinstance(operands[-1], Immediate))
                code += sum(self._widening(o, loops) for o in operands if isinstance(o, Access)) if dtype.bits > NARROW and len(operands) > 1 else 0
            case Choose(cases=cases):
                for case in cases:
                    if isinstance(case.operand, Access):
                        holds = np.where(at.of(case.cond), times, 0.0)
                        self._access(case.operand, 1, 0, at, holds, loops)
                self._access(stmt.out, 1, 1, at, times, loops)
                self.instructions += (len(cases) - 1 if self._is_in_registers(stmt) else 2 * len(cases)) * warp
                return
            case GatherCopy(values=values):
                leading = next((k for k, e in enumerate(stmt.source.index) if e.free & {v.symbol for v in values}), 0)
                self._access(stmt.source, stmt.width, 0, self._found(values, at, times, loops), times, loops, leading)
                self._access(stmt.out, stmt.width, 1, at, times, loops)
                self.instructions += 3 * warp
                return
            case AtomicUpdate(values=values, width=width):
                found = self._found(values, at, times, loops)
                self._access(stmt.source, width, 0, at, times, loops)
                self._access(stmt.out, width, 1, found, times, loops)
                self.instructions += 3 * warp
                return
            case Wgmma() | Mma():
                shape, itemsize = stmt.row.shape, max(d.itemsize for d in stmt.factors)
                is_full = isinstance(stmt, Wgmma) or itemsize == 8 or not self.target.has(90, feature=True)
                rate = self.target.products_per_cycle(itemsize) * (1 if is_full else self.target.assumed.mma_share)
                share = shape.threads // WARP  # warps that execute one instruction together
                self.products += shape.units * shape.m * stmt.n * stmt.k / rate / share * warp
                self.instructions += warp
                return
            case LdMatrix() | StMatrix():
                self.lookups += stmt.matrices * warp
                self.instructions += warp
                return
            case TmaLoad() | TmaStore():
                self._box(stmt, times)
                return
            case Barrier(scope=scope):
                cycles = {BarrierScope.GRID: figures.grid_cycles, BarrierScope.WARP: figures.chain_cycles}.get(scope, figures.barrier_cycles)
                self.chain += cycles * warp
            case Wait() | Acquire():
                self.chain += figures.chain_cycles * warp
            case _:
                pass
        self.instructions += code * warp
        width = stmt.width if isinstance(stmt, VectorCopy | AsyncCopy) else 1
        written, read = accesses(stmt)
        asks = np.where(at.of(stmt.valid), times, 0.0) if isinstance(stmt, AsyncCopy) else times
        for k, found in ((1, written), (0, read)):
            for access in found:
                self._access(access, width, k, at, times if k else asks, loops)

    def _wait(self, stmt: Stmt) -> None:
        """Note how many gathers a thread has waited for, one after another, before it has what a statement writes: bisections wait for each of their steps, but
        two gathers whose indices are known go out together. Those of loops are waited for trip by trip."""
        written, read = accesses(stmt)
        behind = max((self._behind.get(a.buffer, 0) for a in read), default=0)
        behind += isinstance(stmt, GatherCopy) and self.places[stmt.source.buffer].memory is MemoryType.Global
        for out in written:
            self._behind[out.buffer] = max(behind, self._behind.get(out.buffer, 0))

    @property
    def gathers(self) -> int:
        """The most gathers that a thread waits for one after another, outside of loops."""
        return max(self._behind.values(), default=0)

    def _widening(self, access: Access, loops: tuple[_Trip, ...]) -> float:
        """Instructions that widen an element of a vector of 16-bit floats, once for all unrolled iterations that read it: those of loops inside the first one
        along the vector."""
        place = self.places[access.buffer]
        if MEDIA[place.memory].has_addresses or not access.index or not (place.dtype.is_float and place.dtype.bits == NARROW):
            return 0.0
        along = [any(loop.var in e.free for e in access.index) for loop in loops]
        inside = loops[along.index(True) :] if True in along else ()
        return 1 / prod(loop.copies for loop in inside if not any(loop.var in e.free for e in access.index))

    def _is_in_registers(self, stmt: Stmt) -> bool:
        """Whether all that a statement reads and writes is."""
        return not any(MEDIA[self.places[a.buffer].memory].has_addresses for side in accesses(stmt) for a in side)

    def _found(self, values: tuple[GatherValue, ...], at: Evaluation, times: Array, loops: tuple[_Trip, ...]) -> Evaluation:
        """With the symbols of values that are read: any in their extents, those of one element the same."""
        env = dict(at.env)
        for v in values:
            self._access(v.source, 1, 0, at, times, loops)
            extent, index = at.of(v.extent), self.known.get(v.source.buffer)
            if index is not None:
                env[v.symbol] = np.clip(np.where(index < 0, index + extent, index), 0, np.maximum(extent - 1, 0))
                continue
            share = self._origin(v.source, at)
            if share is None:
                share = self.random.random(times.shape)
            env[v.symbol] = (share * extent).astype(np.int64)
        return Evaluation(env)

    def _origin(self, access: Access, at: Evaluation) -> Array | None:
        """A number in [0, 1) for each lane, the same where an access finds one element, or what was computed of the same ones; ``None``: not known."""
        place = self.places[access.buffer]
        if not MEDIA[place.memory].has_addresses:
            return self.origins.get(access.buffer)
        return self._address(access, place, at) // place.itemsize * SPREAD % 1

    def _trace(self, stmt: Stmt, at: Evaluation) -> None:
        """Note of which elements of memory a statement computes what it leaves in registers."""
        written, read = accesses(stmt)
        found = [self._origin(a, at) for a in read] if isinstance(stmt, Compute | Choose | VectorCopy) else []
        for out in written:
            if not MEDIA[self.places[out.buffer].memory].has_addresses:
                self.origins.pop(out.buffer, None)
                self.known.forget(out.buffer)
                known = [share for share in found if share is not None]
                if found and len(known) == len(found):
                    self.origins[out.buffer] = sum(known, np.zeros(())) % 1
        if isinstance(stmt, Compute) and not MEDIA[self.places[stmt.out.buffer].memory].has_addresses:
            self.known.compute(stmt, at)

    def _access(self, access: Access, width: int, way: int, at: Evaluation, times: Array, loops: tuple[_Trip, ...], leading: int | None = None) -> None:
        """An access of ``width`` elements by each lane: read (0) or written (1).

        Args:
            leading: of a tensor at a place that is data, the dimensions before that place; ``None``: it is not.
        """
        place = self.places[access.buffer]
        if not MEDIA[place.memory].has_addresses:
            return
        active = times > 0
        if not active.any():
            return
        warp = times.max(axis=1)
        size = width * place.itemsize
        begin = self._address(access, place, at)
        inner = next((loop for loop in reversed(loops) if any(loop.var in e.free for e in access.index)), None)
        self.instructions += (1 + self.target.assumed.division_instructions * divisions(access.index, inner.var if inner else "")) * warp
        if MEDIA[place.memory].is_placed:
            self.lookups += passes(begin, size, active) * warp
            return
        if way:
            self.stores |= active
        found = sectors(begin, size, active).astype(float)
        looked = lines(begin, size, active)
        asked = size * times.sum()
        if inner is not None and found.sum() * SECTOR_BYTES > 1.5 * size * active.sum():
            value = at.env[inner.var]
            before = self._address(access, place, Evaluation({**at.env, inner.var: value - inner.step}))
            found *= 1 - kept(begin, before, size, active & (value > inner.start))
        moved = (found * warp).sum() * SECTOR_BYTES
        self.lookups += looked * warp
        self._moved(place, way, asked, moved, None if leading is None else place.parts(leading))

    def _moved(self, place: _Place, way: int, asked: float, moved: float, parts: int | None = None) -> None:
        """Count the bytes that a statement moves. Bytes that are moved again are in the L2 cache if those of the resident blocks fit there.

        Args:
            parts: of a tensor that is read at random places in each of its parts; ``None``: any other.
        """
        place.asked[way] += asked * self.scale
        place.moved[way] += moved * self.scale
        launch, target = self.launch, self.target
        if parts is not None:
            before = place.gathered[way]
            place.gathered[way] += moved * self.scale
            place.fetched[way] += target.gathered(place.gathered[way], place.bytes, parts) - target.gathered(before, place.bytes, parts)
            if place.bytes <= target.l2_bytes:
                place.fetched[way] = min(place.bytes, place.fetched[way])
            return
        once = min(place.bytes, moved * self.scale)
        resident = min(1.0, target.sms * launch.resident / launch.blocks) * moved * self.scale
        fits = min(place.bytes, resident) <= target.l2_bytes
        place.fetched[way] = min(place.bytes, place.fetched[way] + once) if fits else place.fetched[way] + once

    def _address(self, access: Access, place: _Place, at: Evaluation) -> Array:
        index = sum((np.asarray(at.of(e), np.int64) * s for e, s in zip(access.index, place.strides, strict=True)), np.zeros((1, 1), np.int64))
        return np.broadcast_to(np.maximum(index, 0), self.sample.active.shape)

    def _box(self, stmt: TmaLoad | TmaStore, times: Array) -> None:
        box = self.maps[stmt.map]
        place = self.places[box.tensor]
        size = prod(box.box) * place.itemsize * times.sum()
        if isinstance(stmt, TmaLoad) and stmt.across:
            shared = prod(self.launch.cluster["xyz".index(t.index_name[-1])] for t in stmt.across)
            size /= max(shared, 1) if times.any() else 1
        self._moved(place, int(isinstance(stmt, TmaStore)), size, size)
        if isinstance(stmt, TmaStore):
            self.stores |= times > 0
        self.instructions += 2 * times.max(axis=1)


def _accumulates(stmt: Stmt) -> bool:
    """True for a statement that reads what it writes."""
    written, read = accesses(stmt)
    return any(a.buffer == b.buffer for a in written for b in read)


@remembered(1 << 14)
def divisions(index: tuple[Expr, ...], variable: str) -> int:
    """The index divisions that every trip of a loop repeats; without a loop, those that a thread executes once."""
    seen: set[Expr] = set()

    def visit(e: Expr) -> None:
        if e in seen or (variable and variable not in e.free):
            return
        seen.add(e)
        for child in children(e):
            visit(child)

    for e in index:
        visit(e)
    return sum(isinstance(e, FloorDiv | Mod) for e in seen)


def count(kernel: Kernel, extents: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Count:
    """Count the work of a launch of ``kernel``.

    Args:
        extents: values of its extents.
        target: the GPU.
    """
    launch = Launch.of(kernel, extents or {}, target)
    found = _LaunchWalk(kernel, launch, target)
    sample = found.sample
    with np.errstate(all="ignore"):
        found.body(kernel.body, Evaluation(sample.env), np.where(sample.active, 1.0, 0.0), ())
    waited = found.chain + found.gathers * target.assumed.load_cycles + target.assumed.chain_cycles * (found.instructions - found.overlapped) + found.overlapped
    chain = waited.reshape(sample.blocks, -1).max(axis=1)
    busy = found.stores.reshape(sample.blocks, -1)
    outside = [(name, p) for name, p in found.places.items() if p.memory is MemoryType.Global]
    reads, writes = ({name: Traffic(p.bytes, p.asked[k], p.moved[k], p.fetched[k]) for name, p in outside if p.moved[k]} for k in (0, 1))
    return Count(
        launch,
        float(found.steps.max()),
        1.0 - float(busy.sum()) / float(sample.active.sum()),
        1.0 - float(busy.any(axis=1).mean()),
        reads,
        writes,
        float(found.instructions.sum()) * found.scale,
        float(found.lookups.sum()) * found.scale,
        float(found.products.sum()) * found.scale,
        float(chain.max() if launch.blocks <= target.sms * launch.resident else chain.mean()),
        target,
    )
