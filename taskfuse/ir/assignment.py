"""Completing the partition: a task for every tensor with code (law 1, docs/tasks-and-groups.md)."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from taskfuse.errors import TaskError
from taskfuse.ir.expr import reads
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.task_tree import behind_views
from taskfuse.ir.tasks import Group, Node, Task
from taskfuse.ir.tensor import TensorView


def assign(fusion: Fusion) -> dict[TensorView, Task]:
    """Every tensor with code and its task, so that law 1 holds. Unclaimed tensors follow their call, or fall to new tasks under a copy of the root.

    The new tasks are named ``t0``, ``t0_1``, ...: as many as convexity needs. They are returned but not added to the fusion's tree.
    """
    tree = fusion.tasks
    place: dict[TensorView, Task] = {}
    rest: list[TensorView] = []
    for expr in fusion.exprs():
        tv = expr.output
        if fusion.is_view(tv):
            continue
        task = tree.home(tv)
        if task is None:
            rest.append(tv)
        else:
            place[tv] = task
    pieces: dict[int, Task] = {}
    for tv, level in _levels(fusion, place, rest).items():
        name = "t0" if level == 0 else f"t0_{level}"
        piece = pieces.setdefault(level, Task(tree, name, [], None))
        piece.tensors.append(tv)
        place[tv] = piece
    return place


def places(fusion: Fusion) -> dict[TensorView, Task]:
    """The task of each tensor; if the laws determine no task for unclaimed tensors, only of the claimed ones."""
    try:
        return assign(fusion)
    except TaskError:
        homes = {tv: fusion.tasks.home(tv) for tv in fusion.tensors()}
        return {tv: task for tv, task in homes.items() if task is not None}


def _levels(fusion: Fusion, place: dict[TensorView, Task], rest: Iterable[TensorView]) -> dict[TensorView, int]:
    """A level per unclaimed tensor such that one task per level is convex: 1 + the greatest level below a node of the root between them."""

    def top(task: Task) -> Node:
        node: Node = task
        while node.parent is not None and node.parent.parent is not None:
            node = node.parent
        return node

    sources: dict[Node | TensorView, dict[Node | TensorView, None]] = {}
    unclaimed = set(rest)
    for expr in fusion.exprs():
        tv = expr.output
        if fusion.is_view(tv):
            continue
        node: Node | TensorView = top(place[tv]) if tv in place else tv
        above = sources.setdefault(node, {})
        for read in reads(expr):
            storage = behind_views(fusion, read.tensor)
            if storage.is_input:
                continue
            source: Node | TensorView = top(place[storage]) if storage in place else storage
            if source is not node:
                above[source] = None
    try:
        sequence = list(TopologicalSorter(sources).static_order())
    except CycleError:
        fusion.tasks.check()
        raise
    level: dict[Node | TensorView, int] = {}
    for node in sequence:
        steps = [level[p] + (1 if isinstance(p, (Task, Group)) and not isinstance(node, (Task, Group)) else 0) for p in sources.get(node, ())]
        level[node] = max(steps, default=0)
    return {tv: level[tv] for tv in fusion.tensors() if tv in unclaimed}
