"""Products of functions of products as one walk: right, proved for all lengths, nothing between them in memory, and written down as calls."""

import re
from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import BackToBackConfig
from taskfuse.schedulers.back_to_back import find, offer
from tests.schedulers.back_to_backs import CASES, arrays, layers, of_keys, of_queries
from tests.testing.ptx.compiled import compared


@pytest.mark.parametrize("name", CASES)
def test_it_is_right_and_proved(name: str) -> None:
    make, config, sizes = CASES[name]
    fusion = make()
    args = arrays(fusion, *sizes)
    wanted = make().evaluate(*args)
    tf.schedulers.back_to_back(fusion, config)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert not [b for b in kernel.buffers if b.memory is tf.MemoryType.Global]
    for found, expected in zip(kernel.simulate(*args, seed=2), wanted, strict=True):
        np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=2e-2, atol=2e-2)


def test_what_several_products_read_is_copied_once() -> None:
    """Queries are a factor of the scores and of the gradient of the keys, and gradients of results one of both others."""
    for sizes in (("M", "N"), (128, 128)):
        fusion = of_keys(sizes=sizes)
        tf.schedulers.back_to_back(fusion, BackToBackConfig(1, 32, 2))
        kernel = tf.lower(fusion)
        assert len([b for b in kernel.buffers if b.memory is tf.MemoryType.Shared]) == 4


@pytest.mark.parametrize(
    ("make", "walks"),
    [
        (lambda: of_queries(is_causal=True, sizes=(128, 192)), "4 - 2*blockIdx.x"),
        (lambda: of_keys(is_causal=True, sizes=(192, 128)), "6 - 2*blockIdx.x"),
    ],
)
def test_causal_walks_have_no_chunk_that_masks_exclude(make: Callable[[], tf.Fusion], walks: str) -> None:
    """Those over the keys end at the diagonal; those over the queries begin there, and are walked backwards. The longest come first."""
    fusion = make()
    tf.schedulers.back_to_back(fusion, BackToBackConfig(1, 32, 2))
    found = re.findall(r"FOR \w+ in 0\.\.(.*blockIdx.*):", str(tf.lower(fusion)))
    assert len(found) == 2
    assert found == [walks] * 2


def test_masks_are_left_out_of_chunks_that_they_do_not_cut() -> None:
    for make in (of_queries, of_keys):
        fusion = make(is_causal=True, sizes=(128, 128))
        tf.schedulers.back_to_back(fusion, BackToBackConfig(1, 64, 2))
        assert re.findall(r"causal\((otherwise)?", str(tf.lower(fusion))) == ["otherwise", ""]


def test_the_code_makes_the_same_schedule() -> None:
    for make in (lambda: of_queries(64), lambda: of_keys(64, sizes=(128, 128)), lambda: of_keys(sizes=(64, 96)), layers):
        fusion, other = make(), make()
        chosen = tf.schedulers.back_to_back(fusion)
        exec(compile(chosen.code, "schedule", "exec"), {"fusion": other})
        assert str(tf.lower(other)) == str(tf.lower(fusion))
        assert chosen.config == chosen.alternatives[0].config
        assert offer(make()).us == chosen.us


def test_the_machine_code_does_what_the_kernel_says() -> None:
    fusion = of_keys(64, sizes=(128, 128))
    tf.schedulers.back_to_back(fusion, BackToBackConfig(1, 64, 2))
    assert compared(tf.lower(fusion)).difference is None


def summed() -> tf.Fusion:
    with tf.Fusion() as fusion:
        a, b, c = (tf.define_tensor([64, 64], dtype=tf.bfloat16) for _ in range(3))
        hidden = tf.cast(tf.relu(tf.matmul(a, b.T, dtype=tf.float32)), tf.bfloat16)
        fusion.add_output(tf.matmul(hidden, c, dtype=tf.float32))
        fusion.add_output(tf.cast(hidden, tf.float32))
    return fusion


def wide() -> tf.Fusion:
    with tf.Fusion() as fusion:
        a, b, c = (tf.define_tensor([64, 64]) for _ in range(3))
        fusion.add_output(tf.relu(a @ b) @ c)
    return fusion


def thrice() -> tf.Fusion:
    with tf.Fusion() as fusion:
        a, b, c, d = (tf.define_tensor([64, 64], dtype=tf.bfloat16) for _ in range(4))
        x = tf.cast(tf.matmul(a, b.T, dtype=tf.float32), tf.bfloat16)
        y = tf.cast(tf.matmul(x, c, dtype=tf.float32), tf.bfloat16)
        fusion.add_output(tf.matmul(y, d, dtype=tf.float32))
    return fusion


def both() -> tf.Fusion:
    """Sums over queries and over keys."""
    with tf.Fusion() as fusion:
        a, b = (tf.define_tensor([64, 64], dtype=tf.bfloat16) for _ in range(2))
        s = tf.cast(tf.matmul(a, b.T, dtype=tf.float32), tf.bfloat16)
        fusion.add_output(tf.matmul(s, b, dtype=tf.float32))
        fusion.add_output(tf.matmul(s.T, a, dtype=tf.float32))
    return fusion


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (summed, "does not depend on a last product"),
        (wide, "16-bit floats"),
        (thrice, "another product does not depend on them"),
        (both, "over different axes"),
        (lambda: of_queries(sizes=("M", 1)), "over one element"),
        (lambda: of_queries(40), "factors of 40"),
        (lambda: of_queries(heads=("A", "B", "C", "D")), "4 batch axes"),
    ],
)
def test_what_it_refuses(make: Callable[[], tf.Fusion], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        find(make())


@pytest.mark.parametrize(("config", "reason"), [(BackToBackConfig(3, 64, 2), "registers"), (BackToBackConfig(2, 32, 12), "Shared memory")])
def test_parameters_that_do_not_fit(config: BackToBackConfig, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        tf.schedulers.back_to_back(of_keys(128), config)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [((4, 64, 2), "4 warpgroups"), ((1, 40, 2), "chunks of 40 elements"), ((1, 272, 2), "chunks of 272 elements"), ((1, 64, 0), "stages is 0")],
)
def test_impossible_parameters(fields: tuple[int, int, int], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=f"this BackToBackConfig is not supported: {reason}"):
        BackToBackConfig(*fields)
