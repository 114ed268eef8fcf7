"""Products of factors with scales, against NumPy in float64."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import DTypeError, ShapeError

SIZES = ((130, 200, 256), (64, 128, 128), (1, 5, 384))
FORMS_A = ("all", "one", "rows", "blocks of rows", "squares", "k")
FORMS_B = ("all", "one", "columns", "blocks of columns", "squares", "k")


def shape_of(form: str, rows: int, k: int) -> tuple[int, ...]:
    """The scale of a factor [rows, k]."""
    blocks = k // 128
    return {
        "all": (),
        "one": (1, 1),
        "rows": (rows, 1),
        "columns": (rows, 1),
        "blocks of rows": (rows, blocks),
        "blocks of columns": (rows, blocks),
        "squares": (math.ceil(rows / 128), blocks),
        "k": (1, blocks),
    }[form]


def spread(scale: np.ndarray, rows: int, k: int) -> np.ndarray:
    """A scale for each element of [rows, k]."""
    if scale.ndim == 0:
        return np.full((rows, k), scale)
    row = np.arange(rows) if scale.shape[0] == rows else np.arange(rows) // 128 if scale.shape[0] > 1 else np.zeros(rows, int)
    column = np.arange(k) // 128 if scale.shape[1] > 1 else np.zeros(k, int)
    return scale[row][:, column].astype(np.float64)


@pytest.mark.parametrize("of_b", FORMS_B)
@pytest.mark.parametrize("of_a", FORMS_A)
def test_all_forms(of_a: str, of_b: str) -> None:
    rng = np.random.default_rng(len(of_a) * len(of_b))
    for m, n, k in SIZES:
        with tf.Fusion() as fusion:
            a, b = tf.define_tensor((m, k), tf.float8_e4m3), tf.define_tensor((n, k), tf.float8_e5m2)
            scale_a = tf.define_tensor(shape_of(of_a, m, k), tf.float32)
            right = shape_of(of_b, n, k)
            scale_b = tf.define_tensor(right, tf.float32)
            fusion.add_output(tf.scaled_matmul(a, b.T, scale_a, scale_b.T if right else scale_b))
        x = rng.standard_normal((m, k)).astype(ml_dtypes.float8_e4m3fn)
        y = rng.standard_normal((n, k)).astype(ml_dtypes.float8_e5m2)
        left, other = (rng.uniform(0.5, 2, s).astype(np.float32) for s in (shape_of(of_a, m, k), right))
        (found,) = fusion.evaluate(x, y, left, other)
        p, q = x.astype(np.float64) * spread(left, m, k), y.astype(np.float64) * spread(other, n, k)
        assert (np.abs(found - p @ q.T) <= np.abs(p) @ np.abs(q).T * 2.0**-20).all()
        assert str(tf.parse_fusion(str(fusion))) == str(fusion)


def test_symbolic_extents() -> None:
    with tf.Fusion() as fusion:
        a = tf.define_tensor(("M", tf.dim("K", multiple_of=128)), tf.float8_e4m3)
        b = tf.define_tensor(("K", "N"), tf.float8_e4m3)
        scale_a, scale_b = tf.define_tensor(("M", "K//128"), tf.float32), tf.define_tensor(("ceildiv(K, 128)", "ceildiv(N, 128)"), tf.float32)
        y = tf.scaled_matmul(a, b, scale_a, scale_b, dtype=tf.bfloat16)
        fusion.add_output(y)
    assert y.dtype is tf.bfloat16
    ones = [np.ones(s, t) for s, t in (((3, 256), ml_dtypes.float8_e4m3fn), ((256, 130), ml_dtypes.float8_e4m3fn), ((3, 2), np.float32), ((2, 2), np.float32))]
    ones[2][:, 1], ones[3][1, 1] = 3, 5
    (found,) = fusion.evaluate(*ones)
    assert (found[:, :128].astype(int) == 128 + 3 * 128).all()
    assert (found[:, 128:].astype(int) == 128 + 15 * 128).all()


def test_what_is_refused() -> None:
    with tf.Fusion():
        a, b = tf.define_tensor((8, 256), tf.float8_e4m3), tf.define_tensor((256, 4), tf.float8_e4m3)
        one = tf.define_tensor((), tf.float32)
        with pytest.raises(ShapeError, match="are not matrices"):
            tf.scaled_matmul(a, b.T, one, one)
        with pytest.raises(ShapeError, match=r"is not a scale of (?s:.*) it is \[\] or \[1, 1\], \[8, 1\], \[8, 2\], \[1, 2\]"):
            tf.scaled_matmul(a, b, tf.define_tensor((8, 3), tf.float32), one)
        with pytest.raises(ShapeError, match=r"is not a scale of (?s:.*) it is \[\] or \[1, 1\], \[1, 4\], \[2, 4\], \[2, 1\]"):
            tf.scaled_matmul(a, b, one, tf.define_tensor((4,), tf.float32))
        with pytest.raises(DTypeError, match="is not float32"):
            tf.scaled_matmul(a, b, one, tf.define_tensor((), tf.float16))
        with pytest.raises(DTypeError, match="is not a float of 8, 16 or 32 bits"):
            tf.scaled_matmul(tf.define_tensor((8, 256), tf.int8), b, one, one)
        with pytest.raises(DTypeError, match="have no scaled product in int32"):
            tf.scaled_matmul(a, b, one, one, dtype=tf.int32)
        odd, other = tf.define_tensor((8, 200), tf.float8_e4m3), tf.define_tensor((200, 4), tf.float8_e4m3)
        with pytest.raises(ShapeError, match="is not provably a multiple of 128, the block of its scales"):
            tf.scaled_matmul(odd, other, tf.define_tensor((8, 2), tf.float32), one)
