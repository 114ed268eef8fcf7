"""Which kernels compute a fusion: where it is cut, and where not."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.schedulers import segmenter
from taskfuse.schedulers.budget import Budget
from taskfuse.schedulers.segmentation import Segmentation
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.target import DEFAULT
from tests.calls import always
from tests.proofs import proved


def test_what_takes_as_long_as_its_arithmetic_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many functions of few bytes: no search for cuts begins."""
    monkeypatch.setattr(segmenter, "Forms", None)
    with tf.Fusion("diamonds") as fusion:
        x = tf.define_tensor(["N", 64], name="x")
        for _ in range(30):
            x = tf.sin(x) + tf.cos(x)
        fusion.add_output(x)
    found = choose_segments(fusion)
    assert found.us > 5 * (2 * 4096 * 64 * 4 / DEFAULT.dram_bytes_per_us)
    assert not found.is_segmented


def test_cuts_that_cannot_be() -> None:
    with tf.Fusion("chain") as fusion:
        x = tf.define_tensor(["N"], name="x")
        a = tf.exp(x)
        b = tf.sin(a)
        fusion.add_output(a + b)
    with pytest.raises(TaskfuseError, match="tv3 is in no segment"):
        tf.segment(fusion, [["tv1"], ["tv2"]])
    with pytest.raises(TaskfuseError, match="tv1 is in segments 0 and 1"):
        tf.segment(fusion, [["tv1"], ["tv1", "tv2", "tv3"]])
    with pytest.raises(TaskfuseError, match=r"the segments \[tv1, tv3\] and \[tv2\] depend on each other"):
        tf.segment(fusion, [["tv1", "tv3"], ["tv2"]])


def test_a_segment_has_the_extents_that_only_indices_speak_of() -> None:
    with tf.Fusion("counted") as fusion:
        x, y = tf.define_tensor(["K"], name="x"), tf.define_tensor([4], name="y")
        total, k = x.sum(), x.shape[0]
        fusion.add_output(total)
        fusion.add_output(y * tf.cast(tf.arange(k, k + 4), tf.float32))
    segmented = tf.segment(fusion, [[total], [tv for tv in fusion.tensors() if tv is not total and not tv.is_input]])
    assert [tv.name for tv in segmented.segments[1].inputs] == ["x", "y"]
    arrays = np.ones(5, np.float32), np.ones(4, np.float32)
    for found, wanted in zip(tf.compile(segmented)(*arrays), fusion.evaluate(*arrays), strict=True):
        assert (found == wanted).all()


def test_parts_that_others_read_stay_in_registers() -> None:
    with tf.Fusion("both") as fusion:
        x = tf.define_tensor([8, 64], name="x")
        y = tf.cat([tf.sin(x), tf.cos(x)], 0)
        fusion.add_output(y)
        fusion.add_output(tf.exp(y))
    x = np.linspace(-1, 1, 512, dtype=np.float32).reshape(8, 64)
    expected = fusion.evaluate(x)
    tf.schedulers.cat(fusion, tf.schedulers.CatConfig(tf.schedulers.Form.SHARED))
    kernel = tf.lower(fusion)
    proved(kernel)
    assert "SYNC" not in str(kernel)
    assert str(kernel).count("<- x[") == 1
    for found, wanted in zip(kernel.simulate(x), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_cut_goes_through_what_is_narrow() -> None:
    """Two readers of a float32 tensor, both through a view: each converts the bfloat16 one for itself."""
    with tf.Fusion("groups") as fusion:
        x = tf.cast(tf.define_tensor([4, 320, 64, 64], dtype=tf.bfloat16, name="x"), tf.float32)
        rows = tf.reshape(x, [4, 8, 40, 64, 64])
        mean = tf.mean(rows, (2, 3, 4), keepdims=True)
        scaled = tf.reshape(rows - mean, [4, 320, 64, 64]) * tf.define_tensor([320, 1, 1], name="w")
        fusion.add_output(tf.cast(scaled, tf.bfloat16))
    found = choose_segments(fusion)
    cut = [tv for step in found.steps for tv in step.fusion.outputs if tv.dtype is tf.float32]
    assert ["4", "8", "1", "1", "1"] in [[str(e) for e in tv.shape] for tv in cut]
    assert sum(size for _, size in found.crossing) < 4 * 4 * 8 * 10  # of means, and of parts of sums


def test_a_kernel_whose_count_is_worse_than_several_kernels_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its estimate was better, and the budget is spent when it is counted."""
    with tf.Fusion("f") as fusion:
        fusion.add_output(tf.exp(tf.define_tensor([4096, 4096], name="x")))
    step = choose_segments(fusion).steps[0]
    several = Segmentation("f", (step, step))

    monkeypatch.setattr(segmenter, "Forms", always(SimpleNamespace(segmentation=always(several))))
    monkeypatch.setattr(segmenter, "_least", always(0.0))
    for us, kernels in ((1e9, 2), (1.0, 1)):
        schedule = SimpleNamespace(us=us, is_far=us > 1e3)
        monkeypatch.setattr(segmenter, "tried", always(SimpleNamespace(refused="", schedule=schedule)))
        assert len(choose_segments(fusion, budget=Budget(0.0)).steps) == kernels


@pytest.mark.parametrize(("counted", "kernels"), [(20.0, 2), (50.0, 1)])
def test_a_kernel_put_aside_is_taken_if_several_count_no_less(monkeypatch: pytest.MonkeyPatch, counted: float, kernels: int) -> None:
    """Its count is far from its roofline; the estimate of several is less than that, and says nothing about their counts."""
    with tf.Fusion("f") as fusion:
        fusion.add_output(tf.exp(tf.define_tensor([4096, 4096], name="x")))
    step: Any = replace(choose_segments(fusion).steps[0], schedule=SimpleNamespace(us=20.0, is_far=False, count=SimpleNamespace(us=counted)))
    several = Segmentation("f", (step, step))
    far = SimpleNamespace(us=60.0, is_far=True, scheduler="pointwise", code="", bound=1.0, count=SimpleNamespace(us=60.0))
    monkeypatch.setattr(segmenter, "Forms", always(SimpleNamespace(segmentation=always(several))))
    monkeypatch.setattr(segmenter, "_least", always(0.0))
    monkeypatch.setattr(segmenter, "tried", always(SimpleNamespace(refused="", schedule=far)))
    assert len(choose_segments(fusion).steps) == kernels
