"""The layout of tensors and buffers: offsets in elements, indices of registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from taskfuse.cuda.expressions import Indices, Level, PrintedExpr
from taskfuse.cuda.instructions import OF_RANK
from taskfuse.cuda.ranges import INT32, UNKNOWN
from taskfuse.dtypes import DType
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import ONE, ZERO, Const, Expr, Facts, Mod, Sum, Xor, simplify, xor
from taskfuse.ir.types import BLOCK_TYPES, THREAD_TYPES, MemoryType
from taskfuse.kir import Kernel, accesses, walk
from taskfuse.kir.declarations import Buffer
from taskfuse.kir.nodes import Choose, Compute, For, GatherCopy, Stmt, VectorCopy
from taskfuse.kir.products import Shuffle
from taskfuse.kir.variant import ArgumentLayout
from taskfuse.kir.walk import bodies

_HARDWARE = frozenset(p.index_name for p in (*BLOCK_TYPES, *THREAD_TYPES))


@dataclass(frozen=True, slots=True)
class NamedStorage:
    """Storage under one name.

    Attributes:
        identifier: of its pointer, array or register.
        strides: identifiers of stride parameters, one per axis; ``None``: row-major. An empty identifier is a stride of 1.
        own_rank: for a buffer by rank, the rank of the block itself.
        holds_floats: its registers hold the floats that its elements of bfloat16 are rounded to.
    """

    identifier: str
    dtype: DType
    memory: MemoryType
    shape: tuple[Expr, ...]
    strides: tuple[str, ...] | None = None
    form: ArgumentLayout = ArgumentLayout.DENSE
    own_rank: Expr | None = None
    holds_floats: bool = False

    @property
    def is_register(self) -> bool:
        """A Local value that is not an array."""
        return not MEDIA[self.memory].has_addresses and not self.shape

    def element(self, index: Sequence[Expr], indices: Indices) -> str:
        """The text of an element."""
        if self.is_register:
            return self.identifier
        if self.own_rank is not None:
            return self._of_rank(self.own_rank, index, indices)
        offset = row_major(index, self.shape, indices) if self.strides is None else strided(index, self.strides, indices)
        return f"{self.identifier}[{offset}]"

    def _of_rank(self, own: Expr, index: Sequence[Expr], indices: Indices) -> str:
        rank, *rest = index
        offset = row_major(rest, self.shape[1:], indices)
        if simplify(rank - own, indices.facts()) is ZERO:
            return f"{self.identifier}[{offset}]"
        indices.helpers.add(OF_RANK)
        return f"{OF_RANK.name}({self.identifier}, {indices.text(rank)})[{offset}]"


def row_major(index: Sequence[Expr], shape: Sequence[Expr], indices: Indices) -> str:
    """The offset of an element, in elements: ``(i * N + j) * K + k``.

    Of an index ``a ^ b`` below a power of two, of which ``b`` differs between iterations alone, the offset is ``(i * N + a) ^ b``: so iterations have one
    offset in a register, and not one each.
    """
    places = joined(index, shape, indices.facts)
    lo = hi = 0
    wide = False
    for i, extent in places:
        (low, high), (least, most) = indices.ranges.of(i), indices.ranges.of(extent)
        lo, hi = min(lo * least, lo * most) + low, max(hi * least, hi * most) + high
        lo, hi = max(lo, -UNKNOWN), min(hi, UNKNOWN)
        wide = wide or lo < INT32[0] or hi > INT32[1] or indices.is_wide(i)
    wide = wide and indices.wide
    found: PrintedExpr | None = None
    for i, extent in places:
        fixed, turned = (i, ZERO) if found is None or wide else _turned(i, extent, indices)
        t = indices.print(fixed)
        if found is None:
            if i is not ZERO:
                found = PrintedExpr(f"(long long){t.at(Level.UNARY)}", Level.UNARY, True) if wide and not t.wide else t
            continue
        if extent is not ONE:
            found = PrintedExpr(f"{found.at(Level.PRODUCT)} * {indices.text(extent, Level.UNARY)}", Level.PRODUCT, wide)
        if fixed is not ZERO:
            found = PrintedExpr(f"{found.at(Level.SUM)} + {t.at(Level.SUM)}", Level.SUM, wide)
        if turned is not ZERO:
            found = PrintedExpr(f"{found.at(Level.SHIFT)} ^ {indices.text(turned, Level.SHIFT)}", Level.XOR, wide)
    return "0" if found is None else found.text


def _turned(index: Expr, extent: Expr, indices: Indices) -> tuple[Expr, Expr]:
    """An index below a power of two as ``a ^ b``, where ``b`` has variables of loops alone and ``a`` the others; ``b`` is 0 if it is no such index."""
    if not isinstance(index, Xor) or not isinstance(extent, Const) or extent.value & (extent.value - 1):
        return index, ZERO
    fixed = turned = ZERO
    for part in _bits(index):
        if part.free and part.free.isdisjoint(_HARDWARE):
            turned = xor(turned, part)
        else:
            fixed = xor(fixed, part)
    least, most = indices.ranges.of(turned)
    return (fixed, turned) if least >= 0 and most < extent.value else (index, ZERO)


def _bits(e: Expr) -> Iterator[Expr]:
    """Parts whose exclusive or is a number. ``2*i + x % 2`` has the parts ``2*i`` and ``x % 2``, which have no bit in common."""
    match e:
        case Xor(a, b):
            yield from _bits(a)
            yield from _bits(b)
        case Sum(terms=((Mod(b=Const(value)) as rest, 1), (one, k)) | ((one, k), (Mod(b=Const(value)) as rest, 1)), const=0) if (
            value & (value - 1) == 0 == k % value
        ):
            yield one * k
            yield rest
        case _:
            yield e


def joined(index: Sequence[Expr], shape: Sequence[Expr], facts: Callable[[], Facts]) -> list[tuple[Expr, Expr]]:
    """Indices and extents of fewer axes with the same offsets: adjacent quotient and remainder of one index are merged. ``x//N, x % N`` becomes ``x``, and so
    do ``x//N, 4*(x % N) + e``, of an axis of ``4*N``, become ``4*x + e``."""
    found: list[tuple[Expr, Expr]] = []
    for i, extent in zip(index, shape, strict=True):
        found.append((i, extent))
        while len(found) > 1 and (rests := _remainders(low := found[-1][0])):
            high, before = found[-2]
            whole = simplify(high * found[-1][1] + low, facts())
            if not rests.isdisjoint(_remainders(whole)) and not isinstance(whole, Mod):
                break
            found[-2:] = [(whole, before * found[-1][1])]
    return found


