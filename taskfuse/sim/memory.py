"""Storage: where an element of a buffer lies, and reading and writing it with every check.

Local memory is one array [elements, threads] per buffer and block. Shared memory is one arena per block, of bytes (NATIVE) or, where an
element is a word of the ring, of one word per nominal byte address (RING): addresses are the same in both modes. Every element has a
valid mark; memory starts without. Marks are never taken back, so a place that was found valid is not looked at again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import DType
from taskfuse.ir.types import MemoryType
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import Code, Env, Lanes, key_of, next_number

Array = npt.NDArray[Any]
Index = int | slice | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A buffer or tensor argument as laid out for one launch.

    Attributes:
        origin: byte address in Shared memory, else 0.
        threads: threads of a block for Local memory, else 0.
        unit: step of the store's index from one element to the next.
    """

    name: str
    number: int
    dtype: DType
    memory: MemoryType
    shape: tuple[int, ...]
    origin: int = 0
    threads: int = 0
    unit: int = 1
    is_input: bool = False

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one index to the next, per axis."""
        return tuple(math.prod(self.shape[k + 1 :]) for k in range(len(self.shape)))

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def start(self) -> int:
        """Index of the first element in the store."""
        return self.origin // self.dtype.itemsize * self.unit if self.unit == 1 else self.origin

    def __str__(self) -> str:
        kind = "input" if self.is_input else self.memory.value
        return f"{kind} '{self.name}'"


@dataclass(slots=True, eq=False)
class Proxy:
    """Per element of Shared memory, what the generic and the asynchronous proxy must know of each other.

    Attributes:
        stamps, writers: time and thread of the last generic write.
        readers: asynchronous operations that read it and are not retired.
        incoming: TMA loads issued but not done that write it.
    """

    stamps: Array
    writers: Array
    readers: Array
    incoming: Array

    def every(self, step: int) -> Proxy:
        """Every ``step``-th element."""
        return Proxy(self.stamps[::step], self.writers[::step], self.readers[::step], self.incoming[::step])


@dataclass(slots=True, eq=False)
class Store:
    """The cells of a region and their marks, flat, with one index for all of them.

    Attributes:
        valid: ``full`` where the element was written; ``None``: everything is valid and nothing may be written (an input).
        dtype: what elements read as, if cells are wider.
        proxy: for Shared memory that asynchronous engines use: what they and the threads must know of each other.
        owned: for accumulators: 1 where a wgmma in flight owns the register.
    """

    data: Array
    valid: Array | None
    full: int = 1
    dtype: np.dtype[Any] | None = None
    proxy: Proxy | None = None
    owned: Array | None = None


@dataclass(slots=True, eq=False)
class Place:
    """Where a set of lanes reads or writes: the index into a store.

    Attributes:
        index: an integer if all lanes use one element (``shared``) or there is one lane.
        unique: no two lanes have the same element.
    """

    index: Index
    unique: bool


class Memory:
    """The storage that the threads of one block see.

    Attributes:
        regions, stores: by buffer number.
        known: places found valid.
        clock: number of generic writes to Shared memory and of proxy fences so far.
        busy: a wgmma in flight owns accumulator registers.
    """

    __slots__ = ("busy", "clock", "known", "regions", "stores")

    def __init__(self, regions: list[Region], stores: list[Store]) -> None:
        self.regions = regions
        self.stores = stores
        self.known: set[Place] = set()
        self.clock = 0
        self.busy = False


class Site:
    """An access of the kernel text, compiled: it finds the place for lanes and uniform values.

    Attributes:
        width: consecutive elements per lane, along the last index.
    """

    __slots__ = ("buffer", "codes", "key", "number", "width")

    def __init__(self, buffer: int, codes: tuple[Code, ...], width: int = 1) -> None:
        self.buffer = buffer
        self.codes = codes
        self.width = width
        self.number = next_number()
        self.key = key_of(tuple(sorted({n for c in codes for n in c.varying})))

    def place(self, lanes: Lanes, env: Env, region: Region) -> Place:
        """Where the lanes access the region. Raises :class:`Fault` if a lane is out of bounds."""
        key = (self.number, self.key(env))
        found = lanes.cache.get(key)
        if found is None:
            offset = self.offset(lanes, env, region)
            found = _place(offset, lanes, region, self.width)
            lanes.remember(key, found)
        return found

    def offset(self, lanes: Lanes, env: Env, region: Region) -> Any:
        """The element offset in the region: an integer, or one per lane."""
        values = [c.at(lanes, env) for c in self.codes]
        offset: Any = 0
        last = len(values) - 1
        for axis, (value, extent, stride) in enumerate(zip(values, region.shape, region.strides, strict=True)):
            limit = extent if axis < last else extent - self.width + 1
            bad = (value < 0) | (value >= limit)
            if np.any(bad):
                lane = 0 if isinstance(bad, bool) else int(np.argmax(bad))
                raise out_of_bounds(region, values, lane, lanes, self.width)
            offset = offset + value * stride
        return offset

    def index_text(self, lanes: Lanes, env: Env, thread: int) -> str:
        """The indices that a thread uses, printed."""
        lane = int(np.searchsorted(lanes.ids, thread))
        return _indices([c.at(lanes, env) for c in self.codes], lane)


def _indices(values: list[Any], lane: int) -> str:
    return f"[{', '.join(str(v if isinstance(v, int) else v[lane]) for v in values)}]"


def out_of_bounds(region: Region, values: list[Any], lane: int, lanes: Lanes, width: int) -> Fault:
    """The fault of an access outside a region."""
    vector = f", width {width}" if width > 1 else ""
    return Fault(
        f"{region} accessed out of bounds",
        thread=int(lanes.ids[lane]),
        notes=(f"index {_indices(values, lane)}{vector}; shape {list(region.shape)}",),
    )


def _place(offset: Any, lanes: Lanes, region: Region, width: int) -> Place:
    if width > 1:
        offset = np.asarray(offset)[..., None] + np.arange(width)
    if region.memory is MemoryType.Local:
        if isinstance(offset, int):
            where = lanes.where
            if lanes.count == 1:
                return Place(offset * region.threads + lanes.first, True)
            if isinstance(where, slice):
                return Place(slice(offset * region.threads + where.start, offset * region.threads + where.stop), True)
        ids = lanes.ids if width == 1 else lanes.ids[:, None]
        return Place(np.asarray(offset) * region.threads + ids, True)
    index = region.start + offset * region.unit
    if isinstance(index, int):
        return Place(index, lanes.count == 1)
    return _compact(index, lanes)


def _compact(index: npt.NDArray[np.int64], lanes: Lanes) -> Place:
    """The place of an index array, as a slice where that says the same."""
    if index.ndim > 1 or len(index) != lanes.count:
        flat = index.reshape(-1)
        return Place(index, index.shape[0] == lanes.count and len(np.unique(flat)) == flat.size)
    if len(index) == 1:
        return Place(int(index[0]), True)
    step = int(index[1] - index[0])
    if step > 0 and bool((np.diff(index) == step).all()):
        return Place(slice(int(index[0]), int(index[-1]) + 1, step), True)
    return Place(index, len(np.unique(index)) == len(index))


def read(memory: Memory, site: Site, lanes: Lanes, env: Env) -> Any:
    """The elements at a site: a scalar if it is one element, else one per lane. Raises :class:`Fault` if one was never written."""
    store = memory.stores[site.buffer]
    place = site.place(lanes, env, memory.regions[site.buffer])
    if store.valid is not None and place not in memory.known:
        missing = store.valid[place.index] != store.full
        if np.any(missing):
            thread = int(lanes.ids[int(np.argmax(_per_lane(missing, lanes)))])
            notes = (f"index {site.index_text(lanes, env, thread)}",)
            raise Fault(f"read of uninitialized {memory.regions[site.buffer]}", thread=thread, notes=notes)
        memory.known.add(place)
    if memory.busy and store.owned is not None:
        check_registers(store, place, memory.regions[site.buffer])
    if store.proxy is not None:
        check_incoming(store.proxy, place.index, memory.regions[site.buffer])
    found = store.data[place.index]
    return found if store.dtype is None else found.astype(store.dtype)


def write(memory: Memory, site: Site, lanes: Lanes, env: Env, value: Any) -> None:
    """Put elements at a site. Raises :class:`Fault` if lanes disagree on an element."""
    store = memory.stores[site.buffer]
    place = site.place(lanes, env, memory.regions[site.buffer])
    if store.valid is None:
        raise Fault(f"write to {memory.regions[site.buffer]}")
    if memory.busy and store.owned is not None:
        check_registers(store, place, memory.regions[site.buffer])
    if store.proxy is not None:
        stamp(memory, store.proxy, place, lanes, memory.regions[site.buffer])
    if place.unique or np.ndim(value) == 0:
        store.data[place.index] = value
    else:
        _write_common(memory, site, lanes, env, place, value)
    if place not in memory.known:
        store.valid[place.index] = store.full
        memory.known.add(place)


def stamp(memory: Memory, proxy: Proxy, place: Place, lanes: Lanes, region: Region) -> None:
    """Note time and writers of a generic write to Shared memory. Raises :class:`Fault` if an engine may be using the elements."""
    check_incoming(proxy, place.index, region)
    if np.any(proxy.readers[place.index]):
        raise Fault(
            f"{region} written before the asynchronous operation that reads it was retired",
            help="retire the operation, and let the thread that did so tell the writer, before the write",
        )
    memory.clock += 1
    proxy.stamps[place.index] = memory.clock
    shape = np.shape(proxy.stamps[place.index])
    ids = lanes.ids[:, None] if len(shape) > 1 else lanes.ids
    proxy.writers[place.index] = ids if shape and shape[0] == lanes.count else lanes.first


def check_incoming(proxy: Proxy, index: Any, region: Region) -> None:
    """Raises :class:`Fault` if a TMA load that writes one of the elements is in flight."""
    if np.any(proxy.incoming[index]):
        raise Fault(f"{region} accessed while a TMA load that writes it is in flight", help="wait for the mbarrier of the load")


def check_registers(store: Store, place: Place, region: Region) -> None:
    """Raises :class:`Fault` if a wgmma in flight owns one of the registers."""
    assert store.owned is not None
    if np.any(store.owned[place.index]):
        raise Fault(
            f"{region} accessed while a wgmma that writes it is in flight",
            help="retire the wgmma before its accumulators are touched",
        )


def _write_common(memory: Memory, site: Site, lanes: Lanes, env: Env, place: Place, value: Array) -> None:
    """Several lanes write one element: that is no race only if they write the same bits."""
    data = memory.stores[site.buffer].data
    if isinstance(place.index, int):
        data[place.index] = value[-1]
    else:
        data[place.index] = value
    stored = np.ascontiguousarray(np.broadcast_to(data[place.index], np.shape(value)))
    given = np.ascontiguousarray(value).astype(data.dtype)
    bits = np.dtype(f"u{data.dtype.itemsize}")
    differs = stored.view(bits) != given.view(bits)
    if differs.any():
        thread = int(lanes.ids[int(np.argmax(_per_lane(differs, lanes)))])
        raise Fault(
            f"threads write different values to one element of {memory.regions[site.buffer]} in one statement",
            thread=thread,
            notes=(f"index {site.index_text(lanes, env, thread)}",),
        )


def _per_lane(flags: Any, lanes: Lanes) -> Array:
    flags = np.asarray(flags)
    if flags.ndim > 1:
        return flags.any(axis=1)
    return flags if flags.ndim and len(flags) == lanes.count else np.asarray([flags.any()])
