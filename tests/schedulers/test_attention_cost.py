"""Parameters of attention: those that fit a multiprocessor, and what the cost model counts."""

from dataclasses import replace

import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.figures import AttentionFigures
from taskfuse.schedulers import AttentionConfig
from taskfuse.schedulers.attention_cost import planned, planned_chunks
from taskfuse.schedulers.attention_math import find
from taskfuse.schedulers.schedule import Sizes
from taskfuse.target import H100, H200
from tests.schedulers.attentions import attention, values_of_8_bits


def test_registers_and_shared_memory_bound_the_chunks() -> None:
    for d in (32, 64, 128, 256):
        options = tf.schedulers.attention(attention(d)).alternatives
        assert all(o.config.registers(d, masks=1) <= 240 and o.config.shared_bytes(2 * d, 2 * d) < 232448 for o in options)
    with pytest.raises(UnsupportedError, match="registers"):
        tf.schedulers.attention(attention(256), AttentionConfig(3, 128, 2))
    with pytest.raises(UnsupportedError, match="Shared memory"):
        tf.schedulers.attention(attention(256), AttentionConfig(1, 128, 3))
    with pytest.raises(UnsupportedError, match="the copy engine stores 16-bit results of multiples of 64 columns"):
        tf.schedulers.attention(attention(32), AttentionConfig(1, 32, 2, staged=1))


def test_what_the_blocks_of_causal_walks_cannot() -> None:
    for config, reason in (
        (AttentionConfig(1, 64, 2, cluster=2), "a mask ends their walks at different ones"),
        (AttentionConfig(1, 64, 2, blocks=132), "the number of rows is not constant"),
    ):
        with pytest.raises(UnsupportedError, match=reason):
            tf.schedulers.attention(attention(is_causal=True), config)


def test_tiles_that_blocks_claim_take_shared_memory() -> None:
    def causal() -> tf.Fusion:
        return attention(128, sizes=(4096, 4096), is_causal=True, heads=(4, 16))

    chosen = tf.schedulers.attention(causal())
    assert chosen.config.blocks  # they claim
    for option in chosen.alternatives[:1]:
        fusion = causal()
        tf.schedulers.attention(fusion, option.config)
        assert tf.lower(fusion).resources(fast_math=True).shared_bytes <= H200.limits.block_shared
    with pytest.raises(UnsupportedError, match="Shared memory"):
        tf.schedulers.attention(causal(), AttentionConfig(2, 192, 2, blocks=132))


def test_parts_of_columns_that_do_not_fit() -> None:
    for config, reason in (
        (AttentionConfig(2, 64, 2), "a warpgroup has 512 columns"),
        (AttentionConfig(3, 64, 2, parts=3), "3 parts of 512 columns are no multiples of 64"),
        (AttentionConfig(2, 64, 2, parts=2), "a block needs 353280 bytes of Shared memory"),  # keys and values are apart
    ):
        with pytest.raises(UnsupportedError, match=reason):
            tf.schedulers.attention(attention(576, 512), config)


@pytest.mark.parametrize(
    ("config", "reason", "help"),
    [
        (AttentionConfig(blocks=132, query_stages=2), "the number of rows is not constant", "use blocks=0"),
        (AttentionConfig(3, 256), r"a thread needs \d+ registers and has 160", "use smaller chunks, fewer warpgroups or fewer residents"),
        (
            AttentionConfig(2, 128, 8),
            r"a block needs \d+ bytes of Shared memory and has 232448",
            "use smaller chunks, fewer stages, fewer warpgroups or fewer residents",
        ),
    ],
)
def test_parameters_that_do_not_suit_causal_attention(config: AttentionConfig, reason: str, help: str) -> None:
    with pytest.raises(UnsupportedError, match=reason) as caught:
        tf.schedulers.attention(attention(128, is_causal=True), config)
    assert caught.value.help == help


def test_blocks_of_a_multiprocessor_share_what_it_has() -> None:
    assert [AttentionConfig(1, 64, 2, residents=r).register_room for r in (1, 2, 3)] == [240, 232, 136]
    fusion = attention(64)
    tf.schedulers.attention(fusion, AttentionConfig(1, 128, 2, residents=2))
    kernel = tf.lower(fusion)
    assert kernel.residents == 2
    assert "SETMAXNREG 232" in str(kernel)
    with pytest.raises(UnsupportedError, match="registers and has 136"):
        tf.schedulers.attention(attention(64), AttentionConfig(1, 256, 2, residents=3))
    with pytest.raises(UnsupportedError, match="bytes of Shared memory and has"):
        tf.schedulers.attention(attention(128), AttentionConfig(1, 128, 2, residents=2))


