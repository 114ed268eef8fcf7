"""What a phase keeps for the next one."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse.kir import walk
from taskfuse.kir.nodes import AsyncCopy
from taskfuse.kir.products import Shuffle
from taskfuse.kir.synchronization import BarrierScope
from taskfuse.schedulers import Keep, RowConfig
from taskfuse.schedulers.persistent_buffers import Phases
from taskfuse.schedulers.space import find
from tests.proofs import proved
from tests.schedulers.normalized import SHARED
from tests.schedulers.rows import barriers, check, make, rms_norm, softmax


def test_symbolic_extents_are_read_again() -> None:
    fusion = make(rms_norm, ("M", tf.dim("N", multiple_of=8)))
    kernel = check(fusion, None, {"M": 5, "N": 64}, {"M": 1, "N": 8}, {"M": 3, "N": 1000})
    assert not any(b.memory is MemoryType.Shared and len(b.shape) > 1 for b in kernel.buffers)


def test_symbolic_rows_are_kept() -> None:
    kernel = check(make(softmax, ("M", 256)), None, {"M": 9}, {"M": 1})
    assert tf.schedulers.normalization(make(softmax, ("M", 256))).config.keep is Keep.REGISTERS
    assert "tv" not in {b.name for b in kernel.buffers if b.memory is MemoryType.Shared}


def test_a_row_in_shared_memory_comes_by_asynchronous_copies() -> None:
    kernel = check(make(rms_norm, (3, 512)), SHARED)
    assert [s.width for s in walk(kernel) if isinstance(s, AsyncCopy)] == [8]
    [_] = [b for b in kernel.buffers if b.memory is MemoryType.Shared and b.dtype is tf.bfloat16]
    assert barriers(kernel) == [BarrierScope.BLOCK]  # of the reduction: a thread reads what it copied


@pytest.mark.parametrize(("shape", "axis"), [((5, 256), 1), ((96, 8), 0)])
def test_results_of_a_row_that_others_read_are_computed_once(shape: tuple[int, int], axis: int) -> None:
    def kernel(*, saved: bool) -> tf.Kernel:
        with tf.Fusion("saved") as fusion:
            x = tf.define_tensor(shape, name="x")
            top = tf.max(x, axis=axis, keepdims=True)
            powers = tf.exp(x - top)
            total = tf.log(tf.sum(powers, axis=axis, keepdims=True))
            fusion.add_output(x - top - total)
            for tv in (top, powers, total) if saved else ():
                fusion.add_output(tv)
        expected = fusion.evaluate(X := np.linspace(-1, 1, shape[0] * shape[1], dtype=np.float32).reshape(shape))
        tf.schedulers.normalization(fusion, RowConfig(64, 1, 1, keep=Keep.REGISTERS) if axis else RowConfig(8, 8, 12, keep=Keep.REGISTERS))
        found = tf.lower(fusion)
        proved(found)
        for out, wanted in zip(found.simulate(X), expected, strict=True):
            np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)
        return found

    plain, saved = kernel(saved=False), kernel(saved=True)
    assert barriers(saved) == barriers(plain)
    assert sum(isinstance(s, Shuffle) for s in walk(saved)) == sum(isinstance(s, Shuffle) for s in walk(plain))


def test_the_view_of_a_result_is_no_second_phase() -> None:
    """A keepdims view of a sum has none of the summed elements: they are walked over once."""
    with tf.Fusion("once") as fusion:
        x = tf.define_tensor([64, 32], name="x")
        y = x * 2.0
        total = tf.sum(y, axis=0, keepdims=True)
        fusion.add_output(y)
        fusion.add_output(tf.reshape(tf.exp(total), [32]))
    chosen = tf.schedulers.reduction(fusion)
    assert "1 phase" in chosen.problem
    X = np.linspace(-1, 0, 64 * 32, dtype=np.float32).reshape(64, 32)
    for found, wanted in zip(proved(tf.lower(fusion)).simulate(X), fusion.evaluate(X), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_the_phases_that_need_an_input() -> None:
    """A sum of what is computed of ``y`` alone needs no element of ``x``; what is stored needs both."""
    with tf.Fusion("two") as fusion:
        x, y = (tf.define_tensor([8, 64], name=name) for name in "xy")
        fusion.add_output(tf.exp(x) * tf.sum(y * 2.0, 1, keepdims=True) - y)
    assert Phases(fusion, find(fusion)).passes() == {x: {1}, y: {0, 1}}


def test_what_many_paths_lead_to_is_looked_at_once() -> None:
    """Of 40 functions each reads the one before twice: 2^40 paths, which a walk along each would never end."""
    with tf.Fusion("paths") as fusion:
        x = tf.define_tensor([8, 64], name="x")
        y = x
        for _ in range(40):
            y = y * y
        z = y - tf.sum(y, 1, keepdims=True)
        for _ in range(40):
            z = z * z
        fusion.add_output(z)
    phases = Phases(fusion, find(fusion))
    assert phases.passes() == {x: {0, 1}}
    assert phases.kept(Keep.SHARED) <= {x}
    assert phases.held_bytes(Keep.SHARED) >= 0


def test_values_of_a_row_that_a_choice_moves_are_no_instructions_of_elements() -> None:
    """The halves of a row exchanged after a norm: each has the root of the row's mean, at its own points."""

    def taken(rotated: bool) -> int:
        with tf.Fusion("norm") as fusion:
            x = tf.define_tensor([64, 128], name="x")
            y = tf.rms_norm(x)
            fusion.add_output(y * (tf.cat([y[:, 64:], y[:, :64]], 1) if rotated else x))
        tf.schedulers.normalization(fusion)
        return Phases(fusion, find(fusion)).slots

    assert taken(True) < taken(False) + 12
