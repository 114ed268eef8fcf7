"""Results as asked: strides, in place of inputs, slices of a cache, inputs themselves; with torch."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from tests.cuda.calls import HANDED


def values(*shape: int) -> Any:
    return torch.rand(*shape, device="cuda") + 0.1


def test_in_place() -> None:
    with tf.Fusion("in_place") as fusion:
        x = tf.define_tensor(["N", 1024], name="x")
        fusion.add_output(tf.softmax(x), into=x)
    run = tf.compile(fusion)
    for _ in range(3):
        x = values(64, 1024)
        expected = torch.softmax(x, 1)
        (y,) = run(x)
        assert y is x
        assert torch.allclose(y, expected, atol=1e-6)


def test_neighbors_are_read_before_they_are_overwritten() -> None:
    with tf.Fusion("neighbors") as fusion:
        x = tf.define_tensor([4096, 64], name="x")
        fusion.add_output(x + tf.roll(x, 1, 0), into=x)
    run = tf.compile(fusion)
    for _ in range(3):
        x = values(4096, 64)
        expected = x + torch.roll(x, 1, 0)
        assert run(x)[0] is x
        assert torch.equal(x, expected)


def test_a_slice_of_a_cache() -> None:
    with tf.Fusion("cache") as fusion:
        cache, new = tf.define_tensor([4, 128, 64], name="cache"), tf.define_tensor([4, 1, 64], name="new")
        fusion.add_output(new * 2.0, into=cache[:, 7:8])
    run = tf.compile(fusion)
    for _ in range(3):
        cache, new = values(4, 128, 64), values(4, 1, 64)
        expected = cache.clone()
        expected[:, 7:8] = new * 2
        run(cache, new)
        assert torch.equal(cache, expected)


def test_channels_last() -> None:
    with tf.Fusion("channels_last") as fusion:
        x = tf.define_tensor([2, 64, 16, 16], name="x", strides=[16384, 1, 1024, 64])
        fusion.add_output(tf.relu(x), strides=[16384, 1, 1024, 64])
        fusion.add_output(x)
    run = tf.compile(fusion)
    x = values(2, 64, 16, 16).contiguous(memory_format=torch.channels_last)
    y, same = run(x)
    assert same is x
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(y, torch.relu(x))
    assert np.array_equal(run(x, stream=torch.cuda.current_stream())[0].cpu().numpy(), y.cpu().numpy())


def test_results_that_other_threads_read() -> None:
    """A load of a ``__restrict__`` result was moved in front of the barrier."""
    x = values(8, 4)
    _, z = tf.compile(tf.parse_kernel(HANDED), backend="cuda")(x)
    assert torch.equal(z, 2 * x - 2 * x[0])
