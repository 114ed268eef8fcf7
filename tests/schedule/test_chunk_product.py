"""chunk_product: the math stays for all shares; kernels are proved, values included, and mistakes in shares are found; refused with a reason."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse as tf
from examples import gemm_stream_k
from taskfuse.errors import ScheduleError
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR
from taskfuse.kir import parse_kernel

RNG = np.random.default_rng(0)


def product(m: int | str = 5, n: int = 7, k: int = 9) -> tuple[tf.Fusion, tf.TensorView]:
    with tf.Fusion("product") as fusion:
        a, b = tf.define_tensor([m, k], name="a"), tf.define_tensor([n, k], name="b")
        y = a @ b.T
        fusion.add_output(tf.relu(y))
    return fusion, y


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 12), st.integers(1, 9), st.booleans(), st.tuples(*[st.integers(1, 4)] * 3))
def test_the_math_stays(m: int, n: int, k: int, blocks: int, stream: bool, tile: tuple[int, int, int]) -> None:
    fusion, y = product(m, n, k)
    given = [RNG.uniform(0.5, 1.5, (rows, k)).astype(np.float32) for rows in (m, n)]
    (wanted,) = evaluate(fusion, given, MODULAR)
    left, right, parts, terms = y.chunk_product((tf.tiles.stream_k if stream else tf.tiles.split_k)(blocks), tile)
    assert left.shape[:2] == right.shape[:2] == parts.shape[:2]
    assert [int(str(e)) for e in terms.shape[:2]] == [m, n]
    assert np.array_equal(evaluate(fusion, given, MODULAR)[0], wanted)
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)


@pytest.mark.parametrize(
    ("m", "n", "k", "order"),
    [(128, 128, 512, tf.tiles.stream_k(3)), (100, 72, 200, tf.tiles.stream_k(5)), (64, 64, 512, tf.tiles.split_k(3)), (128, 192, 64, tf.tiles.stream_k(4))],
)
def test_kernels_are_proved_and_the_same_in_any_interleaving(m: int, n: int, k: int, order: tf.tiles.SplitK | tf.tiles.StreamK) -> None:
    """The last has blocks of several whole tiles; the second overhangs everywhere."""
    kernel = tf.lower(gemm_stream_k.build(m, n, k, order))
    assert kernel.verify().is_proved
    a, b = (RNG.standard_normal((rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
    (one,), (two,) = (kernel.simulate(a, b, seed=seed) for seed in (1, 2))
    assert np.array_equal(one, two)
    np.testing.assert_allclose(one.astype(np.float32), a.astype(np.float32) @ b.astype(np.float32).T, rtol=2**-7, atol=0.25)


MISTAKES = {
    "a step more in one role": ("i14", ", 8) - max(", ", 8) + 1 - max(", 1),
    "a step more in both roles": ("i14", ", 8) - max(", ", 8) + 1 - max(", 2),
    "an item too few": ("i6 in 0..2", "i6 in 0..2", "i6 in 0..1", 2),
    "another tile's rows": ("tv5.map(", "i6)//3), ", "i6)//2), ", 1),
    "no barrier before the join": ("SYNC grid", "SYNC grid grid0, 1280", "SYNC block", 1),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_shares_are_found(name: str) -> None:
    text = tf.lower(gemm_stream_k.build()).text(witness=True)
    where, old, new, times = MISTAKES[name]
    lines = text.splitlines()
    places = [i for i, line in enumerate(lines) if where in line and old in line and "DEFINE" not in line][:times]
    assert len(places) == times, (where, [line for line in lines if where.split(" ")[0] in line][:3])
    for i in places:
        lines[i] = lines[i].replace(old, new, 1)
    assert parse_kernel(text).verify().is_proved
    assert not parse_kernel("\n".join(lines)).verify().is_proved


@pytest.mark.parametrize("front", [0, 96])
def test_a_bulk_copy_brings_zeros_from_before_the_start_and_behind_the_end(front: int) -> None:
    with tf.Fusion("zeros") as fusion:
        x = tf.define_tensor([32, 64], dtype=tf.bfloat16, name="x")
        y = tf.pad(x, [(front, 96 - front), (0, 0)])
        z = tf.neg(y)
        fusion.add_output(z)
    for tv in (y, z):
        tv.split(0, 64)
    y.set_memory_type(tf.MemoryType.Shared).circular_buffer(2)
    y.set_atom(tf.atoms.TMA_LOAD, (1, 2))
    y.inline_at(1)
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    given = np.arange(32 * 64, dtype=np.float32).reshape(32, 64).astype(tf.bfloat16.numpy)
    assert np.array_equal(kernel.simulate(given)[0], fusion.evaluate(given)[0])


def test_refused() -> None:
    fusion, y = product()
    stream = tf.tiles.stream_k(3)
    pair: Any = (2, 2)
    four: Any = 4
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: fusion.outputs[0].chunk_product(stream, (2, 2, 2)), "is not a sum of products"),
        (lambda: y.chunk_product(stream, pair), "a tile of \\(2, 2\\)"),
        (lambda: y.chunk_product(stream, (2, 0, 2)), "a tile of \\(2, 0, 2\\)"),
        (lambda: y.chunk_product(four, (2, 2, 2)), "4 divides no tiles"),
        (lambda: product("M")[1].chunk_product(stream, (2, 2, 2)), "are not constants"),
    ]
    before = str(fusion)
    for call, reason in calls:
        with pytest.raises(ScheduleError, match=reason):
            call()
    assert str(fusion) == before
    y.split(0, 2)
    with pytest.raises(ScheduleError, match="call chunk_product before split"):
        y.chunk_product(stream, (2, 2, 2))
    with tf.Fusion("batch") as batch:
        z = tf.define_tensor([2, 3, 4], name="a") @ tf.define_tensor([2, 4, 5], name="b")
        batch.add_output(z)
    with pytest.raises(ScheduleError, match="is not a product of two matrices"):
        z.chunk_product(stream, (2, 2, 2))
