"""Schedules of one fusion, one after another: who is asked when, and what drops a candidate."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

import pytest

import taskfuse as tf
from taskfuse.count import Count, count
from taskfuse.errors import LoweringError, ProofError, UnsupportedError
from taskfuse.schedulers.auto import candidates as auto_candidates
from taskfuse.schedulers.candidates import BETTER, INTERNAL, MOST_ASIDE, MOST_PARAMETERS, Candidates, failure, tried
from taskfuse.schedulers.schedule import Chosen, Offer, Option, Scheduler, refuse
from taskfuse.target import DEFAULT
from tests.calls import always
from tests.schedulers.fusions import tensor
from tests.schedulers.tried import built


@dataclass(frozen=True)
class Numbered:
    number: int

    @property
    def words(self) -> str:
        return f"number {self.number}"


def scheduler(name: str, us: float, others: int = 0, code: str | None = None) -> Scheduler:
    """One that marks its fusion and has some more parameters to offer. ``code``: of what it does with some parameters; by default its own."""
    options: list[Option[Any]] = [Option(Numbered(k), us + k) for k in range(others + 1)]

    def schedule(fusion: tf.Fusion, config: Any = None, **_: Any) -> Chosen[Any]:
        fusion.outputs[0].axis(0).parallelize(tf.ParallelType.BIDx)
        option = options[0 if config is None else config.number]
        return Chosen(name, "of it", option, tuple(options), config is not None, f"by {code or name} with {option.config.words}")

    schedule.__name__ = name
    return schedule


def refusing(fusion: tf.Fusion, config: object = None, **_: Any) -> Chosen[Any]:
    raise refuse(fusion, "refusing", "not its kind")


def fusion() -> tf.Fusion:
    return built(lambda: [tf.exp(tensor("x", 8, 4))])


def candidates(*schedulers: Scheduler, config: object = None) -> Candidates:
    return Candidates(fusion(), schedulers, config, None, DEFAULT)


def here(found: Candidates) -> tuple[str, int]:
    assert found.best is not None
    return found.best.schedule.scheduler, found.best.schedule.config.number


def test_the_first_that_takes_it() -> None:
    asked = fusion()
    found = Candidates(asked, (refusing, scheduler("a", 2.0), scheduler("b", 1.0)), None, None, DEFAULT)
    assert here(found) == ("a", 0)
    assert found.refused == [("refusing", "not its kind")]
    assert found.best is not None
    assert found.best.schedule.refused == (("refusing", "not its kind"),)
    assert not asked.has_schedule
    assert found.best.fusion.has_schedule


def test_the_same_calls_are_tried_once() -> None:
    """Whoever proposes them: a reduction is a normalization of one phase."""
    found = candidates(scheduler("a", 2.0, others=1), scheduler("b", 1.0, others=2, code="a"))
    for k in range(2):
        assert here(found) == ("a", k)
        found.drop("a gap")
    assert found.best is None
    assert found.refused[-1] == ("b", "with number 0: the same calls were tried before")


def test_dropped_ones_are_followed_by_other_parameters_then_by_other_schedulers() -> None:
    found = candidates(scheduler("a", 2.0, others=9), scheduler("b", 1.0))
    seen: list[tuple[str, int]] = []
    while found.best is not None:
        seen.append(here(found))
        found.drop("a gap")
    assert seen == [*(("a", k) for k in range(1 + MOST_PARAMETERS)), ("b", 0)]
    assert found.us == inf
    assert found.refused[:2] == [("a", "with number 0: a gap"), ("a", "with number 1: a gap")]
    error = found.error()
    assert "one kernel for fusion 'fusion' is not supported: no scheduler takes it" in str(error)
    assert error.notes[0] == "a: with number 0: a gap"


def test_given_parameters_are_the_only_ones() -> None:
    found = candidates(scheduler("a", 2.0, others=3), config=Numbered(2))
    assert here(found) == ("a", 2)
    found.drop("no")
    assert found.best is None


def counted(us: float) -> Count:
    made = fusion()
    tf.schedulers.pointwise(made)
    found = count(tf.lower(made), {}, DEFAULT)
    return replace(found, chain=us * DEFAULT.clock_mhz)


def aside(found: Candidates, us: float) -> None:
    assert found.best is not None
    found.put_aside(found.best.schedule.counted(counted(us), 0.001))


def test_what_is_put_aside_comes_back_if_nothing_is_expected_to_be_faster() -> None:
    found = candidates(scheduler("a", 2.0), scheduler("b", 50.0), scheduler("c", 3.0))
    aside(found, 40.0)
    assert here(found) == ("c", 0)  # b is slower than a was counted
    assert not found.is_last
    found.drop("a gap")
    assert here(found) == ("a", 0)
    assert found.is_last


def test_other_parameters_that_are_counted_for_less_come_before_other_schedulers() -> None:
    found = candidates(scheduler("a", 2.0, others=9), scheduler("b", 1.0))
    aside(found, 40.0)
    assert here(found) == ("a", 1)  # all of them are counted for the same
    aside(found, 40.0)
    assert here(found) == ("b", 0)


def test_the_fastest_of_a_few_that_were_put_aside() -> None:
    found = candidates(*(scheduler(name, 1.0) for name in "abcde"))
    for us in (30.0, 20.0, 25.0):
        assert not found.is_last
        aside(found, us)
    assert MOST_ASIDE == 3
    assert here(found) == ("b", 0)
    assert found.is_last


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UnsupportedError(what="this", reason="not here", help="there"), "not here"),
        (LoweringError(what="a kernel", reason="too large"), "LoweringError: cannot lower a kernel: too large"),
        (ProofError(kernel="k", verdict="refuted", reason="a race"), "ProofError: k: refuted: a race"),
        (KeyError("x"), f"{INTERNAL}, KeyError: 'x'"),
    ],
)
def test_why_a_call_fails(error: Exception, reason: str) -> None:
    def call() -> None:
        raise error

    assert failure(call) == reason
    assert failure(lambda: None) is None


def test_what_comes_of_a_trial() -> None:
    chosen = scheduler("a", 2.0)(fusion())
    made = counted(7.0)
    assert tried(None, fusion(), chosen) == (chosen, "")
    assert tried(always(None), fusion(), chosen, 1.0).schedule.count is None
    assert tried(always(made), fusion(), chosen, 0.5) == (chosen.counted(made, 0.5), "")
    assert tried(always(made), fusion(), chosen).schedule.count is None  # nobody asked for the bound

    def failing(*_: object) -> None:
        raise LoweringError(what="a kernel", reason="too large")

    assert tried(failing, fusion(), chosen, 1.0).refused == "LoweringError: cannot lower a kernel: too large"


def test_a_scheduler_that_fails_costs_a_candidate_alone() -> None:
    def broken(fusion: tf.Fusion, config: object = None, **more: object) -> Chosen[Any]:
        fusion.outputs[0].axis(0).parallelize(tf.ParallelType.BIDx)  # what it leaves behind is nobody else's
        raise KeyError("nobody's fault")

    found = candidates(broken, tf.schedulers.fallback)
    assert found.best is not None
    assert found.best.schedule.scheduler == "fallback"
    assert found.refused == [("broken", f'{INTERNAL}, KeyError: "nobody\'s fault"')]


def offered(us: float | None) -> tuple[Candidates, list[str]]:
    """Candidates of one scheduler that offers so many microseconds, or fails to."""
    scheduled: list[str] = []

    def slow(fusion: tf.Fusion, config: object = None, **more: Any) -> Chosen[Any]:
        scheduled.append(fusion.name)
        return tf.schedulers.fallback(fusion, None, **more)

    def offer(fusion: tf.Fusion, **more: Any) -> Offer:
        if us is None:
            raise KeyError("no offer")
        return Offer(us, partial(slow, **more))

    return Candidates(fusion(), (slow,), None, None, DEFAULT, {slow: offer}), scheduled


def test_an_offer_is_asked_for_before_a_schedule_is_made() -> None:
    """What is known to be slow is not scheduled; what is wanted is, and costs what was said."""
    found, scheduled = offered(1e6)
    assert found.us == 1e6
    assert not scheduled
    assert found.best is not None
    assert scheduled == ["fusion"]
    assert found.us == found.best.schedule.us


def test_who_cannot_make_an_offer_refuses() -> None:
    found, scheduled = offered(None)
    assert found.best is None
    assert scheduled == []
    assert found.refused == [("slow", f"{INTERNAL}, KeyError: 'no offer'")]


def test_only_the_leading_schedulers_are_asked_whether_they_take_it() -> None:
    asked: list[str] = []

    def watched(name: str, takes: bool) -> Scheduler:
        def schedule(fusion: tf.Fusion, config: Any = None, **more: Any) -> Chosen[Any]:
            asked.append(name)
            if not takes:
                raise refuse(fusion, name, "not its kind")
            return scheduler(name, 1.0)(fusion, config, **more)

        schedule.__name__ = name
        return schedule

    def of(*takes: bool) -> Candidates:
        asked.clear()
        return Candidates(fusion(), tuple(watched(name, t) for name, t in zip("abc", takes, strict=True)), None, None, DEFAULT, leading=2)

    found = of(False, False, True)
    assert not found.is_led
    assert asked == ["a", "b"]
    assert here(found) == ("c", 0)
    assert not found.is_led
    found = of(False, True, True)
    assert found.is_led
    assert here(found) == ("b", 0)
    found.drop("a gap")
    assert here(found) == ("c", 0)
    assert found.is_led  # what was asked is who offered, not what became of it
    assert asked == ["a", "b", "c"]


def test_those_that_refuse_leave_their_copy_to_the_next_and_those_that_change_it_do_not() -> None:
    copies: list[int] = []

    def seen(change: bool) -> Scheduler:
        def schedule(fusion: tf.Fusion, config: object = None, **_: Any) -> Chosen[Any]:
            copies.append(id(fusion))
            if change:
                fusion.outputs[0].axis(0).parallelize(tf.ParallelType.BIDx)
            kept.append(fusion)
            raise refuse(fusion, "seen", "not its kind")

        return schedule

    kept: list[tf.Fusion] = []
    found = candidates(seen(False), seen(True), seen(False), scheduler("a", 1.0))
    assert here(found) == ("a", 0)
    first, second, third = copies
    assert first == second != third
    assert found.best is not None
    assert found.best.fusion is kept[2]


def product(m: int, n: int, k: int) -> tf.Fusion:
    with tf.Fusion("product") as made:
        made.add_output(tf.define_tensor([m, k], name="a") @ tf.define_tensor([k, n], name="b"))
    return made


def far(found: Candidates, bound: float) -> tuple[Scheduler, float]:
    """The best, put aside with what is counted of it: whose it is, and its microseconds."""
    assert found.best is not None
    first = found.best
    us = count(tf.lower(first.fusion), {}, DEFAULT)
    found.put_aside(first.schedule.counted(us, bound))
    return first.scheduler, us.us


def test_what_was_counted_in_vain_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a kernel of the same scheduler, options and counted time, as of a segment that has one tensor more."""
    monkeypatch.setattr("taskfuse.schedulers.candidates.BETTER", 0.0)

    class Counts:
        def __init__(self) -> None:
            self.vain: set[object] = set()
            self.asked = 0

        def __call__(self, scheduled: tf.Fusion, make: Callable[[], Count]) -> Count:
            self.asked += 1
            return make()

    counts = Counts()
    far(auto_candidates(product(6400, 80, 401), counts=counts), 4.0)
    asked = counts.asked
    assert asked > 1
    far(auto_candidates(product(6400, 80, 401), counts=counts), 4.0)
    assert counts.asked == asked
    assert len(counts.vain) == 1


