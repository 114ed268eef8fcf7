"""Random tasks and groups: a recursive partition of the graph.

A convex set of tensors (no path leaves it and returns) is partitioned into convex parts in one of two ways: by its connected components,
which are independent (horizontal), or by cuts of a topological order (vertical).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from taskfuse.ir.connectivity import components
from taskfuse.ir.expr import Assemble, Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Expr
from taskfuse.ir.storage import resolve
from taskfuse.ir.tasks import Group, Node, Task, leaves
from taskfuse.ir.tensor import AxisRef, TensorView
from taskfuse.ir.types import BLOCK_TYPES, THREAD_TYPES, GroupKind, ParallelType
from taskfuse.target import WARP
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.options import CaseOptions
from taskfuse.testing.program import Recorder


@dataclass(slots=True)
class RandomPartition:
    """The tasks and groups of a fusion, members before the groups that hold them."""

    tasks: list[Task] = field(default_factory=list[Task])
    groups: list[Group] = field(default_factory=list[Group])


def readers(fusion: Fusion) -> dict[TensorView, dict[TensorView, None]]:
    """The computed tensors with storage, each with its readers, also through views."""
    graph: dict[TensorView, dict[TensorView, None]] = {}
    for expr in fusion.exprs():
        if fusion.is_view(expr.output):
            continue
        graph.setdefault(expr.output, {})
        operands = expr.parts if isinstance(expr, Assemble) else expr.operands
        for operand in operands:
            if isinstance(operand, Read):
                source = resolve(fusion, operand).tensor
                if not source.is_input:
                    graph.setdefault(source, {})[expr.output] = None
    return graph


def partition(chooser: Chooser, options: CaseOptions, recorder: Recorder) -> RandomPartition:
    """Assign the fusion's tensors to tasks, and the tasks to groups, without parallelizing groups."""
    return _Partitioner(chooser, options, recorder).run()


class _Partitioner:
    def __init__(self, chooser: Chooser, options: CaseOptions, recorder: Recorder) -> None:
        self.chooser = chooser
        self.options = options
        self.recorder = recorder
        self.readers = readers(recorder.fusion)
        self.found = RandomPartition()

    def run(self) -> RandomPartition:
        self._node(self._order(list(self.readers)), 0)
        return self.found

    def _order(self, tensors: Sequence[TensorView]) -> list[TensorView]:
        """A topological order of ``tensors``."""
        missing = {tv: 0 for tv in tensors}
        for _, reader in self._edges(tensors):
            missing[reader] += 1
        ready = [tv for tv in tensors if not missing[tv]]
        order: list[TensorView] = []
        while ready:
            tv = ready.pop(self.chooser.integer(0, len(ready) - 1) if len(ready) > 1 else 0)
            order.append(tv)
            for reader in self.readers[tv]:
                if reader in missing:
                    missing[reader] -= 1
                    if not missing[reader]:
                        ready.append(reader)
        return order

    def _edges(self, tensors: Sequence[TensorView]) -> list[tuple[TensorView, TensorView]]:
        """The edges from producers to readers within ``tensors``."""
        inside = set(tensors)
        return [(tv, reader) for tv in tensors for reader in self.readers[tv] if reader in inside]

    def _node(self, tensors: list[TensorView], depth: int) -> Node | None:
        if len(tensors) == 1 or depth >= self.options.depth or self.chooser.chance(4 + 12 * depth):
            return self._task(tensors)
        parts = self._parts(tensors)
        if len(parts) == 1:
            return self._task(tensors)
        members = [m for part in parts if (m := self._node(part, depth + 1)) is not None]
        if not members:
            return None
        group: Group | None = self.recorder.attempt(self.recorder.fusion, "group", members)
        if group is not None:
            self.found.groups.append(group)
        return group

    def _task(self, tensors: list[TensorView]) -> Task | None:
        if self.chooser.chance(self.options.unclaimed):
            return None
        later = tensors[1:] if self.chooser.chance(self.options.varied) else []
        task: Task | None = self.recorder.attempt(self.recorder.fusion, "task", tensors[:1] if later else tensors)
        for tv in later if task is not None else ():
            self.recorder.attempt(task, "add", tv)
        if task is not None:
            self.found.tasks.append(task)
        return task

    def _parts(self, tensors: list[TensorView]) -> list[list[TensorView]]:
        rank = {tv: k for k, tv in enumerate(tensors)}
        parts = components(tensors, self._edges(tensors))
        if len(parts) > 1 and self.chooser.chance(85):
            count = min(len(parts), 2 + self.chooser.integer(0, 2))
            bins: list[list[TensorView]] = [[] for _ in range(count)]
            for k, component in enumerate(parts):
                bins[k if k < count else self.chooser.integer(0, count - 1)] += component
            return [sorted(b, key=rank.__getitem__) for b in bins]
        order = self._order(tensors)
        at = [0, *self.chooser.split_points(len(order), 2 + (self.chooser.chance(30))), len(order)]
        return [order[a:b] for a, b in pairwise(at)]


