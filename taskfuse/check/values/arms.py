"""Arms of one chain: of two statements in different ones, the text does not say which one is executed first.

Threads that take different arms execute them at the same time; only waits order them, in either direction. If all threads that share a memory agree on
the arm, one iteration has only one of the two.
"""

from __future__ import annotations

from taskfuse.check.statement_tree import BLOCKS, THREADS, Node, cursor_of
from taskfuse.ir.medium import MEDIA, Reach
from taskfuse.ir.types import MemoryType


def in_concurrent_arm(a: Node, b: Node, memory: MemoryType) -> bool:
    """True if two statements stand in different arms of one chain, and threads that share a memory may take both in one iteration of the loops around it.

    They do not if all agree on what the first arm asks and the second does not. Otherwise the order of the text says nothing of the two.

    Args:
        memory: registers are a thread's own, so no other thread shares them.
    """
    if MEDIA[memory].is_private or not in_other_arm(a, b):
        return False
    first, second = next((x, y) for x, y in zip(a.path, b.path, strict=False) if x is not y)
    if first.number > second.number:
        first, second = second, first
    own = THREADS | BLOCKS if MEDIA[memory].reach is not Reach.BLOCK else THREADS
    theirs = set(second.conditions)
    return any(not c.free.isdisjoint(own) or any(cursor_of(n) for n in c.free) for c in first.conditions if c not in theirs)


def in_other_arm(a: Node, b: Node) -> bool:
    """True if two statements stand in different arms of one chain."""
    for x, y in zip(a.path, b.path, strict=False):
        if x.block is not y.block:
            return True
        if x is not y:
            return False
    return False