def test_a_far_one_is_followed_by_those_of_its_other_parameters_that_are_counted_for_least() -> None:
    def us(config: Any) -> float:
        made = product(12800, 48, 200)
        tf.schedulers.simt_gemm(made, config)
        return count(tf.lower(made), {}, DEFAULT).us

    found = auto_candidates(product(12800, 48, 200))
    first, before = far(found, 4.0)
    second = found.best
    assert second is not None
    assert second.scheduler is first
    assert second.schedule.us < BETTER * before
    assert second.schedule.us == min(us(option.config) for option in second.schedule.alternatives[:5])
    assert not found.is_last


def test_those_that_gain_nothing_are_passed_over() -> None:
    found = auto_candidates(product(256, 256, 32))
    first, _ = far(found, 0.1)
    assert found.best is not None
    assert found.best.scheduler is not first or found.is_last


def test_one_without_an_offer_that_is_far_from_the_roofline_comes_after_a_faster_one() -> None:
    """Such as tiles that are nearly empty."""
    found = candidates(scheduler("tiles", 90.0, others=1), scheduler("plain", 80.0), scheduler("last", 70.0))
    seen: list[tuple[str, int]] = []
    while found.best is not None:
        seen.append(here(found))
        found.drop("a gap")
    assert seen == [("last", 0), ("plain", 0), ("tiles", 0), ("tiles", 1)]
    assert here(candidates(scheduler("tiles", 2.0), scheduler("plain", 1.0))) == ("tiles", 0)
