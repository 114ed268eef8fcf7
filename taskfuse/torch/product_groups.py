"""Matrix products, convolutions, attention and its gradients: fusions with the math around them if these are expected to be no slower than torch.

torch multiplies matrices as fast as taskfuse does; a fusion saves the round trip of the result through memory: the epilogue is computed in the registers of the
product's sums, also of two products that are combined, as in a gated unit. One value leaves a group, or parts of one, so it is convex
wherever its operands come from; for the levels of the partition it is like a node left to torch.

The cost models of the schedulers give the time of the group; the time of torch is at least that of the products and of one kernel for the rest. If the
rest would be one kernel with readers of the result anyway, these read the result of the group, and with torch's products what the rest reads
(:mod:`taskfuse.torch.worth`): a cast to a wider dtype, for one, is not worth a group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from operator import getitem
from typing import Final

import torch
from torch.fx import Graph, Node

from taskfuse.errors import TaskfuseError
from taskfuse.ir.fusion import Fusion
from taskfuse.torch.fates import GraphPartition, NodeKind, argument, elements, mutates, op_name
from taskfuse.torch.importer import imported
from taskfuse.torch.metadata import Refused
from taskfuse.torch.random_states import is_state
from taskfuse.torch.rules.attention import ATTENTION, GRADIENTS
from taskfuse.torch.rules.reductions import PRODUCTS
from taskfuse.torch.rules.windows import CONVOLUTIONS
from taskfuse.torch.worth import attention_times, gradient_times, product_times, row_times

JOINED: Final = (
    dict.fromkeys(PRODUCTS, "a matrix product")
    | dict.fromkeys(CONVOLUTIONS, "a convolution")
    | dict.fromkeys(ATTENTION, "attention")
    | dict.fromkeys(GRADIENTS, "gradients of attention")
)
"""The ops that groups are made around, and what reports say where torch computes them."""

MOST: Final = 8
"""The most nodes that follow a product."""

MOST_TO_ROWS: Final = 32
"""The most nodes between a product and a narrow value that is computed of it."""

NARROW: Final = 64
"""How many times as many elements a product has as such a value."""

NEAR: Final = 1.5
"""How many times as long as by torch a group may be expected to take where it is measured."""

Times = tuple[float, float]
Measure = Callable[[Sequence[Node], Sequence[Node], GraphPartition, bool], Times | None]
"""Measures a group: :class:`taskfuse.torch.measuring.Measurement`."""


def product_groups(graph: Graph, plan: GraphPartition, measure: Measure | None = None) -> list[list[Node]]:
    """Groups of nodes, each in the order of the graph; they are :attr:`NodeKind.MATH` from then on.

    Args:
        plan: the fate of every node; of products, that of torch's.
        measure: decides where expected times are near.

    Of the groups of a product, the greatest that is expected to be no slower than torch is taken, or a smaller one with a narrower result that gains more.
    """
    place = {node: k for k, node in enumerate(graph.nodes)}
    writes = [k for node, k in place.items() if mutates(node)]
    found: list[list[Node]] = []
    for node in graph.nodes:
        if not _is_free(node, plan):
            continue
        best: list[Node] = []
        gain = -math.inf
        is_alone = op_name(node) in (*ATTENTION, *GRADIENTS)
        for group in _alone(node) if is_alone else [*_to_rows(node, plan, place), *_around(node, plan, measure is not None)]:
            group.sort(key=place.__getitem__)
            if any(place[group[0]] < k < place[group[-1]] for k in writes) or (best and not _is_narrower(group[-1], best[-1])):
                continue
            times = _times(group, plan)
            if times is None:
                continue
            ours, theirs = times
            if ours <= theirs * (1 if measure is None else NEAR) and theirs - ours > gain:
                best, gain = group, theirs - ours
            plan.reasons[node] = f"{JOINED[op_name(node)]}, expected times: {ours:.0f} us as a fusion, {theirs:.0f} us by torch"
        if best and measure is not None:
            products = [n for n in best if op_name(n) in JOINED]
            measured = measure(best, products, plan, _joins(best[-1], plan))
            if measured is not None:
                ours, theirs = measured
                gain = theirs - ours
                plan.reasons[node] = f"{JOINED[op_name(node)]}, measured times: {ours:.1f} us as a fusion, {theirs:.1f} us by torch"
            if gain < 0:
                best = []
        for member in best:
            plan.kinds[member] = NodeKind.MATH
            plan.reasons.pop(member, None)
        found += [best] if best else []
    return found


def _is_free(node: Node, plan: GraphPartition) -> bool:
    """Whether a node is a product that torch would compute and a fusion can be made of."""
    return plan.kinds[node] is NodeKind.TORCH and node in plan.able and plan.reasons.get(node, "").startswith(JOINED.get(op_name(node), "-"))


def _is_narrower(node: Node, other: Node) -> bool:
    """Whether the elements of a node have fewer bytes than those of another."""
    return node.meta["val"].element_size() < other.meta["val"].element_size()


def _alone(node: Node) -> list[list[Node]]:
    return [[node, *(u for u in node.users if u.target is getitem)]]


def _to_rows(node: Node, plan: GraphPartition, place: Mapping[Node, int]) -> list[list[Node]]:
    """The group of a product whose elements reductions alone need, such as the logits of a loss, up to the first narrow value that all else is computed of;
    none if there is no such value.

    Args:
        place: of each node in the graph.
    """
    if op_name(node) not in PRODUCTS:
        return []
    group, seen = [node], {node}
    readers = [(place[user], user) for user in node.users]
    heapify(readers)
    while readers and len(group) <= MOST_TO_ROWS:
        _, reader = heappop(readers)
        if reader in seen:
            continue
        if plan.kinds[reader] not in (NodeKind.MATH, NodeKind.GLUE):
            return []
        seen.add(reader)
        if plan.kinds[reader] is NodeKind.MATH:
            group.append(reader)
            is_tensor = isinstance(reader.meta.get("val"), torch.Tensor)
            if is_tensor and all(other in seen for _, other in readers) and elements(reader) * NARROW <= elements(node):
                return [group]
        for user in reader.users:
            heappush(readers, (place[user], user))
    return []


def _around(node: Node, plan: GraphPartition, alone: bool) -> list[list[Node]]:
    """The groups of a product to try, the greatest first: with what follows it, and what that reads besides, if nothing else reads it;
    of a convolution, alone, too, and of all if they are measured."""
    chain = [node]
    while len(chain) <= MOST and (reader := _reader(chain[-1], node, plan)) is not None:
        chain.append(reader)
    found: list[list[Node]] = []
    for length in range(len(chain), 0 if alone or op_name(node) in CONVOLUTIONS else 1, -1):
        group = dict.fromkeys(chain[:length])
        stack = list(chain[1:length])
        while stack:
            for arg in _operands(stack.pop(), plan):
                is_part = arg not in group and (_is_math(arg, node, plan) or (_is_free(arg, plan) and elements(arg) == elements(node)))
                if is_part and _readers(arg, plan) <= group.keys():
                    group[arg] = None
                    if not _is_free(arg, plan):
                        stack.append(arg)
        found.append(list(group))
        if len(group) > length:
            found.append(chain[:length])
    return found


def _is_math(node: Node, product: Node, plan: GraphPartition) -> bool:
    """Whether a node may compute one element of each of a product's."""
    same = isinstance(node.meta.get("val"), torch.Tensor) and elements(node) == elements(product)
    return plan.kinds[node] is NodeKind.MATH and node.target is not getitem and same


