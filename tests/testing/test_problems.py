"""Fusions for special schedulers: each kind is drawn, and its scheduler takes some."""

import pytest

import taskfuse as tf
from taskfuse.testing import Mix, RandomChooser
from taskfuse.testing.problems import ProblemGraph
from taskfuse.testing.program import REFUSALS, Recorder
from tests.schedulers.attentions import attention

KINDS = {"attention", "back_to_back", "windows", "nested_sums", "scatter"}


def test_schedulers_take_their_problems() -> None:
    left = set(KINDS)
    for seed in range(40):
        for name in sorted(left):
            recorder = Recorder()
            ProblemGraph(RandomChooser(seed), Mix.PROBLEMS.options(seed), recorder).grow()
            try:
                getattr(tf.schedulers, name)(recorder.fusion)
            except REFUSALS:
                continue
            left.discard(name)
    assert not left


def test_a_refusal_that_leaves_changes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from taskfuse.testing import case

    def spoils(fusion: tf.Fusion, *_: object) -> None:
        fusion.inputs[0].cache_after()
        raise tf.errors.UnsupportedError(what="it", reason="it does not")

    monkeypatch.setattr(tf.schedulers, "attention", spoils)
    recorder = Recorder()
    recorder.fusion = attention(sizes=(5, 5))
    with pytest.raises(AssertionError, match=r"tf\.schedulers\.attention refuses the fusion, and leaves it changed"):
        case.automatic(RandomChooser(3), recorder)
