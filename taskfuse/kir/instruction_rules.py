"""Rules of instructions on many elements, and of updates: vectors, gathers, cp.async, TMA, shuffles; products and their fragments. Limits: PTX ISA."""

from __future__ import annotations

from taskfuse.dtypes import DType, uint64
from taskfuse.ir.combine import is_atomic, is_bulk_update, vector_updates
from taskfuse.ir.fragments import MATRIX_COUNTS, Fragment, matrices
from taskfuse.ir.matrix_instructions import Family, find, rows, spans
from taskfuse.ir.scalar import Const
from taskfuse.ir.shared_layouts import CHUNK, SWIZZLES, Major, operand_alignment, swizzle_period
from taskfuse.ir.types import MemoryType
from taskfuse.kir.declaration_rules import NO_NAME
from taskfuse.kir.declarations import Buffer
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, GatherCopy, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Access, Descriptor
from taskfuse.kir.printer import block_threads
from taskfuse.kir.products import LdMatrix, Mma, Shuffle, StMatrix, Wgmma
from taskfuse.kir.scope import Declarations, Scope
from taskfuse.kir.statement_rules import StatementRule
from taskfuse.kir.walk import walk
from taskfuse.target import ASYNC_BYTES, VECTOR_BYTES, WARP

MAX_OFFSET = CHUNK * (2**14 - 1)
"""Upper bound of a matrix descriptor's offsets in bytes: 14 bits count chunks (PTX ISA, "Matrix Descriptor Format")."""


def is_shared(d: Declarations, access: Access) -> bool:
    """True for an element in Shared memory."""
    return d.memory(access.buffer) is MemoryType.Shared


def fits_alignment(d: Declarations, name: str, needed: int, what: str) -> str | None:
    """A message if a buffer is not aligned to ``needed`` bytes."""
    buffer = d.storage[name]
    if isinstance(buffer, Buffer) and buffer.align < needed:
        return f"'{name}' is aligned to {buffer.align} bytes; {what} needs {needed}"
    return None


def _registers(d: Declarations, first: Access, dtype: DType | None, fragment: Fragment | None, what: str) -> str | None:
    """A message unless ``first`` begins the registers of a fragment of ``dtype``, as far as constants tell."""
    if fragment is None:
        return f"the {what} '{first.buffer}' is in registers, where no instruction takes it from"
    if d.memory(first.buffer) is not MemoryType.Local or d.dtype(first.buffer) is not dtype or len(first.index) != 1:
        return f"the {what} '{first.buffer}' is not a Local {dtype} array of one axis"
    size, start, count = d.shape(first.buffer)[-1], first.index[-1], fragment.count
    if isinstance(size, Const) and isinstance(start, Const) and start.value + count > size.value:
        return f"registers {start} to {start.value + count - 1} of '{first.buffer}', which has {size}"
    return None


def products_exist(subject: Wgmma | Mma, scope: Scope) -> str | None:
    """PTX ISA, "wgmma.mma_async", "mma": the operand types, and the shapes for them."""
    family = Family.WGMMA if isinstance(subject, Wgmma) else Family.MMA
    (a, b), k = subject.factors, subject.k
    found = rows(family, a, b)
    if not found:
        return f"{family.value} does not multiply {a}" + ("" if a is b else f" by {b}")
    if isinstance(subject, Wgmma) and all(subject.n not in row.widths for row in found):
        return f"wgmma has no n of {subject.n}: multiples of 8 from 8 to 256 exist" + ("" if a.is_float else f"; for {a}, of 16 above 32")
    layouts, sums, m = (subject.layouts, subject.sums, subject.m) if isinstance(subject, Mma) else (None, None, None)
    if find(family, a, b, k, layouts, sums, m) is not None:
        return None
    if layouts is not None or sums is not None:
        alike = next((row for row in found if row.shape.layouts == layouts), None)
        has = "no such products exist" if alike is None else f"k is {alike.k}" if sums in {None, *(r.sums for r in found)} else f"sums are {alike.sums}"
        return f"mma by {'warps' if layouts is None else 'quad pairs'} has no m{m}n8k{k} of {a}: {has}"
    if m is not None and find(family, a, b, k) is not None:
        return f"mma has no m{m}n8k{k} of {a}"
    return f"{family.value} has no k of {k} for {a}: k spans {spans(row.shape for row in found if row.shape.layouts is None)}"


def products_accumulate_in_registers(subject: Wgmma | Mma, scope: Scope) -> str | None:
    """The accumulators are consecutive registers of the type in which such products are summed."""
    return _registers(scope.declarations, subject.acc, subject.row.sums, subject.accumulators, "accumulator")


def operands_are_tiles_or_fragments(subject: Wgmma | Mma, scope: Scope) -> str | None:
    """Operands are tiles in Shared memory that a matrix descriptor can express, or fragments in registers of their own."""
    d = scope.declarations
    match subject:
        case Wgmma(a=a, b=b, factors=(left, right)):
            first = _fragment_problem(d, subject, a) if isinstance(a, Access) else _tile_problem(d, a, left)
            return first or _tile_problem(d, b, right)
        case Mma(a=a, b=b, factors=(left, right), row=row):
            return _registers(d, a, left, row.a_registers, "mma operand") or _registers(d, b, right, row.b_registers, "mma operand")


