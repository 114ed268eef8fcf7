"""Cycles and components, against networkx; orders."""

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.ir.connectivity import components, find_cycle, producers_first

NODES = st.integers(0, 7)
EDGES = st.lists(st.tuples(NODES, NODES), max_size=14)


def successors(edges: list[tuple[int, int]]) -> dict[int, list[int]]:
    graph: dict[int, list[int]] = {}
    for a, b in edges:
        graph.setdefault(a, []).append(b)
    return graph


@given(EDGES)
def test_a_cycle_is_found_where_there_is_one(edges: list[tuple[int, int]]) -> None:
    cycle = find_cycle(successors(edges))
    assert (cycle is None) == nx.is_directed_acyclic_graph(nx.DiGraph(edges))
    if cycle is not None:
        assert set(cycle) <= set(edges)
        assert [b for _, b in cycle] == [*(a for a, _ in cycle[1:]), cycle[0][0]]
        assert len({a for a, _ in cycle}) == len(cycle)


@given(EDGES)
def test_components_are_those_of_networkx(edges: list[tuple[int, int]]) -> None:
    nodes = list(range(8))
    graph = nx.Graph(edges)
    graph.add_nodes_from(nodes)
    found = components(nodes, edges)
    assert {frozenset(c) for c in found} == {frozenset(c) for c in nx.connected_components(graph)}
    assert found == sorted(map(sorted, found))


def test_the_first_cycle_of_a_depth_first_search() -> None:
    assert find_cycle({"a": ["b", "c"], "b": ["d"], "d": [], "c": ["e"], "e": ["c"]}) == [("c", "e"), ("e", "c")]
    assert find_cycle({"a": ["a"]}) == [("a", "a")]
    assert find_cycle({"a": ["b"]}) is None
    assert find_cycle({}) is None


def test_components_of_nothing() -> None:
    assert components([], []) == []
    assert components("ba", []) == [["b"], ["a"]]


def test_inputs_come_before_their_readers() -> None:
    inputs = {"d": ["b", "c"], "b": ["a"], "c": ["a"]}
    assert producers_first(["d", "e", "c"], lambda n: inputs.get(n, [])) == ["a", "b", "c", "d", "e"]
    assert producers_first(["c", "b"], lambda n: inputs.get(n, [])) == ["a", "c", "b"]
