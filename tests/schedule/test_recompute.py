"""recompute: what moves to the reader's points, what is read where it is, and what is refused."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import ScheduleError
from taskfuse.ir.expr import Gather, Read, Reduction, Scan
from taskfuse.ir.storage import storage_reads
from taskfuse.schedule.recompute import is_gathered_elementwise

RNG = np.random.default_rng(0)


def test_a_gather_moves_with_its_indices() -> None:
    with tf.Fusion("moved") as fusion:
        x, i = tf.define_tensor([5, 4], name="x"), tf.define_tensor([3], dtype=tf.int32, name="i")
        rows = tf.take(x, i + 1, 0)
        turned = tf.copy(rows.T)
        fusion.add_output(turned)
    arguments = RNG.random((5, 4)).astype(np.float32), np.array([0, 7, -2], np.int32)
    (wanted,) = fusion.evaluate(*arguments)
    (made,) = rows.recompute([turned])
    assert isinstance(fusion.definition(made), Gather)
    assert made.shape == turned.shape
    assert rows not in set(fusion.tensors())
    assert np.array_equal(fusion.evaluate(*arguments)[0], wanted)


def test_a_table_that_many_paths_lead_to_is_looked_at_once() -> None:
    """Of 40 functions each reads the one before twice: a walk along every path would never end."""
    with tf.Fusion("paths"):
        y = tf.define_tensor([5, 4], name="x")
        for _ in range(40):
            y = y * y
        found = tf.take(y, tf.define_tensor([3], dtype=tf.int32, name="i"), 0)
    assert found.definition is not None
    assert is_gathered_elementwise(found.fusion, found.definition)


def test_a_scan_moves_to_its_own_points_only() -> None:
    with tf.Fusion("scanned") as fusion:
        x = tf.define_tensor([4, 4], name="x")
        total = tf.cumsum(tf.square(x), 0)
        here, turned = tf.exp(total), tf.copy(total.T)
        fusion.add_output(here)
        fusion.add_output(turned)
    x = RNG.random((4, 4)).astype(np.float32)
    wanted = fusion.evaluate(x)
    (again,) = total.recompute([here])
    (copied,) = total.recompute([turned])
    assert isinstance(fusion.definition(again), Scan)
    assert not isinstance(fusion.definition(copied), Scan)
    for a, b in zip(fusion.evaluate(x), wanted, strict=True):
        assert np.array_equal(a, b)


def test_of_a_table_what_is_gathered_is_computed() -> None:
    with tf.Fusion("table") as fusion:
        x, i, b = tf.define_tensor([5, 4], name="x"), tf.define_tensor([7], dtype=tf.int32, name="i"), tf.define_tensor([4], name="b")
        made = tf.exp(x) + b
        found = tf.take(made, i, 0)
        fusion.add_output(found)
    arguments = RNG.random((5, 4)).astype(np.float32), np.array([0, 4, -1, -5, 5, -6, 2], np.int32), RNG.random(4).astype(np.float32)
    (wanted,) = fusion.evaluate(*arguments)
    assert (wanted[4:6] == 0).all()
    made.recompute([found])
    assert made not in set(fusion.tensors())
    gathers = [e for e in fusion.exprs() if isinstance(e, Gather)]
    assert [e.operands[0].tensor.name for e in gathers if isinstance(e.operands[0], Read)] == ["x"]
    assert np.array_equal(fusion.evaluate(*arguments)[0], wanted)


def test_a_table_of_sums_stays() -> None:
    with tf.Fusion("sums") as fusion:
        x, i = tf.define_tensor([5, 4], name="x"), tf.define_tensor([3], dtype=tf.int32, name="i")
        made = tf.exp(tf.sum(x, 1))
        found = tf.take(made, i, 0)
        fusion.add_output(found)
    with pytest.raises(ScheduleError) as caught:
        made.recompute([found])
    text = f"recompute({made.name}): {found.name} reads it at computed indices: every element may be needed"
    assert str(caught.value).splitlines()[0] == text
    assert str(caught.value).splitlines()[-1] == "help: leave it in memory; recompute its readers"


def test_a_reduction_of_one_element_keeps_its_axis_if_its_body_cannot_stand_alone() -> None:
    """The body takes constants of other dtypes, which a pointwise expression would promote."""
    with tf.Fusion("argmin") as fusion:
        x = tf.define_tensor([1, 3], dtype=tf.int64, name="x")
        found = tf.argmin(x, 0, keepdims=True)
        y = tf.pad(found, [(0, 0), (1, 0)], 7)
        fusion.add_output(y)
    reduction = [tv for tv in fusion.tensors() if isinstance(fusion.definition(tv), Reduction)][-1]
    (made,) = reduction.recompute([y])
    assert any(a.is_reduction for a in made.root)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    values = np.array([[3, 1, 2]], np.int64)
    assert kernel.simulate(values)[0].tolist() == [[7, 0, 0, 0]]


def test_what_is_stored_is_read() -> None:
    with tf.Fusion("stored") as fusion:
        x, y = tf.define_tensor([8, 4], name="x"), tf.define_tensor([8, 4], name="y")
        total = x + y
        scaled = tf.exp(total)
        turned = tf.reshape(scaled, [32]) * 2.0
        fusion.add_output(total)
        fusion.add_output(turned)
    arguments = RNG.random((8, 4)).astype(np.float32), RNG.random((8, 4)).astype(np.float32)
    wanted = fusion.evaluate(*arguments)
    (made,) = scaled.recompute([turned], [total])
    expr = fusion.definition(made)
    assert expr is not None
    assert [r.tensor for r in storage_reads(fusion, expr)] == [total]
    for mine, before in zip(fusion.evaluate(*arguments), wanted, strict=True):
        assert np.array_equal(mine, before)
