"""Scans that several kernels compute, in chunks: which, and that they are right."""

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.schedulers.long_scans import LONG, chunk_long_scans
from taskfuse.schedulers.schedule import Sizes
from taskfuse.target import DEFAULT


def scanned(shape: list[Any], axis: int, dtype: tf.DType = tf.float32) -> tf.Fusion:
    with tf.Fusion("scanned") as fusion:
        x = tf.define_tensor(shape, dtype=dtype, name="x")
        fusion.add_output(tf.log(tf.cumsum(tf.exp(x), axis)) if dtype.is_float else tf.cumsum(x, axis) * 2)
    return fusion


def chunks(fusion: tf.Fusion) -> list[int]:
    copy, _ = tf.copy_fusion(fusion)
    return [length for _, length in chunk_long_scans(copy, Sizes(copy, None, DEFAULT))]


@pytest.mark.parametrize(
    ("shape", "axis", "wanted"),
    [
        ([8, 512, 256], 1, []),  # columns that a block holds
        ([16, 40_000, 64], 1, [512]),
        ([40_009, 64], 0, [256]),  # a prime: the last chunk is shorter
        ([16, 256], 0, []),  # few steps
        ([512, 1 << 20], 0, []),  # columns enough for all threads
        ([4, 1024], 1, []),  # rows, of which a block holds one
        ([4, 100_000], 1, [LONG]),
        (["N", 64], 0, []),
    ],
)
def test_columns_that_one_thread_would_walk_over_for_long(shape: list[Any], axis: int, wanted: list[int]) -> None:
    assert chunks(scanned(shape, axis)) == wanted


def test_the_schedule_says_so_and_its_code_makes_the_same_kernels() -> None:
    fusion = scanned([40_000, 4], 0)
    run = tf.compile(fusion, backend="sim")
    assert run.schedule is not None
    assert "tv2 is scanned in chunks of 256, whose totals another kernel scans" in run.schedule.explain().splitlines()
    names: dict[str, Any] = {"fusion": tf.copy_fusion(fusion)[0]}
    exec(run.schedule.code, names)
    assert [str(tf.lower(part)) for part in names["segmented"].segments] == [str(kernel) for kernel in run.kernels]


def test_chunks_of_columns_are_exact() -> None:
    shape = (2, 16_385, 1)
    fusion = scanned([*shape], 1, tf.int64)
    assert chunks(fusion)
    run = tf.compile(fusion, backend="sim")
    x = np.random.default_rng(0).integers(-(1 << 60), 1 << 60, shape)
    with np.errstate(over="ignore"):
        assert np.array_equal(run(x)[0], fusion.evaluate(x)[0])
    assert all(c.is_proved for c in run.certificates)
