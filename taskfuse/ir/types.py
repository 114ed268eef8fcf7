"""The closed vocabularies of the IR: parallel types, memory types, group kinds, kinds of search."""

from __future__ import annotations

from enum import Enum


class ParallelType(Enum):
    """How an axis is executed: as a loop, by an index of threads or blocks, or by an instruction. The value is its printed name."""

    BIDx = "BIDx"
    BIDy = "BIDy"
    BIDz = "BIDz"
    CIDx = "CIDx"
    CIDy = "CIDy"
    CIDz = "CIDz"
    TIDx = "TIDx"
    TIDy = "TIDy"
    TIDz = "TIDz"
    Vectorize = "Vectorize"
    Unroll = "Unroll"
    Mma = "Mma"
    Bulk = "Bulk"
    Serial = "Serial"
    __hash__ = object.__hash__  # of the identity, as for memory types

    @property
    def is_block(self) -> bool:
        """An index of the block in the grid."""
        return self in BLOCK_TYPES

    @property
    def is_cluster(self) -> bool:
        """An index of the block in its cluster."""
        return self in CLUSTER_TYPES

    @property
    def is_thread(self) -> bool:
        """An index of the thread in its block."""
        return self in THREAD_TYPES

    @property
    def is_bound(self) -> bool:
        """An index type: no code loops over the axis, each value is executed by its own thread or block."""
        return self in INDEX_TYPES

    @property
    def is_atom(self) -> bool:
        """Executed by one instruction: no loop."""
        return self in (ParallelType.Vectorize, ParallelType.Mma, ParallelType.Bulk)

    @property
    def is_loop(self) -> bool:
        """A loop in the kernel's code."""
        return self in (ParallelType.Serial, ParallelType.Unroll)

    @property
    def index_name(self) -> str:
        """The CUDA name of the index, for an index type: ``threadIdx.x``."""
        return _INDEX_NAMES[self]


BLOCK_TYPES = (ParallelType.BIDx, ParallelType.BIDy, ParallelType.BIDz)
CLUSTER_TYPES = (ParallelType.CIDx, ParallelType.CIDy, ParallelType.CIDz)
GRID_TYPES = BLOCK_TYPES + CLUSTER_TYPES
"""The index types that distinguish the blocks of a grid."""
THREAD_TYPES = (ParallelType.TIDx, ParallelType.TIDy, ParallelType.TIDz)
INDEX_TYPES = BLOCK_TYPES + CLUSTER_TYPES + THREAD_TYPES
_INDEX_NAMES = {
    ParallelType.BIDx: "blockIdx.x",
    ParallelType.BIDy: "blockIdx.y",
    ParallelType.BIDz: "blockIdx.z",
    ParallelType.CIDx: "clusterIdx.x",
    ParallelType.CIDy: "clusterIdx.y",
    ParallelType.CIDz: "clusterIdx.z",
    ParallelType.TIDx: "threadIdx.x",
    ParallelType.TIDy: "threadIdx.y",
    ParallelType.TIDz: "threadIdx.z",
}


class MemoryType(Enum):
    """The memory of a tensor. ``Local``: registers of a thread; ``Shared``: of a block; ``Cluster``: Shared memory of the blocks of a cluster, accessible to
    all of them; ``Global``: of the device. ``ir/medium.py`` has their properties.
    """

    Local = "Local"
    Shared = "Shared"
    Cluster = "Cluster"
    Global = "Global"
    __hash__ = object.__hash__  # of the identity: a row of a medium is looked up as fast as a field


class GroupKind(Enum):
    """How the members of a group depend on each other (docs/tasks-and-groups.md)."""

    HORIZONTAL = "horizontal"
    VERTICAL = "vertical"
    BOTH = "both"
    NEITHER = "neither"


class PlaceSearch(Enum):
    """How a kernel finds the place of a key in a table (``upper_bound``). All searches have the same result. The value is its printed name.

    - ``BISECTION``: each thread by itself, in log2 of the size dependent reads.
    - ``BALLOT``: if a whole warp has one key, each lane compares one of the last 32 elements of a bisection, and all lanes bisect their votes;
      otherwise by bisection.
    - ``TABLE``: one read of an input with the places of all keys.
    """

    BISECTION = "bisection"
    BALLOT = "ballot"
    TABLE = "table"
