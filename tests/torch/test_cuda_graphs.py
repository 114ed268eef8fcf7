"""Recording needs a GPU: what it is asked, and what is not recorded."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.torch.aot import aot_module_simplified
from taskfuse.torch.cuda_graphs import GraphRecorder, fixed_inputs
from tests.torch.graphs import traced


def test_graphs_on_the_host_are_not_recorded() -> None:
    recorder = GraphRecorder(1)
    graph = traced(lambda x: x.exp(), torch.randn(3))
    assert recorder.recorded(lambda inputs: inputs, graph, [torch.randn(3)], "inference") is None
    assert recorder.recorded(lambda inputs: inputs, graph, [torch.randn(3)], "backward") is None
    GraphRecorder.reset()


@pytest.mark.parametrize("train", [False, True])
def test_parameters_and_buffers_are_not_copied(train: bool) -> None:
    """A recorded graph copies its inputs, but for those at the same address in each call."""
    found: list[tuple[str, ...]] = []

    def compiler(gm: Any, _: Any) -> Any:
        names = [node.meta["val"].shape for node in gm.graph.nodes if node.op == "placeholder"]
        found.append(tuple(str(list(names[k])) for k in fixed_inputs(0)))
        return gm

    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5, affine=False))

    def backend(gm: Any, example: Any) -> Any:
        return aot_module_simplified(gm, example, fw_compiler=compiler, keep_inference_input_mutations=True)

    run = torch.compile(model, dynamic=False, backend=backend)
    with torch.set_grad_enabled(train):
        run(torch.randn(4, 3))
    assert sorted(found[0]) == ["[5, 3]", "[5]", "[5]", "[5]", "[]"], "not the batch of 4"
    assert not fixed_inputs(0)
    assert fixed_inputs(2) == (0, 1)
