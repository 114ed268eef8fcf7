"""The steps of lowering: the list that ARCHITECTURE.md has, the text after each, and the rules of the plan between them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from examples import founding
from taskfuse.errors import TaskfuseError
from taskfuse.lowering.plan_text import plan_texts
from taskfuse.lowering.state import LoweringOptions, State
from taskfuse.lowering.steps import STEPS, Step
from tests.lowering.stepped import NAMES

ROOT = Path(__file__).parents[2]


def test_architecture_lists_them() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| ", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    assert rows == [(step.name, step.summary) for step in STEPS]


@pytest.mark.parametrize("step", STEPS, ids=NAMES)
def test_a_step_says_what_it_requires_and_ensures(step: Step) -> None:
    assert step.summary
    assert {"Requires:", "Ensures:"} <= set((step.change.__doc__ or "").split())


def test_a_step_without_what_it_requires_says_so() -> None:
    state = State(founding.build(), LoweringOptions())
    with pytest.raises(AttributeError, match="tree"):
        next(s for s in STEPS if s.name == "ranges").run(state)


def test_there_is_no_such_step() -> None:
    with pytest.raises(TaskfuseError, match=r"no step 'nets'\nhelp: use one of prepare, order"):
        plan_texts(founding.build(), "nets")
