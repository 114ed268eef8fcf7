"""Early reads: what is read into registers that nothing accessed before stands first, so that the barriers of a block order it before writes in place."""

import numpy as np

import taskfuse as tf
from taskfuse.kir import parse_kernel, verify_kernel
from taskfuse.passes.early_reads import ReadEarly

HEAD = """\
KERNEL k(x: float32[M, 64], y: float32[M]) -> (z: float32[M, 64])
  DIM M
  GRID (M, 1, 1)  BLOCK (64, 1, 1)
  LOCAL a: float32[]
  LOCAL b: float32[]
  LOCAL c: float32[]

FOR blockIdx.x in BIDx{M}:
  FOR threadIdx.x in TIDx{64}:
"""
X, Y, ADD, STORE = "a = sin(x[blockIdx.x, threadIdx.x])", "b = copy(y[blockIdx.x])", "c = add(a, b)", "z[blockIdx.x, threadIdx.x] = neg(c)"


def moved(*lines: str) -> list[str]:
    kernel = ReadEarly(frozenset({"y"})).run(parse_kernel(HEAD + "".join(f"    {line}\n" for line in lines)))
    verify_kernel(kernel)
    return [line.removeprefix("    ") for line in str(kernel).split("TIDx{64}:\n", 1)[1].splitlines()]


def test_reads_come_first() -> None:
    assert moved(X, Y, ADD, STORE) == [Y, X, ADD, STORE]


def test_what_needs_others_or_a_register_in_use_stays() -> None:
    mixed = ["a = copy(0.0)", "b = add(a, y[blockIdx.x])", "c = copy(b)", STORE]
    again = ["b = copy(0.0)", "a = exp(b)", Y, ADD, STORE]
    assert moved(*mixed) == mixed
    assert moved(*again) == again


def test_a_mean_that_the_threads_of_a_block_read() -> None:
    """All threads read the old mean, and one of them overwrites it: the sum of the block comes between."""
    with tf.Fusion("running") as fusion:
        x, mean = tf.define_tensor([8, 1024], name="x"), tf.define_tensor([8], name="mean")
        new = mean * 0.9 + tf.sum(x, 1) * 0.1
        fusion.add_output(new, into=mean)
        fusion.add_output(tf.exp(x - tf.expand_dims(new, 1)))
    run = tf.compile(fusion, backend="sim", cache=False, target="H200")
    (kernel,) = run.kernels
    assert set(kernel.in_place.values()) == {"mean"}
    assert kernel.verify().is_proved
    values, old = np.arange(8 * 1024, dtype=np.float32).reshape(8, 1024) / 8192, np.arange(8, dtype=np.float32)
    wanted = old * np.float32(0.9) + values.sum(1) * np.float32(0.1)
    found, _ = run(values, old)
    assert found is old
    np.testing.assert_allclose(old, wanted, rtol=1e-5)
