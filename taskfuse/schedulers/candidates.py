"""Schedules of one fusion, one after another: what a scheduler proposes is a *candidate*, and a candidate may be refused anywhere.

A scheduler says at once that a fusion is not of its kind; a scheduling call refuses what it was asked; lowering finds no kernel; the proof has a gap.
All of these drop the candidate, with its reason, and the next one is asked for. So nothing that one scheduler gets wrong is the end of a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from taskfuse.errors import TaskfuseError, UnsupportedError
from taskfuse.ir.fusion import Fusion
from taskfuse.location import caller
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.schedule import Chosen, Scheduler
from taskfuse.target import Target

MOST_PARAMETERS = 4
"""Of a scheduler whose first parameters make no kernel that is proved, so many more are tried before the next scheduler is asked."""
INTERNAL = "internal error"
"""How a reason begins that is no answer of a scheduler, but a fault of it."""


class Candidate(NamedTuple):
    """A schedule that was proposed.

    Attributes:
        fusion: scheduled: a copy of what was asked.
        schedule: how.
        scheduler: whose proposal it is.
    """

    fusion: Fusion
    schedule: Chosen[Any]
    scheduler: Scheduler


Trial = Callable[[Fusion, Chosen[Any]], object]
"""Makes the kernel of a scheduled fusion and proves it. Raises :class:`TaskfuseError` if it cannot."""


class Candidates:
    """The schedules of a fusion, those first that its schedulers prefer.

    Args:
        fusion: unscheduled; it is not changed.
        schedulers: in the order in which they are asked.
        config: parameters of the scheduler that they are of; ``None``: each chooses its own.

    Attributes:
        best: the first that was not dropped; ``None`` if all were.
        refused: who was asked and is not it, and why.
    """

    def __init__(self, fusion: Fusion, schedulers: Sequence[Scheduler], config: object, sizes: Mapping[str, int] | None, target: Target) -> None:
        self._fusion = fusion
        self._schedulers = schedulers
        self._config = config
        self._settings: dict[str, Any] = {"sizes": sizes, "target": target}
        self.refused: list[tuple[str, str]] = []
        self._rest = self._all()
        self.best = next(self._rest, None)

    def drop(self, reason: str) -> None:
        """Go on to the next: of :attr:`best` no kernel can be made that is proved."""
        assert self.best is not None
        schedule = self.best.schedule
        self.refused.append((schedule.scheduler, f"with {schedule.config.words}: {reason}"))
        self.best = next(self._rest, None)

    def settled(self, trial: Trial | None) -> Candidate | None:
        """The first whose kernel is proved; ``None`` otherwise."""
        while self.best is not None and trial is not None:
            reason = tried(trial, self.best.fusion, self.best.schedule)
            if reason is None:
                break
            self.drop(reason)
        return self.best

    def error(self) -> UnsupportedError:
        """What to raise where none is left."""
        return UnsupportedError(
            what=f"one kernel for fusion '{self._fusion.name}'",
            reason="no scheduler takes it",
            notes=tuple(f"{name}: {reason}" for name, reason in self.refused),
            help="tf.compile makes several; or schedule it by hand",
            location=caller(),
        )

    def _all(self) -> Iterator[Candidate]:
        for scheduler in self._schedulers:
            first = self._tried(scheduler, self._config)
            if first is None:
                continue
            yield first
            if self._config is None:
                for option in [o for o in first.schedule.alternatives if o.config != first.schedule.config][:MOST_PARAMETERS]:
                    found = self._tried(scheduler, option.config)
                    if found is not None:
                        yield found

    def _tried(self, scheduler: Scheduler, config: object) -> Candidate | None:
        copy, _ = copy_fusion(self._fusion)
        found: list[Chosen[Any]] = []
        reason = failure(lambda: found.append(scheduler(copy, config, **self._settings)))
        if reason is not None:
            self.refused.append((scheduler.__name__, reason))
            return None
        return Candidate(copy, found[0].after(self.refused), scheduler)


def tried(trial: Trial | None, fusion: Fusion, schedule: Chosen[Any]) -> str | None:
    """Why no kernel can be made of a scheduled fusion that is proved; ``None`` if one can, or nobody asks."""
    return None if trial is None else failure(lambda: trial(fusion, schedule))


def failure(call: Callable[[], object]) -> str | None:
    """Why a call fails; ``None`` if it does not. An error that no call should end with is a fault of this library: it costs a candidate, and no user."""
    try:
        call()
    except UnsupportedError as error:
        return str(error.fields["reason"])
    except TaskfuseError as error:
        return f"{type(error).__name__}: {error.message.splitlines()[0]}"
    except Exception as error:
        return f"{INTERNAL}, {type(error).__name__}: {error}"
    return None
