"""The actions of a thread that other threads or engines can observe: the kinds of synchronization and of asynchronous operations, and their operands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from taskfuse.kir.nodes import Stmt


class Kind(Enum):
    """The kind of an event, and its operands in order. Addresses are in bytes; modifiers are the words of the instruction, joined by ``.``."""

    STREAM_WAIT = auto()
    BARRIER = auto()  # number, threads
    WARP_BARRIER = auto()  # lanes
    SHUFFLE = auto()  # mode, distance, clamp, lanes
    AGREED = auto()  # value, lane, clamp, lanes; gives the value, which all lanes have
    ACTIVE = auto()  # gives the lanes that come together
    MATCH = auto()  # mode, lanes; gives those of the same value, and whether all are
    BALLOT = auto()  # lanes; gives those whose predicate holds
    FROM_ABOVE = auto()  # mode, distance, clamp, lanes; gives the value of a lane above
    CLUSTER_ARRIVE = auto()  # modifiers
    CLUSTER_WAIT = auto()  # modifiers
    INIT = auto()  # mbarrier, count
    ARRIVE = auto()  # modifiers, mbarrier, count
    EXPECT = auto()  # modifiers, mbarrier, bytes
    WAIT = auto()  # modifiers, mbarrier, parity; gives whether it passes
    COPY = auto()  # out, source, bytes, bytes that are read
    COPY_ARRIVE = auto()  # modifiers, mbarrier
    COPY_COMMIT = auto()
    COPY_WAIT = auto()  # pending
    BULK_LOAD = auto()  # out, map, mbarrier, coordinates, innermost first
    MULTICAST = auto()  # out, map, mbarrier, mask of blocks, coordinates
    BULK_STORE = auto()  # map, source, coordinates
    BULK_UPDATE = auto()  # function, map, source, coordinates
    BULK_COMMIT = auto()
    BULK_WAIT = auto()  # pending
    BULK_WAIT_READ = auto()  # pending
    WGMMA = auto()  # modifiers, A (descriptor, or -1: registers), B, accumulate, immediates
    WGMMA_FENCE = auto()
    WGMMA_COMMIT = auto()
    WGMMA_WAIT = auto()  # pending
    MMA = auto()  # modifiers
    LOAD_MATRIX = auto()  # modifiers, address
    STORE_MATRIX = auto()  # modifiers, address
    REGISTERS = auto()  # modifiers, count
    FENCE = auto()  # modifiers
    UPDATE = auto()  # function, elements of the vector, the first of them
    RELEASE = auto()  # modifiers, counter, increment
    ACQUIRE = auto()  # modifiers, counter; gives its value
    COUNT = auto()  # modifiers, counter, increment; gives the value before
    PUBLISH = auto()  # modifiers, address
    EXCHANGE = auto()  # modifiers, address, the value that is expected; gives the value before


UNORDERED = frozenset({Kind.SHUFFLE, Kind.AGREED, Kind.MMA})
"""Instructions across which the compiler may move memory accesses: their text does not clobber memory."""

WHOLE_WARP = frozenset({Kind.ACTIVE, Kind.MATCH, Kind.BALLOT, Kind.FROM_ABOVE})
"""Instructions of lanes that may find all of their warp active; a thread that is run by itself finds itself alone."""

RANK = 1 << 24
"""Addresses of Shared memory of the block of rank r in the cluster are those of the own block plus (r + 1) * RANK, as ``mapa`` returns them here."""


@dataclass(frozen=True, slots=True)
class PtxPlace:
    """An address whose array may be anywhere: at ``offset`` bytes in the array ``name``; ``rank``: the block of the cluster, ``None``: the own."""

    name: str
    offset: int
    rank: int | None = None

    def __str__(self) -> str:
        return f"{self.name}+{self.offset}" + ("" if self.rank is None else f" of block {self.rank}")


@dataclass(frozen=True, slots=True)
class WarpLanes:
    """The lanes of the warp that reach a statement the ``count``-th time (from 0)."""

    statement: int
    count: int


class Any_(Enum):
    """An operand that is not compared."""

    ANY = auto()


ANY = Any_.ANY
Expected = int | str | PtxPlace | WarpLanes | Any_
Observed = int | str
Span = tuple[int, int]
"""Address and size of an access, in bytes."""


@dataclass(frozen=True, slots=True)
class PtxStep:
    """One action of a thread in kernel IR, and its memory accesses since the previous one.

    Attributes:
        result: the result of the instruction, if it has one.
        stores, loads: accesses of Shared memory and of workspace since the last step that orders memory.
        statement: the statement that it is a part of.
    """

    kind: Kind
    operands: tuple[Expected, ...]
    result: int
    stores: tuple[Span, ...]
    loads: tuple[Span, ...]
    statement: Stmt
