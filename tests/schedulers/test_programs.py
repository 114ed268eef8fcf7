"""Which scheduler takes which program that people write; every kernel is proved, and what they compute is what NumPy computes, in the integer ring."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.schedulers.segmentation import Segmentation
from taskfuse.schedulers.segmenter import choose_segments
from tests.proofs import proved
from tests.schedulers.oracle import checked
from tests.schedulers.programs import ALIKE, BIG, Program

LARGE = {"embedding_bag": 75.0}
"""Programs of which a large one had another schedule than a small one, or one far from its roofline."""


def name(program: Program) -> str:
    return program.build.__name__


def schedulers(found: Segmentation) -> str:
    return "+".join(step.schedule.scheduler for step in found.steps)


@pytest.mark.parametrize("program", [*ALIKE, *BIG], ids=name)
def test_small(program: Program) -> None:
    fusion = program.fusion(program.small)
    found = checked(fusion, program.arguments(fusion, program.small, np.random.default_rng(0)))
    assert found.dropped == (), "a search ended with an error"
    if program in ALIKE:
        assert schedulers(found) == program.schedulers


@pytest.mark.parametrize("program", BIG, ids=name)
def test_large(program: Program) -> None:
    found = choose_segments(program.fusion(program.large))
    assert found.dropped == (), "a search ended with an error"
    assert schedulers(found) == program.schedulers
    for step in found.steps:
        proved(tf.lower(step.fusion))


@pytest.mark.parametrize(("program", "most"), [(p, LARGE[name(p)]) for p in ALIKE if name(p) in LARGE], ids=lambda p: name(p) if isinstance(p, Program) else "")
def test_large_ones_that_were_slow(program: Program, most: float) -> None:
    """One kernel, by the same scheduler as the small one, that is expected to take at most so many microseconds (H200)."""
    (step,) = choose_segments(program.fusion(program.large)).steps
    assert step.schedule.scheduler == program.schedulers
    assert step.schedule.us <= most
