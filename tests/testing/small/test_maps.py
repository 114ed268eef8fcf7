"""Kernels whose index maps nobody lowered: made again from their seeds, and of every form."""

import random

import pytest

from taskfuse.errors import TaskfuseError
from taskfuse.kir import parse_kernel, to_text
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.small.maps import Grid, box, mapped, other


@pytest.mark.parametrize("seed", range(20))
def test_a_kernel_is_its_text_and_its_seed(seed: int) -> None:
    try:
        kernel = mapped(RandomChooser(seed)).kernel
    except TaskfuseError:
        return
    assert mapped(RandomChooser(seed)).kernel == kernel
    assert parse_kernel(to_text(kernel, witness=True)) == kernel


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
