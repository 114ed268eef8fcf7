"""Pools against loops over windows."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from tests.ops.reference import Array, evaluated, message, numbers


def spans(n: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> list[tuple[range, int]]:
    """The places of each window, those in the padding, too, and how many elements of it lie in the padded input."""
    room = n + 2 * padding - dilation * (kernel - 1) - 1
    number = (-(-room // stride) if ceil_mode else room // stride) + 1
    if ceil_mode and (number - 1) * stride >= n + padding:
        number -= 1
    starts = [o * stride - padding for o in range(number)]
    return [(range(s, s + dilation * kernel, dilation), min(s + kernel, n + padding) - s) for s in starts]


def even(n: int, m: int) -> list[tuple[range, int]]:
    """Windows of an adaptive pool."""
    bounds = [(o * n // m, -(-(o + 1) * n // m)) for o in range(m)]
    return [(range(a, b), b - a) for a, b in bounds]


def pooled(x: Array, windows: Sequence[list[tuple[range, int]]]) -> Iterator[tuple[tuple[int, ...], Array, Array, int]]:
    """Of each window, its number, its elements ``[batch, places]`` and their positions, and how many there are with padding."""
    shape = x.shape[x.ndim - len(windows) :]
    flat = x.reshape(-1, int(np.prod(shape)))
    for number in np.ndindex(*(len(w) for w in windows)):
        chosen: list[tuple[range, int]] = [w[o] for w, o in zip(windows, number, strict=True)]
        inside = [[p for p in places if 0 <= p < n] for (places, _), n in zip(chosen, shape, strict=True)]
        positions = np.array([np.ravel_multi_index(at, shape) for at in itertools.product(*inside)])
        yield number, flat[:, positions], positions, int(np.prod([count for _, count in chosen]))


CASES: list[tuple[tuple[int, ...], int, int, int, int, bool]] = [
    ((2, 7), 3, 2, 1, 1, False),
    ((2, 7), 3, 2, 1, 1, True),
    ((1, 6, 7), 2, 2, 0, 1, True),
    ((2, 7, 6), 3, 1, 1, 2, False),
    ((4, 5, 6), 2, 3, 1, 1, True),
]


@pytest.mark.parametrize(("shape", "kernel", "stride", "padding", "dilation", "ceil_mode"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pools(shape: tuple[int, ...], kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool, dtype: str) -> None:
    x = numbers((2, *shape), dtype)
    x.flat[3:9] = -np.inf
    dims = len(shape) - 1
    kernels = [kernel] * dims
    windows = [spans(n, kernel, stride, padding, dilation, ceil_mode) for n in shape[1:]]
    greatest = evaluated(lambda a: tf.max_pool(a, kernels, stride, padding, dilation, ceil_mode), x)
    with tf.Fusion("pool") as fusion:
        for result in tf.max_pool_with_indices(tf.define_tensor(x.shape, dtype), kernels, stride, padding, dilation, ceil_mode):
            fusion.add_output(result)
    values, indices = fusion.evaluate(x)
    np.testing.assert_array_equal(values, greatest)
    x.flat[3:9] = 0
    means = None
    if dilation == 1:
        means = [evaluated(lambda a, pad=pad: tf.avg_pool(a, kernels, stride, padding, ceil_mode, pad), x) for pad in (True, False)]
    flat = [v.reshape(2 * shape[0], *v.shape[2:]) for v in (greatest, indices, *(means or ()))]
    assert greatest.shape[2:] == tuple(len(w) for w in windows)
    wide = x.copy()
    wide.flat[3:9] = -np.inf
    for (number, elements, positions, _), (_, plain, _, count) in zip(pooled(wide, windows), pooled(x, windows), strict=True):
        at: Any = (slice(None), *number)
        np.testing.assert_array_equal(flat[0][at], elements.max(1))
        np.testing.assert_array_equal(flat[1][at], positions[elements.argmax(1)])
        if means is not None:
            np.testing.assert_allclose(flat[2][at], plain.sum(1) / count, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(flat[3][at], plain.mean(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("symbolic", [False, True])
def test_adaptive_pools(symbolic: bool) -> None:
    x = numbers((2, 7, 6), "float32")
    shapes = [[2, tf.dim("H", min=5), "W"]] if symbolic else None
    windows = [even(7, 3), even(6, 2)]
    mean = evaluated(lambda a: tf.adaptive_avg_pool(a, [3, 2]), x, shapes=shapes)
    greatest = evaluated(lambda a: tf.adaptive_max_pool(a, [3, 2]), x, shapes=shapes)
    indices = evaluated(lambda a: tf.adaptive_max_pool_with_indices(a, [3, 2])[1], x, shapes=shapes)
    for number, elements, positions, _ in pooled(x, windows):
        at: Any = (slice(None), *number)
        np.testing.assert_allclose(mean[at], elements.mean(1), rtol=1e-5)
        np.testing.assert_array_equal(greatest[at], elements.max(1))
        np.testing.assert_array_equal(indices[at], positions[elements.argmax(1)])
    np.testing.assert_array_equal(evaluated(lambda a: tf.adaptive_max_pool(a, [None, 2]), x), evaluated(lambda a: tf.max_pool(a, [1, 3]), x))


def test_a_kernel() -> None:
    """A thread for each result, its window serial: proved, and right in the simulator."""
    with tf.Fusion("pool") as fusion:
        fusion.add_output(tf.max_pool(tf.define_tensor([2, "H", "W"]), [3, 3], 2, 1))
    run, x = tf.compile(fusion), numbers((2, 5, 6), "float32")
    assert [kernel.verify().is_proved for kernel in run.kernels] == [True]
    np.testing.assert_array_equal(run(x)[0], fusion.evaluate(x)[0])


def test_errors() -> None:
    with tf.Fusion("f"):
        x, n = tf.define_tensor([2, 3, "W"], name="x"), tf.define_tensor([4, 4], "int32", name="n")
        assert message(lambda: tf.max_pool(x, [4])) == "max_pool: a window of 4 does not provably fit into x [2, 3, W]\nhelp: give facts with tf.dim(..., min=)"
        assert message(lambda: tf.max_pool(x, [2, 2, 2, 2])).startswith("max_pool: windows of 4 dimensions in x [2, 3, W]")
        assert message(lambda: tf.max_pool(x, [3], padding=2)) == (
            "max_pool: 2 elements of padding are more than half of a window of 3\nhelp: pad with tf.pad first"
        )
        assert message(lambda: tf.avg_pool(x, [2, 2], [1, 1, 1])).startswith("avg_pool: 3 numbers of stride for 2 dimensions")
        assert message(lambda: tf.avg_pool(n, [2, 2])) == "avg_pool: n (int32) is not a float\nhelp: cast to a float first"
        assert message(lambda: tf.adaptive_avg_pool(x, [])).startswith("adaptive_avg_pool: 0 numbers of windows")
        assert message(lambda: tf.adaptive_max_pool(x, [0])).startswith("adaptive_max_pool: 0 is not a number of windows")
