"""Calls that state math in another form: each is tried on what takes it, and leaves the math."""

import re

import numpy as np

from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR
from taskfuse.testing import Mix, RandomChooser
from taskfuse.testing.case import Recorder
from taskfuse.testing.forms import reform
from taskfuse.testing.stencils import StencilGraph
from tests.random_cases import random_case_of

CALLS = {"tile_shifts", "tile_windows", "clamp_read", "drop_axes", "pack_factors", "chunk_product", "split_fold", "split_reduction", "unroll_reduction"}

SOME = 8
"""Cases that are made again."""


def test_each_call_finds_what_takes_it() -> None:
    made: set[str] = set()
    for seed in range(120):
        if made >= CALLS:
            break
        chooser, recorder = RandomChooser(seed), Recorder()
        StencilGraph(chooser, Mix.FORMS.options(seed), recorder).grow()
        reform(chooser, recorder, 100)
        made |= {*recorder.made}
        assert seed > SOME or str(recorder.program().run()) == str(recorder.fusion)
    assert made >= CALLS


def test_the_math_stays() -> None:
    case = next(
        c for seed in range(20) if re.search("tile_shifts|clamp_read", (c := random_case_of(seed, Mix.FORMS)).program.source()) and c.kernel is not None
    )
    given = case.arguments()
    for a, b in zip(evaluate(case.fusion, given, MODULAR), evaluate(case.plain, given, MODULAR), strict=True):
        assert np.array_equal(a, b)
