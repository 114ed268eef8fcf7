"""A kernel as a networkx graph."""

import json
from pathlib import Path

import networkx as nx
import pytest

from taskfuse.kir import accesses, barrier_slots, parse_kernel, walk
from taskfuse.kir.channels import channels
from taskfuse.kir.graph import kernel_graph
from taskfuse.kir.kernel import Kernel

KERNELS = sorted((Path(__file__).parents[1] / "kernels").glob("*.kir"))


def parsed(path: Path) -> Kernel:
    return parse_kernel(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_statements_and_what_they_touch(path: Path) -> None:
    kernel = parsed(path)
    graph = kernel.graph()
    for place, stmt in enumerate(walk(kernel)):
        node = graph.nodes[place]
        assert node["type"] == type(stmt).__name__
        assert node["text"] in str(kernel)
        written, read = accesses(stmt)
        assert all(graph.edges[place, a.buffer]["action"] == "writes" for a in written)
        assert all(graph.edges[a.buffer, place]["action"] == "reads" for a in read)
        assert all(graph.has_edge(place, b.name) or graph.has_edge(b.name, place) for b in barrier_slots(stmt))
        assert node["parent"] is None or node["parent"] < place
    assert all(isinstance(a, int) != isinstance(b, int) for a, b in graph.edges)
    assert all("kind" in data for _, data in graph.nodes(data=True)), "an edge leads to nothing that is declared"
    json.dumps([graph.graph, list(graph.nodes(data=True)), list(graph.edges(data=True))])


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_ends_of_channels_are_the_roles_at_their_barriers(path: Path) -> None:
    kernel = parsed(path)
    graph = kernel_graph(kernel)
    for channel in channels(kernel).channels:
        for name, nodes in ((channel.full, channel.consumers), (channel.empty, channel.producers)):
            assert graph.nodes[name]["channel"] == channel.name
            waiting = {graph.nodes[p]["role"] or kernel.name for p in graph.successors(name)}
            assert waiting == set(nodes)
        assert all(graph.nodes[name]["channel"] == channel.name for name in channel.buffers)


def test_a_copy_engine_reads_the_tensor_of_its_map() -> None:
    kernel = parsed(next(path for path in KERNELS if path.stem == "gemm"))
    graph = kernel_graph(kernel)
    loads = [place for place, data in graph.nodes(data=True) if data.get("type") == "TmaLoad"]
    assert loads
    for place in loads:
        assert {graph.nodes[name]["kind"] for name in graph.predecessors(place)} == {"input"}
        assert sorted(graph.edges[place, name]["action"] for name in graph.successors(place)) == ["signals", "writes"]


def test_every_output_depends_on_an_input() -> None:
    """What users ask of it: through which statements data come. Barriers are left out: they carry none."""
    kernel = parsed(next(path for path in KERNELS if path.stem == "gemm"))
    graph = kernel_graph(kernel)
    data = nx.subgraph_view(graph, filter_edge=lambda a, b: graph.edges[a, b]["action"] in ("reads", "writes"))
    for output in kernel.outputs:
        assert set(nx.dfs_preorder_nodes(data.reverse(), output.name)) >= {x.name for x in kernel.inputs}
