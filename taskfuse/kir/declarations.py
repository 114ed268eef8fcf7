"""Declarations of a kernel: its arguments, storage, barriers and launch shape. Extents are dimensions (:mod:`taskfuse.ir.dims`)."""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.dtypes import DType, int64
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.offsets import offsets_name
from taskfuse.ir.scalar import ONE, ZERO, Expr, const
from taskfuse.ir.types import MemoryType, PlaceSearch


@dataclass(frozen=True, slots=True)
class TensorParam:
    """A tensor argument in Global memory, indexed by one expression per axis; any strides.

    Attributes:
        into: of an output: the input into whose array it is written; ``None``: it has its own array.
        rises: of a table: the promise that no element is less than its predecessor, with the first and the last element; ``None``: no promise.
        search: of a table: how to search it; of lengths: how to search their offsets.
        holds: of a table: the promise that element ``i0`` equals this expression over other tables; ``None``: no promise.
        lengths: of a table: the elements are lengths of groups, and this is their sum, to which their offsets (:attr:`offsets`) rise; promises that no length
            is
            negative. ``None``: the elements are not lengths.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    is_output: bool
    into: str | None = None
    rises: tuple[Expr, Expr] | None = None
    search: PlaceSearch = PlaceSearch.BISECTION
    holds: Expr | None = None
    lengths: Expr | None = None

    @property
    def offsets(self) -> TensorParam | None:
        """The offsets of the groups with these lengths (:mod:`taskfuse.ir.offsets`), which callers do not pass; ``None``: the elements are not lengths."""
        if self.lengths is None:
            return None
        return TensorParam(offsets_name(self.name), int64, (self.shape[0] + ONE,), False, rises=(ZERO, self.lengths), search=self.search)


@dataclass(frozen=True, slots=True)
class ScalarParam:
    """A run-time scalar argument; read as :class:`ScalarValue`."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class IntegerParam:
    """An integer argument that gives the extent of its name a value."""

    name: str


@dataclass(frozen=True, slots=True)
class TensorMapParam:
    """A TMA descriptor of a tensor argument.

    Attributes:
        tensor: name of the tensor argument.
        box: elements per axis of one transfer, outermost axis first.
        swizzle: 0, 32, 64 or 128: bytes of the Shared-memory swizzle span.
        steps: elements from one element of a transfer to the next along each axis of the tensor, 1 along the innermost; empty: 1 along each.
    """

    name: str
    tensor: str
    box: tuple[int, ...]
    swizzle: int
    steps: tuple[int, ...] = ()

    @property
    def step(self) -> tuple[int, ...]:
        """Elements from one element of a transfer to the next, along each axis."""
        return self.steps or (1,) * len(self.box)


Param = TensorParam | ScalarParam | IntegerParam | TensorMapParam
Argument = TensorParam | ScalarParam | IntegerParam


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage inside the kernel: Local (one copy per thread), Shared (per block), Cluster (per cluster, distributed over its blocks, with the block's rank as
    first axis) or Global workspace (per launch); row-major.

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

    @property
    def extents_of_block(self) -> tuple[Expr, ...]:
        """The extents of one block's part of a buffer by rank; of any other buffer, its shape."""
        return self.shape[1:] if MEDIA[self.memory].is_by_rank else self.shape

    @property
    def bytes_of_block(self) -> Expr:
        """The bytes of one copy; of a buffer by rank, the bytes of one block's part."""
        total: Expr = const(self.dtype.itemsize)
        for e in self.extents_of_block:
            total = total * e
        return total


@dataclass(frozen=True, slots=True)
class Mbarrier:
    """An array of ``slots`` mbarriers in Shared memory."""

    name: str
    slots: int


@dataclass(frozen=True, slots=True)
class Counter:
    """A monotonic counter in Global memory for grid barriers, zero before the first launch."""

    name: str


@dataclass(frozen=True, slots=True)
class Semaphore:
    """An array of monotonic counters in Global memory, zero when the launch begins: barriers for some blocks of the grid.

    ``count`` releases complete a phase. Unlike an mbarrier's, the phases are numbered and never restart: a wait names the number of phases that must be
    complete.

    Attributes:
        shape: extents, known at launch.
        count: releases per phase, known at launch.
    """

    name: str
    shape: tuple[Expr, ...]
    count: Expr


@dataclass(frozen=True, slots=True)
class WorkQueue:
    """Numbers of work items from 0 to ``size`` - 1. A block claims the next number when it first asks for one; the numbers of a block rise.

    All threads of a block that loop over a queue visit the block's numbers, at their own pace.
    """

    name: str
    size: Expr


CLAIM_BYTES = 4
"""Bytes of Shared memory for each number that a block may claim, and for the count of claimed numbers."""

OFFSET_BYTES = int64.itemsize
"""Bytes of Shared memory for each offset that a block computes from lengths."""

Dim3 = tuple[Expr, Expr, Expr]
