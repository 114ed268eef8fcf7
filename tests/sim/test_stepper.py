"""Runs whose every choice is made from outside."""

import numpy as np
import pytest

from taskfuse.errors import SimulationError
from taskfuse.ir.values import NATIVE
from taskfuse.kir import Kernel
from taskfuse.sim.agent import Agent
from taskfuse.sim.interleaving import InStep
from taskfuse.sim.launch import prepare
from taskfuse.sim.stepper import Stepper
from tests.sim.kernels import kernel

TWO_WARPS = kernel(
    "s[threadIdx.x] = copy(x[threadIdx.x % 32])\nSYNC block\ny[threadIdx.x % 32] = copy(s[threadIdx.x])", "SHARED s: float32[64]", block="(64, 1, 1)"
)
STUCK = kernel("IF threadIdx.x < 32:\n  SYNC named 1, 64", block="(64, 1, 1)")


def stepper(found: Kernel) -> Stepper:
    launch = prepare(found, [np.arange(32, dtype=np.float32)], NATIVE, None)
    machine = launch.machine(InStep(32), 10_000)
    return Stepper(machine, launch.blocks(machine))


def test_choices_are_agents_in_the_order_of_their_threads() -> None:
    found = stepper(TWO_WARPS)
    options = found.options()
    assert [o.lanes.first for o in options if isinstance(o, Agent)] == [0, 32]
    assert found.options() == options, "asking changes nothing"


def test_who_waits_is_no_choice() -> None:
    found = stepper(TWO_WARPS)
    first = found.options()[0]
    while first in (options := found.options()):
        found.take(first)
    assert [o.lanes.first for o in options if isinstance(o, Agent)] == [32], "warp 0 is at the barrier"


def test_a_run_ends_with_no_choice_or_with_a_deadlock() -> None:
    found = stepper(TWO_WARPS)
    found.replay([])
    assert found.options() == []
    with pytest.raises(SimulationError, match="deadlock"):
        stepper(STUCK).replay([])


def test_a_choice_that_there_is_not() -> None:
    with pytest.raises(SimulationError, match="choice 2 is taken where there are 2"):
        stepper(TWO_WARPS).replay([2])
