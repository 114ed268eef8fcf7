"""The math of attention: which fusions are two products with a cascade between them, and where values lie in their keys."""

from collections.abc import Callable

import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers.attention_math import find
from tests.schedulers.attentions import attention, chained, chunks_of, keys_of_8_bits, latent, scaled_first, single


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (single, "the number of matrix products is 1, not 2"),
        (chained, "16-bit floats"),
        (scaled_first, "not inputs"),
        (lambda: attention(44), "heads of 44"),
        (lambda: attention(heads=("A", "B", "C", "D")), "4 batch axes"),
        (lambda: attention(heads=(4,), key_heads=(2,), sizes=(3, "N"), enable_gqa=True), "digits of several axes"),
    ],
)
def test_what_it_refuses(make: Callable[[], tf.Fusion], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        find(make())


def turned() -> tf.Fusion:
    """Values are keys of the reverse order."""
    with tf.Fusion() as fusion:
        q, k = (tf.define_tensor([64, 32], dtype=tf.bfloat16) for _ in range(2))
        fusion.add_output(tf.scaled_dot_product_attention(q, k, tf.flip(k, 0)))
    return fusion


@pytest.mark.parametrize(
    ("make", "start"),
    [
        (lambda: latent(96, 32), 0),
        (lambda: latent(96, 64, 32, heads=("B",)), 32),
        (lambda: chunks_of(latent(96, 32, heads=("B",)), 3, 64), 0),
        (lambda: chunks_of(latent(96, 32, heads=("B",), sizes=("M", 192)), 3, 64), 0),
        (lambda: attention(96, 32), None),
        (keys_of_8_bits, None),
        (turned, None),
    ],
)
def test_where_a_value_begins_in_its_key(make: Callable[[], tf.Fusion], start: int | None) -> None:
    assert find(make()).start_in_keys == start
