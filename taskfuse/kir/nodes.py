"""Kernel IR: the lowered loop nest.

A kernel is what every thread of a launch executes, as a tree of statements over explicit storage. All synchronization is explicit:
barriers, mbarrier waits and arrivals, cursors (slot and parity of a ring), commits and retires of asynchronous queues. The simulator,
the checker and the CUDA printer know only what is written here. docs/kernel-ir.md has the grammar of the printed form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, ClassVar

from taskfuse.dtypes import DType
from taskfuse.ir.elementwise import Elementwise
from taskfuse.ir.fragments import Fragment
from taskfuse.ir.matrix_instructions import Family, MatrixInstruction, find
from taskfuse.ir.scalar import TRUE, Expr
from taskfuse.ir.shared_layouts import Major
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.location import Location


@dataclass(frozen=True, slots=True)
class TensorParam:
    """A tensor argument in Global memory, indexed by one expression per axis; any strides."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    is_output: bool


@dataclass(frozen=True, slots=True)
class ScalarParam:
    """A run-time scalar argument; read as :class:`ScalarValue`."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class HostParam:
    """An integer argument that the host computes from the extents at launch."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class TensorMapParam:
    """A TMA descriptor of a tensor argument.

    Attributes:
        tensor: name of the tensor argument.
        box: elements per axis of one transfer, outermost axis first.
        swizzle: 0, 32, 64 or 128: bytes of the Shared-memory swizzle span.
    """

    name: str
    tensor: str
    box: tuple[int, ...]
    swizzle: int


Param = TensorParam | ScalarParam | HostParam | TensorMapParam


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage inside the kernel: Local (one copy per thread), Shared (per block) or Global workspace (per launch); row-major.

    Attributes:
        align: alignment in bytes (a power of two, at least the element size).
        offset: byte offset in the block's Shared memory; ``None``: after the buffers before it. Two buffers may overlap.
    """

    name: str
    dtype: DType
    memory: MemoryType
    shape: tuple[Expr, ...]
    align: int
    offset: Expr | None = None


@dataclass(frozen=True, slots=True)
class Mbarrier:
    """An array of ``slots`` mbarriers in Shared memory."""

    name: str
    slots: int


@dataclass(frozen=True, slots=True)
class Counter:
    """A monotone counter in Global memory for barriers across blocks, zero before the first launch."""

    name: str


@dataclass(frozen=True, slots=True)
class Semaphore:
    """An array of monotone counters in Global memory, zero when the launch begins: barriers between blocks that only some of them wait for.

    ``count`` releases complete a phase. Unlike an mbarrier's, the phases are numbered, and never begin anew: a wait names how many must be
    complete.

    Attributes:
        shape: extents, known at launch.
        count: releases per phase, known at launch.
    """

    name: str
    shape: tuple[Expr, ...]
    count: Expr


# -- operands -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Access:
    """An element of a buffer or tensor argument."""

    buffer: str
    index: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant. Every NaN is the same one, so that equality holds for it."""

    value: int | float | bool
    dtype: DType

    def __post_init__(self) -> None:
        if self.value != self.value:
            object.__setattr__(self, "value", math.nan)


@dataclass(frozen=True, slots=True)
class ScalarValue:
    """The value of a scalar argument."""

    name: str


@dataclass(frozen=True, slots=True)
class IndexOf:
    """The value of an integer expression, as int64."""

    value: Expr


Operand = Access | Immediate | ScalarValue | IndexOf


@dataclass(frozen=True, slots=True)
class BarrierSlot:
    """One mbarrier of an array."""

    name: str
    slot: Expr


