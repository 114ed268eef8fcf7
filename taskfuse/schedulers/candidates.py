"""Schedules of one fusion, one after another. Each proposal of a scheduler is a *candidate*, which may be refused at any stage.

A scheduler refuses a fusion of another kind; a scheduling call fails; lowering finds no kernel; the proof has a gap.
Each of these drops the candidate, with its reason, and the next one is tried. A mistake of one scheduler therefore never ends a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from math import inf, log
from typing import Any, NamedTuple, Protocol, TypeVar

from taskfuse.count import Count, count
from taskfuse.deadline import DeadlineError
from taskfuse.errors import TaskfuseError, UnsupportedError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import sym
from taskfuse.location import caller
from taskfuse.lowering import LoweringOptions, lower
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.budget import Budget, Work
from taskfuse.schedulers.roofline import roofline
from taskfuse.schedulers.schedule import SANE, Chosen, Offer, Option, Scheduler, Sizes, expendable
from taskfuse.target import Target

T = TypeVar("T")
MOST_PARAMETERS = 4
"""If the kernel of a scheduler's first parameters is not proved or far from its roofline: how many other parameters are tried before the next scheduler."""
INTERNAL = "internal error"
"""The prefix of reasons that are faults of a scheduler."""


class Candidate(NamedTuple):
    """A schedule that was proposed.

    Attributes:
        fusion: a scheduled copy of the fusion.
        schedule: its schedule.
        scheduler: the scheduler that proposed it.
    """

    fusion: Fusion
    schedule: Chosen[Any]
    scheduler: Scheduler


BETTER = 0.9
"""The most counted time of other parameters, relative to the kernel far from its roofline."""
MOST_ASIDE = 3
"""Kernels of one fusion far from their roofline, after which the fastest of them is taken."""
Trial = Callable[[Fusion, Chosen[Any]], Count | None]
"""Makes the kernel of a scheduled fusion, proves it, and counts what it does. Raises :class:`TaskfuseError` if it cannot."""


VAIN = 0.02
"""Counted times that differ by less are taken for those of one bottleneck."""


class Counts(Protocol):
    """What several searches count in common.

    Attributes:
        vain: parameters that were counted without a gain: of which scheduler, and beside which kernel.
    """

    vain: set[object]

    def __call__(self, scheduled: Fusion, make: Callable[[], Count]) -> Count:
        """The count of the kernel of a scheduled fusion: a known one, or that of ``make``."""
        ...


Given = Callable[[Any], Callable[[Fusion], Chosen[Any]]]
"""Makes of parameters what schedules a copy of a fusion with them."""
Offering = Callable[..., Offer]
"""Makes the offer of a scheduler for a fusion, ``sizes`` and ``target``. It refuses only what the scheduler refuses, too."""


class Tried(NamedTuple):
    """The result of a trial.

    Attributes:
        schedule: the schedule, with the count of its kernel.
        refused: why no proved kernel can be made; empty if one can, or if that was not tried.
    """

    schedule: Chosen[Any]
    refused: str = ""


