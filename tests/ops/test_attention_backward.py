"""Gradients of attention as math equal those that torch's autograd computes in float64: masks, groups of heads, rows without keys; wrong operands are told."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import taskfuse as tf
from taskfuse.errors import DTypeError, ShapeError

RNG = np.random.default_rng(8)
Arrays = list[NDArray[Any]]


def given(*shape: int) -> NDArray[Any]:
    return RNG.standard_normal(shape)


def torches(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], mask: NDArray[Any] | None, **options: Any) -> tuple[Arrays, Arrays]:
    """In float64: the operands of the gradients, and the gradients."""
    leaves = [torch.from_numpy(x).requires_grad_() for x in (q, k, v)]
    masks = None if mask is None else torch.from_numpy(mask)
    out = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=masks, **options)
    grad = torch.from_numpy(given(*out.shape))
    gradients = torch.autograd.grad(out, leaves, grad)
    heads = q.shape[-3] // k.shape[-3] if options.get("enable_gqa") else 1
    scores = leaves[0] @ leaves[1].repeat_interleave(heads, -3 if heads > 1 else 0).mT * options.get("scale", 1 / math.sqrt(q.shape[-1]))
    if masks is not None:
        scores = scores.masked_fill(~masks, -math.inf) if masks.dtype is torch.bool else scores + masks
    if options.get("is_causal"):
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    made = [grad, *leaves, out, scores.logsumexp(-1), *(() if masks is None else (masks,))]
    return [x.detach().numpy() for x in made], [x.numpy() for x in gradients]


def gradients(arrays: Arrays, dtype: tf.DType, **options: Any) -> Arrays:
    """Ours, by the reference."""
    wide = tf.float64 if dtype is tf.float64 else tf.float32
    kinds = [*[dtype] * 5, wide, *(tf.bool_ if x.dtype == bool else wide for x in arrays[6:])]
    with tf.Fusion() as fusion:
        g, q, k, v, o, sums, *masks = (tf.define_tensor(list(x.shape), dtype=kind) for x, kind in zip(arrays, kinds, strict=True))
        for tv in tf.scaled_dot_product_attention_backward(g, q, k, v, o, sums, masks[0] if masks else None, **options):
            fusion.add_output(tv)
    return list(fusion.evaluate(*(x.astype(kind.numpy) for x, kind in zip(arrays, kinds, strict=True))))


CASES: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4), {}),
    ((5, 8), (7, 8), (7, 8), {"scale": 0.3}),
    ((1, 2, 6, 8), (1, 2, 6, 8), (1, 2, 6, 8), {"is_causal": True}),
    ((1, 2, 4, 8), (1, 2, 9, 8), (1, 2, 9, 8), {"is_causal": True}),
    ((1, 2, 9, 8), (1, 2, 4, 8), (1, 2, 4, 8), {"is_causal": True}),
    ((2, 6, 4, 8), (2, 2, 5, 8), (2, 2, 5, 8), {"enable_gqa": True}),
    ((6, 4, 8), (2, 5, 8), (3, 5, 8), {"enable_gqa": True}),
    ((2, 6, 7, 8), (2, 2, 7, 8), (2, 2, 7, 4), {"enable_gqa": True, "is_causal": True}),
]


@pytest.mark.parametrize(("dtype", "tolerance"), [(tf.float64, 1e-12), (tf.float32, 1e-5), (tf.bfloat16, 4e-2)])
@pytest.mark.parametrize(("q", "k", "v", "options"), CASES)
def test_as_torch(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], options: dict[str, Any], dtype: tf.DType, tolerance: float) -> None:
    arrays, wanted = torches(given(*q), given(*k), given(*v), None, **options)
    for found, x, shape in zip(gradients(arrays, dtype, **options), wanted, (q, k, v), strict=True):
        assert found.shape == shape
        np.testing.assert_allclose(found.astype(np.float64), x, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("is_boolean", [True, False])
def test_rows_without_keys(is_boolean: bool) -> None:
    """They have no part in any gradient, and make nothing NaN: all else is as without them."""
    live = [0, 1, 3, 4]
    keep = RNG.random((2, 3, 5, 7)) < 0.6
    keep[..., 0] = True
    mask = keep if is_boolean else np.where(keep, given(2, 3, 5, 7), -np.inf)
    q, k, v = given(2, 3, 5, 8), given(2, 3, 7, 8), given(2, 3, 7, 8)
    some, wanted = torches(q[:, :, live], k, v, mask[:, :, live])
    arrays = [np.insert(x, 2, np.nan if x.dtype != bool else 1, 2) if x.shape[2] == len(live) else x for x in some]
    for x, row in zip((arrays[0], arrays[1], arrays[4], arrays[5], arrays[6]), (3.0, 2.0, 0.0, -np.inf, 0 if is_boolean else -np.inf), strict=True):
        x[:, :, 2] = row
    dq, dk, dv = gradients(arrays, tf.float64)
    assert not dq[:, :, 2].any()
    for found, x in zip((dq[:, :, live], dk, dv), wanted, strict=True):
        np.testing.assert_allclose(found, x, atol=1e-12)


def test_a_row_of_the_most_negative_floats_is_finite() -> None:
    """No multiple of the row, or of its logarithm of sums, is taken."""
    mask = np.zeros((2, 3, 5, 7))
    arrays, _ = torches(given(2, 3, 5, 8), given(2, 3, 7, 8), given(2, 3, 7, 8), mask)
    arrays[5][:, :, 2] = arrays[6][:, :, 2] = np.finfo(np.float32).min
    assert all(np.isfinite(found).all() for found in gradients(arrays, tf.float32))


@pytest.mark.parametrize(
    ("place", "shape", "dtype", "error", "reason"),
    [
        (0, (5, 4), tf.float32, ShapeError, "tv0 [5, 4] is not [5, 8]"),
        (4, (4, 8), tf.float32, ShapeError, "tv4 [4, 8] is not [5, 8]"),
        (5, (5, 1), tf.float32, ShapeError, "tv5 [5, 1] is not [5]"),
        (5, (7,), tf.float32, ShapeError, "tv5 [7] is not [5]"),
        (0, (5, 8), tf.float16, DTypeError, "tv0 [5, 8] is float16, not float32"),
        (5, (5,), tf.float64, DTypeError, "tv5 [5] is float64, not float32"),
        (2, (7, 4), tf.float32, ShapeError, "tv1 [5, 8], tv2 [7, 4] and tv3 [7, 8] do not fit"),
        (3, (6, 8), tf.float32, ShapeError, "tv1 [5, 8], tv2 [7, 8] and tv3 [6, 8] do not fit"),
    ],
)
def test_what_does_not_fit(place: int, shape: tuple[int, ...], dtype: tf.DType, error: type[Exception], reason: str) -> None:
    shapes: list[tuple[int, ...]] = [(5, 8), (5, 8), (7, 8), (7, 8), (5, 8), (5,)]
    shapes[place] = shape
    with tf.Fusion():
        g, q, k, v, o, sums = (tf.define_tensor(list(s), dtype=dtype if n == place else tf.float32) for n, s in enumerate(shapes))
        with pytest.raises(error, match=re.escape(reason)):
            tf.scaled_dot_product_attention_backward(g, q, k, v, o, sums)
