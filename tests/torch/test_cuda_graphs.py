"""Recording needs a GPU: what it is asked, and what is not recorded."""

import pytest

torch = pytest.importorskip("torch")

from taskfuse.torch.cuda_graphs import GraphRecorder
from tests.torch.graphs import traced


def test_graphs_on_the_host_are_not_recorded() -> None:
    recorder = GraphRecorder(1)
    graph = traced(lambda x: x.exp(), torch.randn(3))
    assert recorder.recorded(lambda inputs: inputs, graph, [torch.randn(3)], "inference") is None
    assert recorder.recorded(lambda inputs: inputs, graph, [torch.randn(3)], "backward") is None
    GraphRecorder.reset()
