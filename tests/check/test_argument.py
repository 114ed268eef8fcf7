"""Obligations are looked at up to the next gap, once, and meanwhile no cycles are collected."""

import gc
from collections.abc import Iterator

import pytest

from taskfuse.check import Layer, Obligation, Verdict
from taskfuse.check.argument import Argument


def obligations(looked: list[str], *verdicts: Verdict) -> Iterator[Obligation]:
    """One for each verdict, written down as it is looked at."""
    for k, verdict in enumerate(verdicts):
        assert not gc.isenabled()
        looked.append(str(k))
        yield Obligation(Layer.ORDER, str(k), verdict, "")


def test_a_reader_gets_what_comes_up_to_the_next_gap() -> None:
    looked: list[str] = []
    argument = Argument(obligations(looked, Verdict.PROVED, Verdict.OUTSIDE, Verdict.PROVED, Verdict.REFUTED, Verdict.PROVED))
    assert looked == []
    found = iter(argument)
    assert next(found).subject == "0"
    assert looked == ["0", "1"]
    next(found)
    assert looked == ["0", "1"]
    next(found)
    assert looked == ["0", "1", "2", "3"]
    for _ in range(2):
        assert [o.subject for o in argument] == ["0", "1", "2", "3", "4"]
    assert looked == ["0", "1", "2", "3", "4"]
    assert gc.isenabled()


def test_an_error_ends_the_pause() -> None:
    def failing() -> Iterator[Obligation]:
        assert not gc.isenabled()
        raise ZeroDivisionError
        yield

    with pytest.raises(ZeroDivisionError):
        list(Argument(failing()))
    assert gc.isenabled()
