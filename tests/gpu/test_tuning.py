"""Parameters chosen by measurement on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.cuda.timing import in_turn
from taskfuse.schedulers import MatmulConfig, Trial, matmul, tune

GOOD = MatmulConfig(128, 256, 64, 2, 4, 1, 8, 132)
BAD = MatmulConfig(64, 64, 64, 1, 2, 0, 1, 8)


def product(n: int) -> tf.Fusion:
    with tf.Fusion("product") as fusion:
        a, b = (tf.define_tensor([n, n], dtype=tf.bfloat16, name=name) for name in "ab")
        fusion.add_output(tf.cast(tf.matmul(a, b.T, dtype=tf.float32), tf.bfloat16))
    return fusion


@pytest.mark.usefixtures("hopper")
def test_the_faster_of_two_is_taken() -> None:
    """A grid of 132 blocks with tiles of 128 x 256 is several times as fast as one of 8 with tiles of 64 x 64."""
    n = 2048
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    seen: list[Trial] = []
    tuned = tune(product(n), a, b, scheduler=matmul, configs=[BAD, GOOD], remember=False, progress=lambda trial, done, of: seen.append(trial))
    assert [t.config for t in tuned.trials] == [GOOD, BAD]
    assert [t.config for t in seen] == [BAD, GOOD]
    fast, slow = (t.us for t in tuned.trials)
    assert fast is not None
    assert slow is not None
    assert 0 < 4 * fast < slow
    (out,) = tf.compile(tuned.fusion)(a, b)
    expected = (a.double() @ b.double().T).to(torch.bfloat16)
    assert torch.allclose(out.float(), expected.float(), rtol=2**-7, atol=1e-2)


def test_times_are_those_of_the_gpu() -> None:
    """A call that does eight times as much takes longer, and none is faster than its bytes at 20 TB/s, which is what caches give."""
    runs: list[Any] = []
    for times in (1, 8):
        with tf.Fusion(f"chain{times}") as fusion:
            x = y = tf.define_tensor([1 << 20], dtype=tf.float32, name="x")
            for _ in range(16 * times):
                y = tf.sin(y)
            fusion.add_output(y)
        out = fusion.outputs[0].split(0, 256)
        out.axis(0).parallelize(tf.ParallelType.BIDx)
        out.axis(1).parallelize(tf.ParallelType.TIDx)
        inner = [tv for tv in fusion.tensors() if tv is not x and tv is not out]
        out.propagate(inner, 2)
        tf.parallelize_like(out, inner)
        fusion.inline_most()
        runs.append(tf.compile(fusion))
    x = torch.rand(1 << 20, device="cuda")
    one, eight = in_turn(runs, (x,))
    assert one > (2 << 22) / 20e6
    assert eight > 2 * one