def parallelize(chooser: Chooser, options: CaseOptions, recorder: Recorder, found: RandomPartition, size: Callable[[Expr], int]) -> None:
    """Parallelize some of the groups: vertical ones on thread types, others also on block types (rarely inside vertical ones).

    A group stays unparallelized if it would need more threads or blocks than the options allow.
    """
    for group in reversed(found.groups):
        if not chooser.chance(options.groups):
            continue
        if is_vertical(group):
            blocks = options.block_roles > 0 and chooser.chance(options.block_roles)
        else:
            blocks = chooser.chance(options.block_types) and (not _inside_vertical(group) or chooser.chance(10))
        ptype = chooser.pick(BLOCK_TYPES if blocks else THREAD_TYPES)
        if launched(recorder.fusion, THREAD_TYPES, size, (group, ptype)) > options.threads:
            ptype = chooser.pick(THREAD_TYPES)
        types, most = (BLOCK_TYPES, options.blocks) if ptype.is_block else (THREAD_TYPES, options.threads)
        if launched(recorder.fusion, types, size, (group, ptype)) <= most:
            recorder.attempt(group, "parallelize", ptype)
        if group.ptype is not None and is_vertical(group) and chooser.chance(10):
            _pingpong(chooser, recorder, group)


def _pingpong(chooser: Chooser, recorder: Recorder, group: Group) -> None:
    """Let the instances along an axis that is bound to threads take turns; taskfuse refuses it, here or at lowering, if no channel is distributed
    over that axis."""
    bound = [AxisRef(tv, a) for task in leaves(group) for tv in task.tensors for a in tv.loop if tv.schedule.ptype(a).is_thread]
    if bound:
        recorder.call(group, "pingpong", chooser.pick(bound))


def launched(fusion: Fusion, types: Sequence[ParallelType], size: Callable[[Expr], int], changed: tuple[Group, ParallelType] | None = None) -> int:
    """The approximate number of indices of ``types`` in a kernel (laws 5 and 9 of docs/tasks-and-groups.md) if one group were parallelized."""
    total = 1

    def measure(node: Node, ptype: ParallelType) -> int:
        if isinstance(node, Task):
            extents = [math.prod(size(a.extent) for a in tv.loop if tv.schedule.ptype(a) is ptype) for tv in node.tensors]
            return max((e for e in extents), default=1)
        inner = [measure(m, ptype) for m in node.members] or [1]
        own = changed[1] if changed is not None and node is changed[0] else node.ptype
        if own is not ptype:
            return max(inner)
        unit = WARP // total if ptype.is_thread and is_vertical(node) and WARP % total == 0 else 1
        return sum(-(-e // unit) * unit for e in inner)

    for ptype in types:
        total *= max(measure(fusion.tasks.root, ptype), 1)
    return total


def is_vertical(group: Group) -> bool:
    """True if members depend on each other."""
    return group.kind in (GroupKind.VERTICAL, GroupKind.NEITHER)


def _inside_vertical(group: Group) -> bool:
    outer = group.parent
    while outer is not None:
        if outer.ptype is not None and is_vertical(outer):
            return True
        outer = outer.parent
    return False
