"""One launch of a kernel: the numbers that the host computes, and the addresses of tensors and buffers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from taskfuse.ir.scalar import Expr, substitute
from taskfuse.ir.types import MemoryType
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import Dim3, TensorMapParam, TensorParam
from taskfuse.kir.walk import looked_up
from taskfuse.target import MAX_BLOCK, MAX_THREADS, SHARED_BYTES
from taskfuse.testing.machine.fault import FaultFound, FaultKind, NoLaunch
from taskfuse.testing.machine.writer import entry, python_text

Int3 = tuple[int, int, int]
BLOCK_BYTES = 1 << 24
"""The distance of two blocks' Shared memory in the machine's addresses."""
GLOBAL = 1 << 44
MOST_THREADS = 2048
"""The most threads of a launch that the machine runs."""


@dataclass(frozen=True, slots=True)
class MachinePlace:
    """The address of a tensor or buffer.

    Attributes:
        base: byte address; in Shared memory, within the block's.
        is_input: it is never written.
    """

    name: str
    memory: MemoryType
    itemsize: int
    shape: tuple[int, ...]
    base: int
    is_input: bool = False

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * self.itemsize


@dataclass(slots=True)
class MachineLaunch:
    """Numbers of a launch.

    Args:
        tables: number of the content of the tables about which nothing is promised: they rise in that of number 0, and hold any integers in others.

    Raises:
        NoLaunch: it is impossible, or exceeds the machine's limits.
        FaultFound: an array has a negative extent, so that what lies behind it begins before its first element.
    """

    kernel: Kernel
    extents: Mapping[str, int]
    tables: int = 0
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    places: dict[str, MachinePlace] = field(default_factory=dict[str, MachinePlace])
    maps: dict[str, tuple[TensorMapParam, MachinePlace]] = field(default_factory=dict[str, tuple[TensorMapParam, MachinePlace]])
    slots: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    semaphores: dict[str, tuple[tuple[int, ...], int]] = field(default_factory=dict[str, tuple[tuple[int, ...], int]])
    grid: Int3 = (1, 1, 1)
    block: Int3 = (1, 1, 1)
    cluster: Int3 = (1, 1, 1)

    def __post_init__(self) -> None:
        kernel = self.kernel
        for e in kernel.extents:
            n = self.extents.get(e.name)
            if n is None or n < e.min or (e.max is not None and n > e.max) or n % e.multiple_of:
                raise NoLaunch(f"{e.name} is not given, or not allowed")
            self.values[e.name] = n
        for e in kernel.extents:
            if e.bound is not None and self.values[e.name] > self.number(e.bound):
                raise NoLaunch(f"{e.name} is not allowed")
        used = looked_up(kernel)
        for p in kernel.table_inputs:
            if p.name not in used or p.holds is not None:
                continue
            size = self.number(p.shape[0])
            if p.rises is None:  # the first and the last element may lie outside the range that expressions bring them into
                draw = Random(f"{p.name} {self.tables}")
                self.values[p.name] = tuple(draw.randrange(-2, 3 * size + 2) if self.tables else 3 * k - 1 for k in range(size))
            else:  # as promised: unequal steps from one end to the other
                low, high = map(self.number, p.rises)
                self.values[p.name] = tuple(low + (high - low) * k * k // max(1, (size - 1) ** 2) for k in range(size))
            if p.lengths is not None:  # some are negative, and their sum is too small or too large
                total, sums = self.number(p.lengths), [0]
                for length in self.values[p.name]:
                    sums.append(min(sums[-1] + max(length, 0), total))
                self.values[f"{p.name}.offsets"] = (*sums[:-1], total)
        for p in kernel.table_inputs:
            if p.name in used and p.holds is not None:
                self.values[p.name] = tuple(self.number(substitute(p.holds, {"i0": k})) for k in range(self.number(p.shape[0])))
        self.grid, self.block, self.cluster = self._dim(kernel.grid), self._dim(kernel.block), self._dim(kernel.cluster)
        if (
            min(*self.block, *self.cluster) < 1
            or min(self.grid) < 0
            or self.threads > MAX_THREADS
            or any(n > m for n, m in zip(self.block, MAX_BLOCK, strict=True))
        ):
            raise NoLaunch("no such launch")
        if any(n % c for n, c in zip(self.grid, self.cluster, strict=True)) or self.threads * self.blocks > MOST_THREADS:
            raise NoLaunch("the grid is not whole clusters, or large")
        self._place()

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return math.prod(self.grid)

    def number(self, e: Expr) -> int:
        """The value of an expression of the host."""
        try:
            return int(eval(python_text(e, lambda name: f"values[{name!r}]"), {"values": self.values, "entry": entry}))
        except (ArithmeticError, LookupError) as error:
            raise NoLaunch(str(error)) from error

    def _dim(self, dim: Dim3) -> Int3:
        x, y, z = (self.number(e) for e in dim)
        return x, y, z

    def _shape(self, name: str, shape: Sequence[Expr]) -> tuple[int, ...]:
        found = tuple(self.number(e) for e in shape)
        if min(found, default=0) < 0:
            raise FaultFound(FaultKind.BOUNDS, f"{name} has the extent {min(found)}", None, -1)
        return found

    def _place(self) -> None:
        at, shared = GLOBAL, 0
        for q in self.kernel.queues:
            self._shape(q.name, (q.size,))
        for p in self.kernel.params:
            if isinstance(p, TensorParam):
                base = at if p.into is None else self.places[p.into].base
                is_input = not p.is_output and p.name not in self.kernel.in_place.values()
                place = MachinePlace(p.name, MemoryType.Global, p.dtype.itemsize, self._shape(p.name, p.shape), base, is_input)
                self.places[p.name] = place
                at += (place.size + 511) // 256 * 256
        for b in self.kernel.buffers:
            shape = self._shape(b.name, b.shape)
            match b.memory:
                case MemoryType.Global:
                    place = MachinePlace(b.name, b.memory, b.dtype.itemsize, shape, at)
                    at += (place.size + 511) // 256 * 256
                case MemoryType.Shared | MemoryType.Cluster:
                    base = -(-shared // b.align) * b.align if b.offset is None else self.number(b.offset)
                    place = MachinePlace(b.name, b.memory, b.dtype.itemsize, shape, base)
                    shared = base + self.number(b.bytes_of_block)
                    if shared > SHARED_BYTES:
                        raise NoLaunch("more Shared memory than there is")
                case MemoryType.Local:
                    place = MachinePlace(b.name, b.memory, b.dtype.itemsize, shape, 0)
            self.places[b.name] = place
        for p in self.kernel.params:
            if isinstance(p, TensorMapParam):
                self.maps[p.name] = p, self.places[p.tensor]
        first = 0
        for m in self.kernel.mbarriers:
            self.slots[m.name] = first, m.slots
            first += m.slots
        for s in self.kernel.semaphores:
            self.semaphores[s.name] = self._shape(s.name, s.shape), self.number(s.count)

    @property
    def slot_count(self) -> int:
        """Mbarriers of a block."""
        return sum(n for _, n in self.slots.values())
