"""Rows of the table of ops as rules: by kind and by names of arguments."""

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
    found = check(lambda x: torch.ops.aten.diagonal(x, 0, 1, 2).exp() + 1, torch.randn(2, 3, 3), settings=Settings(strict=True, run="reference", cache=False))
    assert found.fusions


def test_an_axis_may_be_called_dimension() -> None:
    def windows(x: Any) -> Any:
        return x.unfold(1, 2, 1)

    gm = make_fx(windows, tracing_mode="fake")(torch.ones(3, 4, 2))
    (node,) = (n for n in gm.graph.nodes if n.op == "call_function")
    assert refusal(node, {}) is None
