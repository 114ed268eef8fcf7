"""Rules of the instructions of more than one thread, and of asynchronous ones: shuffles, cp.async, TMA, queues, register budgets; and those of matrices.

Limits are those of the PTX ISA for sm_90a.
"""

from __future__ import annotations

from taskfuse.ir.scalar import Const
from taskfuse.ir.types import MemoryType
from taskfuse.kir.limits import WARP
from taskfuse.kir.matrix_rules import MATRIX_RULES, fits_alignment, is_shared, swizzle_period
from taskfuse.kir.nodes import AsyncCopy, Queue, Retire, SetMaxNReg, Shuffle, TmaLoad, TmaStore
from taskfuse.kir.printer import block_threads
from taskfuse.kir.scope import Scope
from taskfuse.kir.statement_rules import StatementRule, Subject

SHUFFLE_MASKS = (1, 2, 4, 8, 16)
TMA_ALIGNMENT = 128
ASYNC_COPY_BYTES = (4, 8, 16)
REGISTERS = range(24, 257, 8)
MAX_PENDING = 7


def async_copies_fill_shared_memory(subject: Subject, scope: Scope) -> str | None:
    """PTX ISA, "cp.async": 4, 8 or 16 bytes from Global to Shared memory, without conversion."""
    match subject:
        case AsyncCopy(out=out, source=source, width=width):
            d = scope.declarations
            if not is_shared(d, out) or d.memory(source.buffer) is not MemoryType.Global:
                return f"an asynchronous copy is from Global to Shared memory, not from '{source.buffer}' to '{out.buffer}'"
            to, of = d.dtype(out.buffer), d.dtype(source.buffer)
            if to is None or to is not of:
                return f"an asynchronous copy does not convert: '{out.buffer}' is {to}, '{source.buffer}' is {of}"
            if width < 1 or width * to.itemsize not in ASYNC_COPY_BYTES:
                return f"an asynchronous copy of {width} {to}: 4, 8 or 16 bytes are possible"
            if width > 1 and not (out.index and source.index):
                return "an asynchronous copy of several elements needs an axis on both sides"
            return fits_alignment(d, out.buffer, width * to.itemsize, "the copy")
        case _:
            return None


def tma_copies_between_global_and_shared(subject: Subject, scope: Scope) -> str | None:
    """TMA copies a box between a tensor argument and an aligned tile in Shared memory, without conversion."""
    d = scope.declarations
    match subject:
        case TmaLoad(map=name, coords=coords, out=side) | TmaStore(map=name, coords=coords, source=side):
            m = d.maps[name]
            tensor = d.storage[m.tensor]
            if not is_shared(d, side):
                return f"TMA copies to and from Shared memory; '{side.buffer}' is not Shared"
            if d.dtype(side.buffer) is not tensor.dtype:
                return f"TMA does not convert: '{side.buffer}' is {d.dtype(side.buffer)}, '{m.tensor}' is {tensor.dtype}"
            if len(coords) != len(m.box):
                return f"'{name}' has {len(m.box)} axes, the copy {len(coords)} coordinates"
            return fits_alignment(d, side.buffer, max(TMA_ALIGNMENT, swizzle_period(m.swizzle)), "TMA")
        case _:
            return None


def shuffles_exchange_registers(subject: Subject, scope: Scope) -> str | None:
    """A shuffle moves a register of each lane of a warp, without conversion. That whole warps execute it is the simulator's to see."""
    match subject:
        case Shuffle(out=out, source=source, mask=mask):
            d = scope.declarations
            for side in (out, source):
                if d.memory(side.buffer) is not MemoryType.Local:
                    return f"a shuffle exchanges registers; '{side.buffer}' is not Local"
            to, of = d.dtype(out.buffer), d.dtype(source.buffer)
            if to is not of:
                return f"a shuffle does not convert: '{out.buffer}' is {to}, '{source.buffer}' is {of}"
            if mask not in SHUFFLE_MASKS:
                return f"a shuffle with mask {mask}: 1, 2, 4, 8 and 16 are possible"
            threads = block_threads(d.kernel.block)
            if isinstance(threads, Const) and threads.value < WARP:
                return f"a shuffle needs a whole warp; a block has {threads} threads"
            return None
        case _:
            return None


def retires_are_possible(subject: Subject, scope: Scope) -> str | None:
    """A queue holds a few batches; only bulk copies tell reading from finishing."""
    match subject:
        case Retire(queue=Queue.WGMMA | Queue.COPY as queue, read_only=True):
            return f"{queue.value} has no retire of reads only"
        case Retire(pending=pending) if not 0 <= pending <= MAX_PENDING:
            return f"a retire to {pending} unfinished batches: 0 to {MAX_PENDING} are possible"
        case _:
            return None


def register_budgets_are_possible(subject: Subject, scope: Scope) -> str | None:
    """PTX ISA, "setmaxnreg": 24 to 256 in steps of 8; more or less than what the launch gives."""
    match subject:
        case SetMaxNReg(registers=registers) if registers not in REGISTERS:
            return f"setmaxnreg {registers}: multiples of 8 from 24 to 256 are possible"
        case SetMaxNReg() if scope.declarations.kernel.launch_registers is None:
            shape = ", ".join(map(str, scope.declarations.kernel.block))
            return f"setmaxnreg in blocks of ({shape}) threads: what a launch gives each thread is unknown, let the shape be constant"
        case _:
            return None


ATOM_RULES: tuple[StatementRule, ...] = (
    async_copies_fill_shared_memory,
    tma_copies_between_global_and_shared,
    *MATRIX_RULES,
    shuffles_exchange_registers,
    retires_are_possible,
    register_budgets_are_possible,
)
