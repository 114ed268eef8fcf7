"""The cells of a launch: registers of threads, Shared memory of blocks, Global memory; each holds a term.

Shared buffers that overlap share cells. Such cells have the size of the smallest element; a larger element fills several: its term stands in the first,
and the others hold their distance from it, so that a partly overwritten element is no longer an element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, prod

from taskfuse.check.flags import any_of
from taskfuse.check.refuted import Refuted, TooLarge
from taskfuse.check.values.terms import NOTHING, Bools, Ints, Terms
from taskfuse.dtypes import DType
from taskfuse.ir.medium import MEDIA, Reach
from taskfuse.ir.scalar import evaluate
from taskfuse.ir.types import MemoryType
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import TensorParam

BEHIND = -1
"""The tag of an element's cells after the first; the data is the distance."""
MOST = 1 << 24
"""The most cells of a launch."""


@dataclass(slots=True, eq=False)
class CellRegion:
    """Cells of some buffers: ``owners`` copies of ``count`` cells of ``grain`` bytes, which begin at byte ``first`` of Shared memory."""

    terms: Terms
    count: int
    grain: int
    first: int


@dataclass(slots=True, eq=False)
class CellStore:
    """A buffer or a tensor argument.

    Attributes:
        origin: its first byte in Shared memory (0 elsewhere).
        region: its cells; ``None``: an input, whose elements are known. An input into which an output is written has the cells of that output.
        shares: other buffers use its cells, too.
    """

    name: str
    dtype: DType
    memory: MemoryType
    extents: tuple[int, ...]
    origin: int
    region: CellRegion | None
    shares: bool = False

    @property
    def size(self) -> int:
        return prod(self.extents)


class Cells:
    """All stores.

    Args:
        threads, blocks: the number of copies of Local and Shared buffers; those of clusters have at most one per block.
    """

    def __init__(self, kernel: Kernel, symbols: Mapping[str, int], threads: int, blocks: int) -> None:
        self.stores: dict[str, CellStore] = {}
        self._left = MOST
        for p in kernel.params:
            if isinstance(p, TensorParam):
                extents = tuple(int(evaluate(e, symbols)) for e in p.shape)
                region = self._region(1, prod(extents), p.dtype.itemsize, 0) if p.is_output else None
                self.stores[p.name] = CellStore(p.name, p.dtype, MemoryType.Global, extents, 0, region)
        for output, source in kernel.in_place.items():
            self.stores[source].region = self.stores[output].region
        shared: list[CellStore] = []
        end = 0
        for b in kernel.buffers:
            extents = tuple(int(evaluate(e, symbols)) for e in b.shape)
            store = self.stores[b.name] = CellStore(b.name, b.dtype, b.memory, extents, 0, None)
            if MEDIA[b.memory].is_placed:
                origin = -(-end // b.align) * b.align if b.offset is None else int(evaluate(b.offset, symbols))
                end = max(end, origin + int(evaluate(b.bytes_of_block, symbols)))
                if MEDIA[b.memory].is_by_rank:  # it shares bytes with no other
                    store.region = self._region(blocks, store.size, b.dtype.itemsize, 0)
                else:
                    store.origin = origin
                    shared.append(store)
            else:
                store.region = self._region(threads if MEDIA[b.memory].is_private else 1, store.size, b.dtype.itemsize, 0)
        self._place(shared, blocks)

    def _region(self, owners: int, count: int, grain: int, first: int) -> CellRegion:
        self._left -= owners * count
        if self._left < 0:
            raise TooLarge
        return CellRegion(Terms.full((owners * count,), NOTHING), count, grain, first)

    def _place(self, shared: list[CellStore], blocks: int) -> None:
        """One region for all buffers that overlap, directly or through others."""
        group: list[CellStore] = []
        end = 0
        for store in [*sorted(shared, key=lambda s: s.origin), None]:
            if group and (store is None or store.origin >= end):
                first = group[0].origin
                grain = gcd(*(s.dtype.itemsize for s in group), *(s.origin - first for s in group))
                region = self._region(blocks, -(-(end - first) // grain), grain, first)
                for s in group:
                    s.region, s.shares = region, len(group) > 1
                group = []
            if store is not None:
                group.append(store)
                end = max(end, store.origin + store.size * store.dtype.itemsize)

    @staticmethod
    def cells(store: CellStore, owners: Ints, elements: Ints) -> Ints:
        """The first cell of each element. ``owners``: the thread, the block, or the cluster, of each."""
        region = store.region
        assert region is not None
        medium = MEDIA[store.memory]
        if medium.reach is not Reach.BLOCK:
            return owners * region.count + elements if medium.is_private or medium.is_by_rank else elements
        return owners * region.count + (store.origin - region.first + elements * store.dtype.itemsize) // region.grain

    @staticmethod
    def read(store: CellStore, cells: Ints) -> tuple[Terms, Bools | None]:
        """The terms of elements, by their first cells, and a mask of whole elements."""
        region = store.region
        assert region is not None
        found = region.terms[cells]
        if not store.shares:
            return found, None
        whole = found.tag != BEHIND
        for k in range(1, store.dtype.itemsize // region.grain):
            whole &= (region.terms.tag[cells + k] == BEHIND) & (region.terms.data[cells + k] == k)
        return found, whole

    @staticmethod
    def write(store: CellStore, cells: Ints, terms: Terms) -> None:
        """Write elements, by their first cells."""
        region = store.region
        assert region is not None
        region.terms[cells] = terms
        if store.shares:
            for k in range(1, store.dtype.itemsize // region.grain):
                region.terms.tag[cells + k] = BEHIND
                region.terms.data[cells + k] = k

    @staticmethod
    def addressed(store: CellStore, owners: Ints, addresses: Ints, what: str) -> Ints:
        """The cells at byte addresses of Shared memory, which an engine computes. Raises :class:`Refuted` outside the buffers around ``store``."""
        region = store.region
        assert region is not None
        at = addresses - region.first
        outside = (at < 0) | (at + store.dtype.itemsize > region.count * region.grain)
        if any_of(outside):
            raise Refuted(store.name, f"{what} touches byte {int(addresses[outside].flat[0])} of Shared memory, outside it")
        return owners * region.count + at // region.grain
