"""One launch of a kernel: its bound arguments, its memory, its blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import DType
from taskfuse.errors import InputError, SimulationError
from taskfuse.ir.arguments import scalar_argument
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.offsets import offsets, offsets_name
from taskfuse.ir.scalar import Expr
from taskfuse.ir.shared_layouts import SPANS, swizzle_period
from taskfuse.ir.types import MemoryType
from taskfuse.ir.values import NATIVE, Values
from taskfuse.kir.arguments import bind_symbols, check_count, check_rank, integer, wanted
from taskfuse.kir.clusters import Int3
from taskfuse.kir.declarations import Buffer, IntegerParam, ScalarParam, TensorParam
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.shared_memory import shared_layout
from taskfuse.sim.barriers import SemaphoreArray
from taskfuse.sim.block import Block, Cluster
from taskfuse.sim.compiled_kernel import SimulatedKernel
from taskfuse.sim.compiler import compiled
from taskfuse.sim.interleaving import Policy
from taskfuse.sim.lanes import Env, LaneTable
from taskfuse.sim.machine import Machine
from taskfuse.sim.memory import Memory, Proxy, Store
from taskfuse.sim.observer import Observer
from taskfuse.sim.published import GlobalFences, Published
from taskfuse.sim.region import Region
from taskfuse.target import MAX_BLOCK, MAX_THREADS, SHARED_BYTES, WARP

Array = npt.NDArray[Any]
Argument = npt.NDArray[Any] | float | int
ALIGNMENT = max(map(swizzle_period, SPANS))  # of the first byte of Shared memory


def prepare(kernel: Kernel, args: Sequence[Argument], values: Values, extents: Mapping[str, int] | None) -> SimulatedLaunch:
    """Bind the arguments of a launch. Raises :class:`InputError` if they do not fit the kernel's parameters."""
    tensors, scalars, integers = _arguments(kernel, args, values)
    symbols = _bind(kernel, tensors, integers, extents or {})
    return SimulatedLaunch(compiled(kernel, values), symbols, tensors, scalars)


def _arguments(kernel: Kernel, args: Sequence[Argument], values: Values) -> tuple[dict[str, Array], dict[str, Array], dict[str, object]]:
    """Tensors, scalars and integers by name, scalars as 0-d arrays of what ``values`` stores."""
    check_count(kernel, len(args))
    tensors: dict[str, Array] = {}
    scalars: dict[str, Array] = {}
    integers: dict[str, object] = {}
    for index, (param, arg) in enumerate(zip(wanted(kernel), args, strict=True)):
        if isinstance(param, ScalarParam):
            scalars[param.name] = scalar_argument(kernel.name, index, param.name, param.dtype, arg, values)
            continue
        if isinstance(param, IntegerParam):
            integers[param.name] = arg
            continue
        array = np.asarray(arg)
        if array.dtype != param.dtype.numpy and array.dtype != values.storage(param.dtype):
            reason = f"'{param.name}' has dtype {array.dtype}, not {param.dtype}"
            raise InputError(index=index, fusion=kernel.name, reason=reason, help=f"pass it converted to {param.dtype}")
        check_rank(kernel, index, param, array.ndim)
        tensors[param.name] = array
    return tensors, scalars, integers


def _bind(kernel: Kernel, tensors: dict[str, Array], integers: dict[str, object], extents: Mapping[str, int]) -> dict[str, int]:
    """Values of extents."""
    try:
        return bind_symbols(kernel, {name: array.shape for name, array in tensors.items()}, extents, integers)
    except (ZeroDivisionError, IndexError) as e:
        raise SimulationError(kernel=kernel.name, reason=f"an extent has no value: {e}") from None


def _value(kernel: Kernel, expr: Expr, symbols: Mapping[str, int]) -> int:
    try:
        return integer(expr, symbols)
    except (ZeroDivisionError, IndexError) as e:
        raise SimulationError(kernel=kernel.name, reason=f"the expression {expr} has no value: {e}") from None


