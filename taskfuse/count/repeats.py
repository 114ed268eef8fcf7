"""Statements of unrolled loops that do the same in every iteration, such as the load of a value of a row for each of its columns: compilers execute them once.

A statement changes with the iterations if an expression of it does, or if it reads registers that change. An element of a buffer in registers at the index of
the loop does not, if one such statement has made all elements of that buffer. Statements under a condition that changes are executed as often as it holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Expr
from taskfuse.kir import Kernel
from taskfuse.kir.nodes import Bind, Choose, Compute, For, GatherCopy, If, Stmt, VectorCopy
from taskfuse.kir.operands import Access
from taskfuse.kir.walk import accesses, all_accesses, expressions, walk


class Repeats:
    """What is known of the buffers of a kernel, whose loops are visited in order."""

    def __init__(self, kernel: Kernel) -> None:
        self._registers = {b.name for b in kernel.buffers if not MEDIA[b.memory].has_addresses}
        self._writers = Counter(a.buffer for s in walk(kernel) for a in accesses(s)[0])
        self._alike = set[str]()

    def of(self, loop: For) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
        """The statements of an unrolled loop that change with its iterations, and those that do not."""
        changing, same = list[Stmt](), list[Stmt]()
        written = {a.buffer for s in loop.body for t in walk(s) for a in accesses(t)[0]}
        read, made = set[str](), set[str]()
        for stmt in loop.body:
            if all(self._is_same(t, loop.var, written - made, read) for t in walk(stmt)):
                made |= {a.buffer for t in walk(stmt) for a in accesses(t)[0]}
                same.append(stmt)
            else:
                changing.append(stmt)
            read |= {a.buffer for t in walk(stmt) for a in accesses(t)[1]}
        self._alike |= made
        return tuple(changing), tuple(same)

    def _is_same(self, stmt: Stmt, var: str, changing: set[str], read: set[str]) -> bool:
        """Whether a statement does not change with a variable.

        Args:
            changing: buffers that statements write which do.
            read: buffers that were read before it, so that what it leaves in them is of the next iteration.
        """
        if not isinstance(stmt, For | If | Bind | Compute | Choose | VectorCopy | GatherCopy) or any(var in e.free for e in self._expressions(stmt)):
            return False
        outs, sources = accesses(stmt)
        if any(a.buffer not in self._registers or self._writers[a.buffer] > 1 or a.buffer in read for a in outs):
            return False
        own = [a for a in sources if a.buffer in self._registers]
        return all(a.buffer not in changing and (a.buffer in self._alike or not _has(a, var)) for a in own)

    def _expressions(self, stmt: Stmt) -> Iterator[Expr]:
        """The expressions of a statement without those that name registers."""
        names = Counter(id(e) for a in all_accesses(stmt) if a.buffer in self._registers for e in a.index)
        for e in expressions(stmt):
            if names[id(e)] > 0:
                names[id(e)] -= 1
            else:
                yield e


def _has(access: Access, var: str) -> bool:
    return any(var in e.free for e in access.index)
