"""The one total order: the sequential nest that *is* the program (docs/projection.md).

In it every loop is contiguous, and every node is contiguous among the tasks of the role that contains it. Members of a parallelized
vertical group may interleave. Seeds and strategies choose among such orders; the result never depends on the choice.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise, product

from taskfuse.errors import ScheduleError
from taskfuse.ir.assignment import assign
from taskfuse.ir.expr import Fold, Reduction, Scan
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import has_code, made_from, storage_reads, storage_uses
from taskfuse.ir.tasks import Group, Node, Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import GroupKind
from taskfuse.location import Location
from taskfuse.schedule.shared_loops import Loop, SharedLoops


class OrderError(ScheduleError):
    """No total order exists. ``depth`` and ``tensors``: inlining the tensors no deeper than ``depth`` removes the obstacle."""

    def __init__(self, depth: int, tensors: tuple[TensorView, ...], reason: str, notes: tuple[str, ...], location: Location | None = None) -> None:
        self.depth = depth
        self.tensors = tensors
        names = ", ".join(t.name for t in tensors)
        super().__init__(
            call="inline_at", tensor=names, reason=reason, notes=notes, help=f"inline {names} at {depth} or less, or group differently", location=location
        )


@dataclass(frozen=True, slots=True, eq=False)
class LoopItem:
    """A loop of the nest."""

    loop: Loop
    body: tuple[Item, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TensorItem:
    """The code of one tensor."""

    tv: TensorView


Item = LoopItem | TensorItem


def positions(items: Iterable[Item], above: tuple[int, ...] = ()) -> dict[TensorView, tuple[int, ...]]:
    """Where each tensor of a nest stands: at every depth, the number of the item that holds it among the items of that loop's body."""
    found: dict[TensorView, tuple[int, ...]] = {}
    for k, item in enumerate(items):
        here = (*above, k)
        if isinstance(item, TensorItem):
            found[item.tv] = here
        else:
            found.update(positions(item.body, here))
    return found


@dataclass(slots=True, eq=False)
class Tree:
    """The completed task tree of a fusion: the tree of its nodes plus the tasks of unclaimed tensors, without changing the fusion.

    Attributes:
        place: tensor with code -> task.
        members: node -> its members, in order (groups only).
        parent: node -> its parent.
    """

    fusion: Fusion
    place: dict[TensorView, Task]
    members: dict[Node, list[Node]] = field(default_factory=dict["Node", "list[Node]"])
    parent: dict[Node, Group] = field(default_factory=dict["Node", Group])
    tensors: dict[Task, list[TensorView]] = field(default_factory=dict["Task", "list[TensorView]"])

    @property
    def root(self) -> Group:
        return self.fusion.tasks.root

    def path(self, tv: TensorView) -> list[Node]:
        """The nodes around ``tv``, the root first, its task last."""
        nodes: list[Node] = [self.place[tv]]
        while nodes[-1] is not self.root:
            nodes.append(self.parent[nodes[-1]])
        return nodes[::-1]

    def roles(self, path: list[Node]) -> list[Node]:
        """For each node of a path, the role that contains it: the nearest node at or above it that is a member of a vertical group in parallel, or the root."""
        found: list[Node] = []
        role: Node = self.root
        for node in path:
            parent = self.parent.get(node)
            if parent is not None and is_vertical(parent):
                role = node
            found.append(role)
        return found


def is_vertical(group: Group) -> bool:
    """True for a group parallelized as a vertical one (a group of one member counts as horizontal: it needs no channel)."""
    return group.ptype is not None and group.kind is GroupKind.VERTICAL


def complete(fusion: Fusion) -> Tree:
    """The task tree with every tensor that has code in a task."""
    place = assign(fusion)
    tree = Tree(fusion, {})
    for group in fusion.tasks.groups():
        tree.members[group] = list(group.members)
        for m in group.members:
            tree.parent[m] = group
    for expr in fusion.exprs():
        tv = expr.output
        if not has_code(fusion, expr):
            continue
        task = place[tv]
        tree.place[tv] = task
        tree.tensors.setdefault(task, []).append(tv)
        if task not in tree.parent:
            tree.parent[task] = tree.root
            tree.members[tree.root].append(task)
    return tree


REDUCING = (Reduction, Scan, Fold)
"""Expressions whose results wait for others."""
Rank = tuple[int, ...]
"""The rank of a tensor among those that may come in any order."""


def sequence(fusion: Fusion, tree: Tree, shared_loops: SharedLoops, seed: int | None = None) -> tuple[Item, ...]:
    """The nest.

    Args:
        tree: the completed task tree (:func:`complete`).
        seed: selects one of the valid orders; ``None``: the creation order of the tensors.

    Raises:
        OrderError: none exists.
    """
    return _Sequencer(fusion, tree, shared_loops, seed).sequence()