def _reader(node: Node, product: Node, plan: GraphPartition) -> Node | None:
    """The only reader of a node, through views, if it may follow a product."""
    readers = _readers(node, plan)
    only = next(iter(readers)) if len(readers) == 1 else None
    return only if only is not None and _is_math(only, product, plan) else None


def _readers(node: Node, plan: GraphPartition) -> set[Node]:
    """Who reads a node, also through views."""
    return set(_through_views(node, lambda n: n.users, plan))


def _operands(node: Node, plan: GraphPartition) -> list[Node]:
    """What a node reads, also through views."""
    return list(_through_views(node, lambda n: n.all_input_nodes, plan))


def _through_views(node: Node, neighbors: Callable[[Node], Iterable[Node]], plan: GraphPartition) -> Iterator[Node]:
    """The neighbors of a node; in place of a view, the neighbors of that."""
    stack = list(neighbors(node))
    while stack:
        found = stack.pop()
        if plan.kinds[found] is NodeKind.GLUE:
            stack += neighbors(found)
        else:
            yield found


def _joins(last: Node, plan: GraphPartition) -> bool:
    """Whether a reader of a group's result would be in the fusion of what follows torch's product."""
    return any(plan.kinds[r] is NodeKind.MATH for r in _readers(last, plan))


def _times(group: Sequence[Node], plan: GraphPartition) -> Times | None:
    """Expected microseconds of a group, and of torch's ops; ``None`` if no scheduler of products takes it."""

    def fusion(nodes: Sequence[Node], outputs: Sequence[Node]) -> Fusion:
        return imported(nodes, outputs, lambda n: plan.kinds[n] is NodeKind.GLUE).typical

    try:
        if op_name(group[0]) in (*ATTENTION, *GRADIENTS):
            whole = fusion(group, [n for n in group if n.target is getitem and n.users and not is_state(n)])
            is_causal, own = argument(group[0], "is_causal") is True, attention_times if op_name(group[0]) in ATTENTION else gradient_times
            return own(whole, op_name(group[0]), is_causal)
        last, products = group[-1], [n for n in group if op_name(n) in PRODUCTS | CONVOLUTIONS]
        whole = fusion(group, [last])
        alone = [fusion([n], [n]) for n in products]
        rest = None if len(products) == len(group) else fusion([n for n in group if n not in products], [last])
        if rest is not None and elements(last) < elements(products[0]):
            return row_times(whole, alone, rest)
        joins = _joins(last, plan)
        has_views = any(op_name(n) in CONVOLUTIONS for n in products)
        return product_times(whole, alone, rest, joins, has_views=has_views)
    except (Refused, TaskfuseError):
        return None
