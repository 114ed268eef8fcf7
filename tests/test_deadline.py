"""Deadlines: work that can be done without is given up at a checkpoint, and what was derived until then remains."""

from collections.abc import Callable, Iterator
from threading import Thread

import pytest

import taskfuse as tf
from taskfuse.check.argument import Argument
from taskfuse.deadline import DeadlineError, checkpoint, until
from taskfuse.reports.certificate import Layer, Obligation, Verdict


def after(questions: int) -> Callable[[], bool]:
    """A deadline that passes after some questions."""
    left = [questions]

    def passed() -> bool:
        left[0] -= 1
        return left[0] < 0

    return passed


def small() -> tf.Fusion:
    with tf.Fusion("small") as fusion:
        fusion.add_output(tf.exp(tf.define_tensor([8], name="x")) + 1.0)
    return fusion


def test_without_a_deadline_nothing_is_given_up() -> None:
    checkpoint()
    with until(after(2)):
        checkpoint()
        checkpoint()
        with pytest.raises(DeadlineError, match="its deadline has passed"):
            checkpoint()
    checkpoint()


def test_the_innermost_one_counts_and_the_outer_one_returns() -> None:
    with until(lambda: True):
        with until(lambda: False):
            checkpoint()
        with pytest.raises(DeadlineError, match="its deadline has passed"):
            checkpoint()


def test_it_is_that_of_one_thread() -> None:
    failures: list[Exception] = []

    def other() -> None:
        try:
            checkpoint()
        except DeadlineError as error:
            failures.append(error)

    with until(lambda: True):
        thread = Thread(target=other)
        thread.start()
        thread.join()
    assert not failures


def test_lowering_asks_before_every_step() -> None:
    with pytest.raises(DeadlineError), until(after(10)):
        tf.lower(small())
    assert tf.lower(small()).verify().is_proved


def test_a_proof_that_was_given_up_goes_on_where_it_stopped() -> None:
    made: list[int] = []

    def told() -> Iterator[Obligation]:
        for k in range(5):
            made.append(k)
            yield Obligation(Layer.VALUES, str(k), Verdict.PROVED, "")

    argument = Argument(told())
    with pytest.raises(DeadlineError), until(after(2)):
        list(argument)
    assert made == [0, 1, 2]
    assert [o.subject for o in argument] == ["0", "1", "2", "3", "4"]
    assert made == [0, 1, 2, 3, 4]
