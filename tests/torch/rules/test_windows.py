"""Pooling, resizing, sampling with torch's signatures."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F

from tests.torch.graphs import check

aten: Any = torch.ops.aten

CASES: dict[str, Callable[[Any], Any]] = {
    "avg": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "avg_ceil": lambda x: F.avg_pool2d(x, (3, 2), 2, 1, True, False),
    "avg_divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "max": lambda x: aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1]),
    "max_dilated": lambda x: aten.max_pool2d_with_indices(x, [2], [], [0], [2], True),
    "adaptive": lambda x: aten._adaptive_avg_pool2d(x, [4, 3]),
    "adaptive_max": lambda x: aten.adaptive_max_pool2d(x, [4, 3]),
    "avg_backward": lambda x: aten.avg_pool2d_backward(x[:, :, :5, :4], x, [3, 3], [2, 2], [1, 1], False, True, None),
    "avg_backward_ceil": lambda x: aten.avg_pool2d_backward(x[:, :, :5, :4].exp(), x, [3, 2], [2, 2], [1, 0], True, False, None),
    "avg_backward_divisor": lambda x: aten.avg_pool2d_backward(x[:, :, :4, :4], x, [2, 2], [], [0, 0], False, True, 3),
    "adaptive_backward": lambda x: aten._adaptive_avg_pool2d_backward(x[:, :, :3, :2], x),
    "max_backward": lambda x: aten.max_pool2d_with_indices_backward(
        x[:, :, :5, :4], x, [3, 3], [2, 2], [1, 1], [1, 1], False, aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])[1]
    ),
    "nearest": lambda x: aten.upsample_nearest2d(x, [5, 13]),
    "nearest_scale": lambda x: aten.upsample_nearest2d(x, None, [2.0, 2.0]),
    "bilinear": lambda x: aten.upsample_bilinear2d(x, [5, 13], True),
    "bicubic": lambda x: aten.upsample_bicubic2d(x, [5, 13], False),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_torch(name: str) -> None:
    torch.manual_seed(0)
    check(CASES[name], torch.randn(2, 3, 9, 8), fusions=1)


@pytest.mark.parametrize(("mode", "padding"), [(0, 1), (1, 2), (2, 0)])
def test_samples(mode: int, padding: int) -> None:
    torch.manual_seed(0)
    check(lambda x, g: aten.grid_sampler_2d(x, g, mode, padding, False), torch.randn(2, 3, 9, 8), torch.rand(2, 4, 5, 2) * 2.4 - 1.2, fusions=1)


def test_scales_that_are_no_ratios_are_left_to_torch() -> None:
    found = check(lambda x: aten.upsample_nearest2d(x, None, [1.7, 1.7]), torch.randn(1, 1, 4, 4), fusions=0)
    assert "is not the ratio" in found.ops[0][3]
