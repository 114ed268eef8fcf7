"""Kernels with side conditions of every kind are drawn, each as often as its weight says."""

from collections import Counter

from taskfuse.errors import TaskfuseError
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.small.sides import SIDES, side_kernel


def test_every_kind_is_drawn() -> None:
    found: Counter[str] = Counter()
    for seed in range(350):
        try:
            found[side_kernel(RandomChooser(seed)).kind] += 1
        except TaskfuseError:
            found["refused"] += 1
    assert len(found) - ("refused" in found) >= len(SIDES)
    assert found["refused"] < 35
