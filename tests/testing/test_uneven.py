"""Random products whose tiles have unequal work: each kind of them is drawn, and its kernels are right."""

from __future__ import annotations

from collections import Counter

import pytest

from taskfuse.testing.case import seeded_case
from taskfuse.testing.checks import Effort, check_case
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.options import TILES, Mix
from taskfuse.testing.program import Recorder
from taskfuse.testing.uneven import UnevenGraph


def test_every_kind_is_drawn() -> None:
    outputs, products, halves = Counter[int](), Counter[int](), Counter[str]()
    for seed in range(40):
        recorder = Recorder()
        UnevenGraph(RandomChooser(seed), TILES, recorder).grow()
        outputs[len(recorder.fusion.outputs)] += 1
        if recorder.made["tril"] + recorder.made["triu"]:
            products[recorder.made["matmul"]] += 1
            halves.update({"tril": recorder.made["tril"], "triu": recorder.made["triu"]})
    assert {*outputs} == {1, 2, 3}
    assert {*products} == {1, 2}
    assert min(halves.values()) > 0


@pytest.mark.parametrize("seed", [1, 4, 13])
def test_cases_have_all_properties(seed: int) -> None:
    case = seeded_case(seed, Mix.TILES)
    check_case(case, Effort(interleavings=1, orders=0, prove=True))
    assert str(case.program.run()) == str(case.fusion)
