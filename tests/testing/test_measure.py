"""Coverage: what is counted of cases, and how it reads."""

from taskfuse.testing.measure import Distribution
from tests.random_cases import random_case_of

SEEDS = (1, 3, 5)


def counted(numbers: tuple[int, ...]) -> Distribution:
    found = Distribution()
    for k in numbers:
        found.add(random_case_of(SEEDS[k]))
    return found


def test_runs_are_added() -> None:
    whole, part = counted((0, 1, 2)), counted((0,))
    part.join(counted((1, 2)))
    assert part == whole
    assert whole.cases == 3
    assert whole.lowered == sum(c.kernel is not None for c in map(random_case_of, SEEDS))
    assert whole.lowered + sum(whole.refusals.values()) + whole.crashed == 3


def test_text() -> None:
    found = counted((0, 1, 2))
    lines = found.text().splitlines()
    assert lines[0] == f"3 cases, {found.lowered} lower ({100 * found.lowered / 3:.0f}%), 0 crash"
    assert any(line.startswith("  expressions: ") for line in lines)
    assert found.table().splitlines()[0].split() == ["mechanism", "drawn", "lower", "share"]
    assert found.share("Shared memory") == found.features["Shared memory"] / found.lowered
    assert Distribution().share("Shared memory") == 0


def test_refusals_are_counted_without_numbers() -> None:
    refused = Distribution()
    for case in map(random_case_of, SEEDS):
        if case.outcome.refusal is not None:
            refused.add(case)
    assert all(not any(c.isdigit() for c in reason) for reason in refused.refusals)
