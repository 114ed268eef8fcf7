"""Reductions whose rows are short runs of memory, far from one another."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.short_runs import sum_short_runs_last
from taskfuse.target import DEFAULT


def gradient(batch: int, out: int, into: int, window: int) -> tf.Fusion:
    """Of the scales of a convolution's weights, of the greatest magnitudes too."""
    with tf.Fusion("gradient") as fusion:
        x, w = (tf.define_tensor([*batches, out, into, window, window], name=name) for batches, name in (([batch], "x"), ([], "w")))
        fusion.add_output(tf.sum(x * w, (1, 3, 4)))
        fusion.add_output(tf.max(x, (1, 3, 4)))
    return fusion


def form(fusion: tf.Fusion) -> tf.Fusion | None:
    found = sum_short_runs_last(fusion, Sizes(fusion, None, DEFAULT))
    return None if found is None else found.fusion


def test_columns_are_summed_first() -> None:
    found = form(gradient(2, 16, 4, 3))
    assert found is not None
    reduced = {e.output.name: [str(a.extent) for a in e.output.root if a.is_reduction] for e in found.exprs() if any(a.is_reduction for a in e.output.root)}
    assert sorted(reduced.values()) == [["16"], ["16"], ["3", "3"], ["3", "3"]]
    rng = np.random.default_rng(0)
    given = [rng.integers(-3, 4, tuple(int(str(e)) for e in tv.shape)).astype(np.float32) for tv in found.inputs]
    for a, b in zip(found.evaluate(*given), gradient(2, 16, 4, 3).evaluate(*given), strict=True):
        assert np.array_equal(a, b)


def test_it_is_taken_where_it_is_faster() -> None:
    run = tf.compile(gradient(8, 512, 512, 3), "sim", cache=False)
    assert run.schedule is not None
    assert "rfactor" in run.schedule.code
    assert run.schedule.us < 1.5 * DEFAULT.dram_us(4 * 8 * 512 * 512 * 9)


@pytest.mark.parametrize(
    ("fusion", "why"),
    [
        (gradient(2, 16, 4, 6), "runs of a line of memory"),
        (gradient(2, 8, 4, 3), "few runs"),
        (gradient(2, 16, 1, 3), "one run"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_others_stay(fusion: tf.Fusion, why: str) -> None:
    assert form(fusion) is None, why
