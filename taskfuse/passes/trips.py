"""Loops of one trip: their body, with the variable's value in its place.

Splits leave axes of extent 1, and lowering makes a loop of every axis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from taskfuse.ir.scalar import FALSE, Const, Expr, substitute
from taskfuse.kir import Kernel, bodies, map_expressions, with_bodies
from taskfuse.kir.nodes import Choose, For, If, Stmt

Body = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class DropSingleTrips:
    """Replace a loop that runs exactly once by its body.

    Requires: a verified kernel. Ensures: the same behavior without loops that are known to run exactly once, and without arms and cases that the variable's
    value rules out: their constant indices may be out of bounds.
    """

    name: ClassVar[str] = "drop-single-trips"

    def run(self, kernel: Kernel) -> Kernel:
        """The kernel without loops of one trip."""
        return replace(kernel, body=_body(kernel.body, {}))


def _body(body: Body, known: dict[str, Expr]) -> Body:
    found: list[Stmt] = []
    for stmt in body:
        if known:
            stmt = _possible(map_expressions(stmt, lambda e: substitute(e, known) if not e.free.isdisjoint(known) else e))
        if (isinstance(stmt, If) and not stmt.branches) or (isinstance(stmt, Choose) and not stmt.cases):
            continue
        if isinstance(stmt, For) and _runs_once(stmt):
            found += _body(stmt.body, {**known, stmt.var: stmt.start})
        else:
            found.append(with_bodies(stmt, tuple(_body(b, known) for b in bodies(stmt))))
    return tuple(found)


def _possible(stmt: Stmt) -> Stmt:
    """A statement without the arms and cases that are never taken."""
    match stmt:
        case If():
            return replace(stmt, branches=tuple(b for b in stmt.branches if b.cond is not FALSE))
        case Choose():
            return replace(stmt, cases=tuple(c for c in stmt.cases if c.cond is not FALSE))
        case _:
            return stmt


def _runs_once(loop: For) -> bool:
    match loop:
        case For(start=Const(value=start), stop=Const(value=stop), step=Const(value=step), queue=None):
            return start < stop <= start + step
        case _:
            return False
