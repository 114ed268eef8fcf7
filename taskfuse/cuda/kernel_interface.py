"""The interface of a kernel: the part of it that launches need. A kernel read from disk has one before its body is parsed; most processes never parse it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from taskfuse.cuda.layout import vector_bytes_of
from taskfuse.cuda.ranges import INT64, coordinates_fit, dense, fits, sizes
from taskfuse.ir.offsets import lengths_name
from taskfuse.ir.scalar import lookups_of
from taskfuse.kir import Kernel, accesses, expressions, parse_head, parse_kernel, to_text, walk
from taskfuse.kir.declarations import TensorMapParam, TensorParam
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, GatherCopy, VectorCopy
from taskfuse.kir.variant import Variant

if TYPE_CHECKING:
    from taskfuse.cuda.nvrtc import Binary, CompileOptions
    from taskfuse.cuda.signature import Source


@dataclass(frozen=True, slots=True, eq=False)
class KernelInterface:
    """The part of a kernel that launches need.

    Attributes:
        head: the kernel, possibly without its memory, barriers and body: what a launch needs of it.
        text: its whole text, the witness included, which identifies it.
        accessed: the tensors that threads access directly, tables among them.
        vectors: alignment in bytes of each tensor's address for vectors and asynchronous copies.
        small: 32-bit integers hold all indices if no extent is greater; ``None``: the body is asked for each launch.
        whole: the kernel with its body.
        texts: what :func:`taskfuse.cuda.emitted.emitted` made of it, by variant and ``fast_math``.
        binaries: machine code that came with it (:mod:`taskfuse.cuda.carried_code`), by variant and options.
    """

    head: Kernel
    text: str
    accessed: frozenset[str]
    vectors: Mapping[str, int]
    small: int | None
    whole: Callable[[], Kernel]
    texts: dict[tuple[Variant, bool], Source] = field(default_factory=dict[tuple[Variant, bool], "Source"], repr=False)
    binaries: dict[tuple[Variant, CompileOptions], Binary] = field(default_factory=dict[tuple[Variant, "CompileOptions"], "Binary"], repr=False)
    _dense: list[Variant] = field(default_factory=list[Variant], repr=False)

    @property
    def dense(self) -> Variant:
        """See :func:`taskfuse.cuda.ranges.dense`."""
        if not self._dense:
            self._dense.append(dense(self.whole()))
        return self._dense[0]

    @property
    def touched(self) -> frozenset[str]:
        """The tensors that the kernel reads or writes, also through tensor maps."""
        return self.accessed.union(p.tensor for p in self.head.params if isinstance(p, TensorMapParam))

    def fits(self, symbols: Mapping[str, int]) -> bool:
        """Whether 32-bit integers hold all indices of a launch."""
        if self.small is not None and all(symbols[name] <= self.small for name in sizes(self.head)):
            return True
        return fits(self.whole(), symbols)

    def fits_long(self, symbols: Mapping[str, int]) -> bool:
        """Whether 64-bit integers do."""
        return fits(self.whole(), symbols, INT64)

    def reaches_boxes(self, symbols: Mapping[str, int]) -> bool:
        """Whether 32-bit integers hold all coordinates of bulk copies."""
        return coordinates_fit(self.whole(), symbols)


def interface_of(kernel: Kernel) -> KernelInterface:
    """The interface of a kernel in memory."""
    return KernelInterface(kernel, to_text(kernel, witness=True), accessed_by_threads(kernel), _vectors(kernel), None, lambda: kernel)


def interface_from_text(text: str, accessed: Iterable[str], vectors: Mapping[str, int], small: int | None, head: Kernel | None = None) -> KernelInterface:
    """The interface of a kernel that is a text, whose body is parsed on demand.

    Args:
        head: what :func:`taskfuse.kir.parse_head` finds in the text, if it is known.

    Raises:
        ParseError: its head has another form.
    """
    return KernelInterface(head or parse_head(text), text, frozenset(accessed), vectors, small, cache(lambda: parse_kernel(text)))


def accessed_by_threads(kernel: Kernel) -> frozenset[str]:
    """The tensors and buffers that threads access: operands, tables in expressions, and lengths whose offsets are such a table."""
    found = {a.buffer for s in walk(kernel) for side in accesses(s) for a in side}
    tables = {lookup.tensor.name for s in walk(kernel) for e in expressions(s) for lookup in lookups_of(e)}
    return frozenset(found | tables | {name for offsets in tables if (name := lengths_name(offsets)) is not None})


def _vectors(kernel: Kernel) -> dict[str, int]:
    itemsizes = {p.name: p.dtype.itemsize for p in kernel.params if isinstance(p, TensorParam)}
    found: dict[str, list[int]] = {}
    for stmt in walk(kernel):
        if isinstance(stmt, VectorCopy | AsyncCopy) or (isinstance(stmt, GatherCopy | AtomicUpdate) and stmt.width > 1):
            for access in (stmt.out, stmt.source):
                if access.buffer in itemsizes:
                    found.setdefault(access.buffer, []).append(stmt.width * itemsizes[access.buffer])
    return {name: vector_bytes_of(sizes) for name, sizes in found.items()}
