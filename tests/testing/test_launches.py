"""Launches by oracle and ending."""

from taskfuse.testing.launches import Ending, Launches, LongRun, Oracle, RefusedLaunch, count, fails, is_idle, key, table


def test_launches_are_counted_by_oracle_and_ending() -> None:
    launches = Launches({key(Oracle.SIMULATOR, Ending.DECIDED): 3, key(Oracle.SIMULATOR, Ending.LONG): 2, key(Oracle.MACHINE, Ending.LONG): 1})
    assert count(launches, Ending.DECIDED) == 3
    assert count(launches, Ending.LONG, Ending.REFUSED) == 3
    assert table(launches) == [
        "launches           decided  too long   refused    raises",
        "simulator                3         2         0         0",
        "second machine           0         1         0         0",
    ]


def test_launches_without_a_decision_are_idle() -> None:
    assert is_idle({})
    assert is_idle({key(Oracle.MACHINE, LongRun.ending): 2, key(Oracle.SIMULATOR, RefusedLaunch.ending): 1, key(Oracle.SIMULATOR, Ending.RAISES): 1})
    assert not is_idle({key(Oracle.EXPLORATION, Ending.DECIDED): 1})


def test_what_fails_is_told_in_a_line() -> None:
    assert fails("the checker", KeyError("a")) == "the checker fails: KeyError: 'a'"
    assert fails("simulator", ValueError("one\ntwo")) == "simulator fails: ValueError: one"
