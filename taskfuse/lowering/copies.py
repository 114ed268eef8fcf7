"""Asynchronous copies that stay inside one role: each thread waits for its own before anybody reads what they wrote.

A thread's ``cp.async`` are done when it has retired them (PTX ISA, "cp.async.wait_group"), and then they are writes of the thread: the barrier
that orders the data for other threads must come after. So the retire stands right behind the copies, in the innermost block that also
holds a reader; copies next to each other share one. Copies into a channel need none: an arrival waits for them. Those that fill a ring ahead
are retired some trips later (:mod:`taskfuse.lowering.ahead`).
"""

from __future__ import annotations

from taskfuse.kir.nodes import Commit, Queue, Retire
from taskfuse.lowering.ahead import Ahead, copies_again
from taskfuse.lowering.channels import Channels, has_copies_of_threads
from taskfuse.lowering.plan import PNode, PStmt, PSync, children, statements

RETIRE_COPIES = (Commit(Queue.COPY), Retire(Queue.COPY, 0))
"""All copies that the thread has issued are done."""


def retire_copies(plan: list[PNode], channels: Channels, ahead: list[Ahead]) -> None:
    """Put a retire behind the asynchronous copies of the plan that go through no channel, and are not those of ``ahead``."""
    pending = {tv for a in ahead for tv in a.tensors}
    for copy in [s for s in statements(plan) if has_copies_of_threads(s.tv) and channels.channel(s.tv) is None and s.tv not in pending]:
        block, k = _place(_path(plan, copy), copy)
        if _is_retire(block, k + 1):
            continue
        block.insert(k + 1, PSync(RETIRE_COPIES))
        if _is_retire(block, k - 1) and not _reads([block[k]], {a.buffer for s in statements([block[k - 2]]) for a in s.writes}):
            del block[k - 1]


def _is_retire(block: list[PNode], k: int) -> bool:
    return 0 <= k < len(block) and isinstance(n := block[k], PSync) and n.stmts == RETIRE_COPIES


def _path(nodes: list[PNode], copy: PStmt) -> list[tuple[list[PNode], int]]:
    """The blocks around a statement, outermost first, and the place in each of what holds it."""
    for k, n in enumerate(nodes):
        if n is copy:
            return [(nodes, k)]
        for block in children(n):
            inner = _path(block, copy)
            if inner:
                return [(nodes, k), *inner]
    return []


def _place(path: list[tuple[list[PNode], int]], copy: PStmt) -> tuple[list[PNode], int]:
    """The innermost block with a reader of what a copy writes behind the copy; the copy's own block if nobody reads it.

    It is inside of loops that copy the same elements again: two copies to one element must not be in flight.
    """
    written = {a.buffer for a in copy.writes}
    inner = path[-1]
    for block, k in reversed(path):
        if copies_again(block[k], copy):
            return inner
        if _reads(block[k + 1 :], written):
            return block, k
        inner = block, k
    return path[-1]


def _reads(nodes: list[PNode], buffers: set[str]) -> bool:
    return any(a.buffer in buffers for s in statements(nodes) for a in s.reads)
