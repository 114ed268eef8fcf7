"""One launch as both sides see it: values of symbols, shapes, and addresses of parameters and arrays.

Addresses are chosen here, so that each identifies its object: Shared memory, a tensor, workspace, a parameter, data of the module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from taskfuse.cuda.signature import (
    DivisorArgument,
    IntegerArgument,
    PointerArgument,
    ReportArgument,
    ScalarArgument,
    Source,
    StrideArgument,
    TensorMapArgument,
    WorkspaceArgument,
)
from taskfuse.ir.dims import nearest
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Expr, evaluate
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.variant import ArgumentLayout
from taskfuse.kir.walk import looked_up
from taskfuse.target import MAX_BLOCK, MAX_GRID, MAX_THREADS, SHARED_BYTES
from taskfuse.testing.ptx.events import RANK, Span
from taskfuse.testing.ptx.nodes import PtxFunction
from taskfuse.testing.ptx.unknown import UNKNOWN, Value

Int3 = tuple[int, int, int]
Ints = NDArray[np.int64]
SHARED_AT = 1024
TENSORS_AT = 1 << 40
WORKSPACE_AT = 1 << 52
PARAMS_AT = 1 << 56
DATA_AT = 1 << 57
_GAP = 1 << 40


@dataclass(frozen=True, slots=True)
class PtxLaunch:
    """A kernel with values for its extents.

    Attributes:
        symbols: values of extents.
        tables: the integers of tensors whose elements occur in expressions.
        bases: the address of the first element of every tensor, Shared buffer, workspace buffer and semaphore, and of every tensor map.
        strides: in elements, of tensors and buffers.
        parts: where each buffer in Shared memory lies in that of a block, and its bytes there.
        shared_bytes: Shared memory that the launch brings.
        at: addresses by the names that the function uses.
        words: the bytes of parameters that are known, by address.
        data: constant data: values and bytes of an element, by address.
    """

    kernel: Kernel
    symbols: Mapping[str, int]
    tables: Mapping[str, Ints]
    grid: Int3
    block: Int3
    cluster: Int3
    bases: Mapping[str, int]
    strides: Mapping[str, tuple[int, ...]]
    at: Mapping[str, int]
    words: Mapping[int, bytes]
    data: Mapping[int, tuple[int, tuple[int, ...]]]
    parts: Mapping[str, Span]
    shared_bytes: int

    def read(self, address: Value, size: int) -> Value:
        """The content of a parameter or of constant data; unknown elsewhere."""
        if isinstance(address, int):
            if (found := self.words.get(address)) is not None and len(found) >= size:
                return int.from_bytes(found[:size], "little")
            if address >= DATA_AT:
                base = DATA_AT + (address - DATA_AT) // _GAP * _GAP
                width, values = self.data.get(base, (1, ()))
                raw = b"".join((v & (1 << 8 * width) - 1).to_bytes(width, "little") for v in values)[address - base :][:size]
                return int.from_bytes(raw, "little") if len(raw) == size else UNKNOWN
        return UNKNOWN

    def is_of_table(self, address: int) -> bool:
        """True for the address of an element that an expression may read."""
        return TENSORS_AT <= address < WORKSPACE_AT and address in self.words

    def is_constant(self, address: int) -> bool:
        """True for the address of a byte of a tensor that the kernel does not write."""
        tensors = [p for p in self.kernel.params if isinstance(p, TensorParam)]
        k = (address - TENSORS_AT) // _GAP
        return 0 <= k < len(tensors) and not tensors[k].is_output and tensors[k].name not in self.kernel.in_place.values()

    def ranked(self, address: int, block: Int3) -> int:
        """The address of a byte of Shared memory that a block accesses as its own: of a buffer by rank, as every block of the cluster names it."""
        if any(MEDIA[b.memory].is_by_rank and 0 <= address - self.parts[b.name][0] < self.parts[b.name][1] for b in self.kernel.buffers):
            x, y, z = (i % n for i, n in zip(block, self.cluster, strict=True))
            return address + (x + self.cluster[0] * (y + self.cluster[1] * z) + 1) * RANK
        return address

    def special(self, block: Int3, thread: Int3) -> dict[str, int]:
        """The special registers of a thread."""
        place = tuple(b % c for b, c in zip(block, self.cluster, strict=True))
        named = {"tid": thread, "ntid": self.block, "ctaid": block, "nctaid": self.grid, "cluster_ctaid": place, "cluster_nctaid": self.cluster}
        return {f"{name}.{d}": v for name, values in named.items() for d, v in zip("xyz", values, strict=True)}


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of an array without gaps, in elements."""
    return tuple(prod(shape[k + 1 :]) for k in range(len(shape)))


