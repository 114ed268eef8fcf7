"""Reads of an array that the kernel writes in place, before what the threads of a block wait for.

Schedules load an input before its first use. Where all threads of a block read an element that one of them overwrites (a running mean, by the threads that
normalize with the new one), nothing then orders the reads of the others before that write. Ahead of the sums of the block, its barriers do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from taskfuse.ir.medium import MEDIA
from taskfuse.kir import Kernel, accesses, bodies, walk, with_bodies
from taskfuse.kir.nodes import Compute, For, If, Stmt, VectorCopy

Body = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class ReadEarly:
    """Begin each list of statements with its reads of some arrays into registers.

    Requires: a verified kernel that writes to the arrays of ``sources``, if at all, behind all that reads them. Ensures: the same values: what moves reads
    inputs alone, and writes registers that nothing before it accesses.

    Attributes:
        sources: the names of inputs.
    """

    name: ClassVar[str] = "read-early"
    sources: frozenset[str]

    def run(self, kernel: Kernel) -> Kernel:
        """The kernel with early reads."""
        registers = {b.name for b in kernel.buffers if MEDIA[b.memory].is_private}
        inputs = {p.name for p in kernel.inputs}
        return replace(kernel, body=self._body(kernel.body, registers, inputs))

    def _body(self, body: Body, registers: set[str], inputs: set[str]) -> Body:
        accessed: set[str] = set()
        first, rest = list[Stmt](), list[Stmt]()
        for stmt in body:
            reads, writes = _buffers(stmt)
            if (
                reads & self.sources
                and reads <= inputs
                and writes <= registers - accessed
                and all(isinstance(s, For | If | Compute | VectorCopy) for s in walk(stmt))
            ):
                first.append(stmt)
            else:
                rest.append(with_bodies(stmt, tuple(self._body(inner, registers, inputs) for inner in bodies(stmt))))
            accessed |= reads | writes
        return tuple(first + rest)


def _buffers(stmt: Stmt) -> tuple[set[str], set[str]]:
    """The buffers that a statement and those inside it read, and those that they write."""
    each: Iterable[tuple[Iterable[str], Iterable[str]]] = (
        ([a.buffer for a in read], [a.buffer for a in written]) for written, read in map(accesses, walk(stmt))
    )
    reads, writes = set[str](), set[str]()
    for read, written in each:
        reads.update(read)
        writes.update(written)
    return reads, writes
