"""Which nodes of a graph become fusions: convex regions of importable nodes, found in time linear in the graph.

**Levels.** An importable node that computes has the greatest level of what it reads, where a read from a node that is left to torch adds one.
A node left to torch has the greatest level of what it reads. Levels never fall along an edge, and rise on every path from one region through torch into
another. So the connected nodes of one level form a convex region: no path leaves and reenters it, and no two regions wait for each other.
How large regions are cut, and which small ones are put together, is in :mod:`taskfuse.torch.pieces`.
A product with what follows it (:mod:`taskfuse.torch.product_groups`) is a region of its own, with the level of a node that is left to torch.

Views, and constants, which cost nothing to recompute, belong to no region: each region that reads one recomputes it,
and torch runs it where torch reads it. Nodes that mutate, or have an effect or a random state, are left to torch and keep their order; what was
written before one that mutates runs before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node

from taskfuse.torch.aliases import Alias
from taskfuse.torch.fates import NUMBER, WRITES, GraphPartition, NodeKind, elements, is_ordered, mutates, op_name
from taskfuse.torch.importer import SLOWER, refusal
from taskfuse.torch.metadata import Refused, meta_of, results
from taskfuse.torch.pieces import pieces, sources_of
from taskfuse.torch.product_groups import JOINED, Measure, product_groups
from taskfuse.torch.rules.reductions import PRODUCTS

GLUE = frozenset(
    name
    for line in (
        "view _unsafe_view reshape unsqueeze squeeze flatten permute t transpose expand slice select alias detach",
        "full full_like scalar_tensor zeros zeros_like ones ones_like",
        "new_zeros new_ones new_full arange iota split split_with_sizes unbind as_strided diagonal unfold",
    )
    for name in line.split()
)
"""Ops that are views, or make constants."""


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """Options of the partition.

    Attributes:
        device: the type of the devices whose nodes become regions.
        products: whether all matrix products belong to regions.
        least: regions of fewer nodes that compute are left to torch.
        most: greater regions are cut where the fewest tensors cross.
        measure: decides about products whose expected times are near torch's.
    """

    device: str = "cuda"
    products: bool = False
    least: int = 1
    most: int = 40
    measure: Measure | None = None


def planned(graph: Graph, limits: PartitionLimits, known: dict[Any, str | None] | None = None) -> GraphPartition:
    """The partition of a graph.

    Args:
        known: takes what was found of ops, for another partition of the same graph (:func:`~taskfuse.torch.importer.refusal`).
    """
    plan = GraphPartition({}, {}, [], {})
    known = {} if known is None else known
    for node in graph.nodes:
        kind, reason = _kind(node, plan, limits, known)
        plan.kinds[node] = kind
        if kind is NodeKind.TORCH:
            plan.reasons[node] = reason
    for group in product_groups(graph, plan, limits.measure):
        plan.group_of |= dict.fromkeys(group, len(plan.groups))
        plan.groups.append(group)
    _level(graph, plan)
    _sink(graph, plan)
    for part in pieces(_components(graph, plan), plan, limits.most):
        if len([n for n in part if n.target is not getitem]) < limits.least:
            for node in part:
                plan.kinds[node] = NodeKind.TORCH
                plan.reasons[node] = "alone: nothing to fuse it with"
            continue
        plan.add(part)
    for group in plan.groups:
        plan.add(group)
    return plan


def _kind(node: Node, plan: GraphPartition, limits: PartitionLimits, known: dict[Any, str | None]) -> tuple[NodeKind, str]:
    if node.op in ("placeholder", "get_attr", "output"):
        return NodeKind.GIVEN, ""
    if node.target is getitem and plan.kinds.get(node.args[0]) in (NodeKind.MATH, NodeKind.GLUE):
        return plan.kinds[node.args[0]], ""
    first = next((v for v in results(node) if isinstance(v, torch.Tensor)), None)
    if first is None and not isinstance(node.meta.get("val"), tuple | list):
        return NodeKind.TORCH, NUMBER
    if mutates(node):
        return NodeKind.TORCH, WRITES
    if is_ordered(node):
        return NodeKind.TORCH, "it has an effect, or draws random numbers"
    if first is None or first.device.type != limits.device:
        return NodeKind.TORCH, f"it is on {'no device' if first is None else first.device.type}"
    name = op_name(node)
    reason = refusal(node, known)
    if reason is None or reason.startswith(SLOWER):
        plan.able.add(node)
    if reason is None and name in JOINED and not (limits.products and name in PRODUCTS):
        reason = JOINED[name]
    if reason is not None:
        return NodeKind.TORCH, reason
    is_glue = name in GLUE and all(_is_plain(arg) for arg in node.all_input_nodes)
    return (NodeKind.GLUE, "") if is_glue else (NodeKind.MATH, "")


def _is_plain(node: Node) -> bool:
    """Whether torch can view a tensor that a region makes as it views this one: regions keep torch's strides."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return True
    try:
        meta_of(value)
    except Refused:
        return False
    return True