class Candidates:
    """The schedules of a fusion, in the order of preference of the schedulers.

    Args:
        fusion: unscheduled; it is not changed.
        schedulers: in the order in which they are tried.
        config: parameters of one scheduler; ``None``: each chooses its own.
        offers: of the schedulers that have them: estimates that need no schedule.
        budget: counts the work; ``None``: it is not counted.
        leading: how many of ``schedulers`` :attr:`is_led` asks.
        counts: what several searches count in common; ``None``: nothing.

    Attributes:
        refused: the schedulers that were tried and dropped, and why.
        is_last: :attr:`best` was put aside before, and is the fastest of those.
    """

    def __init__(
        self,
        fusion: Fusion,
        schedulers: Sequence[Scheduler],
        config: object,
        sizes: Mapping[str, int] | None,
        target: Target,
        offers: Mapping[Scheduler, Offering] | None = None,
        budget: Budget | None = None,
        leading: int = 0,
        counts: Counts | None = None,
    ) -> None:
        self._counts = counts
        self._fusion = fusion
        self._config = config
        self._offers = dict(offers or {})
        self._budget = budget or Budget()
        self._settings: dict[str, Any] = {"sizes": sizes, "target": target}
        self._spare: Fusion | None = None
        self.refused: list[tuple[str, str]] = []
        self._leaders = self._all(schedulers[:leading])
        self._others = self._all(schedulers[leading:])
        self._rest = chain(self._leaders, self._others)
        self._is_led: bool | None = None
        self._is_compared = False
        self._is_asked = False
        self._aside: list[Candidate] = []
        self._done: set[str] = set()
        self._tried_code: set[str] = set()  # of what was dropped or put aside
        self.is_last = False
        self._first: Candidate | Offer | None = None
        self._bound: float | None = None

    @property
    def is_led(self) -> bool:
        """Whether one of the leading schedulers takes the fusion, or offers to; the others are not asked for this."""
        if self._is_led is None:
            self._first = next(self._leaders, None)
            self._is_led = self._first is not None
            self._is_asked = self._is_led
        return self._is_led

    @property
    def _head(self) -> Candidate | Offer | None:
        """What comes first now."""
        if not self.is_led and not self._is_asked:
            self._first = next(self._rest, None)
            self._is_asked = True
        if isinstance(self._first, Offer) and self.is_led and not self._is_compared:
            self._is_compared = True
            self._compare(self._first)
        return self._first

    def _compare(self, leading: Offer) -> None:
        """Take the first offer of the other schedulers before a leading one that is slower, if this one is far from the roofline, as tiles of a product with
        few rows and columns are nearly empty, or says that others may be faster."""
        if not (leading.is_contested or self._is_slow(leading.us)):
            return
        other = next(self._others, None)
        if isinstance(other, Offer) and other.us < leading.us:
            self._first = other
            self._rest = chain(islice(self._others, 1), [leading], self._leaders, self._others)  # its schedule comes next
        elif other is not None:
            self._rest = chain(self._leaders, [other], self._others)

    def _is_slow(self, us: float) -> bool:
        """Whether a time is far from the roofline."""
        if self._bound is None:
            bound: list[float] = [inf]
            extent = Sizes(self._fusion, self._settings["sizes"], self._settings["target"])
            failure(lambda: bound.append(roofline(self._fusion, extent)))
            self._bound = bound[-1]
        return us > SANE * self._bound

    @_head.setter
    def _head(self, head: Candidate | Offer | None) -> None:
        self._first = head

    @property
    def best(self) -> Candidate | None:
        """The first candidate that was not dropped; ``None`` if all were."""
        while isinstance(self._head, Offer):
            self._head = next(self._rest, None)
        return self._head

    @property
    def us(self) -> float:
        """Microseconds of the best, which need not be scheduled for that; infinite if all were dropped."""
        return inf if self._head is None else _us(self._head)

    @property
    def is_exact(self) -> bool:
        """Whether :attr:`us` is the time of a schedule, made or offered for certain."""
        head = self._head
        return not isinstance(head, Offer) or head.is_exact

    def put_aside(self, schedule: Chosen[Any]) -> None:
        """Go on to the next scheduler, and come back if nothing better is left: the kernel of :attr:`best` is proved, and far from its roofline.

        Args:
            schedule: that of :attr:`best`, with what was counted.
        """
        assert self.best is not None
        self._aside.append(self.best._replace(schedule=schedule))
        self._done.add(schedule.scheduler)
        self._tried_code.add(schedule.code)
        self._next()

    def _next(self) -> None:
        """Go on to the next candidate that is expected to be faster than those put aside; else to the fastest of these."""
        least = self.least_aside
        self._head = None if len(self._aside) >= MOST_ASIDE else next(self._rest, None)
        while least is not None and self._head is not None and self.us >= least.schedule.us:
            self._head = next(self._rest, None)
        if self.best is None and least is not None:
            self._head = least
            self.is_last = True

    @property
    def least_aside(self) -> Candidate | None:
        """The fastest of those put aside, by what was counted."""
        return min(self._aside, key=lambda candidate: candidate.schedule.us, default=None)

    def drop(self, reason: str) -> None:
        """Go on to the next candidate: :attr:`best` has no proved kernel."""
        assert self.best is not None
        schedule = self.best.schedule
        self._tried_code.add(schedule.code)
        self.refused.append((schedule.scheduler, f"with {schedule.config.words}: {reason}"))
        self._next()

    def error(self) -> UnsupportedError:
        """The error if no candidate is left."""
        return UnsupportedError(
            what=f"one kernel for fusion '{self._fusion.name}'",
            reason="no scheduler takes it",
            notes=tuple(f"{name}: {reason}" for name, reason in self.refused),
            help="tf.compile makes several; or schedule it by hand",
            location=caller(),
        )

    def _all(self, schedulers: Sequence[Scheduler]) -> Iterator[Candidate | Offer]:
        """The candidates of some schedulers; before that of a scheduler with an offer, the offer. Before one without an offer that is far from the
        roofline, such as tiles that are nearly empty, what comes after it, if that is faster."""
        for k, scheduler in enumerate(schedulers):
            make: Callable[[Fusion], Chosen[Any]] = partial(scheduler, config=self._config, **self._settings)
            given: Given = partial(self._given, scheduler)
            has_offer = scheduler in self._offers and self._config is None
            if has_offer:
                self._budget.spend(Work.OFFERED, len(self._fusion.tensors()))
                offer = self._found(scheduler, partial(self._offers[scheduler], self._fusion, **self._settings))
                if offer is None:
                    continue
                yield offer
                make, given = offer.make, offer.given or given
            first = self._tried(scheduler, make)
            if first is None:
                continue
            later: Iterator[Candidate | Offer] | None = None
            other: Candidate | Offer | None = None
            if not has_offer and self._config is None and self._is_slow(first.schedule.us):
                later = self._all(schedulers[k + 1 :])
                other = next(later, None)
                while other is not None and _us(other) < first.schedule.us:
                    yield other
                    other = next(later, None)
            yield first
            if self._config is None:
                yield from self._with_other_parameters(scheduler, first, given)
            if later is not None:
                yield from () if other is None else (other,)
                yield from later
                return

    def _with_other_parameters(self, scheduler: Scheduler, first: Candidate, given: Given) -> Iterator[Candidate]:
        """The candidates of a scheduler after its first one."""
        others = [o for o in first.schedule.alternatives if o.config != first.schedule.config][:MOST_PARAMETERS]
        if first.schedule.scheduler in self._done:
            counted = self._least_counted(scheduler, others, given)
            if counted is not None:
                yield counted
            return
        for option in others:
            if first.schedule.scheduler in self._done:
                break
            other = self._tried(scheduler, lambda copy, option=option: given(option.config)(copy))
            if other is not None:
                yield other

    def _given(self, scheduler: Scheduler, config: Any) -> Callable[[Fusion], Chosen[Any]]:
        """A scheduler with parameters, where its offer has no shorter way; on a copy that nobody needs if they do not suit it."""
        return partial(expendable(scheduler), config=config, **self._settings)

    def _least_counted(self, scheduler: Scheduler, options: Sequence[Option[Any]], given: Given) -> Candidate | None:
        """For a scheduler whose kernel is far from its roofline, the other parameters with the least counted time; ``None`` without a gain.

        The cost model is wrong about that kernel, so it may be wrong about these. They are lowered and counted; the one taken is proved like all. Segments that
        differ in a few tensors have one bottleneck: what was counted in vain for one is not counted for the next.
        """
        far = self._aside[-1].schedule
        assert far.count is not None
        question = scheduler.__name__, round(log(max(far.count.us, VAIN)) / VAIN), tuple(option.config.words for option in options)
        if self._counts is not None and question in self._counts.vain:
            return None
        found: Candidate | None = None
        least = BETTER * far.count.us
        for option in options:
            if option.us >= far.count.us or self._budget.is_spent:
                continue
            other = self._tried(scheduler, lambda copy, option=option: given(option.config)(copy))
            counts: list[Count] = []
            try:
                with self._budget.limit():
                    if other is None or failure(lambda other=other, counts=counts: counts.append(self._count(other.fusion))) is not None:
                        continue
            except DeadlineError:
                break
            if counts[0].us < least:
                least = counts[0].us
                found = other._replace(schedule=other.schedule.counted(counts[0], far.bound))
        if found is None and self._counts is not None and not self._budget.is_spent:
            self._counts.vain.add(question)
        return found

    def _count(self, scheduled: Fusion) -> Count:
        """The count of the kernel of a scheduled fusion."""
        self._budget.spend(Work.COUNTED, len(scheduled.tensors()))
        sizes: Mapping[str, int] = self._settings["sizes"] or {}

        def made() -> Count:
            extent = Sizes(scheduled, {name: size for name, size in sizes.items() if name in scheduled.dims}, self._settings["target"])
            return count(lower(scheduled, LoweringOptions(target=extent.target)), {name: extent(sym(name)) for name in scheduled.dims}, extent.target)

        return made() if self._counts is None else self._counts(scheduled, made)

    def _tried(self, scheduler: Scheduler, make: Callable[[Fusion], Chosen[Any]]) -> Candidate | None:
        """The candidate of a call on a copy, which one that refuses leaves to the next."""
        copy, self._spare = self._spare or copy_fusion(self._fusion)[0], None
        size = len(copy.tensors())
        self._budget.spend(Work.SCHEDULED, size)
        found = self._found(scheduler, partial(make, copy))
        if found is None:
            self._spare = copy if len(copy.tensors()) == size and not copy.has_schedule else None
            return None
        if found.code in self._tried_code:
            self.refused.append((scheduler.__name__, f"with {found.config.words}: the same calls were tried before"))
            return None
        return Candidate(copy, found.after(self.refused), scheduler)

    def _found(self, scheduler: Scheduler, call: Callable[[], T]) -> T | None:
        """The result of a scheduler; ``None`` if it refuses."""
        found: list[T] = []
        reason = failure(lambda: found.append(call()))
        if reason is not None:
            self.refused.append((scheduler.__name__, reason))
            return None
        return found[0]