def _fragment_problem(d: Declarations, stmt: Wgmma, a: Access) -> str | None:
    if any(isinstance(s, Wgmma) and s.acc.buffer == a.buffer for s in walk(d.kernel)):
        return f"the wgmma operand '{a.buffer}' is also an accumulator of wgmma"
    return _registers(d, a, stmt.dtype, stmt.row.a_registers, "wgmma operand")


def _tile_problem(d: Declarations, tile: Descriptor, dtype: DType) -> str | None:
    name = tile.base.buffer
    if not is_shared(d, tile.base) or d.dtype(name) is not dtype:
        return f"the wgmma operand '{name}' is not {dtype} in Shared memory"
    if tile.swizzle not in SWIZZLES:
        return f"a swizzle of {tile.swizzle} bytes: 0, 32, 64 and 128 are possible"
    if tile.lbo % CHUNK or tile.sbo % CHUNK:
        return f"the byte offsets of a descriptor are multiples of {CHUNK}, not {tile.lbo} and {tile.sbo}"
    if not (0 <= tile.lbo <= MAX_OFFSET and 0 <= tile.sbo <= MAX_OFFSET):
        return f"the byte offsets of a descriptor are 0 to {MAX_OFFSET}, not {tile.lbo} and {tile.sbo}"
    if isinstance(tile.offset, Const) and tile.offset.value % CHUNK:
        return f"the descriptor of '{name}' starts at byte {tile.offset}, not a multiple of {CHUNK}"
    if tile.major is Major.MN and dtype.itemsize != 2:
        return f"a wgmma operand of {dtype} must be K-major"
    return fits_alignment(d, name, operand_alignment(tile.swizzle), "its swizzle")


def matrices_move_without_conversion(subject: LdMatrix | StMatrix, scope: Scope) -> str | None:
    """ldmatrix and stmatrix move rows of 16 bytes between Shared memory and registers; only 16-bit elements can be transposed."""
    match subject:
        case LdMatrix(out=registers, source=rows):
            name, does = "ldmatrix", "ldmatrix loads a Local array from Shared memory"
        case StMatrix(out=rows, source=registers):
            name, does = "stmatrix", "stmatrix stores a Local array to Shared memory"
    d = scope.declarations
    if not is_shared(d, rows) or d.memory(registers.buffer) is not MemoryType.Local or len(registers.index) != 1:
        return does
    there, here = d.dtype(rows.buffer), d.dtype(registers.buffer)
    if here is not there or here is None:
        return f"{name} does not convert: '{rows.buffer}' is {there}, '{registers.buffer}' is {here}"
    if here.itemsize not in (1, 2, 4):
        return f"{name} moves elements of 8, 16 or 32 bits, not {here}"
    if subject.transpose and here.itemsize != 2:
        return f"{name} transposes 16-bit elements, not {here}"
    if subject.matrices not in MATRIX_COUNTS:
        return f"{name} moves 1, 2 or 4 matrices, not {subject.matrices}"
    return _registers(d, registers, here, matrices(subject.matrices, here.itemsize), "fragment")


VECTOR_WIDTHS = (2, 4, 8, 16)
SHUFFLE_MASKS = tuple(1 << bit for bit in range(WARP.bit_length() - 1))


def vector_copies_are_vectors(subject: VectorCopy, scope: Scope) -> str | None:
    """A vector is 2 to 16 elements, at most 16 bytes, and copied without conversion."""
    out, source, width = subject.out, subject.source, subject.width
    to, of = scope.declarations.dtype(out.buffer), scope.declarations.dtype(source.buffer)
    if to is None or to is not of:
        return f"a vector copy does not convert: '{out.buffer}' is {to}, '{source.buffer}' is {of}"
    if not out.index or not source.index:
        return "a vector copy needs an axis on both sides"
    if width not in VECTOR_WIDTHS or width * to.itemsize > VECTOR_BYTES:
        return f"a vector of {width} {to}: widths are 2, 4, 8 and 16, and at most {VECTOR_BYTES} bytes"
    return None


def values_have_symbols(subject: GatherCopy | AtomicUpdate, scope: Scope) -> str | None:
    """Each value has its own symbol, which occurs only in the index that uses it: the source of a gather, or the target of an update."""
    if isinstance(subject, GatherCopy) and not subject.values:
        return "a gather without values"
    symbols = [v.symbol for v in subject.values]
    for symbol in symbols:
        if not scope.declarations.is_name(symbol):
            return NO_NAME.format(symbol)
        if symbol in scope.symbols or symbol in scope.declarations.cursors or scope.declarations.is_declared(symbol) or symbols.count(symbol) > 1:
            return f"the symbol '{symbol}' is already defined here"
    other, does = (subject.out, "read") if isinstance(subject, GatherCopy) else (subject.source, "updated")
    outside = (*other.index, *(e for v in subject.values for e in (*v.source.index, v.extent)))
    used = next((s for s in symbols if any(s in e.free for e in outside)), None)
    return None if used is None else f"'{used}' is used outside the index that is {does}"


