"""Copies into arguments: together where their order does not matter."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.torch.compilation import listeners, program_of
from tests.torch.graphs import REFERENCE, compiled, traced

copy: Any = torch.ops.aten.copy_.default


def source_of(function: Any, *inputs: Any) -> Any:
    """The program of a function that writes to its arguments, which functionalization leaves alone."""

    def first(*tensors: Any) -> list[Any]:
        return [tensors[0] * 1.0]

    graph = traced(first, *inputs)
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    output = next(n for n in graph.graph.nodes if n.op == "output")
    with graph.graph.inserting_before(output):
        function(graph.graph, *placeholders)
    return program_of(graph, "inference", REFERENCE)


def test_running_statistics_are_written_together() -> None:
    torch.manual_seed(0)
    model, same = (torch.nn.Sequential(torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.BatchNorm1d(8)) for _ in range(2))
    same.load_state_dict(model.state_dict())
    x = torch.randn(16, 8)
    reports: list[Any] = []
    listeners.append(reports.append)
    try:
        with torch.no_grad():
            run = compiled(model)
            got, want = [run(x), run(x + 1)], [same(x), same(x + 1)]
    finally:
        listeners.remove(reports.append)
    for a, b in zip([*got, *model.state_dict().values()], [*want, *same.state_dict().values()], strict=True):
        torch.testing.assert_close(a, b)
    source = reports[0].program.source
    assert source.count("_foreach_copy_") == 1, f"numbers of batches; fusions write the floats:\n{source}"
    assert "aten_copy_" not in source


def test_copies_that_depend_on_their_order_stay_apart() -> None:
    """An element that one writes and another reads, or both write."""

    def chain(graph: Any, a: Any, b: Any, c: Any) -> None:
        graph.call_function(copy, (a, b))
        graph.call_function(copy, (b, c))

    def twice(graph: Any, a: Any, b: Any, c: Any) -> None:
        graph.call_function(copy, (a, b))
        graph.call_function(copy, (a, c))

    def apart(graph: Any, a: Any, b: Any, c: Any) -> None:
        graph.call_function(copy, (a, c))
        graph.call_function(copy, (b, c))

    for function, is_joined in ((chain, False), (twice, False), (apart, True)):
        x = [torch.full([4], float(k)) for k in range(3)]
        program = source_of(function, *x)
        assert ("_foreach_copy_" in program.source) == is_joined, program.source
        found = [t.clone() for t in x]
        program(list(found))
        wanted = {chain: [1.0, 2.0, 2.0], twice: [2.0, 1.0, 2.0], apart: [2.0, 2.0, 2.0]}[function]
        assert [float(t[0]) for t in found] == wanted


def test_other_forms_are_copied_alone() -> None:
    def casts(graph: Any, a: Any, b: Any, c: Any) -> None:
        graph.call_function(copy, (a, c))
        graph.call_function(copy, (b, c))

    program = source_of(casts, torch.zeros(4), torch.zeros(4), torch.ones(4, dtype=torch.int64))
    assert "_foreach_copy_" not in program.source
    program = source_of(casts, torch.zeros(4), torch.zeros(4), torch.ones(1))
    assert "_foreach_copy_" not in program.source
