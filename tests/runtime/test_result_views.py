"""Results that are views share memory with what they are views of, and hold what the reference says; in the simulator."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import taskfuse as tf
from taskfuse.errors import InputError

Array = npt.NDArray[Any]


def values(*shape: int) -> Array:
    return np.random.default_rng(0).uniform(0.1, 1.0, shape).astype(np.float32)


def ran(build: Callable[[tf.Fusion], None], *args: Array) -> tuple[tf.Executable, tuple[Any, ...]]:
    """The executable, and what it returns, compared with the reference."""
    with tf.Fusion("shown") as fusion:
        build(fusion)
    expected = fusion.evaluate(*(a.copy() for a in args))
    run = tf.compile(fusion)
    assert all(c.is_proved for c in run.certificates)
    found = run(*args)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert np.allclose(a, b, rtol=1e-5)
    return run, found


def views_of_an_input(fusion: tf.Fusion) -> None:
    x = tf.define_tensor([4, 6], name="x")
    fusion.add_output(x[1:, ::2])
    fusion.add_output(tf.permute(x, [1, 0]))
    fusion.add_output(tf.broadcast_to(tf.expand_dims(x, 0), [3, 4, 6]))


def test_views_of_an_input_run_no_kernel() -> None:
    x = values(4, 6)
    run, found = ran(views_of_an_input, x)
    assert not run.kernels
    assert all(np.shares_memory(a, x) for a in found)
    assert not found[2].flags.writeable  # whose elements share places
    again = pickle.loads(pickle.dumps(run))(x)
    assert all(np.shares_memory(a, x) for a in again)


def test_strides_of_the_argument_are_kept() -> None:
    for x in (np.asfortranarray(values(4, 6)), values(8, 6)[::2], values(4, 6)[::-1]):
        ran(views_of_an_input, x)


@pytest.mark.parametrize("is_turned_back", [True, False])
def test_elements_stay_in_the_order_of_their_sources(is_turned_back: bool) -> None:
    """Math on channels first between views of channels last is stored with channels last."""

    def build(fusion: tf.Fusion) -> None:
        x, bias = tf.define_tensor([2, 4, 5, 3], name="x"), tf.define_tensor([3, 1, 1], name="bias")
        y = tf.relu(tf.permute(x, [0, 3, 1, 2]) - bias)
        fusion.add_output(tf.permute(y, [0, 2, 3, 1] if is_turned_back else [0, 3, 2, 1]))

    _, (found,) = ran(build, values(2, 4, 5, 3), values(3, 1, 1))
    assert found.flags.c_contiguous is is_turned_back


@pytest.mark.parametrize("is_turned_back", [True, False])
def test_groups_of_channels_that_become_one_axis_are_in_the_order_of_their_sources(is_turned_back: bool) -> None:
    """As in a convolution of groups, whose sums have an axis of groups."""

    def build(fusion: tf.Fusion) -> None:
        x, bias = tf.define_tensor([2, 5, 3, 4], name="x"), tf.define_tensor([12, 1], name="bias")
        y = tf.relu(tf.permute(tf.reshape(tf.exp(x), [2, 5, 12]), [0, 2, 1]) - bias)
        fusion.add_output(tf.permute(y, [0, 2, 1] if is_turned_back else [2, 1, 0]))

    _, (found,) = ran(build, values(2, 5, 3, 4), values(12, 1))
    assert found.flags.c_contiguous is is_turned_back


def test_a_reshape_that_strides_do_not_allow_is_stored() -> None:
    def build(fusion: tf.Fusion) -> None:
        x = tf.define_tensor(["N", 6], name="x")
        fusion.add_output(tf.reshape(x, [-1]))

    with tf.Fusion("flat") as fusion:
        build(fusion)
    run = tf.compile(fusion)
    for x, shares in ((values(4, 6), True), (np.asfortranarray(values(4, 6)), False), (values(5, 6), True)):
        (y,) = run(x)
        assert (y == x.reshape(-1)).all()
        assert np.shares_memory(x, y) is shares


def test_what_is_computed_is_stored_once() -> None:
    def build(fusion: tf.Fusion) -> None:
        x = tf.define_tensor(["N", 6], name="x")
        h = tf.exp(x)
        fusion.add_output(tf.permute(h, [1, 0]))
        fusion.add_output(h[:, :3])
        fusion.add_output(h[:, 3:].sum(1))

    run, (whole, part, _) = ran(build, values(4, 6))
    assert np.shares_memory(whole, part)
    assert all(p.shape == k.inputs[0].shape or len(p.shape) == 1 for k in run.kernels for p in k.outputs)


def test_a_part_of_what_is_computed_is_all_that_is_stored() -> None:
    def build(fusion: tf.Fusion) -> None:
        h = tf.exp(tf.define_tensor([4, 6], name="x"))
        fusion.add_output(h[:2, :3])
        fusion.add_output(h[2:, 1:])

    _, found = ran(build, values(4, 6))
    assert all(a.base is None or a.base.size == a.size for a in found)


def test_rows_are_repeated_by_a_stride() -> None:
    def build(fusion: tf.Fusion) -> None:
        x = tf.define_tensor([5], name="x")
        fusion.add_output(tf.broadcast_to(tf.expand_dims(x * 2.0, 1), [5, 64]))

    run, (y,) = ran(build, values(5))
    assert y.strides == (4, 0)
    assert [p.shape for p in run.kernel.outputs] == [(5,)]


def test_out_is_filled_by_kernels() -> None:
    with tf.Fusion("filled") as fusion:
        views_of_an_input(fusion)
    x = values(4, 6)
    outs = tuple(np.empty(s, np.float32) for s in ((3, 3), (6, 4), (3, 4, 6)))
    found = tf.compile(fusion)(x, out=outs)
    assert all(a is b for a, b in zip(found, outs, strict=True))
    assert all((a == b).all() for a, b in zip(outs, fusion.evaluate(x), strict=True))


def test_a_view_of_what_is_overwritten_holds_what_was_there() -> None:
    def build(fusion: tf.Fusion) -> None:
        x = tf.define_tensor([4, 6], name="x")
        fusion.add_output(x * 2.0, into=x)
        fusion.add_output(x[1:])

    x = values(4, 6)
    before = x.copy()
    _, (y, rest) = ran(build, x)
    assert y is x
    assert (rest == before[1:]).all()


def test_views_of_results_with_strides_of_their_own_are_stored() -> None:
    def build(fusion: tf.Fusion) -> None:
        h = tf.exp(tf.define_tensor([4, 6], name="x"))
        fusion.add_output(h, strides=[8, 1])
        fusion.add_output(h[1:])

    _, (h, rest) = ran(build, values(4, 6))
    assert h.strides == (32, 4)
    assert rest.strides == (24, 4)


def test_a_schedule_of_the_user_stores_what_it_says() -> None:
    with tf.Fusion("scheduled") as fusion:
        x = tf.define_tensor([4, 6], name="x")
        y = tf.permute(x, [1, 0])
        fusion.add_output(y)
    y.axis(0).parallelize(tf.ParallelType.BIDx)
    x = values(4, 6)
    (y,) = tf.compile(fusion)(x)
    assert (y == x.T).all()
    assert not np.shares_memory(x, y)


def test_arguments_are_checked_without_a_kernel() -> None:
    with tf.Fusion("checked") as fusion:
        views_of_an_input(fusion)
    run = tf.compile(fusion)
    with pytest.raises(InputError, match="'x' has dtype int32, not float32"):
        run(np.zeros((4, 6), np.int32))
    with pytest.raises(InputError, match="dimension 0 of x"):
        run(values(5, 6))
    with pytest.raises(InputError, match="2 arguments given, 1 expected"):
        run(values(4, 6), values(4, 6))


def test_a_view_of_nothing() -> None:
    """Its first element would be at digits of an extent of 0."""
    with tf.Fusion("nothing") as fusion:
        x = tf.define_tensor([tf.dim("N", min=0), "N"], name="x")
        fusion.add_output(tf.reshape(x, [-1]), tf.reshape(tf.exp(x), [-1]))
    run = tf.compile(fusion, "sim")
    for n in (0, 1, 3):
        a = np.ones((n, n), np.float32)
        flat, made = run(a)
        assert flat.shape == made.shape == (n * n,)
        assert np.array_equal(flat, a.reshape(-1))
