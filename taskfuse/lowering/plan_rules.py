"""The rules of a plan, which hold after every step that leaves one.

- Every index is in scope: a loop variable is used inside its loop, and a local index by code of its own task.
- A guard that encloses code of many statements is the same for all threads that reach it: no wait and no barrier may stand under
  a condition on the thread.
- A cursor is initialized before the code that uses or advances it, in the same block or in one around it.
"""

from __future__ import annotations

from collections.abc import Iterable

from taskfuse.errors import VerifyError
from taskfuse.ir.scalar import Expr
from taskfuse.ir.tasks import Task
from taskfuse.ir.types import INDEX_TYPES, THREAD_TYPES
from taskfuse.kir import walk
from taskfuse.kir.synchronization import Advance, Cursor, CursorInit
from taskfuse.kir.walk import expressions
from taskfuse.lowering.plan import PBind, PDispatch, PGuard, PLoop, PNode, PScope, PStmt, PSync, base_name, children, is_base, item_name

_THREADS = frozenset(p.index_name for p in THREAD_TYPES)


def verify_plan(plan: list[PNode], step: str) -> None:
    """Check the rules. Raises :class:`VerifyError`, which names the ``step`` that broke one."""
    nodes = _all(plan)
    loops = frozenset(n.var for n in nodes if isinstance(n, PLoop))
    cursors = {s.name for n in nodes if isinstance(n, PSync) for s in walk(n.stmts) if isinstance(s, CursorInit)}
    _Rules(step, loops, {symbol: name for name in cursors for symbol in Cursor(name).symbols}, cursors).block(plan, frozenset(), set())


def _all(nodes: list[PNode]) -> list[PNode]:
    """All nodes of a plan, in no order that counts."""
    found = list(nodes)
    for n in found:  # grows as the blocks inside are found
        for block in children(n):
            found += block
    return found


class _Rules:
    def __init__(self, step: str, loops: frozenset[str], parts: dict[str, str], cursors: set[str]) -> None:
        self._step = step
        self._loops = loops
        self._parts = parts
        self._cursors = cursors
        self._own: dict[Task, frozenset[str]] = {}

    def block(self, nodes: list[PNode], around: frozenset[str], ready: set[str]) -> None:
        """Check a block inside loops, with the cursors initialized before it; those that it initializes are ready until its end."""
        ready = set(ready)
        for n in nodes:
            match n:
                case PStmt():
                    self._uses((*expressions(n.stmt), *n.guards), around, ready, n.task, f"code of {n.tv.name}")
                case PSync():
                    self._sync(n, around, ready)
                case PLoop():
                    self._uses((n.extent,), around, ready, None, f"the loop over {n.var}")
                    self.block(n.body, around | {n.var, item_name(n.var)}, ready)
                case PBind():
                    self._uses((n.extent,), around, ready, None, f"the loop over {n.index}")
                    self.block(n.body, around, ready)
                case PGuard():
                    self._guard(n)
                    self._uses((n.cond,), around, ready, None, f"the guard {n.cond}")
                    self.block(n.body, around, ready)
                case PScope():
                    self.block(n.body, around, ready)
                case PDispatch():
                    for member in n.members:
                        self.block(member.body, around, ready)

    def _sync(self, n: PSync, around: frozenset[str], ready: set[str]) -> None:
        for s in walk(n.stmts):
            if isinstance(s, Advance) and s.cursor in self._cursors and s.cursor not in ready:
                raise self._broken(f"{s.cursor} is advanced before it is initialized")
            self._uses(expressions(s), around, ready, None, "a wait or an arrival")
            if isinstance(s, CursorInit):
                ready.add(s.name)

    def _guard(self, n: PGuard) -> None:
        own = sorted(name for name in n.cond.free if name in _THREADS or is_base(name))
        if own and any(isinstance(inner, PSync) for inner in _all(n.body)):
            raise self._broken(f"a wait or a barrier stands under {n.cond}, which depends on {own[0]}")

    def _uses(self, expressions: Iterable[Expr], around: frozenset[str], ready: set[str], task: Task | None, what: str) -> None:
        names = frozenset[str]().union(*(e.free for e in expressions))
        for name in names & self._loops - around:
            raise self._broken(f"{what} uses {name} outside its loop")
        for name in names & self._parts.keys():
            if self._parts[name] not in ready:
                raise self._broken(f"{what} uses {name} before the cursor is initialized")
        if task is not None:
            for name in names - self._indices(task):
                if is_base(name):
                    raise self._broken(f"{what} in task {task.name} uses {name}, a local index of another task")

    def _indices(self, task: Task) -> frozenset[str]:
        """The local indices of a task."""
        found = self._own.get(task)
        if found is None:
            found = self._own[task] = frozenset(base_name(p, task) for p in INDEX_TYPES)
        return found

    def _broken(self, reason: str) -> VerifyError:
        help = "this is a fault of lowering, not of the schedule: report it with the fusion's text"
        return VerifyError(reason=f"plan after step {self._step}: {reason}", help=help)
