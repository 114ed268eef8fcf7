"""Storage: the layout of buffers, and checked reads and writes.

Local memory is one array [elements, threads] per buffer and block. Shared memory is one arena per block: of bytes (NATIVE), or of one modular
word per nominal byte address (MODULAR), so that addresses are the same in both modes. Every element has a valid mark, initially unset.
Marks are never cleared, so a valid place is checked only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from taskfuse.ir.combine import Combine
from taskfuse.ir.medium import MEDIA
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import CompiledExpr, Env, Lanes, key_of, next_number
from taskfuse.sim.published import Published
from taskfuse.sim.region import Region
from taskfuse.target import WARP

Array = npt.NDArray[Any]
Index = int | slice | npt.NDArray[np.int64]
Updater = tuple[Combine, bool]
"""What updates elements: the function, and whether the copy engine does. Updates by one commute."""


@dataclass(slots=True, eq=False)
class Proxy:
    """Per element of Shared memory, the state that the generic and the asynchronous proxy share.

    Attributes:
        stamps, writers: time and thread of the last generic write.
        readers: asynchronous operations that read it and have not been waited for.
        incoming: TMA loads issued but not done that write it.
        copying: asynchronous copies that write it, neither waited for by their issuer nor covered by a counted arrival.
    """

    stamps: Array
    writers: Array
    readers: Array
    incoming: Array
    copying: Array

    def every(self, step: int) -> Proxy:
        """Every ``step``-th element."""
        return Proxy(self.stamps[::step], self.writers[::step], self.readers[::step], self.incoming[::step], self.copying[::step])


@dataclass(slots=True, eq=False)
class Store:
    """The cells of a region and their marks, flat, with one index for all of them.

    Attributes:
        valid: ``full`` where the element was written; ``None``: all elements are valid and read-only (an input).
        dtype: dtype of elements on reads, if cells are wider.
        proxy: for Shared memory that asynchronous engines use: the state that they share with the threads.
        published: for tensors that bulk copies use: writes that engines may not see yet.
        owned: for registers that wgmmas use: the number of wgmmas in flight that own the register.
        is_factor: wgmmas read these registers as an operand; else they are accumulators.
        of_rank: for a buffer by rank, the number of elements of each block of the cluster.
    """

    data: Array
    valid: Array | None
    full: int = 1
    dtype: np.dtype[Any] | None = None
    proxy: Proxy | None = None
    published: Published | None = None
    owned: Array | None = None
    is_factor: bool = False
    of_rank: int = 0


@dataclass(slots=True, eq=False)
class StorePlace:
    """The place of an access by a set of lanes: the index into a store.

    Attributes:
        index: an integer if all lanes use one element (``shared``) or there is one lane.
        unique: no two lanes have the same element.
    """

    index: Index
    unique: bool


class AccessObserver(Protocol):
    """The interface of observers of accesses (:class:`taskfuse.sim.observer.Observer`)."""

    def access(self, memory: Memory, region: Region, index: Any, write: bool) -> None:
        """Elements of ``region``, at ``index`` of its store, are read or written (or must not be accessed by others from now on)."""
        ...

    def update(self, memory: Memory, region: Region, index: Any, updater: Updater) -> None:
        """Elements of ``region``, in Global memory, are updated atomically."""
        ...

    def visibility(self, memory: Memory, region: Region, index: Any) -> None:
        """The visibility of elements of a Shared region, or a tensor, to the asynchronous proxy is tested."""
        ...


class Peers(Protocol):
    """The blocks of a cluster, whose Shared memory one of them accesses (:class:`taskfuse.sim.block.Block`)."""

    def access(self, ranks: Iterable[int]) -> None:
        """Record that its threads access Shared memory of the blocks of these ranks. Raises :class:`Fault` if one may not have started, or has exited."""
        ...


class Memory:
    """The storage that the threads of one block access.

    Attributes:
        regions, stores: by buffer number.
        known: places known to be valid.
        clock: number of generic writes to Shared memory and of proxy fences so far.
        busy: sum over wgmmas in flight of the warps that have not waited for them.
        unfenced: warps whose registers for wgmma were written since their last ``wgmma.fence``, or that never executed one.
        number: linear id of the block; ``cluster``: of the first block of its cluster.
        peers: the blocks of the cluster.
    """

    __slots__ = ("busy", "clock", "cluster", "known", "number", "observer", "peers", "regions", "stores", "unfenced")

    def __init__(
        self, regions: list[Region], stores: list[Store], warps: int, number: int = 0, observer: AccessObserver | None = None, cluster: int = 0
    ) -> None:
        self.number = number
        self.cluster = cluster
        self.peers: Peers | None = None
        self.observer = observer
        self.regions = regions
        self.stores = stores
        self.known: set[StorePlace] = set()
        self.clock = 0
        self.busy = 0
        self.unfenced = set(range(warps))


class Site:
    """A compiled access of the kernel text: returns the place for lanes and uniform values.

    Attributes:
        width: consecutive elements per lane, along the last index.
    """

    __slots__ = ("buffer", "codes", "key", "lane_codes", "lane_key", "number", "uniform_codes", "width")

    def __init__(self, buffer: int, codes: tuple[CompiledExpr, ...], width: int = 1) -> None:
        self.buffer = buffer
        self.codes = codes
        self.width = width
        self.number = next_number()
        self.lane_codes = tuple((axis, c) for axis, c in enumerate(codes) if c.per_lane)
        self.uniform_codes = tuple((axis, c) for axis, c in enumerate(codes) if not c.per_lane)
        self.key = key_of(tuple(sorted({n for c in codes for n in c.varying})))
        self.lane_key = key_of(tuple(sorted({n for _, c in self.lane_codes for n in c.varying})))

    def place(self, lanes: Lanes, env: Env, region: Region) -> StorePlace:
        """Where the lanes access the region. Raises :class:`Fault` if a lane is out of bounds."""
        key = (self.number, self.key(env))
        found = lanes.cache.get(key)
        if found is None:
            # the axes on which lanes differ make a pattern, which the others shift
            shift = self._shift(lanes, env, region)
            pattern_key = (self.number, self.lane_key(env), "pattern")
            pattern = lanes.cache.get(pattern_key)
            if pattern is None:
                pattern = place_of(self._spread(lanes, env, region), lanes, region, self.width)
                lanes.remember(pattern_key, pattern)
            found = _moved(pattern, shift * region.step)
            lanes.remember(key, found)
        return found

    def offset(self, lanes: Lanes, env: Env, region: Region) -> Any:
        """The element offset in the region: an integer, or one per lane. Raises :class:`Fault` if a lane is out of bounds."""
        return self._shift(lanes, env, region) + self._spread(lanes, env, region)

    def _shift(self, lanes: Lanes, env: Env, region: Region) -> int:
        offset = 0
        for axis, code in self.uniform_codes:
            value = code.uniform(env)
            if not 0 <= value < self._limit(axis, region):
                raise self._out_of_bounds(lanes, env, region, 0)
            offset += value * region.strides[axis]
        return offset

    def _spread(self, lanes: Lanes, env: Env, region: Region) -> Any:
        offset: Any = 0
        for axis, code in self.lane_codes:
            value = code.at(lanes, env)
            bad = (value < 0) | (value >= self._limit(axis, region))
            if bad is not False and np.any(bad):
                raise self._out_of_bounds(lanes, env, region, 0 if isinstance(bad, bool) else int(np.argmax(bad)))
            offset = offset + value * region.strides[axis]
        return offset

    def _limit(self, axis: int, region: Region) -> int:
        return region.shape[axis] if axis < len(self.codes) - 1 else region.shape[axis] - self.width + 1

    def _out_of_bounds(self, lanes: Lanes, env: Env, region: Region, lane: int) -> Fault:
        vector = f", width {self.width}" if self.width > 1 else ""
        thread = int(lanes.ids[lane])
        note = f"index {self.index_text(lanes, env, thread)}{vector}; shape {list(region.shape)}"
        return Fault(f"{region} accessed out of bounds", thread=thread, notes=(note,))

    def index_text(self, lanes: Lanes, env: Env, thread: int) -> str:
        """The indices that a thread uses, printed."""
        lane = int(np.searchsorted(lanes.ids, thread))
        values = [c.at(lanes, env) for c in self.codes]
        return f"[{', '.join(str(v if isinstance(v, int) else v[lane]) for v in values)}]"


def place_of(offset: Any, lanes: Lanes, region: Region, width: int) -> StorePlace:
    """The place of the elements at ``offset`` in a region: an integer, or one per lane; ``width`` consecutive ones each."""
    if width > 1:
        offset = np.broadcast_to(np.asarray(offset)[..., None] + np.arange(width), (lanes.count, width))
    if MEDIA[region.memory].is_private:
        if isinstance(offset, int):
            where = lanes.where
            if lanes.count == 1:
                return StorePlace(offset * region.threads + lanes.first, True)
            if isinstance(where, slice):
                return StorePlace(slice(offset * region.threads + where.start, offset * region.threads + where.stop), True)
        return StorePlace(np.asarray(offset) * region.threads + (lanes.ids if width == 1 else lanes.ids[:, None]), True)
    index = region.start + offset * region.step
    if isinstance(index, int):
        return StorePlace(index, lanes.count == 1)
    return _compact(index)


def _moved(place: StorePlace, distance: int) -> StorePlace:
    """A place of its own, ``distance`` further in the store."""
    index = place.index
    if isinstance(index, slice):
        return StorePlace(slice(index.start + distance, index.stop + distance, index.step), place.unique)
    return StorePlace(index + distance, place.unique)


def _compact(index: npt.NDArray[np.int64]) -> StorePlace:
    """The place of an index array, as a slice where that says the same."""
    if index.ndim > 1:
        return StorePlace(index, len(np.unique(index)) == index.size)
    step = int(index[1] - index[0])
    if step > 0 and bool((np.diff(index) == step).all()):
        return StorePlace(slice(int(index[0]), int(index[-1]) + 1, step), True)
    return StorePlace(index, len(np.unique(index)) == len(index))


def read(memory: Memory, site: Site, lanes: Lanes, env: Env) -> Any:
    """The elements at a site: a scalar for one element, else one per lane. Raises :class:`Fault` if one was never written."""
    store = memory.stores[site.buffer]
    place = site.place(lanes, env, memory.regions[site.buffer])
    if memory.busy and store.owned is not None:
        check_registers(store, place, memory.regions[site.buffer])
    if memory.observer is not None:
        memory.observer.access(memory, memory.regions[site.buffer], place.index, write=False)
    if store.of_rank:
        _reach(memory, store, place.index)
    if store.proxy is not None:
        check_incoming(store.proxy, place.index, memory.regions[site.buffer])
    if store.published is not None:
        store.published.check_incoming(place.index, memory.regions[site.buffer])
    if store.valid is not None and place not in memory.known:
        missing = store.valid[place.index] != store.full
        if missing.any():
            thread = int(lanes.ids[int(np.argmax(_per_lane(missing, lanes)))])
            notes = (f"index {site.index_text(lanes, env, thread)}",)
            raise Fault(f"read of uninitialized {memory.regions[site.buffer]}", thread=thread, notes=notes)
        memory.known.add(place)
    found = store.data[place.index]
    return found if store.dtype is None else found.astype(store.dtype)


def write(memory: Memory, site: Site, lanes: Lanes, env: Env, value: Any) -> None:
    """Write elements at a site. Raises :class:`Fault` if lanes disagree on an element."""
    store = memory.stores[site.buffer]
    place = site.place(lanes, env, memory.regions[site.buffer])
    if store.valid is None:
        raise Fault(f"write to {memory.regions[site.buffer]}")
    if memory.observer is not None:
        memory.observer.access(memory, memory.regions[site.buffer], place.index, write=True)
    if store.of_rank:
        _reach(memory, store, place.index)
    if store.owned is not None:
        memory.unfenced.update((lanes.ids // WARP).tolist())
        if memory.busy:
            check_registers(store, place, memory.regions[site.buffer])
    if store.proxy is not None:
        stamp(memory, store.proxy, place, lanes, memory.regions[site.buffer])
    if store.published is not None:
        store.published.write(place.index, memory.number, lanes, memory.regions[site.buffer])
    if place.unique or np.ndim(value) == 0:
        store.data[place.index] = value
    else:
        _write_common(memory, site, lanes, env, place, value)
    if place not in memory.known:
        store.valid[place.index] = store.full
        memory.known.add(place)


def _reach(memory: Memory, store: Store, index: Index) -> None:
    """Elements of a buffer by rank are accessed: the blocks that have them exist."""
    assert memory.peers is not None
    elements = np.arange(*index.indices(store.data.size)) if isinstance(index, slice) else np.asarray(index)
    memory.peers.access(np.unique(elements // store.of_rank).tolist())


def update(memory: Memory, site: Site, lanes: Lanes, env: Env, value: Any, combine: Combine, combined: Callable[[Array, Array], Array]) -> None:
    """Combine elements in Global memory with values by a function, lane by lane. Raises :class:`Fault` if one was never written."""
    store, region = memory.stores[site.buffer], memory.regions[site.buffer]
    place = site.place(lanes, env, region)
    if store.valid is None:
        raise Fault(f"write to {region}")
    if memory.observer is not None:
        memory.observer.update(memory, region, place.index, (combine, False))
    if np.any(missing := store.valid[place.index] != store.full):
        thread = int(lanes.ids[int(np.argmax(_per_lane(missing, lanes)))])
        raise Fault(f"update of uninitialized {region}", thread=thread, notes=(f"index {site.index_text(lanes, env, thread)}",))
    if store.published is not None:
        store.published.write(place.index, memory.number, lanes, region)
    index = np.arange(*place.index.indices(store.data.size)) if isinstance(place.index, slice) else np.asarray(place.index)
    shape = (lanes.count,) if site.width == 1 else (lanes.count, site.width)
    left, terms = (np.broadcast_to(a, shape).reshape(-1) for a in (index, np.asarray(value)))
    while left.size:
        cells, first = np.unique(left, return_index=True)
        store.data[cells] = combined(store.data[cells], terms[first])
        left, terms = np.delete(left, first), np.delete(terms, first)


def stamp(memory: Memory, proxy: Proxy, place: StorePlace, lanes: Lanes, region: Region) -> None:
    """Record time and writers of a generic write to Shared memory. Raises :class:`Fault` if an engine may be using the elements."""
    check_incoming(proxy, place.index, region)
    if proxy.readers[place.index].any():
        raise Fault(
            f"{region} written before the asynchronous operation that reads it was waited for",
            help="wait for the operation, and synchronize the thread that waited with the writer, before the write",
        )
    memory.clock += 1
    proxy.stamps[place.index] = memory.clock
    axes = 1 if isinstance(place.index, slice) else np.ndim(place.index)
    proxy.writers[place.index] = (lanes.first, lanes.ids, lanes.ids[:, None])[axes]


def check_incoming(proxy: Proxy, index: Any, region: Region) -> None:
    """Raises :class:`Fault` if a TMA load or an asynchronous copy that writes one of the elements is in flight."""
    if proxy.incoming[index].any():
        raise Fault(f"{region} accessed while a TMA load that writes it is in flight", help="wait for the mbarrier of the load")
    if proxy.copying[index].any():
        help = "let the thread that issued the copy commit and wait_group it, or wait for an mbarrier at which it arrives for its copies"
        raise Fault(f"{region} accessed while an asynchronous copy that writes it may be in flight", help=help)


def check_registers(store: Store, place: StorePlace, region: Region) -> None:
    """Raises :class:`Fault` if a wgmma in flight owns one of the registers."""
    assert store.owned is not None
    if store.owned[place.index].any():
        raise Fault(
            f"{region} accessed while a wgmma that {'reads' if store.is_factor else 'writes'} it is in flight",
            help=f"wait for the wgmma before its {'operand registers' if store.is_factor else 'accumulators'} are accessed",
        )


def _write_common(memory: Memory, site: Site, lanes: Lanes, env: Env, place: StorePlace, value: Array) -> None:
    """Several lanes write one element: a race unless they write the same bits."""
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
