"""Tasks and groups: the nodes of the task tree of a fusion (docs/tasks-and-groups.md).

Tasks are dense and disjoint sets of tensors; groups are nodes over tasks and groups; the root contains all nodes. A group whose members do
not depend on each other is *horizontal*, one whose members are connected is *vertical*; both may be parallelized on an index type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, SupportsIndex

from taskfuse.errors import TaskError, shown
from taskfuse.ir.signatures import checked
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import GroupKind, ParallelType
from taskfuse.location import Location, caller

if TYPE_CHECKING:
    from taskfuse.ir.axes import Axis
    from taskfuse.ir.task_tree import TaskTree
    from taskfuse.ir.tensor import AxisRef


class Task:
    """A set of tensors that one body of code computes."""

    __slots__ = ("budget", "location", "name", "parent", "tensors", "tree")

    def __init__(self, tree: TaskTree, name: str, tensors: list[TensorView], location: Location | None) -> None:
        self.tree = tree
        self.name = name
        self.tensors = tensors
        self.parent: Group | None = None
        self.budget: int | None = None
        self.location = location

    @checked
    def add(self, tv: TensorView) -> Task:
        """Claim ``tv`` for this task, moving it from another task if need be. Raises :class:`TaskError` as ``fusion.task`` does."""
        self.tree.move(tv, self)
        return self

    @checked
    def registers(self, count: int | None = None) -> Task:
        """Give each thread of this role ``count`` registers (``setmaxnreg``, sm_90a). Returns the task itself.

        Without ``count`` lowering chooses: few for a role that keeps little in registers, and the rest for the others; no budget if that gains no
        registers over the launch. The budgets of a block must fit its registers (law 10), which is checked at lowering. Raises
        :class:`TaskError` unless ``count`` is a multiple of 8 in [24, 256].
        """
        self.budget = _checked_budget(self, count)
        return self

    def __repr__(self) -> str:
        return self.name


class Group:
    """A set of tasks and groups, in the order given."""

    __slots__ = ("budget", "location", "members", "name", "parent", "pingpong_axis", "ptype", "tree")

    def __init__(self, tree: TaskTree, name: str, members: list[Node], location: Location | None) -> None:
        self.tree = tree
        self.name = name
        self.members = members
        self.parent: Group | None = None
        self.ptype: ParallelType | None = None
        self.pingpong_axis: Axis | None = None
        self.budget: int | None = None
        self.location = location

    @property
    def kind(self) -> GroupKind:
        """Horizontal: no member depends on another, directly or indirectly. Vertical: the dependency graph is connected."""
        return self.tree.kind(self)

    @checked
    def parallelize(self, ptype: ParallelType) -> Group:
        """Run the members at the same time, on different indices of ``ptype``. Returns the group itself.

        Raises:
            TaskError: if ``ptype`` is not a block or thread index, the group is neither horizontal nor vertical, convexity is lost, or
                the group is parallelized already.
        """
        self.tree.parallelize(self, ptype)
        return self

    @checked
    def pingpong(self, axis: AxisRef) -> Group:
        """Ping-pong over ``axis`` of a distributed channel: an instance signals the next one after its last code of an iteration. Returns the group itself."""
        if not hasattr(axis, "axis"):
            raise TaskError(node=self.name, reason=f"pingpong: {shown(axis)} is not an axis", help="give an axis of a tensor: tv.axis(0)", location=caller())
        self.pingpong_axis = axis.axis
        return self

    @checked
    def registers(self, count: int | None = None) -> Group:
        """See :meth:`Task.registers`."""
        self.budget = _checked_budget(self, count)
        return self

    def __repr__(self) -> str:
        return self.name


Node = Task | Group


CHOSEN = 0
"""A budget chosen by lowering."""


def _checked_budget(node: Node, count: object) -> int:
    if count is None:
        return CHOSEN
    number = count.__index__() if isinstance(count, SupportsIndex) else 0
    if number % 8 or not 24 <= number <= 256:
        raise TaskError(node=node.name, reason=f"{shown(count)} registers", help="setmaxnreg takes a multiple of 8 from 24 to 256", location=caller())
    return number


def leaves(node: Node) -> Iterator[Task]:
    """The tasks below (or at) ``node``, in order."""
    match node:
        case Task():
            yield node
        case Group():
            for member in node.members:
                yield from leaves(member)


def around(task: Task) -> list[Group]:
    """The groups around a task, innermost first; those of unclaimed tensors are below the root."""
    group = task.parent or task.tree.root
    found = [group]
    while (parent := found[-1].parent) is not None:
        found.append(parent)
    return found


def joint(a: Task, b: Task) -> Group:
    """The innermost group around two tasks."""
    groups = around(b)
    return next(g for g in around(a) if g in groups)


def are_roles(group: Group) -> bool:
    """True if the members of ``group`` run at the same time and pass data to each other, so that a tensor between them is a channel."""
    return group.ptype is not None and group.kind is GroupKind.VERTICAL
