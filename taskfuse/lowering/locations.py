"""The user's line of each node of a plan (docs/kernel-ir.md, "Locations").

A statement of a tensor's code has the line of the tensor's expression; synchronization has that of the tensor whose data it orders, or
whose ring it advances, or of its task or group; loops, scopes and guards have that of their content.
"""

from __future__ import annotations

from dataclasses import replace

from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tasks import Group, Task
from taskfuse.ir.tensor import TensorView
from taskfuse.kir import map_stmts
from taskfuse.kir.nodes import Stmt
from taskfuse.location import Location
from taskfuse.lowering.insertion_points import leaves
from taskfuse.lowering.plan import Origin, PBind, PDispatch, PGuard, PLoop, PNode, PScope, PStmt, PSync, statements


class Locations:
    """The lines of one fusion."""

    def __init__(self, fusion: Fusion) -> None:
        self._fusion = fusion
        self._known: dict[Origin, Location | None] = {}

    def of(self, origin: Origin) -> Location | None:
        """The user's line of a tensor's expression, a task or a group. Implicit nodes have that of their first tensor."""
        if origin not in self._known:
            self._known[origin] = self._find(origin)
        return self._known[origin]

    def _find(self, origin: Origin) -> Location | None:
        match origin:
            case TensorView():
                made = self._fusion.definition(origin)
                return origin.location if made is None or made.location is None else made.location
            case Task():
                return origin.location or next((self.of(tv) for tv in origin.tensors), None)
            case Group():
                return origin.location or next((self.of(m) for m in origin.members), None)

    def of_node(self, n: PNode) -> Location | None:
        """The line of a node of the plan."""
        match n:
            case PStmt():
                return self.of(n.tv)
            case PSync():
                return self.of(n.of)
            case PDispatch():
                return self.of(n.group)
            case PScope():
                return self.of(n.node)
            case PLoop() | PBind() | PGuard():
                first = next(statements(n.body), None) or next(leaves(n.body), None)
                return None if first is None else self.of_node(first)


def located(body: tuple[Stmt, ...], location: Location | None) -> tuple[Stmt, ...]:
    """The statements, with a line as location."""
    return map_stmts(body, lambda s: replace(s, location=location))