def _level(graph: Graph, plan: GraphPartition) -> None:
    """Levels of every node; see the module."""
    inside: dict[Node, int] = {}  # for readers in regions
    outside: dict[Node, int] = {}  # for torch
    ordered = highest = floor = 0
    for node in graph.nodes:
        read_inside = max((inside[a] for a in node.all_input_nodes), default=0)
        read_outside = max((outside[a] for a in node.all_input_nodes), default=0)
        match plan.kinds[node]:
            case NodeKind.MATH if node in plan.group_of:
                group = plan.groups[plan.group_of[node]]
                level = max([read_outside, floor, *(outside[n] for n in group if n in outside)])
                for n in group if node is group[-1] else [node]:  # before, only views that the group computes again read them
                    plan.levels[n] = outside[n] = level
                    inside[n] = level + 1
            case NodeKind.MATH:
                level = max(read_inside, floor)
                inside[node] = outside[node] = level
            case NodeKind.TORCH:
                level = max(read_outside, floor)
                if mutates(node):
                    level = max(level, highest)
                    floor = level + 1
                if is_ordered(node):
                    ordered = level = max(level, ordered)
                outside[node], inside[node] = level, level + 1
            case NodeKind.GIVEN | NodeKind.GLUE:
                level = read_outside
                inside[node], outside[node] = read_inside, read_outside
        plan.levels[node] = level
        highest = max(highest, level)


def _sink(graph: Graph, plan: GraphPartition) -> None:
    """Raise the level of nodes that nothing on their own level reads to that of their first readers, with which they then form a region.

    A reduction of what its own level computes stays: its result is smaller than what it reads. No node is computed behind one that mutates and comes after it.
    """
    latest: dict[Node, int | None] = {}  # the greatest level at which a node may be computed; ``None``: any
    joins: dict[Node, set[int]] = {}  # levels at which regions read it
    before: int | None = None  # the level of the next node that mutates
    for node in reversed(graph.nodes):
        limits = [before, *(latest[user] for user in node.users)] if node.users else []
        limit = min((limit for limit in limits if limit is not None), default=None)
        if mutates(node):
            before = plan.levels[node]
        levels = {level for user in node.users for level in joins[user]}
        match plan.kinds[node]:
            case NodeKind.MATH if node in plan.group_of:
                latest[node], joins[node] = plan.levels[node], set()
            case NodeKind.MATH if node.target is getitem:  # it is where what it is a part of is
                latest[node], joins[node] = limit, levels
            case NodeKind.MATH:
                own = plan.levels[node]
                fused = any(plan.levels[s] == own for s in sources_of(node, plan))
                if limit is not None and limit > own and own not in levels and limit in levels and not (fused and _shrinks(node)):
                    plan.levels[node] = limit
                    plan.levels |= {user: limit for user in node.users if user.target is getitem}
                latest[node], joins[node] = plan.levels[node], {plan.levels[node]}
            case NodeKind.TORCH:
                latest[node], joins[node] = plan.levels[node], set()
            case NodeKind.GLUE:
                latest[node], joins[node] = limit, levels
            case NodeKind.GIVEN:
                latest[node], joins[node] = None, set()


def _shrinks(node: Node) -> bool:
    """Whether a node's result has fewer elements than the greatest tensor that it reads."""
    return elements(node) < max((elements(a) for a in node.all_input_nodes), default=0)


SHARED = 1 << 16
"""Elements of a tensor from which on its readers are fused, so that it is read once."""


def _components(graph: Graph, plan: GraphPartition) -> list[list[Node]]:
    """The nodes of each level that read one another."""
    parent: dict[Node, Node] = {}

    def root(node: Node) -> Node:
        while parent[node] is not node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for node in graph.nodes:
        if plan.kinds[node] is NodeKind.MATH and node not in plan.group_of:
            parent[node] = node
            for source in sources_of(node, plan):
                if plan.levels[source] == plan.levels[node]:
                    parent[root(source)] = root(node)
    for readers in _readers_of_large(parent, plan).values():
        for node in readers[1:]:
            parent[root(node)] = root(readers[0])
    found: dict[Node, list[Node]] = {}
    for node in parent:
        found.setdefault(root(node), []).append(node)
    return list(found.values())


