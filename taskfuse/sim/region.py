"""The layout of a buffer or tensor argument."""

from __future__ import annotations

import math

from taskfuse.dtypes import DType
from taskfuse.ir.types import MemoryType


class Region:
    """A buffer or tensor argument as laid out for one launch.

    Attributes:
        strides: elements from one index to the next, per axis; ``elements``: their number.
        origin: byte address in Shared memory, else 0.
        threads: threads of a block for Local memory, else 0.
        start: index of the first element in the store; ``step``: from one element (of one thread) to the next.
        array: number of the region that owns the elements: itself, or the input into which an output is written.
        is_constant: an input that no statement writes.
    """

    __slots__ = ("array", "dtype", "elements", "is_constant", "is_input", "memory", "name", "number", "origin", "shape", "start", "step", "strides", "threads")

    def __init__(
        self,
        name: str,
        number: int,
        dtype: DType,
        memory: MemoryType,
        shape: tuple[int, ...],
        *,
        origin: int = 0,
        threads: int = 0,
        unit: int = 1,
        is_input: bool = False,
    ) -> None:
        self.name = name
        self.number = number
        self.dtype = dtype
        self.memory = memory
        self.shape = shape
        self.strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
        self.elements = math.prod(shape)
        self.origin = origin
        self.threads = threads
        self.start = origin // dtype.itemsize * unit
        self.step = threads or unit
        self.is_input = is_input
        self.array = number
        self.is_constant = is_input

    def __str__(self) -> str:
        kind = "input" if self.is_input else self.memory.value
        return f"{kind} '{self.name}'"
