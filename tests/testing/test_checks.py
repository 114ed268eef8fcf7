"""Random fusions with random tasks, groups and schedules: simulation equals NumPy, in every order, under every interleaving.

The cases of bulk seeds are quick and many; Hypothesis's are few and shrink. `make fuzz N=...` checks as many as wanted.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from taskfuse.check.rewrites.instances import WIDE, differences
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.values import Values
from taskfuse.testing import CheckError, Distribution, Effort, RandomChooser, check_case, checks, reschedule
from taskfuse.testing.case import Case
from taskfuse.testing.fuzz import failure, reproduction
from taskfuse.testing.options import POINTWISE, Mix
from taskfuse.testing.strategies import cases
from tests.random_cases import random_case_of

CASES = 40
CHUNK = 20
COUNTED = 120  # the cases of which it is counted what they reach: the first are those that are run


SLOW_CASES = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.large_base_example]


@pytest.mark.parametrize("first", range(0, CASES, CHUNK))
def test_bulk(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            check_case(random_case_of(seed))
        except CheckError as error:
            pytest.fail(failure(reproduction(seed), error, budget=200), pytrace=False)


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_every_function_of_the_tables(first: int) -> None:
    for seed in range(first, first + 10):
        try:
            check_case(random_case_of(seed, Mix.FUNCTIONS))
        except CheckError as error:
            pytest.fail(failure(reproduction(seed, Mix.FUNCTIONS), error, budget=200), pytrace=False)


@given(cases(POINTWISE))
@settings(max_examples=10, suppress_health_check=SLOW_CASES)
def test_pointwise(case: Case) -> None:
    check_case(case)


@given(cases())
@settings(max_examples=12, suppress_health_check=SLOW_CASES)
def test_everything(case: Case) -> None:
    check_case(case)


@pytest.mark.parametrize("first", [0, 1])
def test_another_schedule_gives_the_same_results(first: int) -> None:
    for seed in range(first, 24, 4):
        case = random_case_of(seed)
        other = reschedule(case, RandomChooser(~seed))
        assert other.program.lines[: len(case.math.lines)] == case.math.lines
        assert other.seed == case.seed  # the same arguments, so that both are compared with the same results
        check_case(other)


def test_the_cases_reach_what_they_should() -> None:
    seen = Distribution()
    for seed in range(COUNTED):
        seen.add(random_case_of(seed))
    assert seen.crashed == 0
    assert seen.lowered >= 0.7 * seen.cases, seen.text()
    floors = {
        "a parallel vertical group": 0.45,
        "a parallel horizontal group": 0.3,
        "both kinds, nested": 0.2,
        "3 levels of groups or more": 0.25,
        "one type at several levels": 0.15,
        "a channel": 0.45,
        "a ring of 2 slots or more": 0.15,
        "a split that does not divide": 0.35,
        "a tile larger than its axis": 0.25,
        "shared loops": 0.35,
        "a symbolic dimension": 0.4,
        "a reduction": 0.3,
        "a grid-stride loop": 0.02,
        "a reduction by shuffles": 0.05,
        "partial results of several warps": 0.03,
        "several digits reduced across threads": 0.04,
        "Shared memory": 0.5,
        "several outputs": 0.5,
    }
    low = {name: seen.share(name) for name, floor in floors.items() if seen.share(name) < floor}
    assert not low, seen.text()


def test_a_run_that_takes_too_long_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(c for c in map(random_case_of, range(20)) if c.kernel is not None)
    assert check_case(case).long == 0
    monkeypatch.setattr(checks, "STEPS_OF_A_RUN", 5)
    assert check_case(case).long == 1  # its other runs are not tried


def test_sums_that_are_rescaled_have_exact_words() -> None:
    """``tf.schedulers.online``: the factors of a running maximum cancel in modular words, too."""
    check_case(random_case_of(713, Mix.EVERYTHING))


def test_what_is_equal_in_real_numbers_is_computed_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof is not the only judge of what a scheduler made of the math."""
    case = random_case_of(22, Mix.PROBLEMS)
    compared: list[int] = []

    def seen(a: Any, b: Any) -> Any:
        compared.append(a.size)
        return differences(a, b)

    monkeypatch.setattr(checks, "differences", seen)
    check_case(case, Effort(interleavings=0, orders=0))
    assert sum(compared) > 0
    before = checks.evaluate

    def off(fusion: Fusion, arguments: Any, values: Values) -> Any:
        found = before(fusion, arguments, values)
        return tuple(x + x for x in found) if values is WIDE and fusion is case.fusion else found

    monkeypatch.setattr(checks, "evaluate", off)
    with pytest.raises(CheckError, match=r"in float64, element .* of the scheduled fusion is"):
        check_case(case, Effort(interleavings=0, orders=0))
