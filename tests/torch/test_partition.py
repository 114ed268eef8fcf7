"""Regions are convex, connected, never across what mutates; the order of what runs keeps effects and mutations in their places."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from operator import getitem
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx

from taskfuse.torch.compilation import program_of
from taskfuse.torch.fates import NodeKind
from taskfuse.torch.partition import PartitionLimits, emitted, outputs_of, planned
from tests.torch.graphs import REFERENCE, check, foreign, traced

HOST = PartitionLimits("cpu")


def random_function(seed: int, size: int) -> Any:
    """A function of a graph in which some ops have no fusion, some are views, and edges go anywhere."""

    def function(x: Any) -> Any:
        rng = random.Random(seed)
        values = [x, x * 2]
        for _ in range(size):
            a, b = rng.choice(values[-6:]), rng.choice(values)
            match rng.randrange(6):
                case 0:
                    values.append(foreign(a))
                case 1:
                    values.append(a.t())
                case 2:
                    values.append((a.exp() * 0.01).clamp(-1, 1))
                case _:
                    values.append(a * 0.5 + b)
        return [values[-1], values[size // 2] + 1]

    return function


def reaches(graph: Graph, sources: set[Node]) -> set[Node]:
    """The nodes that a way leads to from one of ``sources``."""
    found: set[Node] = set()
    for node in graph.nodes:
        if any(a in sources or a in found for a in node.all_input_nodes):
            found.add(node)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_regions_of_random_graphs_are_convex_and_run_in_an_order(seed: int) -> None:
    graph = traced(random_function(seed, 24), torch.randn(3, 3)).graph
    plan = planned(graph, HOST)
    for nodes in plan.regions:
        inside = set(nodes)
        after = reaches(graph, inside)
        outside = {n for n in after if n not in inside and plan.kinds[n] is not NodeKind.GLUE}
        assert not (reaches(graph, outside) & inside), "a way leaves the region and enters it again"
    order = emitted(graph, plan, {}, {})
    place: dict[Any, int] = {}
    for k, step in enumerate(order):
        for node in plan.regions[step] if isinstance(step, int) else [step]:
            place[node] = k
    for node, k in place.items():
        for arg in node.all_input_nodes:
            again = node in plan.region_of and plan.kinds[arg] is NodeKind.GLUE  # the region computes it again
            assert again or arg not in place or place[arg] <= k


@pytest.mark.parametrize("seed", range(4))
def test_random_graphs_compute_what_torch_does(seed: int) -> None:
    check(random_function(seed, 16), torch.randn(3, 3))


def test_unrelated_ops_are_not_fused() -> None:
    found = check(lambda x, y: (foreign(x.exp() + 1), foreign(y.exp() + 1)), torch.randn(3), torch.randn(4), fusions=2)
    assert {line[2] for line in found.ops} == {"fusion 0", "fusion 1", NodeKind.TORCH.value}


def test_readers_of_a_large_tensor_are_fused() -> None:
    plan = planned(traced(lambda x: (foreign(x.exp().sum(1)), foreign(x.sin().sum(0))), torch.randn(256, 256)).graph, HOST)
    assert len(plan.regions) == 1
    plan = planned(traced(lambda x: (foreign(x.exp().sum(1)), foreign(x.sin().sum(0))), torch.randn(16, 16)).graph, HOST)
    assert len(plan.regions) == 2


def test_what_is_computed_early_sinks_to_its_only_reader() -> None:
    """``x * 2 + 1`` could run before the sort; it is read after it, and belongs to that region."""
    found = check(lambda x: foreign(x) * (x * 2 + 1), torch.randn(8), fusions=1)
    assert sum(line[2] == "fusion 0" for line in found.ops) == 3


def test_one_op_is_a_fusion_unless_there_must_be_more() -> None:
    check(lambda x: x.exp(), torch.randn(3), fusions=1)
    found = check(lambda x: x.exp(), torch.randn(3), settings=replace(REFERENCE, least=2), fusions=0)
    assert found.ops[0][3] == "alone: nothing to fuse it with"


def test_a_region_that_is_too_large_is_cut() -> None:
    graph = traced(random_function(3, 60), torch.randn(3, 3)).graph
    sizes = [len(nodes) for nodes in planned(graph, PartitionLimits("cpu", most=8)).regions]
    assert max(sizes) <= 8


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_a_cut_leaves_the_results_of_a_node_with_it(most: int) -> None:
    """Also where they come long after it, as the partitioner of AOTAutograd may put them."""

    def function(x: Any) -> list[Any]:
        var, mean = torch.var_mean(x, -1)
        y = x.sin().cos()
        return [var + y.exp().sum(-1), mean * y.sum(-1)]

    x = torch.randn(6, 4)
    gm = traced(function, x)
    for node in [n for n in gm.graph.nodes if n.target is getitem]:
        next(n for n in gm.graph.nodes if n in node.users).prepend(node)
    gm.graph.lint()
    for got, want in zip(program_of(gm, "inference", replace(REFERENCE, most=most))([x]), function(x), strict=True):
        torch.testing.assert_close(got, want)


def test_no_region_crosses_a_mutation() -> None:
    """The sine is taken of x before it is written to, and the cosine after."""
    graph = Graph()
    x = graph.placeholder("x")
    value = torch.randn(4)
    aten = torch.ops.aten

    def call(op: Any, *args: Any) -> Any:
        node = graph.call_function(op, args)
        node.meta["val"] = value
        return node

    x.meta["val"] = value
    before = call(aten.sin.default, call(aten.exp.default, x))
    written = call(aten.copy_.default, x, call(aten.mul.Tensor, call(aten.neg.default, x), 3))
    after = call(aten.cos.default, call(aten.exp.default, x))
    graph.output([before, after, written])
    plan = planned(graph, HOST)
    assert plan.kinds[written] is NodeKind.TORCH
    order = emitted(graph, plan, {}, {})
    place = {node: k for k, step in enumerate(order) for node in (plan.regions[step] if isinstance(step, int) else [step])}
    assert place[before] < place[written] < place[after]


def test_random_ops_keep_their_order() -> None:
    graph = traced(lambda x: (torch.rand_like(x) * 2 + x, torch.rand_like(x) + 1), torch.randn(4)).graph
    order = emitted(graph, planned(graph, HOST), {}, {})
    names = [str(step.target) for step in order if not isinstance(step, int)]
    assert [name for name in names if "rand" in name] == ["aten.rand_like.default"] * 2


def test_only_what_is_read_outside_leaves_a_region() -> None:
    plan_graph = traced(lambda x: (x.exp() + 1).sin(), torch.randn(4)).graph
    plan = planned(plan_graph, HOST)
    assert [len(nodes) for nodes in outputs_of(plan_graph, plan)] == [1]


def test_time_is_linear_in_the_graph() -> None:
    graphs = [traced(random_function(1, size), torch.randn(3, 3)).graph for size in (60, 480)]
    seconds: list[float] = []
    for graph in graphs:
        start = time.process_time()
        plan = planned(graph, HOST)
        emitted(graph, plan, {}, {})
        seconds.append((time.process_time() - start) / len(graph.nodes))
    assert seconds[1] < 6 * seconds[0]


def test_nothing_is_computed_behind_what_mutates_what_it_reads() -> None:
    """A node goes to the region of its first reader, but not across a node that mutates."""

    def function(x: Any, y: Any) -> Any:
        before = x.exp()
        torch.ops.aten.copy_.default(x, y.sin())
        return before + foreign(y)

    x, y = torch.randn(4, 5), torch.randn(4, 5)
    graph = make_fx(function, tracing_mode="fake")(x, y)
    graph.graph.output_node().args = ([graph.graph.output_node().args[0]],)
    want = x.exp() - y
    (got,) = program_of(graph, "inference", REFERENCE)([x, y])
    torch.testing.assert_close(got, want)