class _Sequencer:
    """Computes the total order of one fusion."""

    def __init__(self, fusion: Fusion, tree: Tree, shared_loops: SharedLoops, seed: int | None) -> None:
        self.fusion = fusion
        self.tree = tree
        self.shared_loops = shared_loops
        self._random = None if seed is None else random.Random(seed)
        self._rank: dict[TensorView, Rank] = {}
        self._edges: list[tuple[TensorView, TensorView]] = []
        self._paths: dict[TensorView, list[Node]] = {}
        self._roles: dict[TensorView, list[Node]] = {}
        self._ring_edges: list[tuple[TensorView, TensorView]] = []

    def sequence(self) -> tuple[Item, ...]:
        """The nest. Raises :class:`OrderError` if none exists."""
        self._collect()
        for loop in self.shared_loops.loops:
            if len(loop.axes) > 1:
                self._check_sharing(loop, self.tree.root, loop)
        return self._arrange(list(self._paths), 0, self._edges)

    def _collect(self) -> None:
        """Find the tensors with code, their dependencies, and what comes first by default."""
        for k, expr in enumerate(self.fusion.exprs()):
            if not has_code(self.fusion, expr):
                continue
            tv = expr.output
            self._rank[tv] = (k,)
            for read in storage_reads(self.fusion, expr):
                self._edges += [(source, tv) for source in made_from(self.fusion, read.tensor) if not source.is_input]
            self._paths[tv] = self.tree.path(tv)
            self._roles[tv] = self.tree.roles(self._paths[tv])
        self._rank_early()
        self._rank_members()
        self._ring_edges = self._ring_order()  # no seed changes who has a ring first
        if self._random is not None:
            self._rank = {tv: (self._random.randrange(1 << 30),) for tv in self._rank}

    def _rank_early(self) -> None:
        """Let results that need no reduction, and what only they need, come before the first reduction: what they read is then not live across it."""
        exprs = [e for e in self.fusion.exprs() if e.output in self._rank]
        first = next((self._rank[e.output] for e in exprs if isinstance(e, REDUCING)), None)
        if first is None:
            return
        reads: dict[TensorView, list[TensorView]] = {}
        readers: dict[TensorView, list[TensorView]] = {tv: [] for tv in self._rank}
        for p, q in self._edges:
            if p in self._rank:
                reads.setdefault(q, []).append(p)
                readers[p].append(q)
        late: set[TensorView] = set()
        for e in exprs:
            if isinstance(e, REDUCING) or any(p in late for p in reads.get(e.output, ())):
                late.add(e.output)
        for e in reversed(exprs):
            tv = e.output
            if tv not in late:
                if all(q not in late for q in readers[tv]):
                    self._rank[tv] = min(self._rank[tv], (first[0] - 1, *self._rank[tv]))
                else:
                    late.add(tv)

    def _rank_members(self) -> None:
        """Let members of a horizontal group that is not parallelized come in the order in which the group has them."""
        for group, members in self.tree.members.items():
            if group is self.tree.root or not isinstance(group, Group) or group.ptype is not None or group.kind is not GroupKind.HORIZONTAL:
                continue
            inside = [tv for tv, path in self._paths.items() if group in path]
            first = min((self._rank[tv] for tv in inside), default=())
            for tv in inside:
                self._rank[tv] = (*first, members.index(self._member(tv, group)), *self._rank[tv])

    def _ring_order(self) -> list[tuple[TensorView, TensorView]]:
        """The order of the fills and reads of tensors that share a ring, as pairs (earlier, later)."""
        sharers: dict[str, list[TensorView]] = {}
        for tv in sorted(self._rank, key=lambda tv: self._rank[tv]):
            if tv.schedule.ring:
                sharers.setdefault(tv.schedule.ring, []).append(tv)
        found: list[tuple[TensorView, TensorView]] = []
        for one, two in (pair for some in sharers.values() for pair in pairwise(some)):
            readers = [[u.output for u in storage_uses(self.fusion, tv) if u.output in self._rank] for tv in (one, two)]
            found.append((one, two))
            found += product(readers[0], readers[1])
        return found

    # -- laws -----------------------------------------------------------------------------------------------------------------------

    def _check_sharing(self, loop: Loop, group: Group, whole: Loop) -> None:
        """Members of one role share only loops that enclose all code of both. ``loop``: the part of the ``whole`` loop below ``group``."""
        touched = [m for m in self.tree.members[group] if any(m in self._paths[tv] for tv in loop.axes)]
        if len(touched) > 1 and not is_vertical(group):
            for member in touched:
                outside = [tv for tv in self._paths if member in self._paths[tv] and tv not in loop.axes]
                if outside:
                    other = next(m for m in touched if m is not member)
                    glue = self._glue(whole, lambda p, q: self._member(p, group) is not self._member(q, group))
                    raise OrderError(
                        loop.depth,
                        glue,
                        f"{member.name} and {other.name} would share a loop that does not enclose all code of {member.name}",
                        (f"{outside[0].name} of {member.name} stands outside the loop over axis {loop.depth} of {next(iter(loop.axes)).name}",),
                        glue[0].location if glue else None,
                    )
        if len(touched) == 1 or is_vertical(group):
            for member in touched:
                if isinstance(member, Group):
                    inner = Loop(loop.id, loop.depth, {tv: a for tv, a in loop.axes.items() if member in self._paths[tv]})
                    self._check_sharing(inner, member, whole)

    def _member(self, tv: TensorView, group: Group) -> Node:
        path = self._paths[tv]
        return path[path.index(group) + 1] if group in path else path[-1]

    def _glue(self, loop: Loop, wanted: Callable[[TensorView, TensorView], bool]) -> tuple[TensorView, ...]:
        """The tensors whose inline position joins two tensors of ``loop`` that satisfy ``wanted``; or else all joining tensors."""
        shared_loops = [(p, q) for p, q in self._edges if p in loop.axes and q in loop.axes and p.schedule.inline > loop.depth]
        found = dict.fromkeys(p for p, q in shared_loops if wanted(p, q)) or dict.fromkeys(p for p, _ in shared_loops)
        return tuple(found)

    # -- the order ------------------------------------------------------------------------------------------------------------------

    def _arrange(self, tensors: list[TensorView], depth: int, edges: list[tuple[TensorView, TensorView]]) -> tuple[Item, ...]:
        units: dict[Loop | TensorView, list[TensorView]] = {}
        unit_of: dict[TensorView, Loop | TensorView] = {}
        for tv in tensors:
            path = self.shared_loops.path[tv]
            unit: Loop | TensorView = path[depth] if depth < len(path) else tv
            units.setdefault(unit, []).append(tv)
            unit_of[tv] = unit
        before: dict[Loop | TensorView, dict[Loop | TensorView, None]] = {u: {} for u in units}
        for p, q in self._ring_edges:
            a, b = unit_of.get(p), unit_of.get(q)
            if a is not None and b is not None and a is not b:
                before[b][a] = None
        inner: dict[Loop | TensorView, list[tuple[TensorView, TensorView]]] = {}
        for p, q in edges:
            a, b = unit_of.get(p), unit_of.get(q)
            if a is None or b is None:
                continue
            if a is not b:
                before[b][a] = None
                continue
            assert isinstance(a, Loop)
            if p.schedule.inline <= depth:
                raise self._incomplete(a, p, q)
            inner.setdefault(a, []).append((p, q))
        items: list[Item] = []
        for unit in self._topological(units, before, depth):
            if isinstance(unit, Loop):
                items.append(LoopItem(unit, self._arrange(units[unit], depth + 1, inner.get(unit, []))))
            else:
                items.append(TensorItem(unit))
        return tuple(items)

    def _incomplete(self, loop: Loop, p: TensorView, q: TensorView) -> OrderError:
        return OrderError(
            loop.depth,
            self._glue(loop, lambda x, y: x is not p),
            f"{p.name} must be complete before {q.name} reads it, but inlining puts both into one loop",
            (f"the loop is axis {loop.depth} of {p.name} and of {q.name}; {p.name} is inlined at {p.schedule.inline}",),
            p.location,
        )

    def _topological(
        self, units: dict[Loop | TensorView, list[TensorView]], before: dict[Loop | TensorView, dict[Loop | TensorView, None]], depth: int
    ) -> list[Loop | TensorView]:
        if len(units) == 1:
            return list(units)
        rank = {u: min(self._rank[tv] for tv in tvs) for u, tvs in units.items()}
        after: dict[Loop | TensorView, list[Loop | TensorView]] = {u: [] for u in units}
        for u, sources in before.items():
            for s in sources:
                after[s].append(u)
        if len({self._paths[tv][-1] for tvs in units.values() for tv in tvs}) == 1:
            return self._plain(units, before, after, rank, depth)
        return self._constrained(units, before, after, rank, depth)

    def _plain(
        self,
        units: dict[Loop | TensorView, list[TensorView]],
        before: dict[Loop | TensorView, dict[Loop | TensorView, None]],
        after: dict[Loop | TensorView, list[Loop | TensorView]],
        rank: dict[Loop | TensorView, Rank],
        depth: int,
    ) -> list[Loop | TensorView]:
        missing = {u: len(b) for u, b in before.items()}
        names = {id(u): u for u in units}
        heap = [(rank[u], id(u)) for u in units if not missing[u]]
        heapq.heapify(heap)
        order: list[Loop | TensorView] = []
        while heap:
            u = names[heapq.heappop(heap)[1]]
            order.append(u)
            for v in after[u]:
                missing[v] -= 1
                if not missing[v]:
                    heapq.heappush(heap, (rank[v], id(v)))
        if len(order) < len(units):
            raise self._cycle([u for u in units if u not in set(order)], depth)
        return order

    def _cycle(self, stuck: list[Loop | TensorView], depth: int) -> OrderError:
        loops = [u for u in stuck if isinstance(u, Loop) and len(u.axes) > 1]
        glue = tuple(dict.fromkeys(t for u in loops for t in self._glue(u, lambda p, q: False)))
        names = ", ".join(tv.name for u in stuck for tv in (u.axes if isinstance(u, Loop) else (u,)))
        return OrderError(
            depth,
            glue,
            "the loops that inlining makes depend on each other in a cycle",
            (f"no order is possible among {names}",),
            glue[0].location if glue else None,
        )

    def _constrained(
        self,
        units: dict[Loop | TensorView, list[TensorView]],
        before: dict[Loop | TensorView, dict[Loop | TensorView, None]],
        after: dict[Loop | TensorView, list[Loop | TensorView]],
        rank: dict[Loop | TensorView, Rank],
        depth: int,
    ) -> list[Loop | TensorView]:
        """Topological order in which each node is contiguous among the units of its role; depth-first search, best rank first."""
        nodes_of: dict[Loop | TensorView, set[Node]] = {}
        role_of: dict[Node, Node] = {}
        count: dict[Node, int] = {}
        for u, tvs in units.items():
            nodes_of[u] = {n for tv in tvs for n in self._paths[tv]}
            for tv in tvs:
                for n, r in zip(self._paths[tv], self._roles[tv], strict=True):
                    role_of[n] = r
            for n in nodes_of[u]:
                count[n] = count.get(n, 0) + 1
        spanning = [n for n, c in count.items() if c > 1]
        opens: dict[Loop | TensorView, list[Node]] = {u: [] for u in units}  # the nodes that need it, and beside whose units it may not come
        for n in spanning:
            todo = [u for u in units if n in nodes_of[u]]
            found = set(todo)
            for u in todo:
                found.update(new := [s for s in before[u] if s not in found])
                todo += new
                opens[u] += [n] * (n not in nodes_of[u] and role_of[n] in nodes_of[u])
        closed = Counter(n for nodes in opens.values() for n in nodes)
        missing = {u: len(b) for u, b in before.items()}
        left = dict(count)
        order: list[Loop | TensorView] = []
        budget = 4 * len(units) * len(units) + 1000

        def allowed(u: Loop | TensorView) -> bool:
            return not any(closed[n] for n in nodes_of[u]) and all(
                n in nodes_of[u] or not 0 < left[n] < count[n] or role_of[n] not in nodes_of[u] for n in spanning
            )

        def take(u: Loop | TensorView) -> list[Loop | TensorView]:
            order.append(u)
            closed.subtract(opens[u])
            for n in nodes_of[u]:
                left[n] -= 1
            for v in after[u]:
                missing[v] -= 1
            return [v for v in after[u] if not missing[v]]

        def give_back() -> None:
            u = order.pop()
            closed.update(opens[u])
            for v in after[u]:
                missing[v] += 1
            for n in nodes_of[u]:
                left[n] += 1

        def candidates(ready: list[Loop | TensorView]) -> list[Loop | TensorView]:
            """The units that may come next, the best one last: inside most open nodes, then by rank."""
            fit = [u for u in ready if allowed(u)]
            return sorted(fit, key=lambda u: (-sum(0 < left[n] < count[n] for n in nodes_of[u]), rank[u]), reverse=True)

        ready = [u for u in units if not missing[u]]
        stack = [(ready, candidates(ready))]
        while len(order) < len(units):
            budget -= 1
            ready, choices = stack[-1]
            if budget < 0 or (not choices and not order):
                raise self._cycle(list(units), depth)
            if not choices:
                stack.pop()
                give_back()
                continue
            u = choices.pop()
            ready = [r for r in ready if r is not u] + take(u)
            stack.append((ready, candidates(ready)))
        return order


def check(fusion: Fusion) -> None:
    """Check that a total order exists. Raises :class:`OrderError` naming the tensors to inline less, :class:`TaskError` for a broken law."""
    sequence(fusion, complete(fusion), SharedLoops.of(fusion))
