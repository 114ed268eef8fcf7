"""Rules of statements that move elements: vectors, gathers, cp.async, TMA, shuffles. Limits are those of the PTX ISA."""

from __future__ import annotations

from taskfuse.dtypes import uint64
from taskfuse.ir.scalar import Const
from taskfuse.ir.shared_layouts import swizzle_period
from taskfuse.ir.types import MemoryType
from taskfuse.kir.declaration_rules import NO_NAME
from taskfuse.kir.limits import WARP
from taskfuse.kir.matrix_rules import fits_alignment, is_shared
from taskfuse.kir.nodes import AsyncCopy, Gather, Shuffle, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.printer import block_threads
from taskfuse.kir.scope import Scope
from taskfuse.kir.statement_rules import StatementRule, Subject

VECTOR_WIDTHS = (2, 4, 8, 16)
VECTOR_BYTES = 16
SHUFFLE_MASKS = (1, 2, 4, 8, 16)
ASYNC_COPY_BYTES = (4, 8, 16)


def vector_copies_are_vectors(subject: Subject, scope: Scope) -> str | None:
    """A vector is 2 to 16 elements, at most 16 bytes, and copied without conversion."""
    match subject:
        case VectorCopy(out=out, source=source, width=width):
            to, of = scope.declarations.dtype(out.buffer), scope.declarations.dtype(source.buffer)
            if to is None or to is not of:
                return f"a vector copy does not convert: '{out.buffer}' is {to}, '{source.buffer}' is {of}"
            if not out.index or not source.index:
                return "a vector copy needs an axis on both sides"
            if width not in VECTOR_WIDTHS or width * to.itemsize > VECTOR_BYTES:
                return f"a vector of {width} {to}: widths are 2, 4, 8 and 16, and at most {VECTOR_BYTES} bytes"
            return None
        case _:
            return None


def values_have_symbols(subject: Subject, scope: Scope) -> str | None:
    """Each value has a symbol of its own, which nothing but the index that is read has."""
    if not isinstance(subject, Gather):
        return None
    if not subject.values:
        return "a gather without values"
    symbols = [v.symbol for v in subject.values]
    for symbol in symbols:
        if not scope.declarations.is_name(symbol):
            return NO_NAME.format(symbol)
        if symbol in scope.symbols or symbol in scope.declarations.cursors or scope.declarations.is_declared(symbol) or symbols.count(symbol) > 1:
            return f"the symbol '{symbol}' already means something here"
    outside = (*subject.out.index, *(e for v in subject.values for e in (*v.source.index, v.extent)))
    used = next((s for s in symbols if any(s in e.free for e in outside)), None)
    return None if used is None else f"'{used}' is used outside of the index that is read"


def values_are_integers(subject: Subject, scope: Scope) -> str | None:
    """A value is an integer that 64 bits with a sign hold."""
    if not isinstance(subject, Gather):
        return None
    for v in subject.values:
        dtype = scope.declarations.dtype(v.source.buffer)
        if dtype is None or not dtype.is_integer or dtype is uint64:
            return f"a value of a gather is an integer of at most 64 bits with a sign, and '{v.source.buffer}' is {dtype}"
    return None


def gathers_are_vectors(subject: Subject, scope: Scope) -> str | None:
    """A gather does not convert; several elements are a vector, at one value of every symbol."""
    if not isinstance(subject, Gather):
        return None
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
            return fits_alignment(d, side.buffer, swizzle_period(m.swizzle), "TMA")
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


COPY_RULES: tuple[StatementRule, ...] = (
    vector_copies_are_vectors,
    values_have_symbols,
    values_are_integers,
    gathers_are_vectors,
    async_copies_fill_shared_memory,
    tma_copies_between_global_and_shared,
    shuffles_exchange_registers,
)
