"""Updates of elements that data names, scheduled automatically."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers.segmentation import Segmentation
from tests.testing.ptx.compiled import compared


def index_add(dtype: tf.DType = tf.float32, rows: int | str = "V", points: int | str = "N") -> tf.Fusion:
    with tf.Fusion("index_add") as fusion:
        x, i, s = tf.define_tensor([rows, 8], dtype, name="x"), tf.define_tensor([points], "int32", name="i"), tf.define_tensor([points, 8], dtype, name="s")
        fusion.add_output(tf.index_add(x, 0, i, tf.mul(s, 2)))
    return fusion


def test_one_kernel_that_is_proved_for_all_extents() -> None:
    fusion = index_add()
    chosen = tf.schedulers.scatter(fusion, tf.schedulers.ScatterConfig(32, 3))
    assert chosen.problem == f"of {4096 * 8} updates"
    assert chosen.config.words == "updates in place, 3 blocks of 32 threads"
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    assert kernel.is_cooperative
    assert not kernel.is_deterministic
    generator = np.random.default_rng(0)
    for v, n in ((1, 1), (5, 40), (70, 3)):
        x, s = (generator.integers(-9, 9, (k, 8)).astype(np.float32) for k in (v, n))
        i = generator.integers(-v - 2, v + 2, n).astype(np.int32)
        expected = x.copy()
        kept = (i >= -v) & (i < v)
        np.add.at(expected, i[kept], 2 * s[kept])
        for seed in range(2):
            assert (kernel.simulate(x, i, s, seed=seed)[0] == expected).all()


def test_what_its_ptx_does() -> None:
    fusion = index_add(tf.int32)
    tf.schedulers.scatter(fusion, tf.schedulers.ScatterConfig(32, 2))
    assert tf.lower(fusion).is_deterministic
    assert compared(tf.lower(fusion)).difference is None


def test_compile_takes_what_it_expects_to_be_faster() -> None:
    run = tf.compile(index_add(rows=50257, points=1024), backend="sim")
    assert run.schedule is not None
    assert run.schedule.scheduler == "scatter"
    assert not run.is_deterministic
    fusion = index_add(rows=50257, points=16)
    fusion.outputs[0].unscatter()
    assert tf.compile(fusion, backend="sim").is_deterministic


def test_16_bits_are_summed_in_32() -> None:
    run = tf.compile(index_add(tf.bfloat16, 300, 100), backend="sim")
    assert isinstance(run.schedule, Segmentation)
    assert all(c.is_proved for c in run.certificates)


def test_refused() -> None:
    with tf.Fusion("f") as fusion:
        fusion.add_output(tf.exp(tf.define_tensor(["N"])))
    with pytest.raises(UnsupportedError, match="no update goes to tv1"):
        tf.schedulers.scatter(fusion)
    with tf.Fusion("f") as fusion:
        x, i = tf.define_tensor(["N", 4]), tf.define_tensor(["N"], "int32")
        fusion.add_output(tf.index_add(x, 0, i, tf.cumsum(x, 1)))
    with pytest.raises(UnsupportedError, match="is not elementwise"):
        tf.schedulers.scatter(fusion)


def test_updates_of_what_is_no_part_are_refused() -> None:
    fusion = tf.parse_fusion(str(index_add()).replace("update add(tv7[v0", "update add(x[v0"))
    with pytest.raises(UnsupportedError, match="the two are not parts of one tensor whose first part is"):
        tf.lower(fusion)
