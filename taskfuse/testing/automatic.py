"""Random cases that a scheduler schedules: they are asked in the library's order or in a random one, mostly those of a kind of fusion before those that
take anything, and the first that takes the fusion has it."""

from __future__ import annotations

import taskfuse as tf
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.program import Recorder


def automatic(chooser: Chooser, recorder: Recorder) -> bool:
    """Let a scheduler schedule the fusion; False if none takes it, as a single kernel."""
    anything = [s.__name__ for s in (tf.schedulers.auto, tf.schedulers.fallback)]
    special = [s.__name__ for s in tf.schedulers.SCHEDULERS if s.__name__ not in anything]
    order = [*(chooser.order(special) if chooser.chance(30) else special), *chooser.order(anything)]
    if chooser.chance(15):
        order.reverse()
    return any(recorder.attempt(tf.schedulers, name, recorder.fusion) is not None for name in order)
