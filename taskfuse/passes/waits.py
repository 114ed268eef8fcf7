"""Waits for tensor cores: consecutive products of different tensors are in flight together, and each is waited for before its result is read.

Lowering waits for the result of each product: of two products in a row the second would start when the first is done, and the reader of the first would wait
for both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from taskfuse.kir import Kernel, accesses, bodies, map_stmts, walk, with_bodies
from taskfuse.kir.nodes import Bind, Choose, Compute, For, If, Stmt
from taskfuse.kir.operands import Access, Queue
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import Commit, WaitGroup, WgmmaFence
from taskfuse.target import MAX_PENDING

Body = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class JoinWaits:
    """Wait once for consecutive products, and as late as possible for the last of them.

    Requires: a verified kernel. Ensures: the same behavior: a wait for all products is removed if only other products stand between it and the next wait, and
    the next wait leaves the youngest products in flight up to the first statement that reads them or synchronizes.
    """

    name: ClassVar[str] = "join-waits"

    def run(self, kernel: Kernel) -> Kernel:
        """The kernel with fewer and later waits."""
        body = map_stmts(kernel.body, lambda s: replace(s) if isinstance(s, WaitGroup) else s)  # each is an object of its own
        found = _Waits()
        found.pass_body(body)
        dropped = {id(s) for s in found.dropped}
        return replace(kernel, body=found.late(map_stmts(body, lambda s: () if id(s) in dropped else s))) if dropped else kernel


@dataclass(frozen=True, slots=True)
class _Last:
    """The last products that a wait is for: how many batches they are, and their arrays in registers."""

    batches: int
    held: frozenset[str]


@dataclass(slots=True)
class _Waits:
    """The state of a walk over a body.

    Attributes:
        dropped: waits that are not needed.
        joined: by a wait before which others were dropped, the products since the last of these.
        last: the last wait for all products, if only products came behind it.
        done: the arrays in registers of products that it waits for.
        issued: those of products behind it.
        batches: how many of these are closed.
    """

    dropped: list[Stmt] = field(default_factory=list["Stmt"])
    joined: dict[int, _Last] = field(default_factory=dict[int, _Last])
    last: WaitGroup | None = None
    done: set[str] = field(default_factory=set[str])
    issued: set[str] = field(default_factory=set[str])
    batches: int = 0

    def pass_body(self, body: Body) -> None:
        """Visit statements in turn."""
        for stmt in body:
            self._pass(stmt)

    def _pass(self, stmt: Stmt) -> None:
        match stmt:
            case Wgmma():
                held = _held(stmt)
                if not held.isdisjoint(self.done):
                    self.last = None
                self.issued |= held
            case Commit(queue=Queue.WGMMA):
                self.batches += 1
            case WgmmaFence():
                pass
            case WaitGroup(queue=Queue.WGMMA, pending=0):
                if self.last is not None:
                    self.dropped.append(self.last)
                    self.joined[id(stmt)] = _Last(self.batches, frozenset(self.issued))
                else:
                    self.done = set()
                self.last, self.done, self.issued, self.batches = stmt, self.done | self.issued, set(), 0
            case Bind():
                self.pass_body(stmt.body)
            case For(unroll=True) if _multiplies(stmt.body):
                self.pass_body(stmt.body)
            case _:
                self.last = None
                for body in bodies(stmt):
                    self.pass_body(body)
                    self.last = None

    def late(self, body: Body) -> Body:
        """Statements whose joined waits leave the last products in flight until a later statement needs them."""
        found: list[Stmt] = []
        left = list(body)
        while left:
            stmt = left.pop(0)
            wait = _at_end(stmt)
            last = None if wait is None else self.joined.get(id(wait))
            if wait is None or last is None or not 0 < last.batches <= MAX_PENDING:
                found.append(with_bodies(stmt, tuple(map(self.late, bodies(stmt)))))
                continue
            ready = next((k for k, s in enumerate(left) if not _computes_apart(s, last.held)), len(left))
            if ready == 0:
                found.append(stmt)
                continue
            early = replace(wait, pending=last.batches)
            found += map_stmts((stmt,), lambda s, wait=wait, early=early: early if s is wait else s)
            found += left[:ready]
            left[:ready] = [replace(wait)]
        return tuple(found)


def _held(stmt: Wgmma) -> set[str]:
    return {a.buffer for a in (stmt.acc, stmt.a) if isinstance(a, Access)}


def _multiplies(body: Body) -> bool:
    """True for nothing but products."""
    return all(isinstance(s, Wgmma) or (isinstance(s, Bind | For) and _multiplies(s.body)) for s in body)


def _at_end(stmt: Stmt) -> WaitGroup | None:
    """The wait that a statement is, or ends with."""
    while isinstance(stmt, Bind) and stmt.body:
        stmt = stmt.body[-1]
    return stmt if isinstance(stmt, WaitGroup) else None


def _computes_apart(stmt: Stmt, held: frozenset[str]) -> bool:
    """True for what computes, and neither reads nor writes some arrays."""
    for s in walk(stmt):
        if not isinstance(s, Compute | Choose | Bind | For | If) or (isinstance(s, For) and not s.unroll):
            return False
        if any(a.buffer in held for side in accesses(s) for a in side):
            return False
    return True
