"""Views, slices, concatenations, constants with torch's signatures."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.torch.settings import Settings
from tests.torch.graphs import check

ALONE = Settings(strict=True, run="reference", cache=False, least=1)

CASES: dict[str, Callable[[Any], Any]] = {
    "views": lambda x: x.permute(2, 0, 1).reshape(6, 4)[1:5:2, -3:].unsqueeze(1).exp() + 1,
    "select": lambda x: x[:, -1].exp() * x.select(1, 0),
    "split": lambda x: [p.exp() for p in torch.split(x, 2, 1)],
    "unbind": lambda x: [p.exp() for p in x.unbind(1)],
    "cat": lambda x: torch.cat([x.exp(), x[:, :1], torch.empty(0)], 1),
    "stack": lambda x: torch.stack([x, x.exp()], -1),
    "flip": lambda x: x.exp().flip(0, 2),
    "pad": lambda x: torch.nn.functional.pad(x.exp(), (1, -1, 0, 2), value=3.0),
    "constants": lambda x: torch.zeros(3) + torch.full((3,), 2.5) + torch.arange(3) * x[0, 0],
    "arange": lambda x: torch.arange(5, 11, 2) * x.exp().sum().long(),
    "slice_scatter": lambda x: torch.slice_scatter(x.exp(), x[:, :2], 1, 1, 3),
    "slice_scatter with steps": lambda x: torch.slice_scatter(x.exp(), x[:, :2], 1, 1, 4, 2),
    "copy": lambda x: torch.ops.aten.copy(x.exp().long(), x[:, :1]),
    "select_scatter": lambda x: torch.select_scatter(x.exp(), x[:, 0], 1, -1),
    "expand": lambda x: x[:, :1].expand(-1, 7, -1).exp(),
    "repeat": lambda x: x.repeat(2, 1, 3).exp(),
    "triangles": lambda x: x[:, torch.tril_indices(4, 3, -1)[0], torch.tril_indices(4, 3, -1)[1]] + x[:, torch.triu_indices(4, 3, 1)[0], 0].sum(),
    "gradient of a diagonal": lambda x: torch.ops.aten.diagonal_backward(x[:, 0].exp(), [2, 4, 3], -1, 1, 2),
    "transposed": lambda x: x.transpose(0, 2).exp(),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_strides_are_those_of_torch(name: str) -> None:
    torch.manual_seed(0)
    check(CASES[name], torch.randn(2, 4, 3), settings=ALONE)


def test_strides_without_an_order_of_axes_are_left_to_torch() -> None:
    found = check(lambda x: torch.as_strided(x, (2, 2), (1, 1)).exp() + 1, torch.randn(4), fusions=1)
    assert any("as_strided" in line[1] and line[2] == "left to torch" for line in found.ops)


def test_slices_of_symbolic_extents_are_written() -> None:
    """Bounds that are known to lie in the axis, from either end."""
    check(lambda x: torch.slice_scatter(torch.slice_scatter(x.exp(), x[:, 1:-1], 1, 1, -1), x[:-1] * 2, 0, 0, -1), torch.randn(3, 5), symbolic=True, fusions=1)
