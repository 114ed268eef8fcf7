"""Results whose elements are computed in groups are views of what has the axes of the groups, and hold what the reference says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check import Verdict
from taskfuse.ir.scalar import Expr
from taskfuse.runtime import result_groups
from taskfuse.runtime.result_groups import in_groups
from taskfuse.runtime.result_views import bases
from taskfuse.schedulers.segmentation import Segmentation

ROWS, COLUMNS, GROUP = 6, 64, 16


def quantized(rows: int, columns: int, group: int, *, weights: bool = False) -> tf.Fusion:
    """Elements scaled by the greatest of their group, added to others in the shape of the whole; ``weights``: and multiplied by one of each column."""
    with tf.Fusion("quantized") as fusion:
        x, p = (tf.define_tensor([rows, columns], name=name) for name in "xp")
        groups = tf.reshape(x * 2.0, [-1, group])
        greatest = tf.max(tf.abs(groups), 1, keepdims=True)
        whole = p - tf.reshape(groups / greatest, [rows, columns]) * 0.5
        fusion.add_output(greatest)
        fusion.add_output(whole * tf.define_tensor([columns], name="w") if weights else whole)
    return fusion


def test_what_stands_after_the_view_is_computed_in_groups() -> None:
    fusion = quantized(ROWS, COLUMNS, GROUP)
    run = tf.compile(fusion)
    assert not isinstance(run.schedule, Segmentation)
    assert len(run.kernels) == 1
    assert all(c.is_proved for c in run.certificates)
    assert "is what was written" in str(run.certificates[0])  # with the axes of the whole
    given = [np.random.default_rng(k).uniform(0.1, 1.0, (ROWS, COLUMNS)).astype(np.float32) for k in range(2)]
    for mine, wanted in zip(run(*given), fusion.evaluate(*given), strict=True):
        assert mine.shape == wanted.shape
        assert np.allclose(mine, wanted, rtol=1e-6)
    stored: list[Any] = [np.zeros((ROWS * COLUMNS // GROUP, 1), np.float32), np.zeros((ROWS, COLUMNS), np.float32)]
    run(*given, out=stored)
    assert np.array_equal(stored[1], run(*given)[1])


def test_elements_of_other_places_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    right = result_groups.index_at

    def beside(place: Expr, shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return right((place + 1) % (ROWS * COLUMNS), shape)

    monkeypatch.setattr(result_groups, "index_at", beside)
    found = bases(quantized(ROWS, COLUMNS, GROUP))
    assert found is not None
    assert tf.lower(found.fusion).verify().verdict is Verdict.REFUTED


def test_the_rewritten_fusion_computes_the_same_bits() -> None:
    fusion = quantized(ROWS, COLUMNS, GROUP)
    made = in_groups(fusion)
    assert made is not None
    given = [np.random.default_rng(k).uniform(0.1, 1.0, (ROWS, COLUMNS)).astype(np.float32) for k in range(2)]
    assert all(np.array_equal(a, b) for a, b in zip(made.evaluate(*given), fusion.evaluate(*given), strict=True))


def test_what_needs_the_axes_of_the_whole_stays() -> None:
    """Weights of columns are no function of the axes of a group; nor are rows that are reduced themselves; groups that are not in order are other elements."""
    assert in_groups(quantized(ROWS, COLUMNS, GROUP, weights=True)) is None
    with tf.Fusion("rows") as fusion:
        x = tf.define_tensor([ROWS, COLUMNS], name="x")
        groups = tf.reshape(x, [-1, GROUP])
        scaled = tf.reshape(groups / tf.max(groups, 1, keepdims=True), [ROWS, COLUMNS])
        fusion.add_output(scaled * tf.sum(x, 1, keepdims=True))
    assert in_groups(fusion) is None
    with tf.Fusion("turned") as fusion:
        x = tf.define_tensor([ROWS, COLUMNS], name="x")
        groups = tf.reshape(x, [-1, GROUP])
        turned = tf.permute(tf.reshape(groups / tf.max(groups, 1, keepdims=True), [COLUMNS, ROWS]), [1, 0])
        fusion.add_output(turned + x)
    assert in_groups(fusion) is None


def test_results_of_one_shape_stay_together() -> None:
    """One is computed in groups, and another one of that shape is not: a kernel that computes both reads what they have in common once."""
    with tf.Fusion("both") as fusion:
        x, p = (tf.define_tensor([ROWS, COLUMNS], name=name) for name in "xp")
        groups = tf.reshape(x, [-1, GROUP])
        fusion.add_output(p - tf.reshape(groups / tf.max(groups, 1, keepdims=True), [ROWS, COLUMNS]))
        fusion.add_output(tf.exp(p))
    assert in_groups(fusion) is None


def test_functions_of_rows_are_read_in_groups() -> None:
    """A scale of each row has one of the axes of groups that lie within rows."""
    with tf.Fusion("scaled") as fusion:
        x, scale = tf.define_tensor([ROWS, COLUMNS], name="x"), tf.define_tensor([ROWS, 1], name="scale")
        groups = tf.reshape(x, [ROWS, COLUMNS // GROUP, GROUP])
        fusion.add_output(tf.reshape(groups / tf.max(groups, 2, keepdims=True), [ROWS, COLUMNS]) * scale)
    made = in_groups(fusion)
    assert made is not None
    given = [np.random.default_rng(0).uniform(0.1, 1.0, (ROWS, n)).astype(np.float32) for n in (COLUMNS, 1)]
    assert np.array_equal(made.evaluate(*given)[0], fusion.evaluate(*given)[0])
