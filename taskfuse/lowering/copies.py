"""Asynchronous copies that stay inside one role: each thread waits for its own before any thread reads their elements.

A thread's ``cp.async`` are complete when it has waited for them (PTX ISA, "cp.async.wait_group"), and from then on they count as writes of the thread: the
barrier
that orders the data for other threads must come later. So the wait_group follows the copies, in the innermost block that also
contains a reader, or code that overwrites their source; adjacent copies share one. Copies into a channel need none: an arrival waits for
them. Copies that fill a ring ahead are waited for some trips later (:mod:`taskfuse.lowering.prefetch`).

Copies complete in any order. Guards let them write each element once, if the loops have a first index for it
(:mod:`taskfuse.lowering.guards`); in a loop that writes elements again each iteration has a wait_group.
"""

from __future__ import annotations

from itertools import pairwise

from taskfuse.lowering.channels import Channels
from taskfuse.lowering.completion import WAIT_FOR_COPIES, has_copies_of_threads
from taskfuse.lowering.indexing import Indexer
from taskfuse.lowering.plan import PLoop, PNode, PStmt, PSync, children, statements
from taskfuse.lowering.prefetch import Prefetch

_Place = tuple[list[PNode], int]
_Path = list[_Place]


def wait_for_copies(plan: list[PNode], indexer: Indexer, channels: Channels, ahead: list[Prefetch]) -> None:
    """Put a wait_group after the asynchronous copies of the plan that no arrival waits for, except those of ``ahead``."""
    pending = {tv for a in ahead for tv in a.tensors}
    for copy in [s for s in statements(plan) if has_copies_of_threads(s.tv) and s.tv not in pending]:
        path = _path(plan, copy)
        around = [_repeated(path, indexer.index_maps.of(copy.tv).again), _overwritten(path, copy)]
        places = [place for place in (*around, _read(path, copy) if channels.channel(copy.tv) is None else None) if place is not None]
        place = max(places, key=path.index, default=None)
        if place is None:
            continue
        block, k = place
        if _is_wait(block, k + 1):
            continue
        block.insert(k + 1, PSync(WAIT_FOR_COPIES, copy.tv))
        if _is_wait(block, k - 1) and not _touches(block, k):
            del block[k - 1]


def _touches(block: list[PNode], k: int) -> bool:
    """True if a node reads what copies write that are waited for just before it, or writes what they read."""
    first = next((j for j in range(k - 2, -1, -1) if _is_wait(block, j)), -1) + 1
    copies = [s for s in statements(block[first : k - 1]) if has_copies_of_threads(s.tv)]
    written, read = {a.buffer for s in copies for a in s.writes}, {a.buffer for s in copies for a in s.reads}
    return any(a.buffer in written for s in statements([block[k]]) for a in s.reads) or any(a.buffer in read for s in statements([block[k]]) for a in s.writes)


def _is_wait(block: list[PNode], k: int) -> bool:
    return 0 <= k < len(block) and isinstance(n := block[k], PSync) and n.stmts == WAIT_FOR_COPIES


def _path(nodes: list[PNode], copy: PStmt) -> _Path:
    """The blocks around a statement, outermost first, and the place in each of what holds it."""
    for k, n in enumerate(nodes):
        if n is copy:
            return [(nodes, k)]
        for block in children(n):
            inner = _path(block, copy)
            if inner:
                return [(nodes, k), *inner]
    return []


def _repeated(path: _Path, again: frozenset[str]) -> _Place | None:
    """The end of the innermost loop in which a copy writes elements again: two copies to one element must not be in flight."""
    return next((place for (block, k), place in reversed(list(pairwise(path))) if isinstance(loop := block[k], PLoop) and loop.var in again), None)


def _overwritten(path: _Path, copy: PStmt) -> _Place | None:
    """The innermost block in which what a copy reads is written: the copy is done before it is written again."""
    read = {a.buffer for a in copy.reads}
    return next(((block, k) for block, k in reversed(path) if any(a.buffer in read for s in statements(block) for a in s.writes)), None)


def _read(path: _Path, copy: PStmt) -> _Place:
    """The innermost block with a later reader of the elements that a copy writes; the copy's own block if it has no reader."""
    written = {a.buffer for a in copy.writes}
    return next(((block, k) for block, k in reversed(path) if _reads(block[k + 1 :], written)), path[-1])


def _reads(nodes: list[PNode], buffers: set[str]) -> bool:
    return any(a.buffer in buffers for s in statements(nodes) for a in s.reads)
