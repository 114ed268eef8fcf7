"""The text of the plan after each step, and what a step changes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

import pytest

import taskfuse as tf
from examples import founding, gemm_multistage, gemm_stream_k, stream, syr2k
from taskfuse.lowering import lower
from taskfuse.lowering.plan_text import changes, plan_texts, state_text
from tests.lowering.stepped import NAMES


class Example(Protocol):
    """A module of the examples."""

    def build(self) -> tf.Fusion:
        """Its fusion."""
        ...


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


FOUND = [
    (founding, "ranges", "RANGE "),
    (founding, "memory", "MEMORY tv8: Shared"),
    (stream, "grid-stride", "TRIPS of axis 0 of "),
    (syr2k, "grid-stride", "ITEMS of axis "),
    (gemm_stream_k, "neutral-tails", "END of axis "),
    (founding, "channels", "CHANNEL ch0: "),
    (gemm_multistage, "rings", "RING "),
    (stream, "nest", "TENSORMAP "),
    (stream, "nest", "ALIGN "),
    (gemm_multistage, "prefetch", "RING "),
    (gemm_multistage, "cursors", "CURSOR"),
    (founding, "buffers", "BUFFER "),
    (founding, "barriers", "MBARRIER "),
    (gemm_stream_k, "barriers", "COUNTER "),
]


@pytest.mark.parametrize(("example", "step", "text"), FOUND, ids=[f"{name}-{text.split()[0]}" for _, name, text in FOUND])
def test_what_a_step_finds_is_printed(example: Example, step: str, text: str) -> None:
    added = [line for line in changes(*plan_texts(example.build(), step)).splitlines() if line.startswith("+")]
    assert any(text in line for line in added), added


def test_rings_filled_ahead() -> None:
    before, after = plan_texts(gemm_multistage.build(), "prefetch")
    assert "trips ahead" not in before
    assert " slots, the next in each iteration of axis 2, filled 2 trips ahead" in after


def test_what_a_step_changes() -> None:
    before, after = plan_texts(founding.build(), "endpoints")
    added = [line[1:].strip() for line in changes(before, after).splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert "WAIT ch0.full[ch0.c.slot] parity ch0.c.parity" in added
    assert not [line for line in changes(before, after).splitlines() if line.startswith("-") and not line.startswith("---")]
    assert changes(after, after) == "nothing changed"
