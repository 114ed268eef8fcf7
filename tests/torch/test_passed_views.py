"""Views that a graph passes to fusions: steps of a recurrence are one fusion, and right; what a fusion makes is not passed."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch.graphs import check, foreign


def steps(x: Any, y: Any, h: Any) -> list[Any]:
    """A recurrence over time, with an op between the steps that no fusion takes."""
    found: list[Any] = []
    for at in range(x.shape[1]):
        h = foreign(h * x[:, at].sin() + y.unbind(1)[at] * x[:, at])
        found.append(h + 1)
    return [torch.stack(found, 1), h]


def test_steps_of_a_recurrence_are_one_fusion() -> None:
    """Which differ in where their slices begin; with few steps, each makes its own slices."""
    for count, different in ((6, 2), (3, 4)):
        found = check(steps, torch.randn(4, count, 6), torch.randn(4, count, 6), torch.randn(4, 6))
        assert len({c.text for _, c in found.fusions.values()}) == different
        assert ("viewed(" in found.program.source) == (count == 6)
        assert {len(region.tensors) for region, _ in found.fusions.values()} == {3, count}  # a slice that is read twice is passed once


def test_views_of_what_a_fusion_makes_stay_in_it() -> None:
    def several(x: Any) -> list[Any]:
        for k in range(4):
            y = x.sin()
            x = foreign(y[:, k] + x.t()[k])[:, None] + x
        return [x]

    found = check(several, torch.randn(5, 5))
    assert len({c.text for _, c in found.fusions.values()}) == len(found.fusions) == 5
    assert "viewed(" not in found.program.source
