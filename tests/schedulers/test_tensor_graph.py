"""Who reads whom, and what follows for the sets of tensors that kernels compute."""

import pytest

import taskfuse as tf
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.tensor_graph import TensorGraph
from taskfuse.target import DEFAULT

Built = tuple[TensorGraph, dict[str, tf.TensorView]]


@pytest.fixture
def built() -> Built:
    """Rows less their means, and their exponentials: ``x -> total -> mean -> less -> out``, and ``x -> less``."""
    with tf.Fusion("rows") as fusion:
        x = tf.define_tensor([8, 16], name="x")
        total = tf.sum(x, 1, keepdims=True)
        mean = total / 16.0
        less = x - mean
        out = tf.exp(less)
        fusion.add_output(out)
    named = {"x": x, "total": total, "mean": mean, "less": less, "out": out}
    return TensorGraph(fusion, Sizes(fusion, None, DEFAULT)), named


def test_readers_are_those_that_read(built: Built) -> None:
    graph, t = built
    assert t["x"] not in set(graph.tensors)
    assert graph.readers[t["x"]] == {tv for tv in graph.tensors if t["x"] in set(graph.reads[tv])}
    assert t["out"] in graph.readers[t["less"]]
    assert graph.size(t["out"]) == 8 * 16 * 4


def test_a_set_that_needs_what_follows_from_it_is_not_convex(built: Built) -> None:
    graph, t = built
    alone = {tv: frozenset([tv]) for tv in graph.tensors}
    assert graph.is_convex(alone, frozenset([t["less"], t["out"]]))
    assert not graph.is_convex(alone, frozenset([graph.tensors[0], t["out"]]))
    assert graph.is_convex(alone, frozenset(graph.tensors))


def test_producers_come_first_and_elementwise_functions_begin_with_their_readers(built: Built) -> None:
    graph, t = built
    begun = graph.beginning()
    assert next(p for p in begun if t["out"] in p) >= {t["less"]}
    first, *_, last = graph.in_order(begun[::-1])
    assert t["out"] in last
    assert t["out"] not in first
    assert t["less"].name not in dict(graph.crossing(begun))
    assert graph.saved(first, last) > 0
    assert graph.connected(frozenset(graph.tensors)) == [frozenset(graph.tensors)]
