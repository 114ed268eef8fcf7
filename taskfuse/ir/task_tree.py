"""The task tree of a fusion: its construction, the dependencies of its groups, and its laws (docs/tasks-and-groups.md)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from taskfuse.errors import TaskError, shown
from taskfuse.ir.connectivity import components, find_cycle
from taskfuse.ir.expr import MathExpr, View, reads
from taskfuse.ir.identity import place_of
from taskfuse.ir.tasks import Group, Node, Task, leaves
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import GroupKind, ParallelType
from taskfuse.location import caller

if TYPE_CHECKING:
    import networkx as nx

    from taskfuse.ir.axes import Axis
    from taskfuse.ir.fusion import Fusion


class TaskTree:
    """The task tree of one fusion."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.root = Group(self, "root", [], None)
        self.nodes: list[Node] = []
        self.changes = 0
        self._task_of: dict[TensorView, Task] = {}
        self._kinds: dict[Group, tuple[tuple[int, tuple[int, ...], tuple[bool, ...]], tuple[MathExpr, ...], GroupKind]] = {}
        self._views: tuple[tuple[MathExpr, ...], tuple[TensorView, ...]] | None = None
        self._checks = True

    # -- building -------------------------------------------------------------------------------------------------------------------

    def task_of(self, tv: TensorView) -> Task | None:
        """The task that claims ``tv``."""
        return self._task_of.get(tv)

    def home(self, tv: TensorView) -> Task | None:
        """The task that ``tv`` belongs to: the one that claims it, otherwise the one that claims the result of the call that made it."""
        owner: TensorView | None = tv
        while owner is not None:
            task = self._task_of.get(owner)
            if task is not None:
                return task
            owner = self.fusion.owner(owner)
        return None

    def _name(self, name: str | None, prefix: str, kind: type[Node]) -> str:
        if name is None:
            count = sum(isinstance(n, kind) for n in self.nodes) + 1
            while any(n.name == f"{prefix}{count}" for n in self.nodes):
                count += 1
            return f"{prefix}{count}"
        if not name.isidentifier() or not name.isascii():
            raise TaskError(node=name, reason="a name is made of letters, digits and _", location=caller())
        if re.fullmatch(r"t0(_[0-9]+)?", name):
            raise TaskError(node=name, reason="this name is reserved for the tasks of unclaimed tensors", help="give the node another name", location=caller())
        if name == "root" or any(n.name == name for n in self.nodes):
            raise TaskError(node=name, reason="there is already a node of this name", location=caller())
        return name

    def _claim(self, task: Task, tv: object, move: bool) -> None:
        self.changes += 1
        where = caller()
        if not isinstance(tv, TensorView):
            raise TaskError(
                node=task.name, reason=f"{shown(tv)} is not a tensor", help="a task consists of tensors, a group of tasks and groups", location=where
            )
        if tv.fusion is not self.fusion:
            raise TaskError(node=task.name, reason=f"{tv.name} belongs to fusion '{tv.fusion.name}'", location=where)
        if tv.is_input:
            raise TaskError(
                node=task.name,
                reason=f"{tv.name} is an input: it is not computed, so no task contains it",
                help=f"claim the tensors that read it, or {tv.name}.cache_after()",
                location=where,
            )
        owner = self._task_of.get(tv)
        if owner is task and not move:
            raise TaskError(node=task.name, reason=f"{tv.name} is given twice", location=where)
        if owner is not None and not move:
            raise TaskError(
                node=task.name, reason=f"{tv.name} belongs to task {owner.name} already", help=f"{task.name}.add({tv.name}) moves it", location=where
            )
        if owner is not None and owner is not task:
            del owner.tensors[place_of(tv, owner.tensors)]
        if owner is not task:
            task.tensors.append(tv)
            self._task_of[tv] = task

    def rebuild(self, build: Callable[[], None]) -> None:
        """Let ``build`` add nodes, and check the laws once, at the end. Raises :class:`TaskError` then.

        The laws of a lawful tree may fail while it is rebuilt: a tensor follows its call's result until the task that claims it is added.
        """
        self._checks = False
        try:
            build()
        finally:
            self._checks = True
        self.check()

    def add_task(self, tensors: Sequence[TensorView], name: str | None) -> Task:
        """See :meth:`Fusion.task`."""
        task = Task(self, self._name(name, "t", Task), [], caller())
        given = _listed(task, tensors, "tensors")
        if not given:
            raise TaskError(node=task.name, reason="a task needs at least one tensor", location=caller())
        saved = dict(self._task_of)
        try:
            for tv in given:
                self._claim(task, tv, move=False)
            self._attach(task, self.root)
            self._check_convex(self.root)
        except TaskError:
            self._task_of = saved
            self._detach(task)
            raise
        self.nodes.append(task)
        return task

    def move(self, tv: TensorView, task: Task) -> None:
        """See :meth:`Task.add`."""
        before = self._task_of.get(tv)
        if before is task:
            return
        if before is not None and len(before.tensors) == 1:
            raise TaskError(node=before.name, reason=f"moving {tv.name} to {task.name} would leave {before.name} empty", location=caller())
        at = place_of(tv, before.tensors) if before is not None else 0
        self._claim(task, tv, move=True)
        try:
            self.check()
        except TaskError:
            self.changes += 1
            del task.tensors[place_of(tv, task.tensors)]
            del self._task_of[tv]
            if before is not None:
                before.tensors.insert(at, tv)
                self._task_of[tv] = before
            raise

    def add_group(self, members: Sequence[Node], name: str | None) -> Group:
        """See :meth:`Fusion.group`."""
        self.changes += 1
        group = Group(self, self._name(name, "group", Group), [], caller())
        members = group.members = _listed(group, members, "tasks and groups")
        if not members:
            raise TaskError(node=group.name, reason="a group needs at least one member", location=caller())
        if len(set(members)) != len(members):
            twice = next(m for m in members if list(members).count(m) > 1)
            raise TaskError(node=group.name, reason=f"{twice.name} is given twice", location=caller())
        for m in members:
            _check_node(group, m)
            if m.tree is not self:
                raise TaskError(node=group.name, reason=f"{m.name} belongs to fusion '{m.tree.fusion.name}'", location=caller())
            if m.parent is None:
                raise TaskError(node=group.name, reason=f"{m.name} holds everything and is not a member", location=caller())
            if m.parent is not self.root:
                raise TaskError(node=group.name, reason=f"{m.name} is a member of {m.parent.name} already", help="a node has one parent", location=caller())
        at = min(self.root.members.index(m) for m in members)
        order = list(self.root.members)
        for m in members:
            self.root.members.remove(m)
            m.parent = group
        group.parent = self.root
        self.root.members.insert(min(at, len(self.root.members)), group)
        try:
            self._check_convex(group)
            self._check_convex(self.root)
        except TaskError:
            for m in members:
                m.parent = self.root
            self.root.members[:] = order
            raise
        self.nodes.append(group)
        return group

    def _attach(self, node: Node, parent: Group) -> None:
        node.parent = parent
        parent.members.append(node)

    def _detach(self, node: Node) -> None:
        if node.parent is not None and node in node.parent.members:
            node.parent.members.remove(node)

    def adopt(self, other: TaskTree, tensors: Mapping[TensorView, TensorView], axis: Callable[[Axis], Axis], names: Mapping[str, str]) -> dict[Node, Node]:
        """Add a copy of another fusion's tree below the root, without checks: the other tree was checked. Returns a map from its nodes to their copies.

        Args:
            tensors: the other fusion's tensors -> this fusion's.
            axis: the same for axes.
            names: names of nodes that change -> their new names.
        """
        nodes: dict[Node, Node] = {}
        for node in other.nodes:
            name = names.get(node.name, node.name)
            match node:
                case Task():
                    task = Task(self, name, [tensors[tv] for tv in node.tensors], node.location)
                    self._task_of.update((tv, task) for tv in task.tensors)
                    copy: Node = task
                case Group():
                    copy = Group(self, name, [nodes[m] for m in node.members], node.location)
                    copy.ptype, copy.pingpong_axis = node.ptype, None if node.pingpong_axis is None else axis(node.pingpong_axis)
                    for m in copy.members:
                        m.parent = copy
            copy.budget = node.budget
            nodes[node] = copy
            self.nodes.append(copy)
        for m in other.root.members:
            self._attach(nodes[m], self.root)
        self.changes += 1
        return nodes

    # -- dependencies ---------------------------------------------------------------------------------------------------------------

    def _representative(self, group: Group) -> dict[TensorView, Node]:
        """Tensor -> the member of ``group`` that holds it, claimed or following its call. Views hold no code and lie in no member."""
        member = {task: m for m in group.members for task in leaves(m)}
        found: dict[TensorView, Node] = {}
        for expr in self.fusion.exprs():
            tv = expr.output
            task = None if self.fusion.is_view(tv) else self.home(tv)
            if task is not None and task in member:
                found[tv] = member[task]
        return found

    def kind(self, group: Group) -> GroupKind:
        """See :attr:`Group.kind`; cached until the graph or the tree changes."""
        fusion = self.fusion
        exprs = fusion.exprs()
        if self._views is None or self._views[0] is not exprs:
            self._views = exprs, tuple(e.output for e in exprs if isinstance(e, View))
        stored = tuple([tv.schedule.memory is None for tv in self._views[1]])  # a view that gets storage lies in a task from then on, and so does an output
        state = self.changes, tuple(map(id, fusion.outputs)), stored
        known = self._kinds.get(group)
        if known is not None and known[0] == state and known[1] is exprs:
            return known[2]
        found = self._kind(group)
        self._kinds[group] = state, exprs, found
        return found

    def _kind(self, group: Group) -> GroupKind:
        if len(group.members) == 1:
            return GroupKind.BOTH
        edges = self.dependencies(group)
        if not edges:
            return GroupKind.HORIZONTAL
        return GroupKind.VERTICAL if len(components(group.members, edges)) == 1 else GroupKind.NEITHER

    def dependencies(self, group: Group) -> list[tuple[Node, Node]]:
        """Pairs (a, b) of members such that b depends on a, directly or indirectly."""
        member = self._representative(group)
        nothing: frozenset[Node] = frozenset()
        reach: dict[TensorView, frozenset[Node]] = {}
        pairs: dict[tuple[Node, Node], None] = {}
        for expr in self.fusion.exprs():
            above = nothing.union(*(reach.get(r.tensor, nothing) | ({member[r.tensor]} if r.tensor in member else nothing) for r in reads(expr)))
            reach[expr.output] = above
            own = member.get(expr.output)
            if own is not None:
                for a in sorted(above, key=group.members.index):
                    if a is not own:
                        pairs[(a, own)] = None
        return list(pairs)

    def _check_convex(self, group: Group) -> None:
        """Law 3: contracting each member of ``group`` to a point leaves the graph without a cycle."""
        if not self._checks or not group.members:
            return
        member = self._representative(group)
        graph: dict[Node | TensorView, dict[Node | TensorView, None]] = {}
        via: dict[tuple[Node | TensorView, Node | TensorView], tuple[TensorView, TensorView]] = {}
        for expr in self.fusion.exprs():
            if self.fusion.is_view(expr.output):
                continue
            to: Node | TensorView = member.get(expr.output, expr.output)
            for read in reads(expr):
                tv = behind_views(self.fusion, read.tensor)
                source: Node | TensorView = member.get(tv, tv)
                if source is not to:
                    graph.setdefault(source, {})[to] = None
                    via.setdefault((source, to), (tv, expr.output))
        cycle = find_cycle(graph)
        if cycle is None:
            return
        steps = [f"{via[(a, b)][0].name} in {self.place(via[(a, b)][0])} is read by {via[(a, b)][1].name} in {self.place(via[(a, b)][1])}" for a, b in cycle]
        raise TaskError(
            node=group.name,
            reason="its members depend on each other in a cycle",
            notes=tuple(steps),
            help="put the nodes on the cycle into one member, or split a member in two",
            location=caller(),
        )

    def place(self, tv: TensorView) -> str:
        """The node of a tensor, for messages."""
        task = None if self.fusion.is_view(tv) else self.home(tv)
        return task.name if task is not None else "no task"

    # -- laws -----------------------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check convexity everywhere and the kind of every parallelized group. Raises :class:`TaskError`."""
        for group in self.groups():
            self._check_convex(group)
            if group.ptype is not None:
                self._check_kind(group)

    def groups(self) -> Iterator[Group]:
        """Every group, the root first, parents before children."""
        stack: list[Group] = [self.root]
        while stack:
            group = stack.pop(0)
            yield group
            stack += [m for m in group.members if isinstance(m, Group)]

    def graph(self) -> nx.DiGraph[str]:
        """Tasks and groups as a networkx graph, an edge from each task to those that read it; see :func:`taskfuse.ir.graph.task_graph`."""
        return self.fusion.task_graph()

    def parallelize(self, group: Group, ptype: object) -> None:
        """See :meth:`Group.parallelize`."""
        if not isinstance(ptype, ParallelType):
            help = "use a member of ParallelType, such as ParallelType.TIDy"
            raise TaskError(node=group.name, reason=f"{shown(ptype)} is not a parallel type", help=help, location=caller())
        if not ptype.is_bound:
            raise TaskError(node=group.name, reason=f"a group cannot be parallelized on {ptype.value}", help="use a block or thread index", location=caller())
        if group.ptype is not None:
            raise TaskError(node=group.name, reason=f"it is parallelized on {group.ptype.value} already", help="one index type per group", location=caller())
        self._check_convex(group)
        self._check_kind(group)
        group.ptype = ptype

    def _check_kind(self, group: Group) -> None:
        if group.kind is not GroupKind.NEITHER:
            return
        edges = self.dependencies(group)
        parts = components(group.members, edges)
        a, b = edges[0]
        lone = next(p for p in parts if a not in p)[0]
        joined = [p for p in parts if len(p) > 1]
        raise TaskError(
            node=group.name,
            reason="it is neither horizontal nor vertical",
            notes=(f"{b.name} depends on {a.name}", f"{lone.name} is connected to neither"),
            help="group " + ", and ".join(" with ".join(m.name for m in p) for p in joined) + f"; with those as members, {group.name} is horizontal",
            location=caller(),
        )


def behind_views(fusion: Fusion, tv: TensorView) -> TensorView:
    """The storage tensor that ``tv`` is a map of."""
    while fusion.is_view(tv):
        view = fusion.definition(tv)
        assert isinstance(view, View)
        tv = view.operand.tensor
    return tv


def _check_node(group: Group, member: object) -> None:
    if not isinstance(member, Task | Group):
        help = "a group consists of tasks and groups: fusion.task([tensor]) makes a task"
        raise TaskError(node=group.name, reason=f"{shown(member)} is neither a task nor a group", help=help, location=caller())


def _listed(node: Node, given: object, what: str) -> list[Any]:
    """``given`` as a list. Raises :class:`TaskError` for other values."""
    if isinstance(given, Task | Group | str) or not isinstance(given, Iterable):
        raise TaskError(node=node.name, reason=f"{shown(given)} is not a list of {what}", help=f"give a list of {what}", location=caller())
    return list(cast("Iterable[Any]", given))
