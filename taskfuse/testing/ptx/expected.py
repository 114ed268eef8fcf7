"""The trace of a thread of a launch by kernel IR: its steps, in order, and its memory accesses between them.

Control flow depends only on indices, extents and cursors, so a thread's steps are the same in every interleaving. A wait is expected to be retried
until it passes: the first attempt fails, the second succeeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

from taskfuse.dtypes import DType
from taskfuse.ir.scalar import Const, Expr, eq, prove
from taskfuse.ir.shared_layouts import Major
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.kir import accesses
from taskfuse.kir.clusters import peers
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Bind, Choose, Compute, For, GatherCopy, If, Stmt, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Access, BarrierSlot, Descriptor, Queue
from taskfuse.kir.products import LdMatrix, Mma, Shuffle, StMatrix, Wgmma
from taskfuse.kir.scope import kernel_facts
from taskfuse.kir.synchronization import (
    Acquire,
    Advance,
    Arrive,
    ArriveAsync,
    Barrier,
    BarrierScope,
    Commit,
    Cursor,
    CursorInit,
    Expect,
    FenceInit,
    FenceProxyAsync,
    InitBarrier,
    MbarrierScope,
    Release,
    SetMaxNReg,
    Wait,
    WaitGroup,
    WgmmaFence,
)
from taskfuse.target import MAX_THREADS, WARP, launch_registers
from taskfuse.testing.ptx.events import ANY, UNORDERED, Expected, Kind, PtxPlace, PtxStep, Span, WarpLanes
from taskfuse.testing.ptx.launch import Int3, PtxLaunch, linear
from taskfuse.testing.ptx.machine import TooLong
from taskfuse.testing.ptx.reading import LaunchReader

MOST = 20_000
"""The most statements of a thread."""
_FUNCTIONS = {"add": "add", "maximum": "max", "minimum": "min", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
"""The functions of bulk updates (PTX ISA, "cp.reduce.async.bulk.tensor")."""
_TYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "tf32", "float64": "f64", "float8_e4m3": "e4m3", "float8_e5m2": "e5m2", "int8": "s8", "uint8": "u8"}
_SWIZZLE_MODES = {0: 0, 128: 1, 64: 2, 32: 3}
_COMMITS = {Queue.WGMMA: Kind.WGMMA_COMMIT, Queue.BULK: Kind.BULK_COMMIT, Queue.COPY: Kind.COPY_COMMIT}
_SCOPES = {MbarrierScope.BLOCK: "cta", MbarrierScope.CLUSTER: "cluster"}
_WAITS = {Queue.WGMMA: Kind.WGMMA_WAIT, Queue.BULK: Kind.BULK_WAIT, Queue.COPY: Kind.COPY_WAIT}


@dataclass(slots=True)
class ExpectedTrace:
    """The trace of a thread.

    Attributes:
        stores, loads: in Shared memory and workspace, after the last step that orders memory.
        tensor_stores, tensor_loads: in tensor arguments, by bytes.
        counts: how often it reaches each statement that needs to know its lanes.
        work: statements executed.
    """

    steps: list[PtxStep] = field(default_factory=list[PtxStep])
    stores: list[Span] = field(default_factory=list[Span])
    loads: list[Span] = field(default_factory=list[Span])
    tensor_stores: list[Span] = field(default_factory=list[Span])
    tensor_loads: list[Span] = field(default_factory=list[Span])
    counts: Counter[int] = field(default_factory=Counter[int])
    work: int = 0


class Traces:
    """The traces of the threads of a launch."""

    def __init__(self, launch: PtxLaunch) -> None:
        self.launch = launch
        self._reader = LaunchReader(launch)
        self._warps: dict[tuple[Int3, int], list[ExpectedTrace]] = {}

    def thread(self, block: Int3, thread: Int3, only_lanes: bool = False) -> ExpectedTrace:
        """The trace of a thread.

        Args:
            only_lanes: only count steps that need to know their lanes.

        Raises:
            TooLong: it exceeds the limit.
        """
        env: dict[str, Any] = {**self.launch.symbols, **self.launch.tables}
        for name, values in (("threadIdx", thread), ("blockIdx", block)):
            env |= {f"{name}.{d}": v for d, v in zip("xyz", values, strict=True)}
        env |= {f"clusterIdx.{d}": b % c for d, b, c in zip("xyz", block, self.launch.cluster, strict=True)}
        return _ThreadWalk(self._reader, env, only_lanes).trace()

    def lanes(self, block: Int3, thread: Int3, lanes: WarpLanes) -> tuple[int, int]:
        """The lanes of the thread's warp that reach a statement this many times, and the existing ones, as masks."""
        x, y, z = self.launch.block
        first = linear(self.launch.block, thread) // WARP * WARP
        found = self._warps.get((block, first))
        if found is None:
            everyone = range(first, min(first + WARP, x * y * z))
            found = self._warps[block, first] = [self.thread(block, (k % x, k // x % y, k // (x * y)), only_lanes=True) for k in everyone]
        come = sum(1 << k for k, trace in enumerate(found) if trace.counts[lanes.statement] > lanes.count)
        return come, (1 << len(found)) - 1


class _ThreadWalk:
    """One thread on its way through a kernel."""

    def __init__(self, reader: LaunchReader, env: dict[str, int], only_lanes: bool) -> None:
        self._reader = reader
        self._only_lanes = only_lanes
        self._env = env
        self._trace = ExpectedTrace()
        self._slots: dict[str, int] = {}

    def trace(self) -> ExpectedTrace:
        self._body(self._reader.kernel.body)
        return self._trace

    def _value(self, e: Expr) -> int:
        return self._reader.value(e, self._env)

    def _body(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            if self._reader.matters(stmt, self._only_lanes):
                self._trace.work += 1
                if self._trace.work > MOST:
                    raise TooLong
                self._statement(stmt)

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case For(var=var, start=start, stop=stop, step=step, body=body):
                i, end = self._value(start), self._value(stop)
                while i < end:
                    self._env[var] = i
                    self._body(body)
                    i += self._value(step)
                self._env.pop(var, None)
            case Bind(body=body):
                self._body(body)
            case If(branches=branches):
                asks = self._reader.is_asked_of_a_lane(stmt)
                for b in branches:
                    holds = bool(self._value(b.cond))
                    if asks and b.cond.free:
                        self._step(stmt, Kind.AGREED, (int(holds), 0, 31, 0xFFFFFFFF), int(holds))
                    if holds:
                        self._body(b.body)
                        break
            case CursorInit(name=name, slots=slots, slot=slot, parity=parity):
                self._slots[name] = slots
                self._env |= dict(zip(Cursor(name).symbols, (slot, parity, 0), strict=True))
            case Advance(cursor=name, count=count):
                slot, parity, phase = Cursor(name).symbols
                wraps, self._env[slot] = divmod(self._env[slot] + self._value(count), self._slots[name])
                self._env[parity] ^= wraps & 1
                self._env[phase] += wraps
            case Compute() | Choose() | VectorCopy() | GatherCopy():
                self._moves(stmt)
            case AtomicUpdate():
                self._updates(stmt)
            case _:
                for kind, operands, result in self._steps(stmt):
                    self._step(stmt, kind, operands, result)

    # -- memory -------------------------------------------------------------------------------------------------------------------------

    def _moves(self, stmt: Compute | Choose | VectorCopy | GatherCopy) -> None:
        width = 1
        read: tuple[Access, ...] = accesses(stmt)[1]
        match stmt:
            case Choose(cases=cases):
                operand = next(c.operand for c in cases if self._value(c.cond))
                read = (operand,) if isinstance(operand, Access) else ()
            case GatherCopy():
                width = stmt.width
                read = tuple(v.source for v in stmt.values)  # where else it reads, values say
            case VectorCopy():
                width = stmt.width
            case Compute():
                pass
        for access in read:
            self._touch(access, width if isinstance(stmt, VectorCopy) else 1, store=False)
        self._touch(stmt.out, width, store=True)

    def _updates(self, stmt: AtomicUpdate) -> None:
        """One instruction; of a tensor that has no vectors, one for each element. Whether it changes something that data names, and what, data says."""
        self._touch(stmt.source, stmt.width, store=False)
        for v in stmt.values:
            self._touch(v.source, 1, store=False)
        if stmt.values:
            return
        r = self._reader
        first, size, stride = r.address(stmt.out, self._env), r.size(stmt.out), r.launch.strides[stmt.out.buffer][-1] if stmt.width > 1 else 1
        vectors = [(stmt.width, first)] if stride == 1 else [(1, first + k * stride * size) for k in range(stmt.width)]
        for count, address in vectors:
            self._step(stmt, Kind.UPDATE, (_FUNCTIONS[stmt.combine.name], count, address), 0)

    def _touch(self, access: Access, width: int, store: bool) -> None:
        r = self._reader
        if r.is_register(access):
            return
        t = self._trace
        if not r.is_tensor(access):
            (t.stores if store else t.loads).append((r.address(access, self._env), r.size(access, width)))
            return
        first, size = r.address(access, self._env), r.size(access)
        step = size * r.launch.strides[access.buffer][-1] if width > 1 else size
        spans = [(first, size * width)] if step == size else [(first + k * step, size) for k in range(width)]
        (t.tensor_stores if store else t.tensor_loads).extend(spans)

    # -- steps --------------------------------------------------------------------------------------------------------------------------

    def _step(self, stmt: Stmt, kind: Kind, operands: tuple[Expected, ...], result: int) -> None:
        t = self._trace
        if kind in UNORDERED:
            t.steps.append(PtxStep(kind, operands, result, (), (), stmt))
            return
        t.steps.append(PtxStep(kind, operands, result, tuple(t.stores), tuple(t.loads), stmt))
        t.stores.clear()
        t.loads.clear()

    def _slot(self, slot: BarrierSlot, rank: int | None = None) -> PtxPlace:
        return PtxPlace(slot.name, 8 * self._value(slot.slot), rank)

    def _reached(self, across: tuple[ParallelType, ...]) -> tuple[int, ...]:
        """The ranks of blocks in the cluster, ascending."""
        place = (self._env["clusterIdx.x"], self._env["clusterIdx.y"], self._env["clusterIdx.z"])
        return peers(place, self._reader.launch.cluster, across)

    def _lanes(self, stmt: Stmt) -> WarpLanes:
        counts = self._trace.counts
        counts[id(stmt)] += 1
        return WarpLanes(id(stmt), counts[id(stmt)] - 1)

    def _steps(self, stmt: Stmt) -> Iterator[tuple[Kind, tuple[Expected, ...], int]]:
        """The events of a statement: kind, operands, what it gives."""
        r, env = self._reader, self._env
        match stmt:
            case Barrier():
                yield from self._barrier(stmt)
            case InitBarrier(barrier=slot, count=count):
                yield Kind.INIT, (self._slot(slot), self._value(count)), 0
            case FenceInit():
                yield Kind.FENCE, ("mbarrier_init.release.cluster",), 0
            case Arrive(barrier=slot, across=()):
                yield Kind.ARRIVE, ("release cta shared::cta", self._slot(slot), 1), 0
            case Arrive(barrier=slot, across=across):
                for rank in self._reached(across):
                    yield Kind.ARRIVE, (f"release {_SCOPES[stmt.scope]} shared::cluster", self._slot(slot, rank), 1), 0
            case ArriveAsync(barrier=slot):
                yield Kind.COPY_ARRIVE, ("noinc.shared", self._slot(slot)), 0
            case Expect(barrier=slot, bytes=size):
                yield Kind.EXPECT, ("release cta shared::cta", self._slot(slot), self._value(size)), 0
            case Wait(barrier=slot, parity=parity):
                operands = (f"acquire {_SCOPES[stmt.scope]} shared::cta", self._slot(slot), self._value(parity))
                yield Kind.WAIT, operands, 0
                yield Kind.WAIT, operands, 1
            case Release(semaphore=slot):
                yield Kind.RELEASE, ("release.gpu.global.add.u64", r.semaphore(slot, env), 1), 0
            case Acquire(semaphore=slot, phases=phases):
                yield from self._until(r.semaphore(slot, env), self._value(r.count(slot.name)) * self._value(phases))
            case Commit(queue=queue):
                yield _COMMITS[queue], (), 0
            case WaitGroup(queue=queue, pending=pending, read_only=read_only):
                yield Kind.BULK_WAIT_READ if read_only else _WAITS[queue], (pending,), 0
            case FenceProxyAsync(memory=memory):
                yield Kind.FENCE, ("proxy.async.global" if memory is MemoryType.Global else "proxy.async.shared::cta",), 0
            case WgmmaFence():
                yield Kind.WGMMA_FENCE, (), 0
            case SetMaxNReg(registers=count):
                threads = prod(e.value if isinstance(e, Const) else MAX_THREADS for e in r.kernel.block)
                way = "inc" if count > launch_registers(min(threads, MAX_THREADS) * r.kernel.residents) else "dec"
                yield Kind.REGISTERS, (way, count), 0
            case AsyncCopy(out=out, source=source, width=width, valid=valid):
                size = r.size(out, width)
                is_valid = self._value(valid)
                yield Kind.COPY, (r.address(out, env), r.address(source, env) if is_valid else ANY, size, size if is_valid else 0), 0
            case TmaLoad(out=out, map=name, coords=coords, barrier=slot, across=across):
                mask = (sum(1 << rank for rank in self._reached(across)),) if across else ()
                operands = (r.address(out, env), r.launch.bases[name], self._slot(slot), *mask, *self._coordinates(coords))
                yield Kind.MULTICAST if across else Kind.BULK_LOAD, operands, 0
            case TmaStore(map=name, coords=coords, source=source, combine=combine):
                function = () if combine is None else (_FUNCTIONS[combine.name],)
                operands = (*function, r.launch.bases[name], r.address(source, env), *self._coordinates(coords))
                yield Kind.BULK_STORE if combine is None else Kind.BULK_UPDATE, operands, 0
            case Wgmma():
                yield Kind.WGMMA, self._wgmma(stmt), 0
            case Mma(k=k):
                a, b = stmt.dtype, stmt.b_dtype or stmt.dtype
                acc = "s32" if a.is_integer else "f64" if a.itemsize == 8 else "f32" if stmt.sums is None else _TYPES[str(stmt.sums)]
                shape = f"m{stmt.m}n8k{k}.row.col" if stmt.layouts is None else f"m8n8k{k}.{stmt.layouts[0].value}.{stmt.layouts[1].value}"
                yield Kind.MMA, (f"{shape}.{acc}.{_TYPES[str(a)]}.{_TYPES[str(b)]}.{acc}",), 0
            case LdMatrix(source=source):
                yield Kind.LOAD_MATRIX, (_matrices(stmt), r.address(source, env)), 0
            case StMatrix(out=out):
                yield Kind.STORE_MATRIX, (_matrices(stmt), r.address(out, env)), 0
            case Shuffle(out=out, mask=mask):
                operands = ("bfly", mask, 31, self._lanes(stmt))
                for _ in range(-(-r.size(out) // 4)):
                    yield Kind.SHUFFLE, operands, 0
            case For() | Bind() | If() | Compute() | Choose() | GatherCopy() | AtomicUpdate() | VectorCopy() | CursorInit() | Advance():
                raise AssertionError(type(stmt))

    def _coordinates(self, coords: tuple[Expr, ...]) -> tuple[int, ...]:
        return tuple(self._value(c) & 0xFFFFFFFF for c in reversed(coords))

    def _until(self, counter: int | PtxPlace, count: int) -> Iterator[tuple[Kind, tuple[Expected, ...], int]]:
        """Reads of a counter until it is enough."""
        if count > 0:
            yield Kind.ACQUIRE, ("gpu.global.u64", counter), count - 1
        yield Kind.ACQUIRE, ("gpu.global.u64", counter), count

    def _barrier(self, stmt: Barrier) -> Iterator[tuple[Kind, tuple[Expected, ...], int]]:
        launch = self._reader.launch
        threads = prod(launch.block)
        match stmt.scope:
            case BarrierScope.BLOCK:
                yield Kind.BARRIER, (0, threads), 0
            case BarrierScope.NAMED:
                assert stmt.id is not None
                yield Kind.BARRIER, (self._value(stmt.id), self._value(stmt.threads)), 0
            case BarrierScope.WARP:
                yield Kind.WARP_BARRIER, (self._lanes(stmt),), 0
            case BarrierScope.CLUSTER:
                yield Kind.CLUSTER_ARRIVE, ("release",), 0
                yield Kind.CLUSTER_WAIT, ("acquire",), 0
            case BarrierScope.GRID:
                kernel = self._reader.kernel
                (x, y, z), (a, b, c) = kernel.grid, kernel.block
                if not prove(eq(stmt.threads, x * y * z * a * b * c), kernel_facts(kernel)):
                    yield from self._all_arrive(stmt, self._value(stmt.threads))
                    return
                yield Kind.BARRIER, (0, threads), 0  # one thread of each block for all of it
                if not any(self._env[f"threadIdx.{d}"] for d in "xyz"):
                    yield from self._all_arrive(stmt, prod(launch.grid))
                yield Kind.BARRIER, (0, threads), 0

    def _all_arrive(self, stmt: Barrier, count: int) -> Iterator[tuple[Kind, tuple[Expected, ...], int]]:
        """One arrives among ``count``, in the third round, and waits for the end of that round."""
        assert stmt.counter is not None
        counter = PtxPlace(stmt.counter, 0)
        yield Kind.FENCE, ("sc.gpu",), 0
        yield Kind.COUNT, ("global.add.u64", counter, 1), 2 * count + count // 2
        yield from self._until(counter, 3 * count)

    def _wgmma(self, stmt: Wgmma) -> tuple[Expected, ...]:
        a, b = stmt.dtype, stmt.b_dtype or stmt.dtype
        whole = a.is_integer
        descriptors = [d for d in (stmt.a, stmt.b) if isinstance(d, Descriptor)]
        found = [self._descriptor(d, dtype) for d, dtype in zip(descriptors, (a, b)[-len(descriptors) :], strict=True)]
        transposed = tuple(int(d.major is Major.MN) for d in descriptors) if a.itemsize == 2 else ()
        shape = f"m64n{stmt.n}k{stmt.k}.{'s32' if whole else 'f32'}.{_TYPES[str(a)]}.{_TYPES[str(b)]}"
        left = found[0] if len(found) == 2 else -1
        return (shape, stmt.n // 2, left, found[-1], self._value(stmt.accumulate), *(() if whole else (1, 1)), *transposed)

    def _descriptor(self, d: Descriptor, dtype: DType) -> int:
        """PTX ISA, "Matrix-descriptor format": address, leading and stride offset in units of 16 bytes, swizzle mode."""
        address = self._reader.address(d.base, self._env) + self._value(d.offset)
        return (address & 0x3FFFF) >> 4 | (d.lbo & 0x3FFFF) >> 4 << 16 | (d.sbo & 0x3FFFF) >> 4 << 32 | _SWIZZLE_MODES[d.swizzle] << 62


def _matrices(stmt: LdMatrix | StMatrix) -> str:
    return f"m8n8.x{stmt.matrices}{'.trans' if stmt.transpose else ''}.shared.b16"
