"""Products whose tiles blocks share."""

import taskfuse as tf
from taskfuse.testing import Mix, RandomChooser, check_case
from taskfuse.testing.program import Recorder
from taskfuse.testing.shared_tiles import share_tiles
from tests.random_cases import random_case_of


def test_a_product_and_its_epilogue() -> None:
    case = random_case_of(1, Mix.SHARED)
    assert case.made["chunk_product"] == 1
    assert {"wgmma", "tma_load"} <= case.drawn
    check_case(case)


def test_other_fusions_are_left() -> None:
    recorder = Recorder()
    recorder.call(recorder.fusion, "add_output", recorder.call(tf, "exp", recorder.call(tf, "define_tensor", [8])))
    lines = list(recorder.lines)
    assert not share_tiles(RandomChooser(0), recorder)
    assert recorder.lines == lines