def _remainders(e: Expr) -> set[Expr]:
    """The remainders among the terms of an index."""
    return {term for term, _ in (e.terms if isinstance(e, Sum) else ((e, 1),)) if isinstance(term, Mod)}


def strided(index: Sequence[Expr], strides: Sequence[str], indices: Indices) -> str:
    """The offset of an element of a tensor with strides."""
    terms = [
        f"{indices.text(i, Level.UNARY)} * {stride}" if stride else indices.text(i, Level.PRODUCT)
        for i, stride in zip(index, strides, strict=True)
        if i is not ZERO
    ]
    return " + ".join(terms) or "0"


def declared_in(kernel: Kernel) -> dict[int, list[Buffer]]:
    """The Local buffers by the statement list in which they are declared (its ``id``): the innermost one around all uses that no loop repeats."""
    local = {b.name: b for b in kernel.buffers if not MEDIA[b.memory].has_addresses}
    paths: dict[str, tuple[int, ...]] = {}

    def visit(body: tuple[Stmt, ...], path: tuple[int, ...], repeated: bool) -> None:
        here = path if repeated else (*path, id(body))
        for stmt in body:
            writes, reads = accesses(stmt)
            for access in (*writes, *reads):
                if access.buffer in local:
                    known = paths.get(access.buffer)
                    paths[access.buffer] = here if known is None else _common(known, here)
            for inner in bodies(stmt):
                visit(inner, here, repeated or isinstance(stmt, For))

    visit(kernel.body, (), False)
    found: dict[int, list[Buffer]] = {}
    for name, path in paths.items():
        found.setdefault(path[-1], []).append(local[name])
    return found


def packed_in(kernel: Kernel) -> frozenset[str]:
    """The Local arrays that are read as words of several elements, by vector copies or matrix instructions, and the registers that are only copied to these."""
    arrays = {b.name for b in kernel.buffers if b.shape and not MEDIA[b.memory].has_addresses}
    words = (access.buffer for stmt in walk(kernel) if not isinstance(stmt, Compute | Choose | Shuffle) for access in accesses(stmt)[1])
    found = arrays.intersection(words)
    dtypes = {b.name: b.dtype for b in kernel.buffers}
    registers = {b.name for b in kernel.buffers if not MEDIA[b.memory].has_addresses} - found
    read = set[str]()
    for stmt in walk(kernel):
        sources = {access.buffer for access in accesses(stmt)[1]} & registers
        read |= sources
        match stmt:
            case Compute(op=op, out=out) if op.cpp.moves and out.buffer in found:
                registers -= {name for name in sources if dtypes[name] is not dtypes[out.buffer]}
            case _:
                registers -= sources
    return frozenset(found | (registers & read))


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return a[:n]


def elements(shape: Sequence[Expr]) -> Expr:
    """The number of elements."""
    found: Expr = ONE
    for extent in shape:
        found = found * extent
    return found


def constant_elements(buffer: Buffer) -> int:
    """The number of elements to declare for a Local buffer: at least 1, since C++ has no empty arrays."""
    count = elements(buffer.shape)
    assert isinstance(count, Const)
    return max(count.value, 1)


def vector_bytes(kernel: Kernel) -> dict[str, int]:
    """The most bytes that one instruction moves from or to each Local array: what its address is a multiple of, if the compiler gives it one."""
    sizes = {b.name: b.dtype.itemsize for b in kernel.buffers if not MEDIA[b.memory].has_addresses}
    found: dict[str, int] = {}
    for stmt in walk(kernel):
        if isinstance(stmt, VectorCopy | GatherCopy):
            for access in (stmt.out, stmt.source):
                if access.buffer in sizes:
                    found[access.buffer] = max(found.get(access.buffer, 1), stmt.width * sizes[access.buffer])
    return found
