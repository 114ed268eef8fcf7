"""Fences of registers: where products of one iteration share a ring, and the operands of the later one are written between them."""

import re

import pytest

import taskfuse as tf
from taskfuse.check import Verdict
from taskfuse.errors import SimulationError
from taskfuse.kir import walk
from taskfuse.kir.synchronization import WgmmaFence
from taskfuse.schedulers import BackToBackConfig
from tests.lowering.faults import without
from tests.schedulers.back_to_backs import arrays, of_keys


def scheduled() -> tf.Kernel:
    fusion = of_keys(sizes=(64, 64))
    tf.schedulers.back_to_back(fusion, BackToBackConfig(1, 32, 2))
    return tf.lower(fusion)


def test_one_stands_behind_what_writes_the_operands() -> None:
    text = str(scheduled())
    body = text[text.index("ch0.c = CURSOR") :]
    steps = re.findall(r"(WGMMA|FENCE wgmma|cast\.float32|exp2|COMMIT wgmma|FOR \w+ in 0\.\.2:)", body)
    written = max(k for k, s in enumerate(steps[: steps.index("COMMIT wgmma", steps.index("exp2"))]) if s == "cast.float32")
    assert steps[written + 1 : written + 4] == ["FENCE wgmma", "WGMMA", "WGMMA"]  # one for both products


def test_without_any_one_of_them_kernels_are_refuted() -> None:
    kernel = scheduled()
    args = arrays(of_keys(sizes=(64, 64)), 64, 64)
    fences = [s for s in walk(kernel) if isinstance(s, WgmmaFence)]
    needed = 0
    for fence in fences:
        fault = without(kernel, fence)
        if fault.verify().verdict is not Verdict.PROVED:
            needed += 1
            with pytest.raises(SimulationError, match=r"missing wgmma\.fence"):
                fault.simulate(*args)
    assert needed >= 1
