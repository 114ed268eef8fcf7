"""Statements of synchronization in CUDA C++: barriers, semaphores, queues, cursors."""

from __future__ import annotations

from collections.abc import Mapping

from taskfuse.cuda import copy_instructions, matrices
from taskfuse.cuda import instructions as ptx
from taskfuse.cuda.debug import WaitPoint
from taskfuse.cuda.expressions import Level
from taskfuse.cuda.ranges import cursor_ranges
from taskfuse.cuda.storage import row_major
from taskfuse.cuda.text import HelperCall
from taskfuse.cuda.writer import TextScope, Writer
from taskfuse.ir.scalar import ONE, Expr, eq, prove
from taskfuse.ir.types import MemoryType
from taskfuse.kir import walk
from taskfuse.kir.channels import carried
from taskfuse.kir.clusters import ranks
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.operands import Queue, SemaphoreSlot
from taskfuse.kir.synchronization import (
    Acquire,
    Advance,
    Arrive,
    Barrier,
    BarrierScope,
    Commit,
    Cursor,
    CursorInit,
    FenceProxyAsync,
    MbarrierScope,
    Release,
    SetMaxNReg,
    Wait,
    WaitGroup,
)
from taskfuse.kir.walk import phased

CALLS: Mapping[type[Stmt], HelperCall] = {**ptx.CALLS, **copy_instructions.CALLS, **matrices.CALLS}
"""The statements that are one call of a helper."""
_COMMITS = {Queue.WGMMA: matrices.WGMMA_COMMIT, Queue.BULK: copy_instructions.BULK_COMMIT, Queue.COPY: copy_instructions.COPY_COMMIT}
_WAITS = {Queue.WGMMA: matrices.WGMMA_WAIT, Queue.BULK: copy_instructions.BULK_WAIT, Queue.COPY: copy_instructions.COPY_WAIT}


