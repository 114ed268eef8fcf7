"""A factor that is computed on its way to the tensor cores: proved, simulated, planted mistakes."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check import Verdict, verify
from taskfuse.errors import UnsupportedError
from taskfuse.kir import parse_kernel
from taskfuse.schedulers import MatmulConfig, MatmulKind
from tests.proofs import proved

Function = Callable[[tf.TensorView], tf.TensorView]
SMALL = MatmulConfig(64, 64, warpgroups=1, stages=2, in_flight=0, blocks=2)


def silu(a: tf.TensorView) -> tf.TensorView:
    return tf.cast(tf.silu(tf.cast(a, tf.float32)) * 2.0, tf.bfloat16)


def fusion(function: Function = tf.relu, m: int | str = 160, n: int = 72, k: int = 192) -> tf.Fusion:
    with tf.Fusion("prologue") as made:
        a, b = tf.define_tensor([m, k], dtype=tf.bfloat16, name="a"), tf.define_tensor([n, k], dtype=tf.bfloat16, name="b")
        made.add_output(tf.cast(tf.matmul(function(a), b.T, dtype=tf.float32) + tf.define_tensor([n], name="bias"), tf.bfloat16))
    return made


@pytest.mark.parametrize(
    ("config", "function"),
    [
        (SMALL, silu),
        (MatmulConfig(128, 64, stages=2, blocks=2), tf.relu),
        (MatmulConfig(256, 64, stages=4, in_flight=3, blocks=1), silu),
        (MatmulConfig(64, 32, stages=2, blocks=3, kind=MatmulKind.PINGPONG), tf.relu),
    ],
    ids=["alone", "shared", "rows", "turns"],
)
def test_kinds(config: MatmulConfig, function: Function) -> None:
    """With rows and columns that end inside of a tile."""
    made = fusion(function)
    chosen = tf.schedulers.matmul(made, config)
    kernel = proved(tf.lower(made))
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s).astype(t) for s, t in (((160, 192), ml_dtypes.bfloat16), ((72, 192), ml_dtypes.bfloat16), ((72,), np.float32))]
    (found,), (wanted,) = kernel.simulate(*args, seed=1), made.evaluate(*args)
    assert np.allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=2**-6, atol=0.05)
    again = fusion(function)
    exec(chosen.code, {"fusion": again})
    assert str(again) == str(made)


def test_long_steps() -> None:
    """Of several spans, where they divide k."""
    long = replace(SMALL, tile_k=128, tile_n=16, blocks=1)
    made = fusion(n=16, m=64, k=256)
    tf.schedulers.matmul(made, long)
    kernel = proved(tf.lower(made))
    rng = np.random.default_rng(0)
    args = [rng.integers(-3, 4, s).astype(t) for s, t in (((64, 256), ml_dtypes.bfloat16), ((16, 256), ml_dtypes.bfloat16), ((16,), np.float32))]
    assert np.array_equal(kernel.simulate(*args, seed=1)[0], made.evaluate(*args)[0])
    for k, step in ((192, 128), (256, 192), (64, 128)):
        with pytest.raises(UnsupportedError, match=f"tile_k = {step}, which does not divide k = {k}: .*\n.*\n.*\n.*\nhelp: use 64"):
            tf.schedulers.matmul(fusion(n=16, m=64, k=k), replace(long, tile_k=step))
    odd = fusion(n=16, m=64, k=384)
    tf.schedulers.matmul(odd, replace(long, tile_k=192))
    proved(tf.lower(odd))
    # tiles of few columns, whose steps are mostly waits, take longer ones
    assert tf.schedulers.matmul(fusion(m=128, n=768, k=3328)).config.tile_k == 128
    assert tf.schedulers.matmul(fusion(m=128, n=768, k=3264)).config.tile_k == 64


@cache
def text() -> str:
    made = fusion(n=16, m=64, k=128)
    tf.schedulers.matmul(made, replace(SMALL, tile_n=16, blocks=1))
    return tf.lower(made).text(witness=True)


PLANTED = {
    "the factor as it is in memory": ("i29] = relu.float32(", "i29] = copy.float32("),
    "rows of another warp": (
        "2*(threadIdx.x//32) + threadIdx.x//8 % 2, threadIdx.x % 8, xor(threadIdx.x % 8, 2*i31",
        "2*(3 - threadIdx.x//32) + threadIdx.x//8 % 2, threadIdx.x % 8, xor(threadIdx.x % 8, 2*i31",
    ),
    "released before it is multiplied": ("WAIT_GROUP wgmma <= 0", "WAIT_GROUP wgmma <= 1"),
    "no fence between the registers and what reads them": ("FENCE wgmma\n", "SYNC warp\n"),
}


def test_what_is_planted_into_is_proved() -> None:
    assert verify(parse_kernel(text())).is_proved


@pytest.mark.parametrize("name", PLANTED)
def test_planted_mistakes(name: str) -> None:
    old, new = PLANTED[name]
    assert old in text(), text()
    assert verify(parse_kernel(text().replace(old, new))).verdict is not Verdict.PROVED


def test_batches_in_flight() -> None:
    """A step is computed in one part more than batches are in flight."""
    with pytest.raises(UnsupportedError, match="the 4 products of a step of k are no multiple of 3 parts, computed in turn"):
        tf.schedulers.matmul(fusion(), MatmulConfig(64, 64, warpgroups=1, stages=4, in_flight=2, blocks=2))


def test_the_choice() -> None:
    """A part of a step is computed while another is multiplied; a function of many instructions is left to a kernel of its own."""
    large = fusion(m=4096, n=4096, k=4096)
    best = tf.schedulers.matmul(large)
    assert (best.config.in_flight, best.config.kind, best.config.warpgroups) == (1, MatmulKind.COOPERATIVE, 2)
    with tf.Fusion("relu") as plain:
        a, b = (tf.define_tensor([4096, 4096], dtype=tf.bfloat16, name=name) for name in "ab")
        plain.add_output(tf.relu(a) @ b)
    schedule = tf.compile(plain, "sim").schedule
    assert schedule is not None
    assert schedule.scheduler == "matmul"
