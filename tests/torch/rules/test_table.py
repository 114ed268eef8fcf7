"""Rows of the table of ops as rules: by kind and by names of arguments."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx

from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.torch.importer import refusal
from taskfuse.torch.rules.call import RULES
from taskfuse.torch.rules.table import elementwise, rule_of
from taskfuse.torch.settings import Settings
from tests.torch.graphs import check


def test_every_elementwise_function_of_torch_has_a_rule() -> None:
    aten = [name for name in ELEMENTWISE if hasattr(torch.ops.aten, name) and name not in RULES and name not in ("copy", "fma", "square")]
    assert len(aten) > 40
    assert [name for name in aten if rule_of(name, "default") not in (elementwise, None)] == []


def test_an_op_that_is_missing_has_no_rule() -> None:
    assert rule_of("nonzero", "default") is None
    assert rule_of("no_such_op", "default") is None


def test_an_overload_may_have_a_rule_of_its_own() -> None:
    assert rule_of("round", "decimals") is not rule_of("round", "default")


def test_functions_with_other_arguments_are_left_to_torch() -> None:
    def places(x: Any) -> Any:
        return torch.bucketize(x, x[0, :2].sort().values, out_int32=True).exp() + x

    found = check(places, torch.randn(2, 3), settings=Settings(strict=True, run="reference", cache=False))
    assert any("bucketize" in line[1] and line[3] == "out_int32= is not taken" for line in found.ops)


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "diagonal": lambda x, i: torch.diagonal(x, 1, 0, -1) * 2,
    "diagonal_scatter": lambda x, i: torch.diagonal_scatter(x * 2, x[:, 0], 0, 1, 2),
    "shifts": lambda x, i: (i >> 1, torch.ops.aten.__lshift__.Scalar(i, 2), torch.ops.aten.__and__.Scalar(i, 1)),
    "topk": lambda x, i: torch.topk(x, 2, 1, sorted=False)[0].sum(1),
    "sort": lambda x, i: torch.sort(x, dim=1, stable=True, descending=True),
    "roll": lambda x, i: x.roll((1, 2), (1, 2)),
    "triu": lambda x, i: x.triu(1),
    "xlogy": lambda x, i: torch.xlogy(x, x.abs()),
    "cross": lambda x, i: torch.linalg.cross(x, x.flip(1), dim=1),
    "searchsorted": lambda x, i: torch.searchsorted(x.sort(-1).values, x, right=True),
    "isin": lambda x, i: torch.isin(i, i[0]),
    "pixel_shuffle": lambda x, i: torch.pixel_shuffle(x.reshape(1, 9, 2, 1), 3),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_may_have_the_names_of_torch(name: str) -> None:
    torch.manual_seed(0)
    found = check(CALLS[name], torch.randn(2, 3, 3), torch.randint(0, 9, (2, 3)), settings=Settings(strict=True, run="reference", cache=False, least=1))
    assert not [line for line in found.ops if line[3]]


def test_an_axis_may_be_called_dimension() -> None:
    def windows(x: Any) -> Any:
        return x.unfold(1, 2, 1)

    gm = make_fx(windows, tracing_mode="fake")(torch.ones(3, 4, 2))
    (node,) = (n for n in gm.graph.nodes if n.op == "call_function")
    assert refusal(node, {}) is None
