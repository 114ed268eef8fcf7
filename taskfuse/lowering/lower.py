"""Lowering: a fusion with its schedule becomes a kernel, by the steps of :data:`taskfuse.lowering.steps.STEPS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from taskfuse.errors import UnsupportedError
from taskfuse.ir.fusion import Fusion, as_fusion
from taskfuse.kir import Kernel
from taskfuse.kir.faithful import check_faithful
from taskfuse.location import caller
from taskfuse.lowering.names import legible
from taskfuse.lowering.state import LoweringOptions, State
from taskfuse.lowering.steps import STEPS, Step

DEFAULT = LoweringOptions()


def lower(fusion: Fusion, options: LoweringOptions = DEFAULT, after: Callable[[Step, State], None] | None = None) -> Kernel:
    """The kernel of a fusion: a pure function of the fusion and the options.

    Args:
        after: called after each step with the state that it leaves, which must not be changed.

    Raises:
        TaskError: a law of tasks and groups is broken.
        ScheduleError: the inline positions admit no total order.
        LoweringError: the schedule cannot become a kernel.
        UnsupportedError: what is not a fusion, or a construct that is not built yet.
        VerifyError: a fault of lowering itself: a plan or a kernel that breaks a rule, definitions that are not the fusion's.
    """
    fusion = as_fusion(fusion, "tf.lower")
    if not isinstance(cast("object", options), LoweringOptions):
        raise UnsupportedError(what=f"options {options!r}", reason="they are none", help="use tf.LoweringOptions(...)", location=caller())
    fusion = legible(fusion)
    state = State(fusion, options)
    for step in STEPS:
        step.run(state)
        if after is not None:
            after(step, state)
    check_faithful(state.kernel, fusion)
    return state.kernel
