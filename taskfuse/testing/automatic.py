"""Random cases that a scheduler schedules: the schedulers are tried in the library's order or in a random one (mostly special ones before general
ones), and the first that accepts the fusion schedules it."""

from __future__ import annotations

import taskfuse as tf
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.program import Recorder


def automatic(chooser: Chooser, recorder: Recorder) -> bool:
    """Let a scheduler schedule the fusion as one kernel; False if all refuse."""
    anything = [s.__name__ for s in (tf.schedulers.auto, tf.schedulers.fallback)]
    special = [s.__name__ for s in tf.schedulers.SCHEDULERS if s.__name__ not in anything]
    order = [*(chooser.order(special) if chooser.chance(30) else special), *chooser.order(anything)]
    if chooser.chance(15):
        order.reverse()
    return any(recorder.attempt(tf.schedulers, name, recorder.fusion) is not None for name in order)