def launches(kernel: Kernel, source: Source, function: PtxFunction, extents: Mapping[str, int], scalars: Mapping[str, bytes] | None = None) -> PtxLaunch | None:
    """The launch for given extents; ``None``: a GPU would refuse it, or it has no blocks.

    Args:
        scalars: the bytes of run-time scalars; without them, they are unknown.
    """
    symbols = dict(extents)
    grid, block, cluster = ((x, y, z) for x, y, z in (tuple(number(e, symbols) for e in d) for d in (kernel.grid, kernel.block, kernel.cluster)))
    if not all(0 < n <= most for n, most in zip(block, MAX_BLOCK, strict=True)) or prod(block) > MAX_THREADS:
        return None
    if not all(0 < n <= most and n % c == 0 for n, most, c in zip(grid, MAX_GRID, cluster, strict=True)) or number(source.shared_bytes, symbols) > SHARED_BYTES:
        return None
    bases: dict[str, int] = {}
    strides: dict[str, tuple[int, ...]] = {}
    forms = iter(source.variant.forms)
    for k, p in enumerate(p for p in kernel.params if isinstance(p, TensorParam)):
        bases[p.name] = TENSORS_AT + k * _GAP
        strides[p.name] = _strides(tuple(number(e, symbols) for e in p.shape), next(forms))
    used = looked_up(kernel)
    dtypes = {p.name: p.dtype for p in kernel.table_inputs if p.name in used}
    lengths = {p.name: number(p.shape[0], symbols) for p in kernel.table_inputs if p.name in used}
    tables = {name: np.arange(-1, 3 * n - 1, 3).astype(dtypes[name].numpy).astype(np.int64) for name, n in lengths.items()}  # as many bits as an element has
    parts: dict[str, Span] = {}
    end = 0
    for b in kernel.buffers:
        shape = tuple(number(e, symbols) for e in b.shape)
        strides[b.name] = row_major(shape)
        if MEDIA[b.memory].is_placed:  # at its offset, or after the one before it
            offset = -(-end // b.align) * b.align if b.offset is None else number(b.offset, symbols)
            parts[b.name] = SHARED_AT + offset, number(b.bytes_of_block, symbols)
            end = offset + parts[b.name][1]
            bases[b.name] = SHARED_AT + offset
            if MEDIA[b.memory].is_by_rank:
                bases[b.name] += RANK
                strides[b.name] = (RANK // b.dtype.itemsize, *row_major(shape[1:]))
    for s in kernel.semaphores:
        strides[s.name] = row_major(tuple(number(e, symbols) for e in s.shape))
    at: dict[str, int] = {}
    words: dict[int, bytes] = {}
    place = PARAMS_AT
    assert len(source.arguments) == len(function.params), "the signature has as many arguments as the function parameters"
    for argument, param in zip(source.arguments, function.params, strict=True):
        place = -(-place // param.align) * param.align
        at[param.name] = place
        content: list[bytes] = []
        match argument:
            case PointerArgument(tensor=name):
                content = [bases[name].to_bytes(8, "little")]
            case WorkspaceArgument(name=name):
                bases[name] = WORKSPACE_AT + len(bases) * (1 << 32)
                content = [bases[name].to_bytes(8, "little")]
            case StrideArgument(tensor=name, axis=axis, wide=wide):
                content = [strides[name][axis].to_bytes(8 if wide else 4, "little", signed=True)]
            case IntegerArgument(name=name, wide=wide):
                content = [symbols[name].to_bytes(8 if wide else 4, "little", signed=True)]
            case DivisorArgument(value=value):
                d = max(number(value, symbols), 1)
                shift = (d - 1).bit_length()
                content = [w.to_bytes(4, "little") for w in (d, (1 << 32) * ((1 << shift) - d) // d + 1, shift)]
            case TensorMapArgument(name=name):
                bases[name] = place
            case ScalarArgument(name=name):
                content = [scalars[name]] if scalars is not None else []
            case ReportArgument():
                pass
        for k, word in enumerate(content):
            assert len(word) * len(content) == param.size, f"{argument} and {param} are of one size"
            words[place + k * len(word)] = word
        place += param.size
    data: dict[int, tuple[int, tuple[int, ...]]] = {}
    for k, (name, array) in enumerate(function.data.items()):
        at[name] = SHARED_AT if array.space == "shared" else DATA_AT + k * _GAP
        if array.values is not None:
            data[at[name]] = array.size, array.values
    for name, table in tables.items():
        size = dtypes[name].itemsize
        for k, value in enumerate(table.tolist()):
            words[bases[name] + k * strides[name][0] * size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
    return PtxLaunch(kernel, symbols, tables, grid, block, cluster, bases, strides, at, words, data, parts, number(source.shared_bytes, symbols))


def _strides(shape: tuple[int, ...], form: ArgumentLayout) -> tuple[int, ...]:
    """Strides that a form allows: with gaps of 16 elements after rows, or everywhere."""
    match form:
        case ArgumentLayout.DENSE:
            return row_major(shape)
        case ArgumentLayout.ROWS:
            return row_major((*shape[:-1], -(-shape[-1] // 16) * 16 + 16)) if shape else ()
        case ArgumentLayout.STRIDED:
            return tuple(3 * s for s in row_major(shape))


def number(e: Expr, symbols: Mapping[str, int]) -> int:
    """The value of an integer expression."""
    found = evaluate(e, symbols)
    assert isinstance(found, int)
    return int(found)


def extents(kernel: Kernel) -> Iterator[dict[str, int]]:
    """Values for the extents: small ones first, then values with more trips than rings have slots, and with partial tiles."""
    if not kernel.extents:
        yield {}
        return
    for base in (1, 3, 9, 40, 130, 530, 2100):
        found: dict[str, int] = {}
        for k, e in enumerate(kernel.extents):
            units = -(-(base + k) // e.multiple_of)
            least = -(-max(e.min, 1) // e.multiple_of)
            value = max(units, least) * e.multiple_of
            found[e.name] = value if e.max is None else min(value, e.max // e.multiple_of * e.multiple_of)
        allowed = nearest(kernel.extents, found)
        if allowed is not None:
            yield allowed


def threads(block: Int3) -> list[Int3]:
    """Threads to compare: all of a small block; of a large one two of each warp, and the first and last."""
    x, y, z = block
    everyone = [(i, j, k) for k, j, i in product(range(z), range(y), range(x))]
    if len(everyone) <= 64:
        return everyone
    chosen = {0, 1, 31, len(everyone) - 1}
    for warp in range(-(-len(everyone) // 32)):
        chosen |= {32 * warp, min(32 * warp + (7 * warp + 5) % 32, len(everyone) - 1)}
    return [everyone[k] for k in sorted(chosen)]


def linear(block: Int3, thread: Int3) -> int:
    """The number of a thread in its block: the first 32 are a warp."""
    return thread[0] + block[0] * (thread[1] + block[1] * thread[2])


def blocks(grid: Int3) -> list[Int3]:
    """Blocks to compare: the first, the last, one in between, and the neighbor of the first along each axis."""
    chosen = {(0, 0, 0), (grid[0] - 1, grid[1] - 1, grid[2] - 1), (grid[0] // 2, grid[1] // 2, grid[2] // 2)}
    chosen |= {tuple(int(k == axis and grid[k] > 1) for k in range(3)) for axis in range(3)}
    return sorted((a, b, c) for a, b, c in chosen)
