"""Fault operators on accumulators that several statements read: set anew, or given terms a second time, in front of one of their readers."""

from __future__ import annotations

from collections.abc import Iterator

from taskfuse.kir import Kernel, bodies, held, walk
from taskfuse.kir.nodes import Compute, For, Stmt
from taskfuse.kir.operands import Access, Content
from taskfuse.testing.mutations import Mutants, Operator, at
from taskfuse.testing.value_edits import writers


def _holders(kernel: Kernel, content: Content) -> Iterator[Compute]:
    """The statements that leave such a content in an accumulator."""
    for s in writers(kernel):
        holds = held(s)
        if isinstance(s, Compute) and holds is not None and holds.content is content:
            yield s


def _readers(kernel: Kernel, buffer: str) -> Iterator[Stmt]:
    """The statements that read an accumulator into something else."""
    for s in writers(kernel):
        if isinstance(s, Compute) and s.out.buffer != buffer and any(isinstance(o, Access) and o.buffer == buffer for o in s.operands):
            yield s


def _set_anew(kernel: Kernel) -> Mutants:
    for start in _holders(kernel, Content.START):
        for reader in _readers(kernel, start.out.buffer):
            yield at(kernel, reader, (start, reader))


def _taken_again(kernel: Kernel) -> Mutants:
    """The innermost loop that takes terms, again."""
    for term in _holders(kernel, Content.TERM):
        loop = next((s for s in walk(kernel) if isinstance(s, For) and any(t is term for b in bodies(s) for t in b)), term)
        for reader in _readers(kernel, term.out.buffer):
            yield at(kernel, reader, (loop, reader))


ACCUMULATOR_OPERATORS = (
    Operator("accumulator set anew before a reader", _set_anew),
    Operator("terms taken again before a reader", _taken_again),
)
"""Every operator on accumulators."""
