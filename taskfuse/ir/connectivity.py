"""Cycles, connected components and orders of directed graphs, given as mappings from a node to its successors.

A result depends only on the order of the mapping and of the successors, so a message names the same nodes in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

from taskfuse.ir.identity import place_of

N = TypeVar("N", bound=Hashable)


def find_cycle(successors: Mapping[N, Iterable[N]]) -> list[tuple[N, N]] | None:
    """The edges of the first cycle that a depth-first search finds, or ``None``."""
    done: set[N] = set()
    for root in successors:
        path: dict[N, Iterator[N]] = {} if root in done else {root: iter(successors[root])}
        while path:
            node, following = next(reversed(path.items()))
            successor = next((n for n in following if n not in done), None)
            if successor is None:
                done.add(node)
                del path[node]
            elif successor in path:
                nodes = list(path)
                cycle = nodes[place_of(successor, nodes) :]
                return list(zip(cycle, [*cycle[1:], successor], strict=True))
            else:
                path[successor] = iter(successors.get(successor, ()))
    return None


def components(nodes: Iterable[N], edges: Iterable[tuple[N, N]]) -> list[list[N]]:
    """The weakly connected components: each in the order of ``nodes``, and sorted by their first nodes."""
    parent = {node: node for node in nodes}

    def root(node: N) -> N:
        while parent[node] is not node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for a, b in edges:
        parent[root(b)] = root(a)
    found: dict[N, list[N]] = {}
    for node in parent:
        found.setdefault(root(node), []).append(node)
    return list(found.values())


def producers_first(nodes: Iterable[N], inputs: Callable[[N], Iterable[N]]) -> list[N]:
    """``nodes`` and all their dependencies, each after its inputs, otherwise in the given order; the graph has no cycle."""
    done: set[N] = set()
    order: list[N] = []
    for start in nodes:
        stack = [start]
        while stack:
            node = stack[-1]
            waiting = [] if node in done else [n for n in inputs(node) if n not in done]
            if waiting:
                stack += reversed(waiting)
                continue
            stack.pop()
            if node not in done:
                done.add(node)
                order.append(node)
    return order
