"""Results as asked: strides, in place of inputs, inputs themselves, one array twice; in the simulator."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.errors import FusionError, InputError, OutputError, ProofError
from taskfuse.runtime.executable import Executable

Array = npt.NDArray[np.float32]


def values(*shape: int) -> Array:
    return np.random.default_rng(0).uniform(0.1, 1.0, shape).astype(np.float32)


def ran(build: Callable[[tf.Fusion], None], *args: Array) -> tuple[Executable, tuple[Any, ...]]:
    """The executable, and what it returns: compared with the reference, which sees the arguments before the call."""
    with tf.Fusion("asked") as fusion:
        build(fusion)
    expected = fusion.evaluate(*(a.copy() for a in args))
    run = tf.compile(fusion)
    assert all(c.is_proved for c in run.certificates)
    found = run(*args)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert np.allclose(a, b, rtol=1e-5)
    return run, found


def exp_in_place(fusion: tf.Fusion) -> None:
    x = tf.define_tensor(["N", 8], name="x")
    fusion.add_output(tf.exp(x), into=x)


def test_an_elementwise_result_is_written_into_its_input() -> None:
    x = values(16, 8)
    expected = np.exp(x)
    run, (y,) = ran(exp_in_place, x)
    assert y is x
    assert np.allclose(x, expected)
    assert all(k.in_place for k in run.kernels)  # by the kernel itself
    again = pickle.loads(pickle.dumps(run))
    (z,) = again(z0 := values(16, 8))
    assert z is z0


def test_what_reads_neighbors_is_computed_elsewhere_and_copied() -> None:
    def build(fusion: tf.Fusion) -> None:
        x = tf.define_tensor([16, 8], name="x")
        fusion.add_output(x + tf.flip(x, 0), into=x)

    x = values(16, 8)
    run, (y,) = ran(build, x)
    assert y is x
    assert not any(k.in_place for k in run.kernels)


def test_several_kernels_read_what_was_there() -> None:
    def build(fusion: tf.Fusion) -> None:
        x = tf.define_tensor(["N", 8], name="x")
        fusion.add_output(tf.softmax(x), into=x)
        fusion.add_output(x.sum(0))

    x = values(16, 8)
    _, (y, _) = ran(build, x)
    assert y is x


def test_a_schedule_that_overwrites_too_early_is_refused() -> None:
    with tf.Fusion("early") as fusion:
        x = tf.define_tensor([64], name="x")
        y = x + tf.roll(x, 1)
        fusion.add_output(y, into=x)
    y.axis(0).parallelize(P.TIDx)
    with pytest.raises(ProofError, match="race"):
        tf.compile(fusion)


def test_a_slice_of_a_cache_is_updated() -> None:
    def build(fusion: tf.Fusion) -> None:
        cache, new = tf.define_tensor(["B", "S", 8], name="cache"), tf.define_tensor(["B", 1, 8], name="new")
        fusion.add_output(new * 2.0, into=cache[:, 3:4])

    for wide in (values(2, 5, 8), np.swapaxes(values(5, 2, 8), 0, 1)):
        new = values(2, 1, 8)
        expected = wide.copy()
        expected[:, 3:4] = new * 2
        ran(build, wide, new)
        assert (wide == expected).all()


def test_a_slice_of_a_cache_that_is_read_is_updated_afterwards() -> None:
    def build(fusion: tf.Fusion) -> None:
        cache, new = tf.define_tensor(["B", "S", 8], name="cache"), tf.define_tensor(["B", 1, 8], name="new")
        fusion.add_output(new * 2.0, into=cache[:, 3:4])
        fusion.add_output(cache.sum(1))

    cache, new = values(2, 5, 8), values(2, 1, 8)
    expected = cache.copy()
    expected[:, 3:4] = new * 2
    ran(build, cache, new)
    assert (cache == expected).all()
    with tf.Fusion("short") as fusion:
        build(fusion)
    with pytest.raises(OutputError, match=r"has shape \[2, 1, 8\], and the part of 'cache' that it is written into has shape \[2, 0, 8\]"):
        tf.compile(fusion)(values(2, 3, 8), new)


def test_outputs_lie_as_asked_and_automatic_schedules_walk_them_so() -> None:
    def build(fusion: tf.Fusion) -> None:
        x = tf.define_tensor([2, 64, 8, 8], name="x", strides=[4096, 1, 512, 64])
        fusion.add_output(tf.exp(x), strides=[4096, 1, 512, 64])

    x = values(2, 8, 8, 64).transpose(0, 3, 1, 2)
    run, (y,) = ran(build, x)
    assert y.strides == x.strides
    assert "width 4" in str(run.kernel)  # vectors along the channels
    with pytest.raises(InputError, match=r"'x' has the strides \[4096, 64, 8, 1\], in elements, but is declared with \[4096, 1, 512, 64\]"):
        run(values(2, 64, 8, 8))


def test_rows_are_padded_for_any_extent() -> None:
    def build(fusion: tf.Fusion) -> None:
        x = tf.define_tensor(["M", "N"], name="x")
        fusion.add_output(x * 2.0, strides=["N + 3", 1])

    for n in (6, 9):
        _, (y,) = ran(build, values(3, n))
        assert y.strides == (4 * (n + 3), 4)


def test_inputs_and_outputs_are_returned_as_the_arrays_that_they_are() -> None:
    def build(fusion: tf.Fusion) -> None:
        x = tf.define_tensor([3, 4], name="x")
        y = tf.neg(x)
        fusion.add_output(y, x, y)

    x = values(3, 4)
    run, (y, same, again) = ran(build, x)
    assert same is x
    assert again is y
    out = np.empty((3, 4), np.float32)
    assert run(x, out=(out, x, out))[0] is out
    with pytest.raises(OutputError, match="'x' is an input, which is returned as it is"):
        run(x, out=(out, out, out))


def test_a_fusion_that_returns_its_inputs_runs_no_kernel() -> None:
    def build(fusion: tf.Fusion) -> None:
        fusion.add_output(tf.define_tensor([3], name="x"))

    x = values(3)
    run, (y,) = ran(build, x)
    assert y is x
    assert not run.kernels


def test_arrays_that_cannot_be_written_in_place() -> None:
    with tf.Fusion("asked") as fusion:
        exp_in_place(fusion)
    run = tf.compile(fusion)
    x = values(4, 8)
    x.flags.writeable = False
    with pytest.raises(OutputError, match="it is written into 'x', which is read-only"):
        run(x)
    with pytest.raises(OutputError, match="is written into the array of 'x'"):
        run(values(4, 8), out=np.empty((4, 8), np.float32))


def test_a_kernel_writes_into_its_input() -> None:
    with tf.Fusion("asked") as fusion:
        exp_in_place(fusion)
        fusion.add_output(tf.neg(fusion.inputs[0]))
    x = values(4, 8)
    expected = np.exp(x)
    for tv in fusion.tensors():
        tv.axis(0).parallelize(P.TIDx)
    fusion.inline_most()
    run = tf.compile(tf.lower(fusion), unsafe=True)
    y, _ = run(x)
    assert y is x
    assert np.allclose(x, expected)


@pytest.mark.parametrize("part", [slice(None), slice(2, 5)])
def test_an_input_that_is_overwritten_is_not_returned_as_it_is(part: slice) -> None:
    """The array would hold what it did not hold before the call; a copy holds that."""
    for returned_first in (True, False):
        with tf.Fusion() as fusion:
            x = tf.define_tensor(["N"], name="x")
            where = x if part == slice(None) else x[part]
            doubled = where * 2.0
        one, two = partial(fusion.add_output, x), partial(fusion.add_output, doubled, into=where)
        first, second = (one, two) if returned_first else (two, one)
        first()
        with pytest.raises(FusionError, match=r"x is returned as it is, and .* is written into its array"):
            second()
    with tf.Fusion() as fusion:
        x = tf.define_tensor(["N"], name="x")
        where = x if part == slice(None) else x[part]
        fusion.add_output(where * 2.0, into=where)
        fusion.add_output(tf.copy(x))
    given = values(7)
    before = given.copy()
    assert (tf.compile(fusion)(given)[1] == before).all()
    assert not (given == before).all()


def test_a_vector_that_is_read_in_the_iteration_of_a_loop() -> None:
    """The search for a write of an element in a later iteration has names for the elements of both vectors; one cannot be proved and is written elsewhere."""
    with tf.Fusion("sums") as fusion:
        x, y = tf.define_tensor([8], name="x"), tf.define_tensor([8], name="y")
        fusion.add_output(tf.cumsum(x, 0), into=x)
        fusion.add_output(tf.flip(y, 0) + x, into=y)
    run = tf.compile(fusion, "sim")
    given = [np.arange(8, dtype=np.float32), np.ones(8, np.float32)]
    expected = fusion.evaluate(*(a.copy() for a in given))
    made = run(*given)
    assert all(a is b and (a == c).all() for a, b, c in zip(made, given, expected, strict=True))
