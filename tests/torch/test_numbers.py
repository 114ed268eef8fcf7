"""Integers that inputs tell are not computed op by op."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch.graphs import check


def test_sizes_of_views_are_expressions_of_the_sizes_of_inputs() -> None:
    def function(x: Any) -> Any:
        y = (x.exp() + 1)[:, :-1]
        return y.reshape(y.shape[0] * y.shape[1]).sum(0) * y.shape[1]

    source = check(function, torch.randn(4, 5), symbolic=True, fusions=1).program.source
    assert "sym_size" not in source
    assert "operator." not in source


def test_sizes_that_depend_on_data_are_computed() -> None:
    def doubled(x: Any) -> Any:
        y = x.unique()
        return y.exp() * y.shape[0]

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        source = check(doubled, torch.randn(4), symbolic=True).program.source
    assert "sym_size" in source
