"""Pipelines: roles that hand data to each other by every kind of fill, and none of whose waits is for nothing."""

import pytest

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small import Small
from taskfuse.testing.small.pipeline import Fill, Pipeline
from tests.testing.small.drawn import drawn, lacks, needless


def made(c: Chooser) -> Small:
    return Pipeline(c).make()


@pytest.fixture(scope="module")
def pipelines() -> list[Small]:
    return drawn(made, 60)


def test_every_kind_of_fill_is_drawn(pipelines: list[Small]) -> None:
    assert lacks(pipelines, "TMA", "COPY.async", "ARRIVE.async", "EXPECT", "SYNC warp") == []
    assert len(Fill) >= 3


def test_no_wait_is_for_nothing(pipelines: list[Small]) -> None:
    for word in ("WAIT", "ARRIVE"):
        refused, wrong = needless(pipelines, word)
        assert refused
        assert wrong == []
