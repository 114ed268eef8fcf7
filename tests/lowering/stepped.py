"""Fusions whose steps of lowering are looked at."""

from __future__ import annotations

from taskfuse import Fusion
from taskfuse.lowering.state import LoweringOptions, State
from taskfuse.lowering.steps import STEPS

NAMES = [step.name for step in STEPS]


def state_after(fusion: Fusion, step: str) -> State:
    """The state of a lowering after a step."""
    state = State(fusion, LoweringOptions())
    for one in STEPS[: NAMES.index(step) + 1]:
        one.run(state)
    return state
