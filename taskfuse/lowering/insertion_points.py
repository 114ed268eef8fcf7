"""Insertion points in the plan: the code of a node, and the first and last statement that accesses something.

Code of one node may be in several arms of a dispatch, and under separate loops in each. Waits and arrivals are outside the scopes below
their endpoint, so scopes are split if one must stand between their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from taskfuse.ir.scalar import ONE
from taskfuse.ir.tasks import Group, Node
from taskfuse.lowering.plan import PBind, PDispatch, PLoop, PNode, PScope, PStmt, PSync, children, statements
from taskfuse.schedule.order import Tree
from taskfuse.schedule.shared_loops import Loop

Touch = Callable[[PStmt], bool]
"""Whether a statement is one of those searched for."""


def level_blocks(plan: list[PNode], node: Node, loop: Loop | None) -> list[list[PNode]]:
    """The blocks of a node's code that one iteration of ``loop`` runs, in order: the loop's body, or the scopes if the loop is outside."""
    blocks: list[list[PNode]] = []

    def inside(body: list[PNode]) -> list[list[PNode]]:
        found: list[list[PNode]] = []
        for n in body:
            if isinstance(n, PLoop):
                found += [n.body] if n.loop is loop else inside(n.body)
            elif isinstance(n, (PBind, PScope)):
                found += inside(n.body)
            elif isinstance(n, PDispatch):
                for m in n.members:
                    found += inside(m.body)
        return found

    for scope in _scopes(plan, node):
        blocks += (inside(scope.body) if loop is not None else []) or [scope.body]
    return blocks


def _scopes(nodes: list[PNode], wanted: Node) -> list[PScope]:
    """The innermost scopes of a node, in order."""
    found: list[PScope] = []
    for n in nodes:
        inner = [s for block in children(n) for s in _scopes(block, wanted)]
        if isinstance(n, PDispatch):
            inner = list[PScope]()
            for m in n.members:
                below = _scopes(m.body, wanted)
                inner += below or ([m] if m.node is wanted else [])
            found += inner
        elif isinstance(n, PScope) and n.node is wanted:
            found += inner or [n]
        else:
            found += inner
    return found


def loops_around(plan: list[PNode], node: Node) -> set[Loop]:
    """The loops of the nest that contain the scopes of a node, except those of one trip."""
    scopes = set(_scopes(plan, node))
    found: set[Loop] = set()

    def visit(body: list[PNode], around: tuple[Loop, ...]) -> None:
        for n in body:
            here = n.members if isinstance(n, PDispatch) else [n]
            if any(m in scopes for m in here if isinstance(m, PScope)):
                found.update(around)
            inside = (*around, n.loop) if isinstance(n, PLoop) and n.loop is not None and n.extent is not ONE else around
            for block in children(n):
                visit(block, inside)

    visit(plan, ())
    return found


def loop_of(plan: list[PNode], node: Node, loop: Loop | None) -> tuple[list[PNode], PLoop] | None:
    """The copy of a loop in a node's code, and its block; ``None`` if there is no copy, or several."""
    found: list[tuple[list[PNode], PLoop]] = []

    def visit(body: list[PNode]) -> None:
        for n in body:
            if isinstance(n, PLoop) and n.loop is loop:
                found.append((body, n))
            else:
                for block in children(n):
                    visit(block)

    for scope in _scopes(plan, node):
        visit(scope.body)
    return found[0] if len(found) == 1 else None


def frame(plan: list[PNode], group: Group, node: Node, tree: Tree) -> list[PNode]:
    """Where the cursor of an endpoint starts: in its role's code if that is in one piece and under no loop, otherwise in the whole kernel's."""
    role = node
    while tree.parent[role] is not group:
        role = tree.parent[role]
    arms = list(_arms(plan, group, role, False))
    return arms[0][0] if len(arms) == 1 and not arms[0][1] else plan


def _arms(nodes: list[PNode], group: Group, role: Node, in_loop: bool) -> Iterator[tuple[list[PNode], bool]]:
    """The code of a role of a vertical group: the arms of its dispatches, and whether they stand under a loop."""
    for n in nodes:
        if isinstance(n, PDispatch):
            for m in n.members:
                if n.group is group and m.node is role:
                    yield m.body, in_loop
                else:
                    yield from _arms(m.body, group, role, in_loop)
        else:
            for block in children(n):
                yield from _arms(block, group, role, in_loop or isinstance(n, PLoop))


def leaves(nodes: list[PNode]) -> Iterator[PSync | PStmt]:
    """All synchronization and all statements below nodes, in the order of the text."""
    for n in nodes:
        if isinstance(n, PSync | PStmt):
            yield n
        for block in children(n):
            yield from leaves(block)


def split_around(blocks: list[list[PNode]], touches: Touch, inside: bool) -> tuple[tuple[list[PNode], int], tuple[list[PNode], int]]:
    """Split scopes so that a wait can precede the first use in some blocks and an arrival can follow the last; returns the places of both uses.

    Args:
        inside: inside the bound loops that contain all uses.
    """
    places = [(block, k) for block in blocks for k, n in enumerate(block) if _touched(n, touches)]
    if inside and len(places) == 1 and isinstance(bind := places[0][0][places[0][1]], PBind):
        return split_around([bind.body], touches, inside)
    if not places:
        raise AssertionError("an endpoint touches its channel nowhere")
    for block in blocks:
        _isolate(block, touches)
    places = [(block, k) for block in blocks for k, n in enumerate(block) if _touched(n, touches)]
    return places[0], places[-1]


def _isolate(block: list[PNode], touches: Touch) -> None:
    """Split scopes and bound loops in two where loops, dispatches or waits stand before the first use or after the last one in them.

    A wait must come after all that the total order puts before the first use, an arrival before all that comes after the last one; both
    stand outside the scopes below the endpoint, so the scopes are split.
    """
    for first in (True, False):
        used = [k for k, n in enumerate(block) if _touched(n, touches)]
        if used:
            k = used[0] if first else used[-1]
            block[k : k + 1] = _split(block[k], touches, first)


def _split(node: PNode, touches: Touch, first: bool) -> list[PNode]:
    if not isinstance(node, (PBind, PScope)):
        return [node]
    body = node.body
    used = [k for k, n in enumerate(body) if _touched(n, touches)]
    k = used[0] if first else used[-1]
    pieces = _split(body[k], touches, first)
    body[k : k + 1] = pieces
    at = k + len(pieces) - 1 if first else k + 1
    rest = body[:at] if first else body[at:]
    if not any(_has_structure(n) for n in rest):
        return [node]
    return [replace(node, body=body[:at]), replace(node, body=body[at:])]


def _has_structure(node: PNode) -> bool:
    match node:
        case PStmt():
            return False
        case PBind() | PScope():
            return any(_has_structure(n) for n in node.body)
        case _:
            return True


def _touched(node: PNode, touches: Touch) -> bool:
    """True if a statement below a plan node is one of those wanted."""
    return any(touches(s) for s in statements([node]))
