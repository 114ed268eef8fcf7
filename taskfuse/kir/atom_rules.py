"""Rules of the instructions of more than one thread, and of asynchronous ones: shuffles, cp.async, TMA, wgmma, stmatrix, queues, register budgets.

Limits are those of the PTX ISA for sm_90a.
"""

from __future__ import annotations

from taskfuse.dtypes import DType, bfloat16, float8_e4m3, float8_e5m2, float16, float32
from taskfuse.ir.scalar import Const
from taskfuse.ir.types import MemoryType
from taskfuse.kir.declaration_rules import SWIZZLES
from taskfuse.kir.limits import WARP
from taskfuse.kir.nodes import Access, AsyncCopy, Buffer, Descriptor, Major, Queue, Retire, SetMaxNReg, Shuffle, StMatrix, TmaLoad, TmaStore, Wgmma
from taskfuse.kir.printer import block_threads
from taskfuse.kir.scope import Declarations, Scope
from taskfuse.kir.statement_rules import StatementRule, Subject

WGMMA_DTYPES = (float16, bfloat16, float8_e4m3, float8_e5m2)
WGMMA_K_BYTES = 32
STMATRIX_REGISTERS = 8
SHUFFLE_MASKS = (1, 2, 4, 8, 16)
TMA_ALIGNMENT = 128
ASYNC_COPY_BYTES = (4, 8, 16)
REGISTERS = range(24, 257, 8)
MAX_PENDING = 7


def _is_shared(d: Declarations, access: Access) -> bool:
    return d.memory(access.buffer) is MemoryType.Shared


def _swizzle_period(swizzle: int) -> int:
    """Bytes after which a swizzle pattern repeats: eight spans; a tile must be aligned to it."""
    return 8 * swizzle


def _fits_alignment(d: Declarations, name: str, needed: int, what: str) -> str | None:
    buffer = d.storage[name]
    if isinstance(buffer, Buffer) and buffer.align < needed:
        return f"'{name}' is aligned to {buffer.align} bytes; {what} needs {needed}"
    return None


def async_copies_fill_shared_memory(subject: Subject, scope: Scope) -> str | None:
    """PTX ISA, "cp.async": 4, 8 or 16 bytes from Global to Shared memory, without conversion."""
    match subject:
        case AsyncCopy(out=out, source=source, width=width):
            d = scope.declarations
            if not _is_shared(d, out) or d.memory(source.buffer) is not MemoryType.Global:
                return f"an asynchronous copy is from Global to Shared memory, not from '{source.buffer}' to '{out.buffer}'"
            to, of = d.dtype(out.buffer), d.dtype(source.buffer)
            if to is None or to is not of:
                return f"an asynchronous copy does not convert: '{out.buffer}' is {to}, '{source.buffer}' is {of}"
            if width < 1 or width * to.itemsize not in ASYNC_COPY_BYTES:
                return f"an asynchronous copy of {width} {to}: 4, 8 or 16 bytes are possible"
            if width > 1 and not (out.index and source.index):
                return "an asynchronous copy of several elements needs an axis on both sides"
            return _fits_alignment(d, out.buffer, width * to.itemsize, "the copy")
        case _:
            return None


def tma_copies_between_global_and_shared(subject: Subject, scope: Scope) -> str | None:
    """TMA copies a box between a tensor argument and an aligned tile in Shared memory, without conversion."""
    d = scope.declarations
    match subject:
        case TmaLoad(map=name, coords=coords, out=side) | TmaStore(map=name, coords=coords, source=side):
            m = d.maps[name]
            tensor = d.storage[m.tensor]
            if not _is_shared(d, side):
                return f"TMA copies to and from Shared memory; '{side.buffer}' is not Shared"
            if d.dtype(side.buffer) is not tensor.dtype:
                return f"TMA does not convert: '{side.buffer}' is {d.dtype(side.buffer)}, '{m.tensor}' is {tensor.dtype}"
            if len(coords) != len(m.box):
                return f"'{name}' has {len(m.box)} axes, the copy {len(coords)} coordinates"
            return _fits_alignment(d, side.buffer, max(TMA_ALIGNMENT, _swizzle_period(m.swizzle)), "TMA")
        case _:
            return None


