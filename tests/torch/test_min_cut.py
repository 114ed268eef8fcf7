"""Minimum cuts: those of networkx, on random networks; what a network is asked beyond them is networkx's."""

import math
import random
import sys
from typing import Any

import pytest

pytest.importorskip("torch")
networkx: Any = pytest.importorskip("networkx")

from taskfuse.torch.min_cut import Network, cuts_without_networkx, minimum_cut

CAPACITIES = 0.0, 1.0, 2.0, 0.25, 3.75, 2.0**40, math.inf
"""Whose sums are exact in networkx's floats, too."""


def networks(seed: int) -> tuple[Network, Any]:
    """A random network, twice."""
    draw, ours, theirs = random.Random(seed), Network(), networkx.DiGraph()
    names = ["source", "sink", *map(str, range(draw.randint(1, 10)))]
    for graph in (ours, theirs):
        graph.add_edge("source", "0", capacity=2.0)
        graph.add_edge("0", "sink")  # an edge without a capacity takes all
    for _ in range(draw.randint(1, 40)):
        u, v, capacity = draw.choice(names), draw.choice(names), draw.choice(CAPACITIES)
        for graph in (ours, theirs):
            graph.add_edge(u, v, capacity=capacity)
    return ours, theirs


def found(cut: Any, graph: Any) -> object:
    try:
        value, (near, far) = cut(graph, "source", "sink")
    except networkx.NetworkXUnbounded as error:
        return str(error)
    return value, set(near), set(far)


def test_cuts_are_those_of_networkx() -> None:
    answers: list[object] = []
    for seed in range(150):
        ours, theirs = networks(seed)
        answers.append(found(minimum_cut, ours))
        assert answers[-1] == found(networkx.minimum_cut, theirs), seed
    assert 10 < sum(isinstance(answer, str) for answer in answers) < 140  # some have a way of infinite capacity


def test_capacities_are_exact() -> None:
    """In floats 0.1 + 0.2 is more than 0.3: the flow through the first edge would not fill the other two, or too soon."""
    network = Network()
    for u, v, capacity in (("source", "a", 0.1 + 0.2), ("a", "b", 0.1), ("a", "c", 0.2), ("b", "sink", math.inf), ("c", "sink", 1)):
        network.add_edge(u, v, capacity=capacity)
    assert minimum_cut(network, "source", "sink") == (0.1 + 0.2, ({"source", "a"}, {"b", "c", "sink"}))


def test_a_way_of_infinite_capacity_is_an_error_of_networkx_where_that_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "networkx")
    with cuts_without_networkx():
        nx: Any = pytest.importorskip("networkx")
        network = nx.DiGraph()
        network.add_edge("source", "sink", capacity=math.inf)
        with pytest.raises(nx.NetworkXUnbounded, match="Infinite capacity path"):
            nx.minimum_cut(network, "source", "sink")
        assert type(network) is Network


def test_nodes_that_are_not_there_are_an_error_of_networkx() -> None:
    network = Network()
    network.add_edge("source", "a", capacity=1)
    with pytest.raises(networkx.NetworkXError, match="sink"):
        minimum_cut(network, "source", "sink")


def test_what_else_is_asked_of_a_network_is_networkx() -> None:
    network = Network()
    network.add_edge("a", "b", capacity=1)
    network.add_edge("a", "b", reason="twice")
    assert network["a"]["b"] == {"capacity": 1, "reason": "twice"}
    assert list(network.successors("a")) == ["b"]
    assert list(networkx.readwrite.edgelist.generate_edgelist(network)) == ["a b {'capacity': 1, 'reason': 'twice'}"]
    with pytest.raises(AttributeError, match="no_such"):
        network.no_such()
