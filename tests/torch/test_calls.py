"""How ops left to torch are called: by a function that reaches the same op."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.torch.calls import FunctionName, OpName, allocator, function_of, reached, viewer
from tests.torch.graphs import traced


def test_functions_are_those_that_reach_the_op() -> None:
    def function(x: Any, w: Any) -> list[Any]:
        return [torch.addmm(x, x, w), torch.nn.functional.gelu(x), x.add(2), torch.native_layer_norm(x, [4], None, None, 1e-5)[0]]

    graph = traced(function, torch.randn(4, 4), torch.randn(4, 4)).graph
    found = {node.target._schema.name: function_of(node, {}) for node in graph.nodes if hasattr(node.target, "_schema")}
    assert found["aten::addmm"] == FunctionName("torch", "addmm")
    assert found["aten::gelu"] == FunctionName("torch.nn", "gelu")
    assert found["aten::native_layer_norm"] == FunctionName("torch", "native_layer_norm")
    for name in found.values():
        assert name is not None
        assert callable(pickle.loads(pickle.dumps(name)).found())


def test_a_function_that_reaches_another_op_is_not_taken() -> None:
    x = torch.randn(4, 4)
    assert reached(torch.add, (x, x), {}) is torch.ops.aten.add.Tensor
    assert reached(torch.matmul, (x, x), {}) is torch.ops.aten.mm.default
    assert reached(torch.add, (x, "no"), {}) is None
    (node,) = (n for n in traced(lambda x: torch.ops.aten.linear.default(x, x), x).graph.nodes if n.target is torch.ops.aten.addmm.default or "mm" in n.name)
    assert function_of(node, {}) is not None


def test_answers_are_by_kinds_of_arguments() -> None:
    graph = traced(lambda x: [x.mul(2), x.mul(3), x.mul(x)], torch.randn(3)).graph
    known: dict[Any, Any] = {}
    for node in graph.nodes:
        function_of(node, known)
    assert len(known) == 2


def test_ops_by_name() -> None:
    x = torch.randn(3)
    assert torch.equal(pickle.loads(pickle.dumps(OpName("aten", "add", "Tensor"))).found()(x, x), x + x)


def test_short_ways_to_make_tensors_and_views() -> None:
    y = allocator(torch.device("cpu"))((2, 3), (1, 2), torch.float32)
    assert (y.shape, y.stride(), y.dtype) == ((2, 3), (1, 2), torch.float32)
    x = torch.arange(12.0)
    assert torch.equal(viewer()(x[2:], (2, 2), (1, 4), 1), torch.tensor([[3.0, 7.0], [4.0, 8.0]]))
