"""A fusion and its task tree as networkx graphs."""

import json

import networkx as nx

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.ir.graph import task_graph, tensor_graph


def chain() -> tf.Fusion:
    with tf.Fusion("chain") as fusion:
        x = tf.define_tensor([4, "N"], "float32", name="x")
        w = tf.define_tensor([4, 8], "float16", name="w")
        alpha = tf.define_scalar("float32", name="alpha")
        squared = tf.mul(x, x).named("squared")
        flipped = tf.flip(squared, 0).named("flipped")
        y = tf.mul(flipped, alpha).named("y")
        z = tf.abs(w).named("z")
        fusion.add_output(y, z)
    return fusion


def test_nodes_say_what_tensors_are() -> None:
    graph = tensor_graph(chain())
    assert graph.graph == {"name": "chain"}
    assert {name: data["kind"] for name, data in graph.nodes(data=True)} == {
        "alpha": "scalar",
        "x": "input",
        "w": "input",
        "squared": "intermediate",
        "flipped": "intermediate",
        "y": "output",
        "z": "output",
    }
    x, w, flipped = (graph.nodes[name] for name in ("x", "w", "flipped"))
    assert (x["dtype"], x["shape"], x["bytes"], x["op"], x["task"]) == ("float32", (4, "N"), None, None, None)
    assert (w["dtype"], w["shape"], w["bytes"]) == ("float16", (4, 8), 64)
    assert flipped["is_view"]
    assert not graph.nodes["y"]["is_view"]
    assert graph.nodes["squared"]["op"] == "mul"
    assert "test_graph.py" in graph.nodes["squared"]["location"]


def test_edges_say_where_operands_stand_and_what_is_read() -> None:
    graph = tensor_graph(chain())
    assert graph.edges["x", "squared"] == {"positions": (0, 1), "maps": ("[i0, i1]", "[i0, i1]"), "valid": (None, None)}
    assert graph.edges["squared", "flipped"]["maps"] == ("[3 - i0, i1]",)
    assert graph.edges["alpha", "y"] == {"positions": (1,), "maps": ("[]",), "valid": (None,)}
    assert set(nx.dfs_preorder_nodes(graph.reverse(), "y")) == {"x", "alpha", "squared", "flipped", "y"}


def test_parts_of_an_assembly_have_their_places() -> None:
    with tf.Fusion("cat") as fusion:
        a, b = tf.define_tensor([2, 3], name="a"), tf.define_tensor([2, 5], name="b")
        parts = tf.sin(a).named("p"), tf.cos(b).named("q")
        y = tf.cat(parts, 1).named("y")
        fusion.add_output(y)
    y.scatter()
    graph = fusion.graph()
    assert [graph.edges[part, "y"]["maps"] for part in graph.predecessors("y")] == [("[i0, i1] at [i0, i1]",), ("[i0, i1] at [i0, i1 + 3]",)]


def test_the_order_is_topological_whatever_the_order_of_making() -> None:
    """A copy put in front of a tensor is made after it, and stands before it."""
    fusion = chain()
    fusion.tensor("y").cache_before()
    graph = fusion.graph()
    place = {name: k for k, name in enumerate(graph)}
    assert all(place[a] < place[b] for a, b in graph.edges)
    assert nx.is_directed_acyclic_graph(graph)


def founding() -> tf.Fusion:
    with tf.Fusion("founding") as fusion:
        x = tf.define_tensor(["N", 32], name="x")
        a, b = tf.sin(x).named("a"), tf.cos(x).named("b")
        y = tf.add(a, b).named("y")
        z = tf.neg(y).named("z")
        fusion.add_output(z)
    beside = fusion.group([fusion.task([a], "s"), fusion.task([b], "c")], "beside")
    roles = fusion.group([beside, fusion.task([y], "add")], "roles")
    beside.parallelize(P.TIDz)
    roles.parallelize(P.TIDy)
    return fusion


def test_tasks_and_groups() -> None:
    fusion = founding()
    graph = task_graph(fusion)
    assert {name: data["parent"] for name, data in graph.nodes(data=True)} == {
        "root": None,
        "roles": "root",
        "beside": "roles",
        "s": "beside",
        "c": "beside",
        "add": "roles",
        "t0_1": "root",
    }
    assert graph.nodes["roles"]["members"] == ("beside", "add")
    assert [(graph.nodes[g]["kind"], graph.nodes[g]["parallel_type"]) for g in ("roles", "beside")] == [("vertical", "TIDy"), ("horizontal", "TIDz")]
    assert [(graph.nodes[t]["type"], graph.nodes[t]["tensors"]) for t in ("s", "t0_1")] == [("task", ("a",)), ("task", ("z",))]
    assert {(a, b): (d["tensors"], d["group"], d["is_channel"]) for a, b, d in graph.edges(data=True)} == {
        ("s", "add"): (("a",), "roles", True),
        ("c", "add"): (("b",), "roles", True),
        ("add", "t0_1"): (("y",), "root", False),
    }


def test_budgets() -> None:
    fusion = founding()
    s, c = (node for node in fusion.tasks.nodes if node.name in "sc")
    s.registers(40)
    c.registers()
    graph = fusion.tasks.graph()
    assert [graph.nodes[name]["registers"] for name in ("s", "c", "add")] == [40, "chosen", None]


def test_a_fusion_without_tasks() -> None:
    assert {name: data["parent"] for name, data in chain().tasks.graph().nodes(data=True)} == {"root": None, "t0": "root"}


def test_graphs_are_plain_data() -> None:
    """They can be written to a file, and changed without a change of the fusion."""
    fusion = founding()
    for make in (fusion.graph, fusion.tasks.graph):
        graph = make()
        json.dumps([graph.graph, list(graph.nodes(data=True)), list(graph.edges(data=True))])
        make().clear()
        assert make().nodes


def test_where_an_operand_exists_is_said() -> None:
    with tf.Fusion("pad") as fusion:
        x = tf.define_tensor([4], name="x")
        fusion.add_output(tf.pad(x, [(1, 0)]).named("y"))
    graph = fusion.graph()
    assert graph.nodes["y"]["shape"] == (5,)
    assert graph.edges["x", "y"]["maps"] == ("[i0 - 1]",)
    assert graph.edges["x", "y"]["valid"] == ("i0 >= 1",)
