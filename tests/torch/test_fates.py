"""Which nodes keep their places, and how large their results are."""

from typing import Any

import pytest

from tests.calls import Of

torch = pytest.importorskip("torch")

from taskfuse.torch.fates import GraphPartition, NodeKind, argument, elements, is_ordered, mutates, op_name
from tests.torch.graphs import traced

aten: Any = torch.ops.aten


def last(function: Of[Any, Any], *inputs: Any) -> Any:
    """The last node of a function's graph that computes a tensor."""
    return [n for n in traced(function, *inputs).graph.nodes if n.op == "call_function" and "aten" in str(n.target)][-1]


def test_random_ops_are_ordered_unless_they_drop_nothing() -> None:
    q = torch.randn(1, 2, 4, 8)

    def attention(dropout: float) -> Any:
        graph = traced(lambda q: aten._scaled_dot_product_flash_attention_for_cpu(q, q, q, dropout)[0], q).graph
        return next(n for n in graph.nodes if "dot_product" in op_name(n))

    assert not is_ordered(attention(0.0))
    assert is_ordered(last(torch.rand_like, q))
    assert not is_ordered(last(torch.exp, q))


def test_mutations() -> None:
    assert not mutates(last(torch.exp, torch.ones(2)))


def test_elements_and_names() -> None:
    node = last(lambda x: x.t().exp(), torch.randn(3, 5))
    assert (elements(node), op_name(node)) == (15, "exp")
    total = last(lambda x: x.sum(1, keepdim=True), torch.randn(3, 5))
    assert [argument(total, name) for name in ("dim", "keepdim", "dtype", "other")] == [[1], True, None, None]


def test_a_region_that_is_dissolved_is_torchs() -> None:
    node = last(torch.exp, torch.ones(2))
    plan = GraphPartition({node: NodeKind.MATH}, {}, [], {})
    plan.add([node])
    assert plan.region_of == {node: 0}
    plan.dissolve(0, "because")
    assert (plan.kinds[node], plan.reasons[node], plan.region_of) == (NodeKind.TORCH, "because", {})
