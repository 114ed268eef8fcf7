"""What a search for a counterexample ends with."""

import pytest

from taskfuse.check.refuted import Refuted, TooLarge, WorkBudget
from taskfuse.location import Quote


def test_a_statement_is_quoted_once() -> None:
    found = Refuted("s", "a race", "thread 0")
    first, second = Quote("SYNC block", None), Quote("PASS", None)
    assert found.quoting(first).notes == ("thread 0", first)
    assert found.quoting(second).notes == ("thread 0", first)


def test_work_is_limited() -> None:
    budget = WorkBudget(statements=2, events=10)
    budget.spend(10)
    assert not budget.spent
    with pytest.raises(TooLarge):
        budget.spend(1)
    assert budget.spent
    with pytest.raises(TooLarge):
        WorkBudget(statements=0).spend(0)
