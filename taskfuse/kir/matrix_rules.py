"""Rules of tensor-core instructions: wgmma, mma, ldmatrix, stmatrix. Limits are those of the PTX ISA."""

from __future__ import annotations

from taskfuse.dtypes import DType
from taskfuse.ir.fragments import MATRIX_COUNTS, Fragment, matrices
from taskfuse.ir.matrix_instructions import Family, find, rows, shapes, spans
from taskfuse.ir.scalar import Const
from taskfuse.ir.shared_layouts import SWIZZLES, Major, operand_alignment
from taskfuse.ir.types import MemoryType
from taskfuse.kir.nodes import Access, Buffer, Descriptor, LdMatrix, Mma, StMatrix, Wgmma
from taskfuse.kir.scope import Declarations, Scope
from taskfuse.kir.statement_rules import StatementRule, Subject
from taskfuse.kir.walk import walk

MAX_STRIDE = 16 * (2**14 - 1)
"""Bytes that an offset of a matrix descriptor may be: 14 bits count 16 bytes."""


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


def products_exist(subject: Subject, scope: Scope) -> str | None:
    """PTX ISA, "wgmma.mma_async", "mma": the operand types, and the shapes for them."""
    match subject:
        case Wgmma() | Mma():
            family = Family.WGMMA if isinstance(subject, Wgmma) else Family.MMA
            (a, b), k = subject.factors, subject.k
            found = rows(family, a, b)
            if not found:
                return f"{family.value} does not multiply {a}" + ("" if a is b else f" by {b}")
            if isinstance(subject, Wgmma) and all(subject.n not in row.widths for row in found):
                return f"wgmma has no n of {subject.n}: multiples of 8 from 8 to 256 exist" + ("" if a.is_float else f"; for {a}, of 16 above 32")
            return f"{family.value} has no k of {k} for {a}: k spans {spans(shapes(family))}" if find(family, a, b, k) is None else None
        case _:
            return None


def products_accumulate_in_registers(subject: Subject, scope: Scope) -> str | None:
    """The accumulators are consecutive registers of the type in which such products are summed."""
    match subject:
        case Wgmma() | Mma():
            return _registers(scope.declarations, subject.acc, subject.row.sums, subject.accumulators, "accumulator")
        case _:
            return None


def operands_are_tiles_or_fragments(subject: Subject, scope: Scope) -> str | None:
    """Operands are tiles in Shared memory that a matrix descriptor can express, or fragments in registers of their own."""
    d = scope.declarations
    match subject:
        case Wgmma(a=a, b=b, factors=(left, right)):
            first = _fragment_problem(d, subject, a) if isinstance(a, Access) else _tile_problem(d, a, left)
            return first or _tile_problem(d, b, right)
        case Mma(a=a, b=b, factors=(left, right), row=row):
            return _registers(d, a, left, row.a_registers, "mma operand") or _registers(d, b, right, row.b_registers, "mma operand")
        case _:
            return None


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
    if tile.lbo % 16 or tile.sbo % 16:
        return f"the byte offsets of a descriptor are multiples of 16, not {tile.lbo} and {tile.sbo}"
    if not (0 <= tile.lbo <= MAX_STRIDE and 0 <= tile.sbo <= MAX_STRIDE):
        return f"the byte offsets of a descriptor are 0 to {MAX_STRIDE}, not {tile.lbo} and {tile.sbo}"
    if isinstance(tile.offset, Const) and tile.offset.value % 16:
        return f"the descriptor of '{name}' starts at byte {tile.offset}, not a multiple of 16"
    if tile.major is Major.MN and dtype.itemsize != 2:
        return f"a wgmma operand of {dtype} must be K-major"
    return fits_alignment(d, name, operand_alignment(tile.swizzle), "its swizzle")


def matrices_move_without_conversion(subject: Subject, scope: Scope) -> str | None:
    """ldmatrix and stmatrix move rows of 16 bytes between Shared memory and registers; only 16-bit elements can be transposed."""
    match subject:
        case LdMatrix(out=registers, source=rows):
            name, does = "ldmatrix", "ldmatrix loads a Local array from Shared memory"
        case StMatrix(out=rows, source=registers):
            name, does = "stmatrix", "stmatrix stores a Local array to Shared memory"
        case _:
            return None
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


MATRIX_RULES: tuple[StatementRule, ...] = (
    products_exist,
    products_accumulate_in_registers,
    operands_are_tiles_or_fragments,
    matrices_move_without_conversion,
)