class Synchronization:
    """Prints the synchronization of one kernel.

    Args:
        counters: texts of the addresses of counters.
        debug: bounded waits.

    Attributes:
        waits: the waits of a debug build.
    """

    def __init__(self, writer: Writer, counters: dict[str, str], debug: bool) -> None:
        kernel = writer.kernel
        self._writer = writer
        self._counters = counters
        self._debug = debug
        self._semaphores = {s.name: s for s in kernel.semaphores}
        self._slots: dict[str, int] = {}
        self._phased = phased(walk(kernel))
        self._carries = carried(kernel) if debug else {}
        self.waits: list[WaitPoint] = []

    def print(self, stmt: Stmt, scope: TextScope) -> None:
        """One statement."""
        w = self._writer
        match stmt:
            case Barrier():
                self._barrier(stmt, scope)
            case Arrive(barrier=slot, across=()):
                w.call(scope, ptx.ARRIVE, w.slot(slot, scope))
            case Arrive(barrier=slot, across=across):
                first, others = ranks(w.kernel.cluster, across)
                helper = ptx.PUBLISH_AT if stmt.scope is MbarrierScope.CLUSTER else ptx.ARRIVE_AT
                for other in others:
                    w.call(scope, helper, w.slot(slot, scope), scope.indices.text(first + other))
            case Wait():
                self._wait(stmt, scope)
            case Release(semaphore=slot):
                w.call(scope, ptx.RELEASE, self._counter(slot, scope))
            case Acquire():
                self._acquire(stmt, scope)
            case CursorInit():
                self._cursor(stmt, scope)
            case Advance():
                self._advance(stmt, scope)
            case Commit(queue=queue):
                w.call(scope, _COMMITS[queue])
            case WaitGroup(queue=queue, pending=pending, read_only=read_only):
                w.call(scope, copy_instructions.BULK_WAIT_READ if read_only else _WAITS[queue], template=f"<{pending}>")
            case FenceProxyAsync():
                w.call(scope, ptx.FENCE_PROXY_GLOBAL if stmt.memory is MemoryType.Global else ptx.FENCE_PROXY)
            case SetMaxNReg(registers=count):
                w.call(scope, ptx.set_registers(count, self._launch_registers()))
            case _:
                w.statement(stmt, CALLS[type(stmt)], scope)

    def _barrier(self, stmt: Barrier, scope: TextScope) -> None:
        w = self._writer
        if stmt.note:
            w.line(scope, f"// {stmt.note}")
        match stmt.scope:
            case BarrierScope.BLOCK:
                w.line(scope, "__syncthreads();")
            case BarrierScope.WARP:
                w.line(scope, "__syncwarp();")
            case BarrierScope.NAMED:
                assert stmt.id is not None
                w.call(scope, ptx.NAMED, scope.indices.text(stmt.id), scope.indices.text(stmt.threads))
            case BarrierScope.CLUSTER:
                w.call(scope, ptx.CLUSTER_BARRIER)
            case BarrierScope.GRID:
                self._grid_barrier(stmt, scope)

    def _grid_barrier(self, stmt: Barrier, scope: TextScope) -> None:
        w = self._writer
        assert stmt.counter is not None
        x, y, z = w.kernel.grid
        counter = self._counters[stmt.counter]
        report = ("report", str(self._point(stmt.counter, stmt, scope))) if self._debug else ()
        if prove(eq(stmt.threads, x * y * z * self._threads()), scope.indices.facts()):
            w.call(scope, ptx.GRID_BLOCKS_BOUNDED if self._debug else ptx.GRID_BLOCKS, counter, *report)
        else:
            threads = scope.indices.text(stmt.threads)
            w.call(scope, ptx.GRID_THREADS_BOUNDED if self._debug else ptx.GRID_THREADS, counter, threads, *report)

    def _threads(self) -> Expr:
        x, y, z = self._writer.kernel.block
        return x * y * z

    def _launch_registers(self) -> int:
        found = self._writer.kernel.launch_registers
        assert found is not None, "the verifier refuses budgets in blocks whose shape is not constant"
        return found

    # -- waits ----------------------------------------------------------------------------------------------------------------------

    def _point(self, barrier: str, stmt: Wait | Barrier, scope: TextScope) -> int:
        self.waits.append(WaitPoint(scope.path, barrier, location=stmt.location, carries=self._carries.get(barrier, ())))
        return len(self.waits) - 1

    def _wait(self, stmt: Wait, scope: TextScope) -> None:
        w = self._writer
        arguments = [w.slot(stmt.barrier, scope), scope.indices.text(stmt.parity)]
        wait, bounded = (ptx.CLUSTER_WAIT, ptx.CLUSTER_BOUNDED_WAIT) if stmt.scope is MbarrierScope.CLUSTER else (ptx.WAIT, ptx.BOUNDED_WAIT)
        if self._debug:
            point = self._point(stmt.barrier.name, stmt, scope)
            w.call(scope, bounded, *arguments, "report", str(point), scope.indices.text(stmt.barrier.slot))
        else:
            w.call(scope, wait, *arguments)

    def _counter(self, slot: SemaphoreSlot, scope: TextScope) -> str:
        return f"&{self._writer.names[slot.name]}[{row_major(slot.index, self._semaphores[slot.name].shape, scope.indices)}]"

    def _acquire(self, stmt: Acquire, scope: TextScope) -> None:
        w = self._writer
        slot, indices = stmt.semaphore, scope.indices
        arguments = [self._counter(slot, scope), indices.text(self._semaphores[slot.name].count), indices.text(stmt.phases)]
        if self._debug:
            self.waits.append(WaitPoint(scope.path, slot.name, "phase", stmt.location, self._carries.get(slot.name, ())))
            w.call(scope, ptx.BOUNDED_ACQUIRE, *arguments, "report", str(len(self.waits) - 1), indices.text(slot.index[-1]))
        else:
            w.call(scope, ptx.ACQUIRE, *arguments)

    # -- cursors --------------------------------------------------------------------------------------------------------------------

    def _cursor(self, stmt: CursorInit, scope: TextScope) -> None:
        w = self._writer
        cursor = Cursor(stmt.name)
        slot, parity = w.names[cursor.slot.name], w.names[cursor.parity.name]
        kind = "" if stmt.name in scope.cursors else "int "
        scope.cursors.add(stmt.name)
        self._slots[stmt.name] = stmt.slots
        phase = f", {w.names[cursor.phase.name]} = 0" if stmt.name in self._phased else ""
        w.line(scope, f"{kind}{slot} = {stmt.slot}, {parity} = {stmt.parity}{phase};")
        scope.indices.ranges = scope.indices.ranges.child(cursor_ranges(stmt))

    def _advance(self, stmt: Advance, scope: TextScope) -> None:
        w = self._writer
        cursor = Cursor(stmt.cursor)
        slot, parity = w.names[cursor.slot.name], w.names[cursor.parity.name]
        slots = self._slots[stmt.cursor]
        phase = w.names[cursor.phase.name] if stmt.cursor in self._phased else ""
        indices = scope.indices
        moved = cursor.slot + stmt.count
        if slots == 1:
            further = f", {phase} += {indices.text(stmt.count)}" if phase else ""
            w.line(scope, f"{parity} ^= {indices.text(stmt.count, Level.BIT_AND)}{'' if stmt.count is ONE else ' & 1'}{further};")
        elif stmt.count is ONE:
            w.line(scope, f"if (++{slot} == {slots}) {slot} = 0, {parity} ^= 1{f', ++{phase}' if phase else ''};")
        elif indices.is_wide(moved) or not indices.is_nonnegative(stmt.count):
            wraps, at = w.names.reserve("wraps"), w.names.reserve("at")
            w.line(scope, f"const auto {wraps} = {indices.text(moved // slots)};")
            w.line(scope, f"const auto {at} = {indices.text(moved % slots)};")
            w.line(scope, f"{parity} ^= {wraps} & 1{f', {phase} += {wraps}' if phase else ''}, {slot} = {at};")
        else:
            w.line(scope, f"{slot} += {indices.text(stmt.count)};")
            w.line(scope, f"{parity} ^= {slot} / {slots} & 1, {f'{phase} += {slot} / {slots}, ' if phase else ''}{slot} %= {slots};")
