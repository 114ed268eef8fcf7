"""Where small kernels visit elements, and what is changed of their texts."""

import random

import pytest

from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.small.index_maps import Grid, box, other


def test_a_change_is_one() -> None:
    text = "y[4*w + threadIdx.x//2] < 12"
    changes = {other(RandomChooser(s), text) for s in range(40)}
    assert len(changes - {text}) >= 8


@pytest.mark.parametrize("sizes", [["6"], ["4", "5"], ["2", "3", "4"]], ids=str)
def test_a_box_has_an_expression_for_each_axis_and_takes_only_what_is_free(sizes: list[str]) -> None:
    for seed in range(20):
        grid = Grid({"threadIdx.x": "2"})
        made = box(RandomChooser(random.Random(seed).getrandbits(48)), sizes, grid)
        assert len(made.index) == len(sizes)
        assert grid.spans["threadIdx.x"] == "2"
        assert not any("threadIdx.x" in e for e in made.index)
