"""Recordings: the launches of a call of any executable, so that later calls can repeat them with other addresses."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, NamedTuple

from taskfuse.cuda.launch_plan import LaunchPlan


class RecordedLaunch(NamedTuple):
    """One launch.

    Attributes:
        launcher: the :class:`~taskfuse.cuda.launch.Launcher`, whose module imports this one.
        plan: the launch plan.
        addresses: addresses of its arrays, inputs then outputs.
    """

    launcher: Any
    plan: LaunchPlan
    addresses: tuple[int, ...]


active: dict[int, list[RecordedLaunch]] = {}
"""The active recordings, by thread: empty except during the few calls that are recorded, so that a launch only tests whether it is empty."""


@contextmanager
def recording() -> Generator[list[RecordedLaunch]]:
    """The launches that this thread makes until the end of the block, in their order. Blocks do not nest."""
    own = active[get_ident()] = []
    try:
        yield own
    finally:
        del active[get_ident()]


def note(launcher: Any, plan: LaunchPlan, addresses: Sequence[int]) -> None:
    """Record a launch, if this thread records."""
    own = active.get(get_ident())
    if own is not None:
        own.append(RecordedLaunch(launcher, plan, tuple(addresses)))