def values_are_integers(subject: GatherCopy | AtomicUpdate, scope: Scope) -> str | None:
    """A value is an integer that fits a signed 64-bit integer."""
    for v in subject.values:
        dtype = scope.declarations.dtype(v.source.buffer)
        if dtype is None or not dtype.is_integer or dtype is uint64:
            what = "a gather" if isinstance(subject, GatherCopy) else "an update"
            return f"a value of {what} is an integer of at most 64 bits with a sign, and '{v.source.buffer}' is {dtype}"
    return None


def gathers_are_vectors(subject: GatherCopy, scope: Scope) -> str | None:
    """A gather does not convert; several elements form a vector, and share the value of every symbol."""
    out, source, width = subject.out, subject.source, subject.width
    to, of = scope.declarations.dtype(out.buffer), scope.declarations.dtype(source.buffer)
    if to is None or to is not of:
        return f"a gather does not convert: '{out.buffer}' is {to}, '{source.buffer}' is {of}"
    if width == 1:
        return None
    if width not in VECTOR_WIDTHS or width * to.itemsize > VECTOR_BYTES:
        return f"a vector of {width} {to}: widths are 2, 4, 8 and 16, and at most {VECTOR_BYTES} bytes"
    if not out.index or not source.index or any(v.symbol in source.index[-1].free for v in subject.values):
        return "a gather of vectors needs a last axis on both sides, at an index without values"
    return None


def updates_are_atomic(subject: AtomicUpdate, scope: Scope) -> str | None:
    """PTX ISA, "red": an element in Global memory, of a type that the device updates atomically; without conversion."""
    d, out, source = scope.declarations, subject.out, subject.source
    if d.memory(out.buffer) is not MemoryType.Global:
        return f"an update is of an element in Global memory, and '{out.buffer}' is not"
    to, of = d.dtype(out.buffer), d.dtype(source.buffer)
    if to is None or to is not of:
        return f"an update does not convert: '{out.buffer}' is {to}, '{source.buffer}' is {of}"
    if not is_atomic(subject.combine, to):
        return f"no device combines {to} by {subject.combine.name} in one step"
    if subject.width == 1:
        return None
    if subject.width not in vector_updates(subject.combine, to):
        return f"no instruction combines {subject.width} {to} by {subject.combine.name}"
    if not out.index or not source.index or any(v.symbol in out.index[-1].free for v in subject.values):
        return "an update of vectors needs a last axis on both sides, at an index without values"
    return None


def async_copies_fill_shared_memory(subject: AsyncCopy, scope: Scope) -> str | None:
    """PTX ISA, "cp.async": 4, 8 or 16 bytes from Global to Shared memory, without conversion."""
    out, source, width = subject.out, subject.source, subject.width
    d = scope.declarations
    if not is_shared(d, out) or d.memory(source.buffer) is not MemoryType.Global:
        return f"an asynchronous copy is from Global to Shared memory, not from '{source.buffer}' to '{out.buffer}'"
    to, of = d.dtype(out.buffer), d.dtype(source.buffer)
    if to is None or to is not of:
        return f"an asynchronous copy does not convert: '{out.buffer}' is {to}, '{source.buffer}' is {of}"
    if width < 1 or width * to.itemsize not in ASYNC_BYTES:
        return f"an asynchronous copy of {width} {to}: 4, 8 or 16 bytes are possible"
    if width > 1 and not (out.index and source.index):
        return "an asynchronous copy of several elements needs an axis on both sides"
    return fits_alignment(d, out.buffer, width * to.itemsize, "the copy")


def tma_copies_between_global_and_shared(subject: TmaLoad | TmaStore, scope: Scope) -> str | None:
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
            if m.steps and isinstance(subject, TmaStore):
                return f"'{name}' has steps, and a box that is stored has all elements of its part of the tensor"
            if isinstance(subject, TmaStore) and subject.combine is not None and not is_bulk_update(subject.combine, tensor.dtype):
                return f"the copy engine does not combine {tensor.dtype} by {subject.combine.name}"
            return fits_alignment(d, side.buffer, swizzle_period(m.swizzle), "TMA")


def shuffles_exchange_registers(subject: Shuffle, scope: Scope) -> str | None:
    """A shuffle exchanges a register among the lanes of a warp, without conversion. The simulator checks that whole warps execute it."""
    out, source, mask = subject.out, subject.source, subject.mask
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


INSTRUCTION_RULES: tuple[StatementRule, ...] = (
    vector_copies_are_vectors,
    values_have_symbols,
    values_are_integers,
    gathers_are_vectors,
    updates_are_atomic,
    async_copies_fill_shared_memory,
    tma_copies_between_global_and_shared,
    shuffles_exchange_registers,
    products_exist,
    products_accumulate_in_registers,
    operands_are_tiles_or_fragments,
    matrices_move_without_conversion,
)
