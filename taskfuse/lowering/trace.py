"""Watching a lowering: the text of the state after a step, and what a step changed."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from taskfuse.dump import dump_step
from taskfuse.errors import OptionError, TaskfuseError
from taskfuse.ir.fusion import Fusion
from taskfuse.lowering.lower import DEFAULT
from taskfuse.lowering.plan_text import state_text
from taskfuse.lowering.state import LoweringOptions, State
from taskfuse.lowering.steps import STEPS, Step
from taskfuse.options import Options

NAMES = tuple(step.name for step in STEPS)


def plan_texts(fusion: Fusion, name: str, options: LoweringOptions = DEFAULT, locations: bool = False) -> tuple[str, str]:
    """The text of the state before and after a step.

    Args:
        locations: with the user's lines.

    Raises:
        TaskfuseError: there is no such step; or a step up to this one refuses the fusion (what :func:`taskfuse.lower` raises).
    """
    if name not in NAMES:
        raise TaskfuseError(message=f"lowering has no step '{name}'", help=f"use one of {', '.join(NAMES)}")
    before, state = str(fusion), State(fusion, options)
    for step in STEPS:
        step.run(state)
        text = state_text(state, locations) if step.name == name or NAMES.index(step.name) + 1 == NAMES.index(name) else ""
        if step.name == name:
            return before, text
        before = text
    raise AssertionError("the name is that of a step")


def changes(before: str, after: str) -> str:
    """The lines that differ, with three around them, as a unified diff."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="")
    return "\n".join(lines) or "nothing changed"


def dumper(options: Options) -> Callable[[Step, State], None]:
    """What prints the steps that ``options`` ask for. Raises :class:`OptionError` if there is no such step."""
    for name in sorted(options.dump_steps - set(NAMES)):
        raise OptionError(name="TASKFUSE_DUMP", reason=f"'plan:{name}': lowering has no step {name}", help=f"use one of {', '.join(NAMES)}")

    def after(step: Step, state: State) -> None:
        dump_step(step.name, state.fusion.name, lambda: state_text(state), options)

    return after
