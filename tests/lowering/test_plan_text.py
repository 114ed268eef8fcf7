"""The text of the plan after each step, and what a step changes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

import taskfuse as tf
from examples import founding, stream
from taskfuse.lowering import lower
from taskfuse.lowering.plan_text import changes, plan_texts, state_text
from tests.lowering.stepped import NAMES


@pytest.mark.parametrize("build", [founding.build, stream.build], ids=["founding", "stream"])
def test_texts(build: Callable[[], tf.Fusion]) -> None:
    texts: dict[str, str] = {}
    fusion = build()
    kernel = tf.lower(fusion)
    assert lower(fusion, after=lambda step, state: texts.update({step.name: state_text(state)})) == kernel
    assert list(texts) == NAMES
    assert texts[NAMES[-1]] == str(kernel)
    assert "WAIT" not in texts["nest"]
    assert "WAIT" in texts["endpoints"]
    assert " @ " not in texts["unroll"]
    assert " @ " in texts["layout"]
    for before, name in pairwise(NAMES):
        assert plan_texts(fusion, name) == (texts[before], texts[name])


def test_what_a_step_changes() -> None:
    before, after = plan_texts(founding.build(), "endpoints")
    added = [line[1:].strip() for line in changes(before, after).splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert "WAIT ch0.full[ch0.c.slot] parity ch0.c.parity" in added
    assert not [line for line in changes(before, after).splitlines() if line.startswith("-") and not line.startswith("---")]
    assert changes(after, after) == "nothing changed"
