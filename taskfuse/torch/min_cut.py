"""Minimum cuts, for the partitioner of AOTAutograd: which values a forward graph keeps for its backward graph.

The partitioner asks networkx for them, whose import takes longer than the cut. Here is what it asks for. A network has many minimum cuts; as networkx's, the
one that is given has the fewest nodes on the side of the sink: those from which the sink can be reached when the flow is greatest, whichever greatest flow it
is. Capacities are floats and are compared with sums of them, so that arithmetic is of their exact values, as integers of one unit.

The flow is Dinic's: shortest paths, all of one length at once (E. A. Dinic, "Algorithm for Solution of a Problem of Maximum Flow in Networks", 1970).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Hashable
from contextlib import contextmanager
from typing import Any

from taskfuse.torch.stand_ins import GRAPHS, asking, standing_in


@contextmanager
def cuts_without_networkx() -> Generator[None]:
    """Inside, a minimum cut is found without networkx, unless it is imported."""
    with standing_in(GRAPHS, {"DiGraph": Network, "minimum_cut": minimum_cut}):
        yield


class Network(dict[Any, dict[Any, dict[str, Any]]]):
    """A directed graph as networkx's ``DiGraph`` shows it: what each node leads to, with the attributes of the edges. All else is asked of a ``DiGraph``."""

    def add_edge(self, u: Hashable, v: Hashable, **attributes: Any) -> None:
        """Add an edge, or attributes to one."""
        self.setdefault(u, {}).setdefault(v, {}).update(attributes)
        self.setdefault(v, {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.of_networkx(), name)

    def of_networkx(self) -> Any:
        """The same as a ``DiGraph``."""
        graph = asking(f"{GRAPHS}:DiGraph")()
        graph.add_edges_from((u, v, data) for u, leads in self.items() for v, data in leads.items())
        return graph


def minimum_cut(network: Network, source: Hashable, sink: Hashable) -> tuple[float, tuple[set[Any], set[Any]]]:
    """The capacity of a minimum cut, and the nodes on the side of the source and on that of the sink.

    Args:
        network: the capacity of an edge is its attribute ``capacity``; without one it is infinite.

    Raises:
        networkx.NetworkXUnbounded: there is a way of infinite capacity.
        networkx.NetworkXError: source or sink are not in the network, or are one.
    """
    flow = _Flow(network)
    if source not in network or sink not in network or source == sink or not flow.is_sent(source, sink):
        return asking(f"{GRAPHS}:minimum_cut")(network.of_networkx(), source, sink)  # the error, in its words
    beyond = flow.leading_to(sink)
    value = sum(data["capacity"] for u, leads in network.items() if u not in beyond for v, data in leads.items() if v in beyond)
    return value, (network.keys() - beyond, beyond)


class _Flow:
    """A flow through a network: edges by number, and what each still takes; edge ``k ^ 1`` leads back along edge ``k``."""

    def __init__(self, network: Network) -> None:
        self.out: dict[Any, list[int]] = {node: [] for node in network}
        self.ends: list[Any] = []
        self.left: list[int] = []
        edges = [(u, v, data.get("capacity", math.inf)) for u, leads in network.items() for v, data in leads.items() if u != v]
        ratios = [None if math.isinf(c) else c.as_integer_ratio() for _, _, c in edges]
        unit = math.lcm(*{below for _, below in filter(None, ratios)})
        sizes = [None if ratio is None else ratio[0] * (unit // ratio[1]) for ratio in ratios]
        self.infinite = sum(filter(None, sizes)) + 1  # more than any finite cut
        for (u, v, _), size in zip(edges, sizes, strict=True):
            self.out[u].append(len(self.ends))
            self.out[v].append(len(self.ends) + 1)
            self.ends += v, u
            self.left += self.infinite if size is None else size, 0

    def is_sent(self, source: Hashable, sink: Hashable) -> bool:
        """Send all that can be sent; whether that is finite."""
        sent = 0
        while sent < self.infinite and sink in (levels := self._levels(source)):
            following = dict.fromkeys(levels, 0)
            while sent < self.infinite and (way := self._way(source, sink, levels, following)):
                most = min(self.left[k] for k in way)
                for k in way:
                    self.left[k] -= most
                    self.left[k ^ 1] += most
                sent += most
        return sent < self.infinite

    def _levels(self, source: Hashable) -> dict[Any, int]:
        """The number of edges to each node that can still be reached."""
        levels: dict[Any, int] = {source: 0}
        reached = [source]
        for node in reached:
            for k in self.out[node]:
                if self.left[k] and self.ends[k] not in levels:
                    levels[self.ends[k]] = levels[node] + 1
                    reached.append(self.ends[k])
        return levels

    def _way(self, source: Hashable, sink: Hashable, levels: dict[Any, int], following: dict[Any, int]) -> list[int]:
        """Edges from source to sink, each a level further; empty if there are no more. ``following``: of each node, which edge to try next."""
        way: list[int] = []
        node = source
        while node != sink:
            out = self.out[node]
            while following[node] < len(out):
                k = out[following[node]]
                if self.left[k] and levels.get(self.ends[k]) == levels[node] + 1:
                    way.append(k)
                    node = self.ends[k]
                    break
                following[node] += 1
            else:
                if not way:
                    return []
                node = self.ends[way.pop() ^ 1]
                following[node] += 1
        return way

    def leading_to(self, sink: Hashable) -> set[Any]:
        """The nodes from which the sink can be reached."""
        found, new = {sink}, [sink]
        for node in new:
            for k in self.out[node]:
                if self.left[k ^ 1] and self.ends[k] not in found:
                    found.add(self.ends[k])
                    new.append(self.ends[k])
        return found
