"""Kernel IR: the lowered loop nest.

A kernel is the program of every thread of a launch, as a tree of statements over explicit storage. All synchronization is explicit:
barriers, mbarrier waits and arrivals, cursors (slot and parity of a ring), commits of asynchronous queues and waits for them. The simulator,
the checker and the CUDA printer use nothing else. docs/kernel-ir.md has the grammar of the printed form.

This module has control flow, computations, copies, and :data:`Stmt`, the closed set of all statements. FORM describes the line of a statement: fields in
braces, and in brackets the parts that are omitted if their fields have defaults (:mod:`taskfuse.kir.forms`). Statements without FORM have their own printer and
parser.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from taskfuse.dtypes import DType
from taskfuse.ir.combine import Combine
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.scalar import TRUE, Expr
from taskfuse.ir.types import ParallelType
from taskfuse.kir.operands import Access, BarrierSlot, ChoiceCase, GatherValue, Located, MapName, Operand, Updated, WritingStmt, Written
from taskfuse.kir.products import WarpStmt
from taskfuse.kir.synchronization import SyncStmt


@dataclass(frozen=True, slots=True)
class For(Located):
    """``for var = start; var < stop; var += step``.

    Attributes:
        unroll: the body is copied, so that ``var`` is a constant in each copy.
        queue: ``var`` takes only the numbers that the block claims from a queue (:class:`~taskfuse.kir.declarations.WorkQueue`); ``None``: all numbers.
    """

    var: str
    start: Expr
    stop: Expr
    step: Expr
    unroll: bool
    body: tuple[Stmt, ...]
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class Bind(Located):
    """A loop without code: ``index`` (of a block or thread type) takes ``extent`` values in parallel. It is not a guard."""

    index: Expr
    ptype: ParallelType
    extent: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """One arm of an :class:`If`; ``label`` names its node (task or group)."""

    cond: Expr
    body: tuple[Stmt, ...]
    label: str | None = None


@dataclass(frozen=True, slots=True)
class If(Located):
    """An if / else-if chain; at most the first arm whose condition holds runs. ``note``: what it dispatches; printed above it."""

    branches: tuple[Branch, ...]
    note: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Compute(WritingStmt):
    """``out = op(operands)``: operands are converted to ``dtype``, the op runs in it, the result is converted to ``out``'s dtype."""

    out: Written
    op: Elementwise
    operands: tuple[Operand, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Choose(WritingStmt):
    """``out`` = the operand of the first case whose condition holds (no other operand is read); some condition always holds. ``label`` is its printed name."""

    out: Written
    label: str
    cases: tuple[ChoiceCase, ...]


@dataclass(frozen=True, slots=True)
class GatherCopy(WritingStmt):
    """``width`` elements, consecutive along the last index of both sides, copied from an index that depends on data.

    The symbols are defined only in ``source``. Where one of them is outside its ``[0, extent)``, zeros are written and ``source`` is not
    read. Nothing is converted. Several elements are moved by one instruction, both addresses aligned to its size.
    """

    FORM: ClassVar[str] = "GATHER {out} <- {source}[ width {width}] at {values}"
    out: Written
    source: Access
    values: tuple[GatherValue, ...]
    width: int = 1


@dataclass(frozen=True, slots=True)
class AtomicUpdate(WritingStmt):
    """An element in Global memory, combined in place with ``source`` by one atomic operation (PTX ISA, "red").

    The symbols are defined only in ``out``. Where one of them is outside its ``[0, extent)``, nothing is updated. The update orders no other access.
    Several elements, consecutive along the last index of both sides, are updated by one instruction, each of them atomically ("red", ``.vec_32_bit``).
    """

    FORM: ClassVar[str] = "UPDATE {out} by {combine} of {source}[ width {width}][ at {values}]"
    out: Updated
    combine: Combine
    source: Access
    values: tuple[GatherValue, ...] = ()
    width: int = 1


@dataclass(frozen=True, slots=True)
class VectorCopy(WritingStmt):
    """``width`` elements, consecutive along the last index of both sides, copied by one instruction; both addresses aligned to its size."""

    FORM: ClassVar[str] = "COPY {out} <- {source} width {width}"
    out: Written
    source: Access
    width: int


@dataclass(frozen=True, slots=True)
class AsyncCopy(WritingStmt):
    """``width`` elements from Global to Shared memory (``cp.async``), done at any later time, in the generic proxy (PTX ISA, "cp.async").

    The copy is done before the executing thread's wait_group of its batch (:attr:`Queue.COPY`) ends, and before the arrival that the thread's next
    :class:`ArriveAsync` starts. Nothing else waits for it, and two copies are unordered.

    Attributes:
        out, source: the first of consecutive elements along the last index; both addresses aligned to the size of the copy.
        width: elements; 4, 8 or 16 bytes.
        valid: where it is false, zeros are written and ``source`` is not read.
    """

    FORM: ClassVar[str] = "COPY.async {out} <- {source} width {width}[ if {valid}]"
    out: Written
    source: Access
    width: int
    valid: Expr = TRUE


@dataclass(frozen=True, slots=True)
class TmaLoad(WritingStmt):
    """Copy a box from Global to Shared, issued by each executing thread, done by the copy engine at any later time.

    The box at ``coords`` (outermost axis first; elements outside the tensor read 0) is written row-major at ``out`` under the map's
    swizzle; then ``barrier``'s pending bytes decrease by the bytes of the full box.

    Attributes:
        across: cluster types, in the order x, y, z: the box is written at the same offset of Shared memory, and its bytes are subtracted at the same
            mbarrier, in every block of the cluster whose index differs from the issuer's only on these types, at an independent time in each
            (PTX ISA, "cp.async.bulk.tensor", ``.multicast::cluster``).
    """

    FORM: ClassVar[str] = "TMA {out} <- {map}{coords} on {barrier}[ across {across}]"
    out: Written
    map: MapName
    coords: tuple[Expr, ...]
    barrier: BarrierSlot
    across: tuple[ParallelType, ...] = ()


@dataclass(frozen=True, slots=True)
class TmaStore(WritingStmt):
    """Copy a box from Shared to Global (clipped), done by the copy engine at any time before the issuing thread's matching wait_group.

    Attributes:
        combine: each element is combined in place with the one in the box, by an atomic operation of its own ("cp.reduce.async.bulk.tensor"); ``None``: stored.
    """

    FORM: ClassVar[str] = "TMA {map}{coords} <- {source}[ by {combine}]"
    map: MapName
    coords: tuple[Expr, ...]
    source: Access
    combine: Combine | None = None


Stmt = For | Bind | If | Compute | Choose | GatherCopy | AtomicUpdate | VectorCopy | AsyncCopy | TmaLoad | TmaStore | WarpStmt | SyncStmt
"""The closed set of all statements."""
