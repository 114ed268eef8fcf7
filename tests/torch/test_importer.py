"""Fusions of nodes: inputs, numbers, run-time integers, strides of outputs; why a node has none."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.torch.importer import imported, refusal
from taskfuse.torch.metadata import Refused
from taskfuse.torch.partition import GLUE
from tests.torch.graphs import check, foreign, traced


def test_a_region_says_what_the_graph_passes() -> None:
    graph = traced(lambda x, n: (x.t() * n).exp(), torch.randn(3, 4), torch.tensor(2.0, dtype=torch.float64)).graph
    nodes = [n for n in graph.nodes if n.op == "call_function"]
    math = [n for n in nodes if n.target._schema.name.split("::")[1] not in GLUE]
    region = imported(math, math[-1:], lambda n: n.op == "call_function" and n not in math)
    assert len(region.tensors) == 1
    assert len(region.numbers) == 1
    assert list(region.fusion.results[0].strides or ()) == [1, 4]
    assert region.restrided == (False,)


def test_reasons() -> None:
    graph = traced(lambda x: (foreign(x), torch.linalg.vector_norm(x, 3)), torch.randn(4)).graph
    reasons = {n.name: refusal(n, {}) for n in graph.nodes if n.op == "call_function"}
    assert reasons["foreign"] == "it is not an op of ATen"
    assert reasons["linalg_vector_norm"] == "the norm of order 3.0"


def test_equal_questions_are_asked_once() -> None:
    graph = traced(lambda x: x.exp().exp().exp(), torch.randn(4)).graph
    known: dict[object, str | None] = {}
    assert [refusal(n, known) for n in graph.nodes if n.op == "call_function"] == [None] * 3
    assert len(known) == 1


def test_a_symbol_that_is_no_extent_is_passed() -> None:
    def sliced(x: Any, n: Any) -> Any:
        return (x[: n.shape[0]] * n.shape[0]).exp() + 1

    check(sliced, torch.randn(6, 2), torch.zeros(3), symbolic=True, fusions=1)


@pytest.mark.parametrize("extent", [2, 5])
def test_symbolic_extents(extent: int) -> None:
    found = check(lambda x: torch.cat([x, x * 2], 1).exp().sum(1), torch.randn(extent, 3), symbolic=True)
    assert any(e.free for region, _ in found.fusions.values() for tv in region.fusion.inputs for e in tv.shape)


def test_inputs_whose_axes_are_in_another_order_lie_as_torch_has_them() -> None:
    """A transposed factor says so, and heads that were rows of positions; rows with gaps between them are loaded as they are, and share their kernel with
    others, and so do rows that are one."""

    def function(x: Any, y: Any, z: Any, heads: Any, row: Any) -> Any:
        return (x @ y.mT) * z + heads * row

    given = (
        torch.randn(2, 6, 8),
        torch.randn(2, 8, 10).mT,
        torch.randn(2, 6, 16)[..., :10],
        torch.randn(6, 2, 10).transpose(0, 1),
        torch.randn(10).expand(2, 6, 10),
    )
    graph = traced(function, *given).graph
    nodes = [n for n in graph.nodes if n.op == "call_function"]
    found = imported(nodes, nodes[-1:], lambda n: False)
    assert {tuple(map(int, tv.shape)): [int(e) for e in strides] for tv, strides in found.fusion.strides.items()} == {
        (2, 10, 8): [80, 1, 10],
        (2, 6, 10): [10, 20, 1],
    }
    assert len(found.tensors) == len(given)


HALF = torch.bfloat16
LOADED = {
    "rows of another tensor": torch.zeros(16, 24, dtype=HALF)[:, :16],
    "transposed": torch.zeros(16, 16, dtype=HALF).mT,
    "from an aligned element on": torch.zeros(16, 24, dtype=HALF)[:, 8:],
    "rows that threads copy": torch.zeros(15, 16, dtype=HALF).mT[:, :15],
}
NOT_LOADED = {
    "odd rows": torch.zeros(16, 17, dtype=HALF)[:, :16],
    "odd columns": torch.zeros(16, 17, dtype=HALF)[:, :16].mT,
    "every second element": torch.zeros(16, 32, dtype=HALF)[:, ::2],
    "one element": torch.zeros(1, dtype=HALF).expand(16, 16),
    "one column": torch.zeros(16, 1, dtype=HALF).expand(16, 16),
    "from the second element on": torch.zeros(16, 24, dtype=HALF)[:, 1:17],
}


@pytest.mark.parametrize("form", [*LOADED, *NOT_LOADED])
def test_products_whose_factors_the_copy_engine_cannot_load_are_left_to_torch(form: str) -> None:
    given = {**LOADED, **NOT_LOADED}[form]
    graph = traced(lambda x, y: (x @ y).relu(), given, torch.zeros(given.shape[1], 16, dtype=HALF)).graph
    nodes = [n for n in graph.nodes if n.op == "call_function"]
    if form in LOADED:
        assert imported(nodes, nodes[-1:], lambda n: False).fusion.inputs
        return
    with pytest.raises(Refused, match="the copy engine cannot load"):
        imported(nodes, nodes[-1:], lambda n: False)
    assert imported(nodes[-1:], nodes[-1:], lambda n: False).fusion.inputs


@pytest.mark.parametrize("step", [1, 2])
def test_symbolic_rows_of_products(step: int) -> None:
    """Rows without gaps may be multiples of 16 bytes, with strides that are too; every second element never is."""
    graph = traced(lambda x, y: x[..., 0] @ y, torch.zeros(16, 24, step, dtype=HALF), torch.zeros(24, 16, dtype=HALF), symbolic=True).graph
    product = [n for n in graph.nodes if n.op == "call_function"][-1:]
    if step == 1:
        assert imported(product, product, lambda n: False).fusion.inputs
    else:
        with pytest.raises(Refused, match="the copy engine cannot load"):
            imported(product, product, lambda n: False)


def test_sums_in_any_order_are_left_to_torch_where_results_must_not_depend_on_it() -> None:
    """Integers, and the greatest of floats, are the same in every order."""

    def function(x: Any, i: Any) -> Any:
        return x.scatter_add(0, i, x), x.int().scatter_add(0, i, x.int()), x.scatter_reduce(0, i, x, "amax")

    graph = traced(function, torch.randn(8), torch.zeros(8, dtype=torch.int64)).graph
    scattered = [n for n in graph.nodes if "scatter" in str(n.target)]
    assert [refusal(n, {}) for n in scattered] == [None] * 3
    torch.use_deterministic_algorithms(True)
    try:
        reasons = [refusal(n, {}) for n in scattered]
    finally:
        torch.use_deterministic_algorithms(False)
    assert reasons[0] is not None
    assert "deterministic" in reasons[0]
    assert reasons[1:] == [None] * 2


def test_quotients_of_extents_are_numbers() -> None:
    """As Python floats, they do not promote; torch computes with them in float32."""

    def function(x: Any, n: Any) -> Any:
        rows = x.shape[0]
        mean = x.shape[0] * 12 / 12
        return x.exp() * (rows / (rows - 1)), n + mean / (mean - 1.0), x.to(HALF) * (1.0 / mean) * 3

    check(function, torch.randn(50, 3), torch.arange(3), symbolic=True, fusions=3)
    check(lambda x: x.exp() ** (x.shape[0] / 3) + x.shape[0] ** 0.5, torch.rand(5, 3), symbolic=True)
