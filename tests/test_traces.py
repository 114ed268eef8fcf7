"""The graphs of benchmarks/graphs: every one is read, and the fusion that is built of it has the tensors that the graph says."""

import sys
from pathlib import Path

import numpy as np
import pytest

import taskfuse as tf

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.aten import Graph, Unknown, fusion, graphs, parse

GRAPHS = {g.name: g for g in graphs()}


def built(graph: Graph) -> tf.Fusion:
    """The fusion of a graph, whose outputs are of the shapes and dtypes that were traced."""
    made = fusion(graph)
    wanted = {n.name: n for n in graph.nodes}
    for tv, name in zip(made.outputs, graph.outputs, strict=True):
        node = wanted[name]
        assert tuple(int(e) for e in tv.shape) == node.shape, name
        assert tv.dtype.name == node.dtype, name
    return made


def test_there_are_200() -> None:
    assert len(GRAPHS) == 200


def test_what_is_read_has_the_tensors_of_the_graph() -> None:
    for graph in GRAPHS.values():
        built(graph)


@pytest.mark.parametrize("name", ["rotary_bwd0_1", "deberta_fwd0_8", "contrastive_bwd0_3"])
def test_small_ones_compile(name: str) -> None:
    assert all(c.is_proved for c in tf.compile(built(GRAPHS[name]), backend="sim").certificates)


def test_a_text() -> None:
    graph = parse("g", "IN v0: float32[4, 6]\nv1: float32[4, 1] = sum.dim_IntList(v0, [1], true)\nv2: float32[4, 6] = sub.Tensor(v0, v1, alpha=2)\nOUT v2, v1")
    assert [n.name for n in graph.inputs] == ["v0"]
    assert graph.nodes[1].args[1:] == ((1,), True)
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    found = built(graph).evaluate(x)
    np.testing.assert_allclose(found[0], x - 2 * x.sum(1, keepdims=True))
    np.testing.assert_allclose(found[1], x.sum(1, keepdims=True))


def test_an_op_that_is_not_known_is_said() -> None:
    with pytest.raises(Unknown, match=r"convolution"):
        fusion(parse("g", "IN v0: float32[4]\nv1: float32[4] = convolution(v0)\nOUT v1"))
