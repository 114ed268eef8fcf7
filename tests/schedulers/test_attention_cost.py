"""Parameters of attention: those that fit a multiprocessor, and what the cost model counts."""

from dataclasses import replace

import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.figures import AttentionFigures
from taskfuse.schedulers import AttentionConfig
from taskfuse.target import H100
from tests.schedulers.attentions import attention


def test_registers_and_shared_memory_bound_the_chunks() -> None:
    for d in (32, 64, 128, 256):
        options = tf.schedulers.attention(attention(d)).alternatives
        assert all(o.config.registers(d, masks=1) <= 240 and o.config.shared_bytes(d, d) < 232448 for o in options)
    with pytest.raises(UnsupportedError, match="registers"):
        tf.schedulers.attention(attention(256), AttentionConfig(3, 128, 2))
    with pytest.raises(UnsupportedError, match="Shared memory"):
        tf.schedulers.attention(attention(256), AttentionConfig(1, 128, 3))


def test_what_the_blocks_of_causal_walks_cannot() -> None:
    for config, reason in (
        (AttentionConfig(1, 64, 2, cluster=2), "end at their own rows"),
        (AttentionConfig(1, 64, 2, blocks=132), "the number of rows is constant"),
    ):
        with pytest.raises(UnsupportedError, match=reason):
            tf.schedulers.attention(attention(is_causal=True), config)
    with pytest.raises(UnsupportedError, match="one stage of queries"):
        tf.schedulers.attention(attention(sizes=(256, 256), is_causal=True), AttentionConfig(1, 64, 2, blocks=132, query_stages=2))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [((4, 64, 2), "4 warpgroups"), ((1, 40, 2), "chunks of 40"), ((1, 64, 0), "stages is 0"), ((1, 64, 2, 3), "clusters of 3")],
)
def test_parameters(fields: tuple[int, int, int], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        AttentionConfig(*fields)


def test_causal_walks_cost_what_they_walk() -> None:
    causal, all_keys = (tf.schedulers.attention(attention(128, is_causal=c), sizes={"M": 8192, "N": 8192}).us for c in (True, False))
    assert 0.45 < causal / all_keys < 0.7


@pytest.mark.parametrize("slower", [replace(H100, functions_per_cycle=4), replace(H100, attention=AttentionFigures(chunk_cycles=(3000, 3000, 3000)))])
def test_the_figures_are_those_of_the_target(slower: tf.Target) -> None:
    fast, slow = (tf.schedulers.attention(attention(64), target=t).us for t in (H100, slower))
    assert slow > 1.2 * fast


def test_the_fastest_stands_first() -> None:
    many, few = (tf.schedulers.attention(attention(128, heads=("B", 16)), sizes={"B": b, "M": m, "N": m}).alternatives for b, m in ((4, 4096), (1, 128)))
    for options in (many, few):
        assert [o.us for o in options] == sorted(o.us for o in options)
    assert many[0].config.rows > few[0].config.rows