@dataclass(frozen=True, slots=True)
class SemaphoreSlot:
    """One counter of an array."""

    name: str
    index: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A wgmma matrix descriptor (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout").

    Attributes:
        base: the first element of the tile (address before the swizzle).
        offset: bytes added to the address of ``base``.
        swizzle: 0, 32, 64 or 128 bytes; applied to the final address bits: 128: [4:7) ^= [7:10), 64: [4:6) ^= [7:9), 32: [4] ^= [7].
        lbo: leading byte offset. K-major, no swizzle: between the two 16-byte core matrices along k; MN-major: between spans along m or n.
            MN-major without swizzle: the two offsets change places.
        sbo: stride byte offset. K-major: between groups of 8 rows; MN-major: between groups of 8 along k.
        major: the contiguous axis.
    """

    base: Access
    offset: Expr
    swizzle: int
    lbo: int
    sbo: int
    major: Major


# -- the witness --------------------------------------------------------------------------------------------------------------------


class Content(Enum):
    """What a written element stands for, of the tensor that :class:`Holds` names.

    - VALUE: its element at an index of its shape.
    - ZERO: 0, where an element may not exist; those that do are written later.
    - START: the initial or the neutral element of its reduction or scan.
    - BODY: one term of its reduction, at a point of its iteration space.
    - TERM: what was there, and the term of a point of its iteration space.
    - PART: the terms that some threads or blocks have taken.
    """

    VALUE = "value"
    ZERO = "zero"
    START = "start"
    BODY = "body"
    TERM = "term"
    PART = "part"


@dataclass(frozen=True, slots=True)
class Holds:
    """What lowering says that the results of a statement stand for. The proof checks it, and never trusts it (docs/proof.md).

    Attributes:
        tensor: a tensor that the kernel's definitions define.
        index: one expression per axis of its shape (VALUE), or of its iteration space (BODY, TERM); none for the others. Elements that the
            instruction moves at once are numbered by the symbols ``tile.0``, ``tile.1``, ...: along a vector; by rows, columns and terms of a product;
            by rows of all matrices of an ldmatrix or stmatrix and elements of a row; of a bulk copy in any way, as its box says which is which.
        tile: how many values each of these symbols has.
    """

    tensor: str
    index: tuple[Expr, ...] = ()
    content: Content = Content.VALUE
    tile: tuple[int, ...] = ()


# -- statements ---------------------------------------------------------------------------------------------------------------------
# What a field holds is its type (taskfuse.kir.fields). FORM is the line of a statement: fields in braces, and in brackets what is left out where
# its fields have their defaults (taskfuse.kir.forms). Statements without one have a printer and a parser of their own.


class Use(Enum):
    """What a statement does with an element, or some from it on, that a field names."""

    READ = "read"
    WRITTEN = "written"
    UPDATED = "updated"


Written = Annotated[Access, Use.WRITTEN]
Updated = Annotated[Access, Use.UPDATED]
MapName = Annotated[str, "map"]
CursorName = Annotated[str, "cursor"]


@dataclass(frozen=True, slots=True)
class Located:
    """What every statement has: the user's line that it comes from, which errors about it name (docs/kernel-ir.md, "Locations").

    It is no part of what a statement is: neither equality nor hash nor ``repr`` sees it, and text has it on request alone.
    """

    location: Location | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Writer(Located):
    """A statement that writes elements, and may say what these stand for (:class:`Holds`)."""

    holds: Holds | None = field(default=None, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class For(Located):
    """``for var = start; var < stop; var += step``. ``unroll``: the body is copied, so that ``var`` is a constant in it."""

    var: str
    start: Expr
    stop: Expr
    step: Expr
    unroll: bool
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Bind(Located):
    """A loop without code: ``index`` (of a block or thread type) runs over ``extent`` values at the same time. It guards nothing."""

    index: Expr
    ptype: ParallelType
    extent: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """One arm of an :class:`If`; ``label`` says which node (task or group) it belongs to."""

    cond: Expr
    body: tuple[Stmt, ...]
    label: str | None = None


@dataclass(frozen=True, slots=True)
class If(Located):
    """An if / else-if chain; at most the first arm whose condition holds runs. ``note``: what it dispatches; printed above it."""

    branches: tuple[Branch, ...]
    note: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Compute(Writer):
    """``out = op(operands)``: operands are converted to ``dtype``, the op runs in it, the result is converted to ``out``'s dtype."""

    out: Written
    op: Elementwise
    operands: tuple[Operand, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Case:
    """An operand and where it is valid."""

    cond: Expr
    operand: Operand


@dataclass(frozen=True, slots=True)
class Choose(Writer):
    """``out`` = the operand of the first case whose condition holds (no other operand is read); one always does. ``label`` is its printed name."""

    out: Written
    label: str
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A symbol that is a value: that of ``source``, an integer; plus ``extent`` where it is negative."""

    symbol: str
    source: Access
    extent: Expr


@dataclass(frozen=True, slots=True)
class Gather(Writer):
    """``width`` elements, consecutive along the last index of both sides, copied from an index that values say.

    The symbols mean something in ``source`` alone. Where one of them is outside of its ``[0, extent)``, zeros are written and ``source`` is not
    read. Nothing is converted. Several elements are moved by one instruction, both addresses aligned to its size.
    """

    FORM: ClassVar[str] = "GATHER {out} <- {source}[ width {width}] at {values}"
    out: Written
    source: Access
    values: tuple[Found, ...]
    width: int = 1


@dataclass(frozen=True, slots=True)
class VectorCopy(Writer):
    """``width`` elements, consecutive along the last index of both sides, copied by one instruction; both addresses aligned to its size."""

    FORM: ClassVar[str] = "COPY {out} <- {source} width {width}"
    out: Written
    source: Access
    width: int


@dataclass(frozen=True, slots=True)
class AsyncCopy(Writer):
    """``width`` elements from Global to Shared memory (``cp.async``), done at any later time, in the generic proxy (PTX ISA, "cp.async").

    The copy is done before the executing thread's retire of its batch (:attr:`Queue.COPY`), and before the arrival that the thread's next
    :class:`ArriveAsync` starts. Nothing else waits for it, and nothing orders two copies.

    Attributes:
        out, source: the first of consecutive elements along the last index; both addresses aligned to the size of the copy.
        width: elements; 4, 8 or 16 bytes.
        valid: where it fails, zeros are written and ``source`` is not read.
    """

    FORM: ClassVar[str] = "COPY.async {out} <- {source} width {width}[ if {valid}]"
    out: Written
    source: Access
    width: int
    valid: Expr = TRUE


class BarrierScope(Enum):
    """Who meets at a :class:`Barrier`."""

    BLOCK = "block"
    WARP = "warp"
    NAMED = "named"
    CLUSTER = "cluster"
    GRID = "grid"


@dataclass(frozen=True, slots=True)
class Barrier(Located):
    """All participants arrive before any goes on; orders their memory accesses.

    Attributes:
        scope: BLOCK: every thread of the block; WARP: every thread of a warp, those that the block has of it: ``threads`` is 32, or the number of
            threads of a block (``__syncwarp``, with a full mask); NAMED: ``threads`` threads (a multiple of 32) at hardware barrier ``id`` (1-15);
            CLUSTER: every thread of every block of the cluster (``barrier.cluster``); GRID: ``threads`` threads of several blocks at ``counter``.
        note: why it is there; printed.
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


@dataclass(frozen=True, slots=True)
class Arrive(Located):
    """``mbarrier.arrive`` (release): each executing thread counts once.

    Attributes:
        across: cluster types, in the order x, y, z. Each thread then counts once at this mbarrier of every block of the cluster whose index
            differs from its own block's on these types alone, its own block included (``mapa``, ``mbarrier.arrive.release.cluster``).
    """

    FORM: ClassVar[str] = "ARRIVE {barrier}[ across {across}]"
    barrier: BarrierSlot
    across: tuple[ParallelType, ...] = ()


@dataclass(frozen=True, slots=True)
class ArriveAsync(Located):
    """``cp.async.mbarrier.arrive.noinc``: each executing thread counts once, as soon as all :class:`AsyncCopy` that it has issued are done.

    It hands over what the copies wrote, and nothing that the thread itself stored.
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
    """``mbarrier.try_wait.parity`` in a loop (acquire): goes on once the barrier's current phase parity differs from ``parity``."""

    FORM: ClassVar[str] = "WAIT {barrier} parity {parity}"
    barrier: BarrierSlot
    parity: Expr


@dataclass(frozen=True, slots=True)
class Release(Located):
    """``red.release.gpu.add`` of 1: each executing thread counts once, after what it did before."""

    FORM: ClassVar[str] = "RELEASE {semaphore}"
    semaphore: SemaphoreSlot


@dataclass(frozen=True, slots=True)
class Acquire(Located):
    """``ld.acquire.gpu`` in a loop: each executing thread goes on once ``phases`` phases of the semaphore are complete."""

    FORM: ClassVar[str] = "ACQUIRE {semaphore} phases {phases}"
    semaphore: SemaphoreSlot
    phases: Expr


@dataclass(frozen=True, slots=True)
class CursorInit(Located):
    """A ring cursor, a per-thread state: symbols ``name.slot``, ``name.parity`` and ``name.phase`` (wraps so far) from here on."""

    FORM: ClassVar[str] = "{name} = CURSOR(slots {slots}, slot {slot}, parity {parity})"
    name: CursorName
    slots: int
    slot: int
    parity: int


@dataclass(frozen=True, slots=True)
class Advance(Located):
    """Move a cursor ``count`` slots on; at every wrap the parity flips, and the phase grows by one."""

    cursor: str
    count: Expr


@dataclass(frozen=True, slots=True)
class TmaLoad(Writer):
    """Copy a box from Global to Shared, issued by each executing thread, done by the copy engine at any later time.

    The box at ``coords`` (outermost axis first; elements outside the tensor read 0) is written row-major at ``out`` under the map's
    swizzle; then ``barrier`` loses the bytes of the full box from its pending bytes.

    Attributes:
        across: cluster types, in the order x, y, z: the box is written at the same place of Shared memory, and its bytes are taken off the same
            mbarrier, in every block of the cluster whose index differs from the issuer's on these types alone, at a time of its own in each
            (PTX ISA, "cp.async.bulk.tensor", ``.multicast::cluster``).
    """

    FORM: ClassVar[str] = "TMA {out} <- {map}{coords} on {barrier}[ across {across}]"
    out: Written
    map: MapName
    coords: tuple[Expr, ...]
    barrier: BarrierSlot
    across: tuple[ParallelType, ...] = ()


@dataclass(frozen=True, slots=True)
class TmaStore(Writer):
    """Copy a box from Shared to Global (clipped), done by the copy engine at any time before the issuing thread's matching retire."""

    FORM: ClassVar[str] = "TMA {map}{coords} <- {source}"
    map: MapName
    coords: tuple[Expr, ...]
    source: Access


class Queue(Enum):
    """An asynchronous FIFO: wgmma (per warpgroup), bulk copies from Shared or copies to Shared (per thread)."""

    WGMMA = "wgmma"
    BULK = "bulk"
    COPY = "copy"


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
class Wgmma(Writer):
    """``acc += A @ B^T`` by one warpgroup, asynchronously: A is m64 x k, B is n x k; operands are read when the engine gets to it.

    Fragments (of accumulators, and of A in registers) are those of :mod:`taskfuse.ir.matrix_instructions`. Products of float32 operands are tf32.

    Attributes:
        acc: first of the n/2 accumulator registers of each thread: float32, or int32 for integer operands.
        a: a tile in Shared memory, or the first of the k/2 registers of each thread that hold A.
        b: a tile in Shared memory.
        accumulate: false: acc = A @ B^T.
        dtype: element type of A, and of B unless ``b_dtype`` says otherwise.
        b_dtype: element type of B where it differs (8-bit types of one kind mix); ``None``: that of A.
    """

    n: int
    k: int
    acc: Updated
    a: Descriptor | Access
    b: Descriptor
    accumulate: Expr
    dtype: DType
    b_dtype: DType | None = None

    def __post_init__(self) -> None:
        if self.b_dtype is self.dtype:
            object.__setattr__(self, "b_dtype", None)

    @property
    def factors(self) -> tuple[DType, DType]:
        """The element types of A and B."""
        return self.dtype, self.b_dtype or self.dtype

    @property
    def row(self) -> MatrixInstruction:
        """Its row in the table of matrix instructions, which a kernel that its verifier accepts has."""
        found = find(Family.WGMMA, *self.factors, self.k)
        assert found is not None
        return found

    @property
    def accumulators(self) -> Fragment:
        """How the sums lie in registers."""
        return self.row.accumulator(self.n)


@dataclass(frozen=True, slots=True)
class Mma(Writer):
    """``mma.sync``: ``acc += A @ B`` by one warp; A is m16 x k, B is k x n8, all in registers (fragments: :mod:`taskfuse.ir.matrix_instructions`).

    Products of float32 operands are tf32.

    Attributes:
        acc: first of the 4 accumulator registers of each thread: float32, or int32 for integer operands.
        a, b: first of the k/2 and k/4 operand registers of each thread.
        dtype: element type of A, and of B unless ``b_dtype`` says otherwise.
        b_dtype: element type of B where it differs (8-bit types of one kind mix); ``None``: that of A.
    """

    k: int
    acc: Updated
    a: Access
    b: Access
    dtype: DType
    b_dtype: DType | None = None

    def __post_init__(self) -> None:
        if self.b_dtype is self.dtype:
            object.__setattr__(self, "b_dtype", None)

    @property
    def n(self) -> int:
        """Columns of B and of the sums."""
        return self.row.shape.widths[0]

    @property
    def factors(self) -> tuple[DType, DType]:
        """The element types of A and B."""
        return self.dtype, self.b_dtype or self.dtype

    @property
    def row(self) -> MatrixInstruction:
        """Its row in the table of matrix instructions, which a kernel that its verifier accepts has."""
        found = find(Family.MMA, *self.factors, self.k)
        assert found is not None
        return found

    @property
    def accumulators(self) -> Fragment:
        """How the sums lie in registers."""
        return self.row.accumulator(self.n)


@dataclass(frozen=True, slots=True)
class LdMatrix(Writer):
    """``ldmatrix``: a warp loads matrices of 8 rows of 16 bytes from Shared memory into registers.

    Lane l gives the address ``source`` of row l%8 of matrix l/8; where there are fewer than 4 matrices, the addresses of the last lanes are
    not used. A lane gets 32 bits of each matrix: of row l/4, or of column l/4 if ``transpose`` (16-bit elements only). Its registers
    are ``out``, those of one matrix after those of another (:func:`taskfuse.ir.fragments.matrices`).

    Attributes:
        matrices: 1, 2 or 4.
    """

    out: Written
    source: Access
    matrices: int = 4
    transpose: bool = False


@dataclass(frozen=True, slots=True)
class StMatrix(Writer):
    """``stmatrix``: a warp stores matrices of 8 rows of 16 bytes from registers to Shared memory; the inverse of :class:`LdMatrix`.

    Lane l gives the address ``out`` of row l%8 of matrix l/8. For 16-bit elements, it holds of row l/4 (of column l/4 if ``transpose``)
    of matrix i the elements 2*(l%4) and +1 in registers ``source + 2*i`` and ``+ 1``.

    Attributes:
        matrices: 1, 2 or 4.
    """

    out: Written
    source: Access
    matrices: int = 4
    transpose: bool = False


@dataclass(frozen=True, slots=True)
class Shuffle(Writer):
    """``shfl.sync.bfly``: ``out`` = what the lane whose number is ``lane ^ mask`` holds in ``source``; all 32 lanes of a warp execute it together.

    Attributes:
        out, source: registers of one dtype; they may be the same.
        mask: what the numbers of the two lanes differ by: 1, 2, 4, 8 or 16.
    """

    FORM: ClassVar[str] = "SHUFFLE {out} <- {source} xor {mask}"
    out: Written
    source: Access
    mask: int


@dataclass(frozen=True, slots=True)
class FenceProxyAsync(Located):
    """``fence.proxy.async``: orders this thread's accesses to Shared or Global memory before later ones through the asynchronous proxy.

    Attributes:
        memory: Shared (``.shared::cta``) or Global (``.global``): a fence covers one of them alone.
    """

    FORM: ClassVar[str] = "FENCE {memory}"
    memory: MemoryType = MemoryType.Shared


@dataclass(frozen=True, slots=True)
class SetMaxNReg(Located):
    """``setmaxnreg``: this warpgroup's register budget per thread from here on. More than it had: once others have given so many back."""

    FORM: ClassVar[str] = "SETMAXNREG {registers}"
    registers: int


Stmt = (
    For
    | Bind
    | If
    | Compute
    | Choose
    | Gather
    | VectorCopy
    | AsyncCopy
    | Barrier
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
    | TmaLoad
    | TmaStore
    | Commit
    | WaitGroup
    | WgmmaFence
    | Wgmma
    | Mma
    | LdMatrix
    | StMatrix
    | Shuffle
    | FenceProxyAsync
    | SetMaxNReg
)

Dim3 = tuple[Expr, Expr, Expr]
ALWAYS = TRUE