class SimulatedLaunch:
    """A launch, which may be run several times: every :meth:`machine` starts from fresh memory."""

    def __init__(self, code: SimulatedKernel, symbols: dict[str, int], tensors: dict[str, Array], scalars: dict[str, Array]) -> None:
        self.code = code
        self.tensors = tensors
        self.scalars = scalars
        self.kernel = code.kernel
        self.symbols: dict[str, Any] = {**symbols, **{p.name: tensors[p.name].astype(np.int64) for p in code.kernel.table_inputs}}
        for p in code.kernel.table_inputs:
            if p.lengths is not None:
                self.symbols[offsets_name(p.name)] = offsets(self.symbols[p.name], _value(code.kernel, p.lengths, symbols))
        x, y, z = (self.value(e) for e in self.kernel.block)
        self.table = LaneTable((x, y, z))
        if self.table.threads > MAX_THREADS:
            raise SimulationError(kernel=self.kernel.name, reason=f"{self.table.threads} threads per block; a block has at most {MAX_THREADS}")
        for axis, threads, limit in zip("xyz", (x, y, z), MAX_BLOCK, strict=True):
            if threads > limit:
                raise SimulationError(kernel=self.kernel.name, reason=f"{threads} threads per block along {axis}; a block has at most {limit}")
        x, y, z = (self.value(e) for e in self.kernel.cluster)
        self.cluster: Int3 = (x, y, z)
        for axis, blocks, size in zip("xyz", map(self.value, self.kernel.grid), self.cluster, strict=True):
            if size < 1 or blocks % size:
                raise SimulationError(kernel=self.kernel.name, reason=f"{blocks} blocks along {axis} are not whole clusters of {size}")
        self.ring = code.values is not NATIVE
        self.shared_bytes = 0
        self.regions = self._layout()
        needed = self.value(shared_layout(self.kernel).bytes)
        if needed > SHARED_BYTES:
            raise SimulationError(kernel=self.kernel.name, reason=f"{needed} bytes of Shared memory; a block has at most {SHARED_BYTES}")
        self.globals: dict[int, Store] = {}

    @property
    def blocks_of_a_cluster(self) -> int:
        """Blocks that are launched together."""
        return math.prod(self.cluster)

    @property
    def number_of_blocks(self) -> int:
        """Blocks of the grid."""
        return math.prod(map(self.value, self.kernel.grid))

    def machine(self, policy: Policy, max_steps: int, observer: Observer | None = None) -> Machine:
        """A machine for one run, with fresh Global memory. Its blocks are :meth:`blocks`."""
        fences = GlobalFences(self.table.threads)
        kept = {r.number: self.globals[r.number] for r in self.regions if r.is_constant and r.number in self.globals}
        self.globals = {}
        for r in self.regions:
            if r.memory is MemoryType.Global:
                self.globals[r.number] = kept.get(r.number) or self._global(r, fences)
        machine = Machine(self.code, self.table, policy, self.scalars, max_steps, fences, observer)
        machine.semaphores = {s.name: SemaphoreArray(s.name, tuple(map(self.value, s.shape)), self.value(s.count)) for s in self.kernel.semaphores}
        return machine

    def value(self, expr: Expr) -> int:
        """The value of an expression over extents."""
        return _value(self.kernel, expr, self.symbols)

    def _layout(self) -> list[Region]:
        regions: list[Region] = []
        tensors: dict[str, Region] = {}
        for param in self.kernel.params:
            if isinstance(param, TensorParam):
                shape = self._shape(param.name, param.shape)
                region = tensors[param.name] = Region(param.name, len(regions), param.dtype, MemoryType.Global, shape, is_input=not param.is_output)
                regions.append(region)
        for output, source in self.kernel.in_place.items():
            tensors[output].array = tensors[source].number
            tensors[source].is_constant = False
        for buffer in self.kernel.buffers:
            shape = self._shape(buffer.name, buffer.shape)
            medium = MEDIA[buffer.memory]
            threads = self.table.threads if medium.is_private else 0
            origin, unit = 0, 1
            if medium.is_placed:
                first = self._origin(buffer, self.shared_bytes)
                self.shared_bytes = max(self.shared_bytes, first + self.value(buffer.bytes_of_block))
                if not medium.is_by_rank:  # those are arrays of their own
                    origin, unit = first, buffer.dtype.itemsize if self.ring else 1
            regions.append(Region(buffer.name, len(regions), buffer.dtype, buffer.memory, shape, origin=origin, threads=threads, unit=unit))
        return regions

    def _shape(self, name: str, shape: Sequence[Expr]) -> tuple[int, ...]:
        found = tuple(map(self.value, shape))
        if min(found, default=0) < 0:
            raise SimulationError(kernel=self.kernel.name, reason=f"'{name}' has the extent {min(found)}")
        return found

    def _origin(self, buffer: Buffer, end: int) -> int:
        if buffer.offset is None:
            return -(-end // buffer.align) * buffer.align
        origin = self.value(buffer.offset)
        if origin < 0 or origin % buffer.align:
            raise SimulationError(kernel=self.kernel.name, reason=f"Shared '{buffer.name}' at byte {origin}, not a multiple of {buffer.align}")
        return origin

    def _global(self, region: Region, fences: GlobalFences) -> Store:
        values = self.code.values
        names = {r.name for r in self.regions if r.array == region.array}
        published = Published.of(region.elements, fences) if any(m.tensor in names for m in self.code.maps.values()) else None
        if region.is_input:
            data = np.ascontiguousarray(values.encode(self.tensors[region.name], region.dtype)).reshape(-1)
            return Store(data, None) if region.is_constant else Store(data.copy(), None, published=published)
        if region.array != region.number:
            shared = self.globals[region.array]
            return Store(shared.data, np.zeros(region.elements, np.uint8), published=shared.published)
        return Store(np.zeros(region.elements, values.storage(region.dtype)), np.zeros(region.elements, np.uint8), published=published)

    def _by_rank(self) -> dict[int, Store]:
        """The storage that is distributed over the blocks of a cluster, by region."""
        values, blocks = self.code.values, self.blocks_of_a_cluster
        return {
            r.number: Store(np.zeros(r.elements, values.storage(r.dtype)), np.zeros(r.elements, np.uint8), of_rank=max(r.elements // blocks, 1))
            for r in self.regions
            if MEDIA[r.memory].is_by_rank
        }

    def _memory(self, number: int, observer: Observer | None, cluster: Cluster) -> Memory:
        """The memory of a block: its own registers and Shared memory, what is spread over its cluster, the launch's Global memory."""
        code, values = self.code, self.code.values
        size = -(-self.shared_bytes // ALIGNMENT) * ALIGNMENT
        arena: Array = np.zeros(size, np.uint64 if self.ring else np.uint8)
        marks = np.zeros(size, np.uint8)
        proxy = None
        if code.uses_engines:
            proxy = Proxy(np.zeros(size, np.int64), np.zeros(size, np.int32), *(np.zeros(size, np.int16) for _ in range(3)))
        stores: list[Store] = []
        for region in self.regions:
            match region.memory:
                case MemoryType.Global:
                    stores.append(self.globals[region.number])
                case MemoryType.Local:
                    cells = region.elements * region.threads
                    is_factor = region.number in code.factors
                    owned = np.zeros(cells, np.int16) if is_factor or region.number in code.accumulators else None
                    stores.append(Store(np.zeros(cells, values.storage(region.dtype)), np.zeros(cells, np.uint8), owned=owned, is_factor=is_factor))
                case MemoryType.Cluster:
                    stores.append(cluster.stores[region.number])
                case MemoryType.Shared:
                    stores.append(_shared(region, arena, marks, proxy, self.ring))
        return Memory(self.regions, stores, -(-self.table.threads // WARP), number, observer, cluster.first)

    def blocks(self, machine: Machine) -> Iterator[tuple[Block, Env]]:
        """The blocks of the grid, cluster by cluster, made on demand, with the symbols that their threads start with."""
        nx, ny, nz = (self.value(e) for e in self.kernel.grid)
        cx, cy, cz = self.cluster
        slots = {m.name: m.slots for m in self.kernel.mbarriers}
        if not self.table.threads:
            return
        for first in product(range(0, nz, cz), range(0, ny, cy), range(0, nx, cx)):
            cluster = Cluster((cx, cy, cz), first[2] + nx * (first[1] + ny * first[0]), self._by_rank())
            made: list[Block] = []
            for z, y, x in product(*(range(i, i + n) for i, n in zip(first, (cz, cy, cx), strict=True))):
                number = x + nx * (y + ny * z)
                made.append(Block(machine, number, (x, y, z), self.table.threads, self._memory(number, machine.observer, cluster), slots, cluster))
            for block in made:
                symbols = {f"blockIdx.{d}": i for d, i in zip("xyz", block.index, strict=True)}
                yield block, {**self.symbols, **symbols, **{f"clusterIdx.{d}": i for d, i in zip("xyz", block.place, strict=True)}}

    def results(self) -> tuple[Array, ...]:
        """The outputs. Raises :class:`SimulationError` if an element was not written."""
        found: list[Array] = []
        for region in self.regions[: len(self.regions) - len(self.kernel.buffers)]:
            if region.is_input:
                continue
            store = self.globals[region.number]
            assert store.valid is not None
            missing = np.flatnonzero(store.valid == 0)
            if missing.size:
                index = [int(k) for k in np.unravel_index(int(missing[0]), region.shape)]
                note = f"the first is at index {index} of shape {list(region.shape)}"
                raise SimulationError(kernel=self.kernel.name, reason=f"{missing.size} elements of output '{region.name}' were not written", notes=(note,))
            found.append(store.data.reshape(region.shape))
        return tuple(found)


def _shared(region: Region, arena: Array, marks: Array, proxy: Proxy | None, ring: bool) -> Store:
    dtype: DType = region.dtype
    size = dtype.itemsize
    if ring:
        wide = arena if dtype.is_float or dtype.numpy == np.uint64 else arena.view(np.int64)
        return Store(wide, marks, 1, None if wide is arena else dtype.numpy, proxy)
    full = int(np.iinfo(f"u{size}").max)
    return Store(arena.view(dtype.numpy), marks.view(f"u{size}"), full, proxy=None if proxy is None else proxy.every(size))