def _readers_of_large(nodes: Iterable[Node], plan: GraphPartition) -> dict[tuple[Node, int], list[Node]]:
    """The nodes of a level that read one large tensor, which is most of what each of them reads."""
    found: dict[tuple[Node, int], list[Node]] = {}
    for node in nodes:
        read = [n for n in read_by_region([node], plan) if isinstance(n.meta.get("val"), torch.Tensor)]
        sizes = {n: elements(n) for n in read}
        for n, size in sizes.items():
            if size >= SHARED and 2 * size >= sum(sizes.values()):
                found.setdefault((n, plan.levels[node]), []).append(node)
    return found


def outputs_of(graph: Graph, plan: GraphPartition) -> list[list[Node]]:
    """The nodes of each region whose tensors are read outside it: by torch, by another region, or by the caller."""
    readers: dict[Node, set[int]] = {}  # regions, or OUTSIDE; two suffice to know that there are several
    found: list[list[Node]] = [[] for _ in plan.regions]
    for node in reversed(graph.nodes):
        match plan.kinds[node]:
            case NodeKind.MATH:
                readers[node] = {plan.region_of[node]}
                read = {r for user in node.users for r in readers[user]}
                if (read - readers[node] or mutates(node)) and isinstance(node.meta["val"], torch.Tensor):
                    found[plan.region_of[node]].append(node)
            case NodeKind.GLUE:
                readers[node] = set(sorted({r for user in node.users for r in readers[user]})[:3])
            case _:
                readers[node] = {OUTSIDE}
    return [nodes[::-1] for nodes in found]


OUTSIDE = -1


def emitted(graph: Graph, plan: GraphPartition, more: Mapping[int, Sequence[Node]], views: Mapping[Node, Alias]) -> list[Node | int]:
    """The order in which the graph runs: nodes of torch in their order, each region before its first reader, what torch need not run left out.

    Args:
        more: what regions read beside their tensors: the nodes that give their integers.
        views: nodes that are made of one other node alone.
    """
    found: list[Node | int] = []
    done: set[Node | int] = set()
    read: Mapping[int, set[Node | int]] = {
        number: read_by_region(nodes, plan) | set(more.get(number, ())) | plan.earlier.get(number, set()) for number, nodes in enumerate(plan.regions)
    }
    pending = sorted((plan.levels[nodes[0]], number) for number, nodes in enumerate(plan.regions) if nodes)
    next_pending = 0

    def demand(target: Node | int) -> None:
        stack: list[tuple[Node | int, bool]] = [(target, False)]
        while stack:
            at, ready = stack.pop()
            if not isinstance(at, int) and at in plan.region_of:
                at = plan.region_of[at]
            if at in done:
                continue
            if ready:
                done.add(at)
                found.append(at)
                continue
            needed = read[at] if isinstance(at, int) else {views[at].base} if at in views else set(at.all_input_nodes)
            if not isinstance(at, int) and at.op in ("placeholder", "get_attr"):
                done.add(at)
                continue
            stack.append((at, True))
            stack += [(n, False) for n in needed]

    for node in graph.nodes:
        match plan.kinds[node]:
            case NodeKind.TORCH if not isinstance(node.meta.get("val"), torch.SymInt | torch.SymBool | torch.SymFloat):
                if mutates(node):
                    while next_pending < len(pending) and pending[next_pending][0] <= plan.levels[node]:
                        demand(pending[next_pending][1])
                        next_pending += 1
                demand(node)
            case NodeKind.MATH if mutates(node):
                demand(node)
            case NodeKind.GIVEN if node.op == "output":
                for arg in node.all_input_nodes:
                    demand(arg)
            case _:
                pass
    return found


def read_by_region(nodes: Sequence[Node], plan: GraphPartition) -> set[Node]:
    """What a region reads from outside."""
    own = set(nodes)
    found: set[Node] = set()
    stack = [a for n in nodes for a in n.all_input_nodes]
    seen: set[Node] = set()
    while stack:
        arg = stack.pop()
        if arg in own or arg in seen:
            continue
        seen.add(arg)
        if plan.kinds[arg] is NodeKind.GLUE:
            stack += arg.all_input_nodes
        else:
            found.add(arg)
    return found
