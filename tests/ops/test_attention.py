"""Attention as math equals torch: masks, groups of heads, rows without keys; wrong operands are told."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import taskfuse as tf
from taskfuse.errors import DTypeError, ShapeError
from taskfuse.ir.scalar import const, sym
from taskfuse.ops.attention import pack

RNG = np.random.default_rng(7)


def given(*shape: int, dtype: type[np.floating[Any]] = np.float32) -> NDArray[Any]:
    return RNG.standard_normal(shape).astype(dtype)


def attention(*arrays: NDArray[Any], **options: Any) -> NDArray[Any]:
    """Ours, by the reference."""
    with tf.Fusion() as fusion:
        q, k, v, *masks = (
            tf.define_tensor(list(x.shape), dtype=tf.bool_ if x.dtype == bool else tf.float64 if x.dtype == np.float64 else tf.float32) for x in arrays
        )
        fusion.add_output(tf.scaled_dot_product_attention(q, k, v, masks[0] if masks else None, **options))
    (found,) = fusion.evaluate(*arrays)
    return found


def torches(*arrays: NDArray[Any], **options: Any) -> NDArray[Any]:
    return torch.nn.functional.scaled_dot_product_attention(*map(torch.from_numpy, arrays), **options).numpy()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("q", "k", "v", "options"),
    [
        ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4), {}),
        ((5, 8), (7, 8), (7, 8), {"scale": 0.3}),
        ((1, 2, 6, 8), (1, 2, 6, 8), (1, 2, 6, 8), {"is_causal": True}),
        ((1, 2, 4, 8), (1, 2, 9, 8), (1, 2, 9, 8), {"is_causal": True}),
        ((2, 6, 4, 8), (2, 2, 5, 8), (2, 2, 5, 8), {"enable_gqa": True}),
        ((2, 6, 1, 8), (2, 2, 5, 8), (2, 2, 5, 4), {"enable_gqa": True}),
        ((2, 4, 33, 8), (2, 2, 5, 8), (2, 2, 5, 4), {"enable_gqa": True}),
        ((1, 66, 1, 8), (1, 1, 5, 8), (1, 1, 5, 4), {"enable_gqa": True}),
        ((6, 1, 8), (2, 5, 8), (3, 5, 8), {"enable_gqa": True}),
    ],
)
def test_as_torch(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], options: dict[str, object], dtype: type) -> None:
    arrays = [given(*shape, dtype=dtype) for shape in (q, k, v)]
    np.testing.assert_allclose(attention(*arrays, **options), torches(*arrays, **options), rtol=2e-5, atol=2e-6)


def test_queries_of_heads_that_share_keys_are_packed_where_they_fill_tiles_better() -> None:
    for queries, heads, wanted in ((1, 128, True), (48, 2, False), (63, 2, False), (64, 8, False), (96, 2, True), (100, 4, True), (128, 128, False)):
        assert pack(const(queries), const(queries * heads)) is wanted
    assert not pack(sym("L"), const(64))


def test_masks() -> None:
    q, k, v = given(2, 3, 5, 8), given(2, 3, 7, 8), given(2, 3, 7, 8)
    keep = RNG.random((5, 7)) < 0.6
    keep[2] = False  # a row without keys
    np.testing.assert_allclose(attention(q, k, v, keep), torches(q, k, v, keep), rtol=2e-5, atol=2e-6)
    added = np.where(keep, given(2, 1, 5, 7), -np.inf).astype(np.float32)
    np.testing.assert_allclose(attention(q, k, v, added), torches(q, k, v, added), rtol=2e-5, atol=2e-6)
    most_negative = np.where(keep, np.float32(0), np.finfo(np.float32).min)  # a multiple of which overflows: a row of it has all keys alike
    np.testing.assert_allclose(attention(q, k, v, most_negative), torches(q, k, v, most_negative), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("shapes", "options", "error", "reason"),
    [
        (((5, 8), (7, 4), (7, 8)), {}, ShapeError, "do not fit: query and key have the same last dimension"),
        (((5, 8), (7, 8), (6, 8)), {}, ShapeError, "do not fit: .* key and value the same last but one"),
        (((8,), (7, 8), (7, 8)), {}, ShapeError, "has fewer than two dimensions"),
        (((5, 8), (7, 8), (7, 8)), {"scale": -1.0}, DTypeError, "scale is -1.0"),
        (((5, 8), (7, 8), (7, 8)), {"scale": True}, DTypeError, "scale is True"),
        (((3, 5, 8), (2, 7, 8), (2, 7, 8)), {"enable_gqa": True}, ShapeError, r"has 3 heads and tv1 \[2, 7, 8\] 2"),
        (((3, 5, 8), (0, 7, 8), (0, 7, 8)), {"enable_gqa": True}, ShapeError, r"has 3 heads and tv1 \[0, 7, 8\] 0"),
        (((5, 0), (7, 0), (7, 8)), {}, ShapeError, "is 0, so scale= must be given"),
    ],
)
def test_what_does_not_fit(shapes: tuple[tuple[int, ...], ...], options: dict[str, Any], error: type[Exception], reason: str) -> None:
    with tf.Fusion():
        q, k, v = (tf.define_tensor(list(s)) for s in shapes)
        with pytest.raises(error, match=reason):
            tf.scaled_dot_product_attention(q, k, v, **options)
        x, half = tf.define_tensor(["N", "E"]), tf.define_tensor([4, 8], dtype=tf.float16)
        with pytest.raises(ShapeError, match="not constant"):
            tf.scaled_dot_product_attention(x, x, x)
        with pytest.raises(DTypeError, match="is float16"):
            tf.scaled_dot_product_attention(tf.define_tensor([4, 8]), half, half)