def _us(found: Candidate | Offer) -> float:
    """Microseconds of what a scheduler takes or offers."""
    return found.us if isinstance(found, Offer) else found.schedule.us


def tried(trial: Trial | None, fusion: Fusion, schedule: Chosen[Any], bound: float = 0.0) -> Tried:
    """Try the kernel of a scheduled fusion.

    Args:
        bound: a lower bound on the time of any kernel of it, in microseconds.
    """
    found: list[Count | None] = []
    refused = None if trial is None else failure(lambda: found.append(trial(fusion, schedule)))
    return Tried(schedule.counted(found[0], bound) if found and bound else schedule, refused or "")


def failure(call: Callable[[], object]) -> str | None:
    """Why a call fails; ``None`` if it succeeds. An unexpected exception is a fault of taskfuse: it drops the candidate, and does not reach the user.

    Raises:
        DeadlineError: if the call does: it says nothing about the candidate.
    """
    try:
        call()
    except DeadlineError:
        raise
    except UnsupportedError as error:
        return str(error.fields["reason"])
    except TaskfuseError as error:
        return f"{type(error).__name__}: {error.message.splitlines()[0]}"
    except Exception as error:
        return f"{INTERNAL}, {type(error).__name__}: {error}"
    return None


def result(call: Callable[[], T], otherwise: T, what: str, faults: list[str]) -> T:
    """The result of a part of a search that the search can do without; if it fails, ``otherwise``, with ``what`` is missing and why in ``faults``."""
    found: list[T] = []
    try:
        fault = failure(lambda: found.append(call()))
    except DeadlineError as error:
        fault = error.message
    if fault is None:
        return found[0]
    faults.append(f"{what}: {fault}")
    return otherwise
