"""Random inputs: extents and dtypes within the options; a symbol's facts are true, and are stated once."""

import math
from dataclasses import replace

import pytest

from taskfuse.testing import RandomChooser
from taskfuse.testing.inputs import RandomInputs
from taskfuse.testing.options import USUAL
from taskfuse.testing.program import Recorder


def drawn(seed: int, symbolic: int) -> RandomInputs:
    """Three inputs."""
    found = RandomInputs(RandomChooser(seed), replace(USUAL, symbolic=symbolic), Recorder())
    for _ in range(3):
        found.new_input(found.random_shape())
    return found


@pytest.mark.parametrize("symbolic", [0, 100])
def test_inputs_keep_the_options(symbolic: int) -> None:
    for seed in range(30):
        found = drawn(seed, symbolic)
        assert len(found.tensors) == 3
        for tv in found.tensors:
            assert math.prod(found.shape(tv)) <= USUAL.elements
            assert len(tv.shape) <= USUAL.rank
            assert tv.dtype in USUAL.dtypes


def test_facts_are_true_and_stated_at_the_first_use() -> None:
    seen: set[str] = set()
    for seed in range(30):
        found = drawn(seed, 100)
        seen |= {*found.fusion.dims}
        for name, dim in found.fusion.dims.items():
            assert dim.admits(found.sizes[name], found.sizes)
        assert set(found.declared()) - {*found.fusion.dims} == set()
    assert seen == {"N", "M", "K"}
