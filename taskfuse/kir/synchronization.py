"""Statements by which threads and asynchronous engines wait for each other: barriers, mbarriers, semaphores, cursors, queues, fences.

FORM is the line of a statement (:mod:`taskfuse.kir.forms`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import ClassVar

from taskfuse.ir.scalar import Expr, Sym, sym
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.kir.operands import BarrierSlot, CursorName, Located, Queue, SemaphoreSlot


class BarrierScope(Enum):
    """The participants of a :class:`Barrier`."""

    BLOCK = "block"
    WARP = "warp"
    NAMED = "named"
    CLUSTER = "cluster"
    GRID = "grid"


@dataclass(frozen=True, slots=True)
class Barrier(Located):
    """All participants arrive before any continues; orders their memory accesses.

    Attributes:
        scope: BLOCK: every thread of the block; WARP: every existing thread of a warp: ``threads`` is 32, or the number of
            threads of a smaller block (``__syncwarp``, with a full mask); NAMED: ``threads`` threads (a multiple of 32) at hardware barrier ``id`` (1-15);
            CLUSTER: every thread of every block of the cluster (``barrier.cluster``); GRID: ``threads`` threads of several blocks at ``counter``.
        note: the reason for the barrier; printed.
    """

    scope: BarrierScope
    threads: Expr
    id: Expr | None = None
    counter: str | None = None
    note: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class InitBarrier(Located):
    """``mbarrier.init``: phase 0, ``count`` pending arrivals."""

    FORM: ClassVar[str] = "INIT {barrier} count {count}"
    barrier: BarrierSlot
    count: Expr


@dataclass(frozen=True, slots=True)
class FenceInit(Located):
    """Makes initialized mbarriers visible to the asynchronous proxy (``fence.mbarrier_init``)."""

    FORM: ClassVar[str] = "FENCE mbarrier_init"


class MbarrierScope(Enum):
    """The scope of an arrival at an mbarrier, and of a wait for it: the threads whose memory accesses it orders (PTX ISA, "mbarrier.arrive", ``.scope``)."""

    BLOCK = "block"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Arrive(Located):
    """``mbarrier.arrive`` (release): each executing thread counts once.

    Attributes:
        across: cluster types, in the order x, y, z. Each thread then counts once at this mbarrier of every block of the cluster whose index
            differs from its own block's only on these types, its own block included (``mapa``, ``mbarrier.arrive``).
        scope: CLUSTER: the thread's earlier stores are visible to threads of these blocks that wait at this scope; BLOCK: only to those of its own block; for
            threads of other blocks the arrival orders only earlier reads.
    """

    FORM: ClassVar[str] = "ARRIVE {barrier}[ across {across}][ scope {scope}]"
    barrier: BarrierSlot
    across: tuple[ParallelType, ...] = ()
    scope: MbarrierScope = MbarrierScope.BLOCK


@dataclass(frozen=True, slots=True)
class ArriveAsync(Located):
    """``cp.async.mbarrier.arrive.noinc``: each executing thread counts once, as soon as all its issued :class:`AsyncCopy` are done.

    It releases the copies' writes, and none of the thread's own stores.
    """

    FORM: ClassVar[str] = "ARRIVE.async {barrier}"
    barrier: BarrierSlot


@dataclass(frozen=True, slots=True)
class Expect(Located):
    """``mbarrier.arrive.expect_tx``: each executing thread adds ``bytes`` to the pending bytes, then counts as one arrival."""

    FORM: ClassVar[str] = "EXPECT {barrier} bytes {bytes}"
    barrier: BarrierSlot
    bytes: Expr


@dataclass(frozen=True, slots=True)
class Wait(Located):
    """``mbarrier.try_wait.parity`` in a loop (acquire): continues once the barrier's current phase parity differs from ``parity``.

    Attributes:
        scope: CLUSTER: it acquires the stores of threads of other blocks before their arrivals of this scope.
    """

    FORM: ClassVar[str] = "WAIT {barrier} parity {parity}[ scope {scope}]"
    barrier: BarrierSlot
    parity: Expr
    scope: MbarrierScope = MbarrierScope.BLOCK


@dataclass(frozen=True, slots=True)
class Release(Located):
    """``red.release.gpu.add`` of 1: each executing thread counts once, after its earlier accesses."""

    FORM: ClassVar[str] = "RELEASE {semaphore}"
    semaphore: SemaphoreSlot


@dataclass(frozen=True, slots=True)
class Acquire(Located):
    """``ld.acquire.gpu`` in a loop: each executing thread continues once ``phases`` phases of the semaphore are complete."""

    FORM: ClassVar[str] = "ACQUIRE {semaphore} phases {phases}"
    semaphore: SemaphoreSlot
    phases: Expr


class CursorPart(Enum):
    """The symbols of a ring cursor: the slot, the parity of the phase, and the phase, which counts the wraps. The value is the symbol's suffix."""

    SLOT = "slot"
    PARITY = "parity"
    PHASE = "phase"


