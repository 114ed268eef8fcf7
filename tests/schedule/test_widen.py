"""Chains of 16-bit functions in float32."""

from __future__ import annotations

from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError

compile_any: Any = tf.compile


def chain() -> tf.Fusion:
    with tf.Fusion("chain") as fusion:
        x = tf.define_tensor(["N"], tf.bfloat16, name="x")
        fusion.add_output(tf.exp(x * 0.1 + 1.0) - 2.5, name="y")
    return fusion


X = np.linspace(-3, 3, 257).astype(ml_dtypes.bfloat16)


def test_a_chain_is_rounded_once() -> None:
    wide = tf.widened(chain())
    assert [tv.dtype for tv in wide.tensors()] == [tf.bfloat16, tf.float32, tf.float32, tf.float32, tf.bfloat16]
    (y,) = wide.evaluate(X)
    x = X.astype(np.float32)
    expected = (np.exp(x * np.float32(0.1) + np.float32(1)) - np.float32(2.5)).astype(ml_dtypes.bfloat16)
    assert (y == expected).all()
    (eager,) = chain().evaluate(X)
    assert (eager != y).any()  # a rounding for each function


def test_kernels_follow_the_option_to_the_last_bit() -> None:
    forms: list[tuple[Literal["eager", "wide"], tf.Fusion]] = [("eager", chain()), ("wide", tf.widened(chain()))]
    for numerics, fusion in forms:
        run = tf.compile(chain(), numerics=numerics)
        assert run.certificate.is_proved
        assert (run(X)[0] == fusion.evaluate(X)[0]).all()


def test_results_casts_and_factors_keep_their_dtype() -> None:
    with tf.Fusion("kept") as fusion:
        x, w = tf.define_tensor([4, 8], tf.float16), tf.define_tensor([8, 4], tf.float16)
        factor = tf.relu(x).named("factor")
        rounded = tf.cast(tf.exp(x), tf.float16).named("rounded")
        shown = tf.neg(x).named("shown")
        summed = tf.square(x).named("summed")
        fusion.add_output(factor @ w, tf.sqrt(tf.abs(rounded)), shown, shown + 1.0, summed.sum(1))
    wide = tf.widened(fusion)
    assert {name: wide.tensor(name).dtype.name for name in ("factor", "rounded", "shown", "summed")} == {
        "factor": "float16",
        "rounded": "float16",
        "shown": "float16",
        "summed": "float32",
    }
    assert str(tf.widened(wide)) == str(wide)
    assert str(tf.parse_fusion(str(wide))) == str(wide)


def test_there_are_two_choices() -> None:
    with pytest.raises(UnsupportedError, match="numerics 'fast' is not supported"):
        compile_any(chain(), numerics="fast")