def wgmma_shapes_exist(subject: Subject, scope: Scope) -> str | None:
    """PTX ISA, "wgmma.mma_async": m64, n a multiple of 8 up to 256, k of 32 bytes; 16- and 8-bit floats."""
    match subject:
        case Wgmma(n=n, k=k, dtype=dtype):
            if dtype not in WGMMA_DTYPES:
                return f"wgmma does not multiply {dtype}"
            if n % 8 or not 8 <= n <= 256:
                return f"wgmma has no n of {n}: multiples of 8 from 8 to 256 exist"
            if k * dtype.itemsize != WGMMA_K_BYTES:
                return f"wgmma has no k of {k} for {dtype}: k spans {WGMMA_K_BYTES} bytes"
            return None
        case _:
            return None


def wgmma_accumulates_in_registers(subject: Subject, scope: Scope) -> str | None:
    """The accumulators are consecutive fp32 registers."""
    match subject:
        case Wgmma(acc=acc, n=n):
            d = scope.declarations
            if d.memory(acc.buffer) is not MemoryType.Local or d.dtype(acc.buffer) is not float32 or len(acc.index) != 1:
                return f"the accumulator '{acc.buffer}' is not a Local float32 array of one axis"
            return _holds_registers(d, acc, n // 2)
        case _:
            return None


def _holds_registers(d: Declarations, first: Access, count: int) -> str | None:
    """A message unless the Local array has ``count`` registers from ``first`` on, as far as constants tell."""
    size, start = d.shape(first.buffer)[-1], first.index[-1]
    if isinstance(size, Const) and isinstance(start, Const) and start.value + count > size.value:
        return f"registers {start} to {start.value + count - 1} of '{first.buffer}', which has {size}"
    return None


def wgmma_operands_are_tiles(subject: Subject, scope: Scope) -> str | None:
    """Operands are tiles in Shared memory that a matrix descriptor can express."""
    match subject:
        case Wgmma(a=a, b=b, dtype=dtype):
            return _tile_problem(scope.declarations, a, dtype) or _tile_problem(scope.declarations, b, dtype)
        case _:
            return None


def _tile_problem(d: Declarations, tile: Descriptor, dtype: DType) -> str | None:
    name = tile.base.buffer
    if not _is_shared(d, tile.base) or d.dtype(name) is not dtype:
        return f"the wgmma operand '{name}' is not {dtype} in Shared memory"
    if tile.swizzle not in SWIZZLES:
        return f"a swizzle of {tile.swizzle} bytes: 0, 32, 64 and 128 are possible"
    if tile.lbo % 16 or tile.sbo % 16:
        return f"the byte offsets of a descriptor are multiples of 16, not {tile.lbo} and {tile.sbo}"
    if isinstance(tile.offset, Const) and tile.offset.value % 16:
        return f"the descriptor of '{name}' starts at byte {tile.offset}, not a multiple of 16"
    if tile.major is Major.MN and dtype.itemsize != 2:
        return f"a wgmma operand of {dtype} must be K-major"
    return _fits_alignment(d, name, max(16, _swizzle_period(tile.swizzle)), "its swizzle")


def stmatrix_stores_16_bit_registers(subject: Subject, scope: Scope) -> str | None:
    """stmatrix stores eight 16-bit registers to Shared memory, without conversion."""
    match subject:
        case StMatrix(out=out, source=source):
            d = scope.declarations
            if not _is_shared(d, out) or d.memory(source.buffer) is not MemoryType.Local or not source.index:
                return "stmatrix stores a Local array to Shared memory"
            stored, held = d.dtype(out.buffer), d.dtype(source.buffer)
            if stored is not held or stored is None or stored.itemsize != 2:
                return f"stmatrix stores 16-bit elements without conversion: '{out.buffer}' is {stored}, '{source.buffer}' is {held}"
            return _holds_registers(d, source, STMATRIX_REGISTERS)
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
    """PTX ISA, "setmaxnreg": 24 to 256 in steps of 8."""
    match subject:
        case SetMaxNReg(registers=registers) if registers not in REGISTERS:
            return f"setmaxnreg {registers}: multiples of 8 from 24 to 256 are possible"
        case _:
            return None


ATOM_RULES: tuple[StatementRule, ...] = (
    async_copies_fill_shared_memory,
    tma_copies_between_global_and_shared,
    wgmma_shapes_exist,
    wgmma_accumulates_in_registers,
    wgmma_operands_are_tiles,
    stmatrix_stores_16_bit_registers,
    shuffles_exchange_registers,
    retires_are_possible,
    register_budgets_are_possible,
)