CURSOR_PARTS: Mapping[str, CursorPart] = {part.value: part for part in CursorPart}
NAMES = 1 << 12
"""The most symbols of which it is remembered whether they are parts of cursors."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The symbols of the ring cursor of a name."""

    name: str

    def part(self, part: CursorPart) -> Sym:
        """One of them."""
        return sym(f"{self.name}.{part.value}")

    @property
    def slot(self) -> Sym:
        """The current slot."""
        return sym(f"{self.name}.slot")

    @property
    def parity(self) -> Sym:
        """The parity of the phase."""
        return self.part(CursorPart.PARITY)

    @property
    def phase(self) -> Sym:
        """The number of wraps."""
        return self.part(CursorPart.PHASE)

    @property
    def symbols(self) -> tuple[str, str, str]:
        """The names of all three."""
        return f"{self.name}.slot", f"{self.name}.parity", f"{self.name}.phase"

    @staticmethod
    def at(slot: Expr) -> Cursor | None:
        """The cursor whose slot an expression is."""
        found = Cursor.of(slot.name) if isinstance(slot, Sym) else None
        return found[0] if found is not None and found[1] is CursorPart.SLOT else None

    @staticmethod
    @lru_cache(NAMES)
    def of(symbol: str) -> tuple[Cursor, CursorPart] | None:
        """The cursor and the part that a symbol names; ``None`` if it does not have the form of one."""
        name, _, end = symbol.rpartition(".")
        return (Cursor(name), CURSOR_PARTS[end]) if name and end in CURSOR_PARTS else None


@dataclass(frozen=True, slots=True)
class CursorInit(Located):
    """Initialize a ring cursor, a per-thread state: symbols ``name.slot``, ``name.parity`` and ``name.phase`` (number of wraps) from here on."""

    FORM: ClassVar[str] = "{name} = CURSOR(slots {slots}, slot {slot}, parity {parity})"
    name: CursorName
    slots: int
    slot: int
    parity: int


@dataclass(frozen=True, slots=True)
class Advance(Located):
    """Advance a cursor by ``count`` slots; at every wrap the parity flips, and the phase grows by one."""

    cursor: str
    count: Expr


@dataclass(frozen=True, slots=True)
class Commit(Located):
    """Close the batch of operations issued to ``queue`` since the last commit."""

    FORM: ClassVar[str] = "COMMIT {queue}"
    queue: Queue


@dataclass(frozen=True, slots=True)
class WaitGroup(Located):
    """Wait until at most ``pending`` batches are unfinished; ``read_only``: until their sources have been read."""

    queue: Queue
    pending: int
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class WgmmaFence(Located):
    """``wgmma.fence``: orders register accesses before the following wgmma."""

    FORM: ClassVar[str] = "FENCE wgmma"


@dataclass(frozen=True, slots=True)
class FenceProxyAsync(Located):
    """``fence.proxy.async``: orders this thread's accesses to Shared or Global memory before later ones through the asynchronous proxy.

    Attributes:
        memory: Shared (``.shared::cta``) or Global (``.global``): a fence covers only one of them.
    """

    FORM: ClassVar[str] = "FENCE {memory}"
    memory: MemoryType = MemoryType.Shared


@dataclass(frozen=True, slots=True)
class SetMaxNReg(Located):
    """``setmaxnreg``: this warpgroup's register budget per thread from here on. An increase waits until other warpgroups have released enough."""

    FORM: ClassVar[str] = "SETMAXNREG {registers}"
    registers: int


SyncStmt = (
    Barrier
    | InitBarrier
    | FenceInit
    | Arrive
    | ArriveAsync
    | Expect
    | Wait
    | Release
    | Acquire
    | CursorInit
    | Advance
    | Commit
    | WaitGroup
    | WgmmaFence
    | FenceProxyAsync
    | SetMaxNReg
)
"""All synchronization statements."""
