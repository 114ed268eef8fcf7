"""Variants of attention as math, by one schedule: proved, and compared with float64."""

from functools import cache

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.schedulers import AttentionConfig
from tests.schedulers.variants import LATE, VARIANTS, Array, D


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name: str) -> None:
    variant, sizes, rng = VARIANTS[name], {"M": 70, "N": 77}, np.random.default_rng(5)
    fusion = variant.fusion()
    args: list[Array] = []
    for tv in fusion.inputs:
        shape = [sizes.get(str(e)) or int(str(e)) for e in tv.shape]
        if tv.dtype is tf.bool_:
            args.append(rng.random(shape) < np.linspace(0, 1, shape[0])[:, None])  # a row has none
        elif tv.dtype is tf.int32:
            args.append(np.sort(rng.integers(0, 4, shape)).astype(np.int32))
        else:
            args.append(rng.standard_normal(shape).astype(tv.dtype.numpy))
    tf.schedulers.attention(fusion, AttentionConfig(1, 32, 2))
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert not [b for b in kernel.buffers if b.memory is tf.MemoryType.Global]
    for found, exact in zip(kernel.simulate(*args, seed=1), variant.wanted(*args), strict=True):
        np.testing.assert_allclose(found.astype(np.float64), exact, rtol=1e-2, atol=1e-2)


@cache
def late() -> tf.Kernel:
    fusion = LATE.fusion()
    tf.schedulers.attention(fusion, AttentionConfig(1, 32, 2))
    return tf.lower(fusion)


def test_chunks_in_front_of_a_window_are_not_read() -> None:
    kernel, rng = late(), np.random.default_rng(3)
    kernel.verify().require()
    q, k, v = (rng.standard_normal((n, D)).astype(tf.bfloat16.numpy) for n in (70, 100, 100))
    wanted = LATE.wanted(q, k, v)
    k[:32] = v[:32] = np.nan
    for found, exact in zip(kernel.simulate(q, k, v, seed=2), wanted, strict=True):
        np.testing.assert_allclose(found.astype(np.float64), exact, rtol=1e-2, atol=1e-2)


def test_a_later_first_chunk_is_not_proved() -> None:
    text = late().text(witness=True)
    assert text.count("2*(i0//64) + 1") == 5
    assert not tf.parse_kernel(text.replace("2*(i0//64) + 1", "2*(i0//64) + 2")).verify().is_proved
