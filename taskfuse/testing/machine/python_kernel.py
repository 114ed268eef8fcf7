"""A kernel as a Python function that one thread executes: a generator, which yields where the thread sleeps.

The function knows nothing of other threads. Its accesses to memory, barriers and engines are calls of the machine (``m``); ``t`` is the thread's number,
``b`` its block's. Extents, shapes and addresses are names that a launch gives values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType

from taskfuse.ir.scalar import TRUE, Const, Expr
from taskfuse.ir.types import INDEX_TYPES, MemoryType
from taskfuse.kir import Kernel, walk
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Bind, Choose, Compute, For, GatherCopy, If, Stmt, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Access, Descriptor, GatherValue, Queue
from taskfuse.kir.products import LdMatrix, Mma, Shuffle, StMatrix, Wgmma
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
from taskfuse.testing.machine.writer import PythonWriter, cells

# Registers of an operand, by PTX ISA's figures, so that this machine says nothing after the table of matrix instructions: A of wgmma and mma is 16 bytes
# in each thread, and B of mma 8.
PRODUCT_BYTES = 16


@dataclass(slots=True)
class PythonKernel:
    """The compiled function, and what its lines and numbers mean.

    Attributes:
        code: defines ``thread``.
        sites: statements by number; lines: the number of the statement that a line of the code belongs to.
        symbols: identifiers of extents, to be given values.
        shared_cell, global_cell: bytes of a cell.
    """

    code: CodeType
    sites: list[Stmt]
    lines: list[int]
    symbols: dict[str, str]
    shared_cell: int
    global_cell: int


def compiled(kernel: Kernel) -> PythonKernel:
    """The Python code of a kernel."""
    return _PythonCompiler(kernel).compiled()


@dataclass(slots=True)
class _PythonCompiler(PythonWriter):
    def compiled(self) -> PythonKernel:
        kernel = self.kernel
        self.storage = {p.name: p for p in (*kernel.inputs, *kernel.outputs)} | {b.name: b for b in kernel.buffers}
        first = 0
        for m in kernel.mbarriers:
            self.slots[m.name] = first, m.slots
            first += m.slots
        self.shared_cell, self.global_cell = cells(kernel, MemoryType.Shared), cells(kernel, MemoryType.Global)
        self.registers = any(isinstance(s, Wgmma) for s in walk(kernel))
        indices = ", ".join(self.name(p.index_name) for p in INDEX_TYPES)
        self.text = [f"def thread(m, t, b, sb, mb, {indices}):", " read, write, fine = m.memory.read, m.memory.write, m.fine", " if False: yield"]
        self.lines = [-1] * 3
        self.body(kernel.body)
        code = compile("\n".join(self.text), "<kernel>", "exec")
        return PythonKernel(code, self.sites, self.lines, self.names, self.shared_cell, self.global_cell)

    # -- statements ----------------------------------------------------------------------------------------------------------------------

    def body(self, body: tuple[Stmt, ...]) -> None:
        for s in body:
            self.site = len(self.sites)
            self.sites.append(s)
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        match s:
            case For():
                self.loop(s)
            case Bind(body=body):
                self.body(body)
            case If():
                self.branches(s)
            case Compute(out=out, operands=operands):
                for operand in operands:
                    self.operand(operand)
                self.touch(out, "write")
            case Choose():
                self.choose(s)
            case GatherCopy():
                self.gather(s)
            case AtomicUpdate():
                self.update(s)
            case VectorCopy(out=out, source=source, width=width):
                size = width * self.storage[out.buffer].dtype.itemsize
                self.touch(source, "read", width, size)
                self.touch(out, "write", width, size)
            case AsyncCopy():
                self.copy(s)
            case TmaLoad() | TmaStore():
                self.bulk(s)
            case Wgmma():
                self.wgmma(s)
            case Mma() | LdMatrix() | StMatrix() | Shuffle():
                self.warp(s)
            case _:
                self.synchronize(s)

    def loop(self, s: For) -> None:
        i, site = self.name(s.var), self.site
        if s.queue is not None:
            self.claims(s, s.queue)
            return
        self.add(f"{i} = {self.value(s.start)}")
        with self.block(f"while {i} < {self.value(s.stop)}:"):
            self.body(s.body)
            self.site = site
            if isinstance(s.step, Const):
                self.add(f"{i} += {self.value(s.step)}")
            else:
                step = self.held(s.step)
                self.add(f"if {step} <= 0: m.endless(t, {site}, {step})", f"{i} += {step}")
            self.add("m.step()")

    def claims(self, s: For, queue: str) -> None:
        """As in the CUDA text: each thread iterates over its block's numbers independently."""
        i, position = self.name(s.var), self.fresh()
        self.add(f"{position} = 0")
        with self.block("while True:"):
            self.add("if fine and m.pauses(t, 0.8): yield")  # so that blocks claim in turn
            self.add(f"{i} = m.claimed({queue!r}, b, {position})", f"if {i} >= {self.value(s.stop)}: break", f"{position} += 1")
            self.body(s.body)
            self.add("m.step()")

    def branches(self, s: If) -> None:
        site = self.site
        for k, branch in enumerate(s.branches):
            self.site = site
            with self.block(f"{'elif' if k else 'if'} {self.value(branch.cond)}:"):
                self.body(branch.body)

    def choose(self, s: Choose) -> None:
        for k, case in enumerate(s.cases):
            last = k == len(s.cases) - 1  # the CUDA text does not ask for the last one's condition
            with self.block(f"{'elif' if k else 'if'} {'True' if last else self.value(case.cond)}:"):
                self.operand(case.operand)
        self.touch(s.out, "write")

    def found(self, values: Sequence[GatherValue]) -> str:
        """The condition that all values are inside their extents, of any values."""
        inside: list[str] = []
        for found in values:
            self.touch(found.source, "read")
            extent = self.held(found.extent)
            symbol = self.name(found.symbol)
            self.add(f"{symbol} = m.anything({extent})")
            inside.append(f"0 <= {symbol} < {extent}")
        return " and ".join(inside) or "True"

    def update(self, s: AtomicUpdate) -> None:
        self.touch(s.source, "read", s.width)
        with self.block(f"if {self.found(s.values)}:"):
            size = s.width * self.storage[s.out.buffer].dtype.itemsize
            out = self.address(s.out, s.width)
            if s.width > 1:
                self.add(f"if {out} % {size}: m.misaligned(t, {self.site}, {out}, {size})")
            self.add(f"m.memory.update(t, {self.cells_of(s.out, out, size)}, {self.site}, {s.combine.name!r})")

    def gather(self, s: GatherCopy) -> None:
        inside = self.found(s.values)
        size = s.width * self.storage[s.out.buffer].dtype.itemsize
        with self.block(f"if {inside}:"):
            self.touch(s.source, "read", s.width, size if s.width > 1 else 0)
        self.touch(s.out, "write", s.width, size if s.width > 1 else 0)

    def copy(self, s: AsyncCopy) -> None:
        size = s.width * self.storage[s.out.buffer].dtype.itemsize
        out = self.address(s.out, s.width)
        self.add(f"if {out} % {size}: m.misaligned(t, {self.site}, {out}, {size})")
        cells = self.cells_of(s.out, out, size)
        source = self.fresh()
        self.add(f"{source} = ()")
        with self.block(f"if {self.value(s.valid)}:" if s.valid is not TRUE else "if True:"):
            of = self.address(s.source, s.width)
            self.add(f"if {of} % {size}: m.misaligned(t, {self.site}, {of}, {size})")
            if not self.is_input(s.source.buffer):
                self.add(f"{source} = {self.cells_of(s.source, of, size)}")
        self.add(f"m.engines.copy(t, {self.site}, {cells}, {source})")

    def bulk(self, s: TmaLoad | TmaStore) -> None:
        side = s.out if isinstance(s, TmaLoad) else s.source
        address = self.address(side)
        coords = self.tuple_of(self.held(c) for c in s.coords)
        if isinstance(s, TmaStore):
            self.add(f"m.store(t, {self.site}, {address}, {side.buffer!r}, {s.map!r}, {coords}, {None if s.combine is None else s.combine.name!r})")
        else:
            first, count = self.slots[s.barrier.name]
            k = self.held(s.barrier.slot)
            self.add(f"if not 0 <= {k} < {count}: m.outside(t, {self.site}, {s.barrier.name!r}, 0, {k}, {count})")
            types = tuple(p.value for p in s.across)
            self.add(f"m.load(t, {self.site}, b, {address}, {side.buffer!r}, {s.map!r}, {coords}, {first} + {k}, {types!r})")
        self.pause()

    def pause(self) -> None:
        self.add("if fine and m.pauses(t): yield")

    def sleeps(self, call: str) -> None:
        self.add(f"if {call}: yield")

    # -- tensor cores and whole warps -----------------------------------------------------------------------------------------------------

    def tile(self, d: Descriptor, itemsize: int) -> str:
        address = self.address(d.base)
        return f"Tile({address} + {self.value(d.offset)}, {d.swizzle}, {d.lbo}, {d.sbo}, Major.{d.major.name}, {itemsize}, places[{d.base.buffer!r}])"

    def fragment(self, first: Access, count: int) -> str:
        return f"Registers({first.buffer!r}, {self.index(first, count)}, {count})"

    def wgmma(self, s: Wgmma) -> None:
        a, b = s.dtype.itemsize, (s.b_dtype or s.dtype).itemsize
        acc = self.fragment(s.acc, s.n // 2)
        of = self.fragment(s.a, PRODUCT_BYTES // a) if isinstance(s.a, Access) else self.tile(s.a, a)
        shape = s.n, s.k, s.dtype.name, (s.b_dtype or s.dtype).name
        given = f"Product({acc}, {shape!r}, {of}, {self.tile(s.b, b)}, {s.n}, bool({self.value(s.accumulate)}))"
        self.sleeps(f"m.group_issues(t, {self.site}, {given})")

    def warp(self, s: Mma | LdMatrix | StMatrix | Shuffle) -> None:
        match s:
            case Mma(acc=acc, a=a, b=b):
                own = (PRODUCT_BYTES // s.dtype.itemsize, PRODUCT_BYTES // 2 // (s.b_dtype or s.dtype).itemsize)
                counts = (4, *own) if s.layouts is None else (8, 4, 4)  # a quad pair: 8 lanes have 8 x 8 sums, 8 x 4 and 4 x 8 factors
                parts = zip((acc, a, b), counts, strict=True)
                for first, count in parts:
                    self.touch(first, "read", count)
                self.sleeps(f"m.warp_comes(t, {self.site}, 32, None)")
            case Shuffle(out=out, source=source):
                self.touch(source, "read")
                self.sleeps(f"m.warp_comes(t, {self.site}, 32, None)")
                self.touch(out, "write")
            case LdMatrix() | StMatrix():
                registers, rows = (s.out, s.source) if isinstance(s, LdMatrix) else (s.source, s.out)
                self.touch(registers, "read", s.matrices * 4 // self.storage[registers.buffer].dtype.itemsize)
                address = self.fresh()
                self.add(f"{address} = None")
                with self.block(f"if t_lane(t, m) < {8 * s.matrices}:"):
                    self.add(f"{address} = {self.address(rows)}")
                what = "reads" if isinstance(s, LdMatrix) else "writes"
                self.sleeps(f"m.warp_comes(t, {self.site}, 32, ({address}, {what!r}, {s.matrices}, {s.transpose}, {rows.buffer!r}))")

    # -- synchronization ------------------------------------------------------------------------------------------------------------------

    def synchronize(self, s: Stmt) -> None:
        site = self.site
        match s:
            case Barrier():
                self.barrier(s)
            case InitBarrier(barrier=slot, count=count):
                self.add(f"m.barriers.initialize(t, {site}, {self.slot(slot)}, {self.value(count)})")
            case FenceInit():
                self.add("m.init_fence(t)")
            case Arrive(barrier=slot, across=()):
                self.add(f"m.barriers.arrive(t, {site}, {self.slot(slot)})")
                self.pause()
            case Arrive(barrier=slot, across=across, scope=scope):
                k = self.slot(slot)
                cluster = scope is MbarrierScope.CLUSTER
                self.add(f"m.arrive_across(t, {site}, b, {k} - mb, {tuple(p.value for p in across)!r}, cluster={cluster})")
                self.pause()
            case ArriveAsync(barrier=slot):
                self.add(f"m.engines.arrive_after_copies(t, {site}, {self.slot(slot)})")
                self.pause()
            case Expect(barrier=slot, bytes=size):
                self.add(f"m.barriers.arrive(t, {site}, {self.slot(slot)}, {self.value(size)})")
                self.pause()
            case Wait(barrier=slot, parity=parity, scope=scope):
                k, cluster = self.slot(slot), scope is MbarrierScope.CLUSTER
                with self.block(f"while m.barriers.waits(t, {site}, {k}, {self.value(parity)}, cluster={cluster}):"):
                    self.add("yield")
            case Release(semaphore=slot):
                self.add(f"m.barriers.release(t, {self.counter(slot)})")
                self.pause()
            case Acquire(semaphore=slot, phases=phases):
                key = self.counter(slot)
                with self.block(f"while m.barriers.acquires(t, {key}, m.launch.semaphores[{slot.name!r}][1]*{self.value(phases)}):"):
                    self.add("yield")
            case CursorInit(name=name, slots=slots, slot=slot, parity=parity):
                self.cursors[name] = slots
                self.add(f"{self.name(name + '.slot')}, {self.name(name + '.parity')}, {self.name(name + '.phase')} = {slot}, {parity}, 0")
            case Advance(cursor=cursor, count=count):
                self.advance(cursor, count)
            case Commit(queue=Queue.WGMMA):
                self.sleeps(f"m.warp_comes(t, {site}, 0, 'commit')")
            case Commit(queue=queue):
                self.add(f"m.engines.commit(t, bulk={queue is Queue.BULK})")
            case WaitGroup(queue=Queue.WGMMA, pending=pending):
                self.sleeps(f"m.warp_comes(t, {site}, 0, {pending})")
            case WaitGroup(queue=Queue.BULK, pending=pending, read_only=read_only):
                self.add(f"m.engines.wait_for_bulk(t, {pending}, {read_only})")
            case WaitGroup(pending=pending):
                self.add(f"m.engines.wait_for_copies(t, {pending})")
            case FenceProxyAsync(memory=memory):
                self.add(f"m.proxy_fence(t, {memory is MemoryType.Global})")
            case WgmmaFence():
                self.sleeps(f"m.warp_comes(t, {site}, 0, 'fence')")
            case SetMaxNReg(registers=registers):
                self.sleeps(f"m.registers(t, {site}, {registers})")
            case _:
                raise AssertionError(type(s))

    def barrier(self, s: Barrier) -> None:
        site = self.site
        match s.scope:
            case BarrierScope.BLOCK:
                self.sleeps(f"m.barriers.barrier(('block', b), t, {site}, m.launch.threads)")
            case BarrierScope.WARP:
                self.sleeps(f"m.barriers.warp_barrier(t, {site})")
            case BarrierScope.NAMED:
                assert s.id is not None
                self.sleeps(f"m.barriers.named(t, {site}, {self.value(s.id)}, {self.value(s.threads)})")
            case BarrierScope.CLUSTER:
                self.sleeps(f"m.cluster_barrier(t, {site}, b)")
            case BarrierScope.GRID:
                self.grid_barrier(s)

    def grid_barrier(self, s: Barrier) -> None:
        """As in the CUDA text: the first threads of whole blocks arrive at the counter, between two barriers of the block."""
        key = f"('grid', {s.counter!r})"
        (x, y, z), (gx, gy, gz) = self.kernel.block, self.kernel.grid
        everyone = s.threads is gx * gy * gz * (x * y * z)
        block = f"m.barriers.barrier(('block', b), t, {self.site}, m.launch.threads)"
        if everyone:
            self.sleeps(block)
        with self.block("if t % m.launch.threads == 0:" if everyone else "if True:"):
            target = self.fresh()
            count = "m.launch.blocks" if everyone else f"m.positive(t, {self.site}, {self.value(s.threads)})"
            self.add(f"{target} = m.barriers.arrive_at_counter(t, {key}, {count})")
            with self.block(f"while m.barriers.acquires(t, {key}, {target}):"):
                self.add("yield")
        if everyone:
            self.sleeps(block)

    def advance(self, cursor: str, count: Expr) -> None:
        """As in the CUDA text: C's quotient, rounded toward zero."""
        slot, parity, phase = map(self.name, Cursor(cursor).symbols)
        slots = self.cursors[cursor]
        n = self.held(count)
        if slots == 1:
            self.add(f"{parity} ^= {n} & 1", f"{phase} += {n}")
        else:
            self.add(f"{slot} += {n}", f"q = abs({slot}) // {slots} if {slot} >= 0 else -(-{slot} // {slots})")
            self.add(f"{parity} ^= q & 1", f"{phase} += q", f"{slot} -= q*{slots}")
