"""What becomes of each node of a graph, and which nodes must keep their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import Any

import torch
from torch.fx import Node

from taskfuse.torch.metadata import results, size_hint

NUMBER = "it is a number"
"""Why torch runs a node whose value is not a tensor."""


WRITES = "it writes to its argument"
"""Why torch runs a node that mutates, unless a region takes it (:mod:`taskfuse.torch.in_place`)."""


class NodeKind(Enum):
    """The fate of a node: fused, computed again by its readers, or left to torch."""

    GIVEN = "given"
    GLUE = "computed again where it is read"
    MATH = "fused"
    TORCH = "left to torch"


@dataclass(slots=True)
class GraphPartition:
    """The fate of every node, and the regions.

    Attributes:
        kinds: of every node.
        reasons: why nodes are left to torch.
        regions: the nodes of each region, producers first.
        levels: of every node; those of a region's nodes are equal.
        able: nodes that could be in fusions, whether they are or not.
        groups: regions that are told by what they compute (:mod:`taskfuse.torch.product_groups`), in the order of the graph.
        group_of: the group of a node.
        earlier: what must run before a region that writes into an argument of the graph, besides what it reads: nodes of torch, and regions.
    """

    kinds: dict[Node, NodeKind]
    reasons: dict[Node, str]
    regions: list[list[Node]]
    levels: dict[Node, int]
    region_of: dict[Node, int] = field(default_factory=dict[Node, int])
    able: set[Node] = field(default_factory=set[Node])
    groups: list[list[Node]] = field(default_factory=list[list[Node]])
    group_of: dict[Node, int] = field(default_factory=dict[Node, int])
    earlier: dict[int, set[Node | int]] = field(default_factory=dict[int, "set[Node | int]"])

    def add(self, nodes: list[Node]) -> None:
        """Make nodes a region."""
        self.region_of |= dict.fromkeys(nodes, len(self.regions))
        self.regions.append(nodes)

    def take(self, node: Node, number: int, before: set[Node | int]) -> None:
        """Make a node that writes to its argument part of the region that makes what it writes, which then runs after ``before``."""
        self.kinds[node] = NodeKind.MATH
        self.levels[node] = self.levels[self.regions[number][0]]
        self.reasons.pop(node, None)
        self.able.add(node)
        self.region_of[node] = number
        self.regions[number].append(node)
        self.earlier.setdefault(number, set()).update(before)

    def leave(self, node: Node, reason: str) -> None:
        """Leave a node to torch that was taken; what had to run before its region still does."""
        self.regions[self.region_of.pop(node)].remove(node)
        self.kinds[node] = NodeKind.TORCH
        self.reasons[node] = reason
        self.able.discard(node)
        self.levels[node] = max(self.levels.values())  # after all that may read what it overwrites

    def dissolve(self, number: int, reason: str) -> None:
        """Leave the nodes of a region to torch after all."""
        nodes = self.regions[number]
        for node in [n for n in nodes if mutates(n)]:
            self.leave(node, WRITES)
        for node in nodes:
            self.kinds[node] = NodeKind.TORCH
            self.reasons[node] = reason
            self.region_of.pop(node, None)
        for before in self.earlier.values():
            if number in before:
                before.remove(number)
                before.update(nodes)
        self.regions[number] = []


def mutates(node: Node) -> bool:
    """Whether a node writes to what it reads."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and bool(schema.is_mutable)


def is_ordered(node: Node) -> bool:
    """Whether a node keeps its order among nodes of this kind: it has an effect, or draws random numbers."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return node.op == "call_function" and isinstance(target, torch._ops.HigherOrderOperator)
    if torch.Tag.nondeterministic_seeded in target.tags and _drops_nothing(node):
        return mutates(node)
    return torch.Tag.nondeterministic_seeded in target.tags or mutates(node) or bool(node.is_impure())


def _drops_nothing(node: Node) -> bool:
    """Whether a node's only random numbers are those of a dropout of probability 0."""
    given = argument(node, "dropout_p")
    return isinstance(given, int | float) and given == 0


def argument(node: Node, name: str) -> Any:
    """An argument of an op by its name in the schema; ``None`` if it has no such argument."""
    target: Any = node.target
    for place, own in enumerate(target._schema.arguments):
        if own.name == name:
            return node.args[place] if place < len(node.args) else node.kwargs.get(name, own.default_value)
    return None


def op_name(node: Node) -> str:
    """The name of a node's op without namespace and overload; empty if it is not an op."""
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None else schema.name.split("::")[1]


def elements(node: Node) -> int:
    """The elements of a tensor; where extents are symbols, in the call for which torch traces."""
    return max((prod(map(size_hint, v.shape)) for v in results(node) if isinstance(v, torch.Tensor)), default=0)