@pytest.mark.parametrize(("keys", "is_staged"), [(512, True), (1024, True), (4096, False)])
def test_the_copy_engine_stores_results_of_short_walks(keys: int, is_staged: bool) -> None:
    options = tf.schedulers.attention(attention(128, heads=(8, 16)), sizes={"M": keys, "N": keys}).alternatives
    assert bool(next(o.config for o in options if not o.config.is_pipelined).staged) == is_staged


@pytest.mark.parametrize(("d", "is_causal", "is_tried"), [(128, False, True), (256, False, True), (96, False, False), (128, True, True)])
def test_products_ahead_are_tried_where_they_were_measured(d: int, is_causal: bool, is_tried: bool) -> None:
    options = tf.schedulers.attention(attention(d, sizes=(4096, 4096), is_causal=is_causal)).alternatives
    tried = [o.config for o in options if o.config.is_pipelined or o.config.in_turn]
    assert bool(tried) == is_tried
    assert all(c.is_pipelined and c.cluster == 1 and c.warpgroups == 2 for c in tried)


@pytest.mark.parametrize("is_causal", [True, False])
def test_products_of_heads_of_64_are_ahead_where_that_was_faster(is_causal: bool) -> None:
    chosen = tf.schedulers.attention(attention(64, heads=(4, 16), sizes=(4096, 4096), is_causal=is_causal)).config
    assert chosen.is_pipelined == is_causal
    assert chosen.warpgroups == (2 if is_causal else 3)


@pytest.mark.parametrize(("d", "n", "is_causal", "chunk"), [(128, 4096, False, 192), (128, 1024, False, 128), (128, 4096, True, 128), (64, 4096, False, 128)])
def test_exponentials_of_8_bits_take_chunks_and_turns_that_were_faster(d: int, n: int, is_causal: bool, chunk: int) -> None:
    config = tf.schedulers.attention(values_of_8_bits(d, d, (n, n), batch=(4, 16), is_causal=is_causal)).config
    assert (config.chunk, config.is_pipelined) == (chunk, True)
    assert (config.warpgroups, config.in_turn) == ((3, True) if d == 64 else (2, False))


def test_wide_keys_may_be_loaded_once_for_two_blocks() -> None:
    for d in (128, 256):
        options = tf.schedulers.attention(attention(d, heads=(4, 8))).alternatives
        assert any(o.config.cluster == 2 for o in options) == (d == 256)


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


def test_causal_rows_are_claimed_where_blocks_have_many() -> None:
    """Of a constant number; a block for each has no rows to claim."""
    many, few, any_number = (
        tf.schedulers.attention(attention(128, heads=(4, 16), sizes=(m, m), is_causal=True), sizes={"M": 4096} if m == "M" else {}).config
        for m in (4096, 128, "M")
    )
    assert many == AttentionConfig(2, many.chunk, many.stages, blocks=132, query_stages=2, staged=many.staged, is_pipelined=many.is_pipelined)
    assert few.blocks == any_number.blocks == 0


def test_a_walk_takes_as_long_as_its_bytes() -> None:
    """One query of many heads: products of a chunk are over before the next one is there."""
    fusion = attention(128, heads=(16, 132), sizes=(1, 32768))
    moved = 2 * 2 * 16 * 132 * 32768 * 128
    assert tf.schedulers.attention(fusion).us >= H200.dram_us(moved)


def test_chunks_of_keys_fill_the_gpu() -> None:
    fusion = attention(128, heads=(1, 8), sizes=(4, 32768))
    found = find(fusion)
    extent = Sizes(fusion, None, H200)
    options = planned_chunks(fusion, found, (2, 8, 16, 64), extent)
    whole = planned(fusion, found, extent)[0].us
    assert whole > 1.5 * options[2].us > 2 * options[16].us
    assert options[16].us >= H200.dram_us(2 * 2 * 8 * 32768 * 128)
    assert not planned_chunks(fusion, replace(found, columns=1024), (2,), extent)
    assert planned_chunks(fusion, found, (2, 8), extent, {2: 1.0, 8: options[8].us}.__getitem__) == {8: options[8]}
