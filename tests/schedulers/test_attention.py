"""Two products and what is between them as one walk: right, proved for all lengths, and written down as calls that can be pasted."""

import re
from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import AttentionConfig
from taskfuse.schedulers.attention import offer
from tests.schedulers.attentions import BYTES, CASES, arrays, as_packed, attention, chunks_of, latent, of_8_bits, softcapped, values_of_8_bits
from tests.testing.ptx.compiled import compared


@pytest.mark.parametrize("name", CASES)
def test_it_is_right_and_proved(name: str) -> None:
    make, config, sizes = CASES[name]
    fusion = make()
    args = arrays(fusion, *sizes)
    wanted = make().evaluate(*args)
    tf.schedulers.attention(fusion, config)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert not [b for b in kernel.buffers if b.memory is tf.MemoryType.Global]
    for found, expected in zip(kernel.simulate(*args, seed=2), wanted, strict=True):
        np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", BYTES)
def test_exponentials_and_values_of_8_bits(name: str) -> None:
    """At the rate of 8 bits in both products; the error is that of exponentials in 8 bits."""
    make, config = BYTES[name]
    fusion, rng = make(), np.random.default_rng(3)
    q, k, v = (rng.standard_normal([int(str(e)) for e in tv.shape]).astype(tv.dtype.numpy) for tv in fusion.inputs)
    v = np.swapaxes(v, -1, -2)
    exact, rounded = of_8_bits(q, k, v, is_causal="causal" in name)
    tf.schedulers.attention(fusion, config)
    kernel = tf.lower(fusion)
    certificate = kernel.verify()
    assert certificate.is_proved
    assert "rewritings: 1 of 1" in str(certificate)
    assert not re.search(r"WGMMA.*float16", str(kernel))
    out = kernel.simulate(q, k, as_packed(v), seed=2)[0].astype(np.float64)
    assert np.abs(out - exact).max() < 2 * np.abs(rounded - exact).max() + 2**-9 * np.abs(exact).max()


def test_causal_walks_end_behind_the_diagonal() -> None:
    fusion = attention(is_causal=True)
    tf.schedulers.attention(fusion, AttentionConfig(1, 32, 2))
    kernel = tf.lower(fusion)
    walks = re.findall(r"FOR \w+ in 0\.\.(.*blockIdx.*):", str(kernel))
    assert walks == ["min(ceildiv(N, 32), 2*ceildiv(M, 64) - 2*blockIdx.x)"] * 2  # of the loads, and of the products; the longest first


def test_masks_are_left_out_of_chunks_that_they_do_not_cut() -> None:
    """In the others, too, there is one place of masks: exponentials of what is padded with -inf are 0."""
    fusion = attention(is_causal=True)
    tf.schedulers.attention(fusion, AttentionConfig(1, 32, 2))
    text = str(tf.lower(fusion))
    whole = "IF 32*i9 + 31 < N && 32*i9 + 31 <= 64*ceildiv(M, 64) - 64*blockIdx.x - 64:"
    assert text.count(whole) == 1
    before, choices = text.split(whole)
    assert not re.search(r"causal\(|pad\(", before)
    assert re.findall(r"(causal|pad)\((otherwise)?", choices) == [("causal", "otherwise"), ("pad", "otherwise"), ("causal", ""), ("pad", "")]


def test_the_code_makes_the_same_schedule() -> None:
    fusion, other = attention(64), attention(64)
    chosen = tf.schedulers.attention(fusion)
    exec(compile(chosen.code, "schedule", "exec"), {"fusion": other})
    assert str(tf.lower(other)) == str(tf.lower(fusion))
    assert "tf.cascade(" in chosen.code
    assert chosen.config == chosen.alternatives[0].config
    assert offer(attention(64)).us == chosen.us


@pytest.mark.parametrize(
    ("make", "config"),
    [(lambda: attention(64), AttentionConfig(1, 64, 2)), (lambda: latent(sizes=(64, "N")), AttentionConfig(2, 64, 2, parts=2, apart=True))],
)
def test_the_machine_code_does_what_the_kernel_says(make: Callable[[], tf.Fusion], config: AttentionConfig) -> None:
    fusion = make()
    tf.schedulers.attention(fusion, config)
    kernel = tf.lower(fusion)
    assert compared(kernel).difference is None
    assert len(re.findall(r"^\s*COMMIT wgmma$", str(kernel), re.M)) == 2


def test_values_that_are_columns_of_their_keys_are_loaded_once() -> None:
    """Both products read one ring, also if its last slot is padded, and warpgroups have parts of the columns without more loads; results as wide as those of
    latent attention fit a block only so."""
    for sizes in (("M", "N"), ("M", 64)):
        fusion = latent(sizes=sizes)
        tf.schedulers.attention(fusion, AttentionConfig(2, 32, 2, parts=2, apart=True))
        loaded = re.findall(r"TENSORMAP \S+ = (\w+) box", str(tf.lower(fusion)))
        assert loaded == [tv.name for tv in fusion.inputs]
    fusion = latent(576, 512, heads=(64,), sizes=(128, 4096))
    chosen = tf.schedulers.attention(fusion)
    assert (chosen.config.parts, chosen.config.chunk) == (2, 64)


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        (lambda: latent(64, 32, heads=("B", 2)), (5, 300)),
        (lambda: attention(32, 64, heads=(2,), sizes=(1, 400)), (1, 400)),
        (lambda: attention(is_causal=True), (70, 130)),
        (softcapped, (3, 33)),
    ],
)
def test_chunks_of_keys_side_by_side(make: Callable[[], tf.Fusion], sizes: tuple[int, int]) -> None:
    """Also those that are empty, or that a mask excludes."""
    fusion = chunks_of(make(), 3, 64)
    args = arrays(fusion, *sizes)
    wanted = fusion.evaluate(*args)
    tf.schedulers.attention(fusion, AttentionConfig(1, 64, 2))
    kernel = tf.lower(fusion)
    kernel.verify().require()
    for found, expected in zip(kernel.simulate(*args, seed=2), wanted, strict=True):
        np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("make", "config", "said"),
    [
        (lambda: values_of_8_bits(is_packed=False), AttentionConfig(1, 32, 2), "in the order of accumulators"),
        (values_of_8_bits, AttentionConfig(1, 48, 2), "an instruction multiplies 32 keys"),
        (lambda: values_of_8_bits(dv=512), AttentionConfig(2, 32, 2, parts=2, apart=True), "exponentials of 8 bits stay in the registers"),
        (lambda: values_of_8_bits(most=255.0), AttentionConfig(1, 32, 2), "is not one factor for all of them"),  # it clamps the greatest
    ],
)
def test_values_of_8_bits_that_do_not_fit(make: Callable[[], tf.Fusion], config: AttentionConfig, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        tf.schedulers.attention(make(), config)


def test_chunks_divide_padded_keys() -> None:
    with pytest.raises(UnsupportedError, match="keys are padded, and the last chunk is not full") as caught:
        tf.schedulers.attention(chunks_of(attention(), 3, 64), AttentionConfig(1, 96, 2))
    assert caught.value.help == "use chunks that divide the keys"


@pytest.mark.parametrize("schedule", [tf.schedulers.attention, tf.schedulers.back_to_back], ids=lambda s: s.__name__)
def test_what_is_refused_stays_as_it_was(schedule: Callable[..., object]) -> None:
    """Queries that may be none, which a call refuses when the walk is made; and products without a maximum between them."""
    with tf.Fusion("empty") as fusion:
        x = tf.define_tensor([tf.dim("M", min=0), 32], dtype=tf.float16)
        w, u = (tf.define_tensor([64, 32], dtype=tf.float16) for _ in range(2))
        if schedule is tf.schedulers.attention:
            fusion.add_output(tf.scaled_dot_product_attention(x, w, u))
        else:
            fusion.add_output(tf.matmul(tf.cast(tf.relu(tf.matmul(x, w.T, dtype=tf.float32)), tf.float16), u, dtype=tf.float32))
    before = str(fusion)
    with pytest.raises(UnsupportedError, match="whose extent M may be 0"):
        schedule(fusion)
    assert str(fusion) == before
    if schedule is tf.schedulers.back_to_back:
        with pytest.raises(UnsupportedError, match="no maximum is taken between the products"):
            tf.schedulers.attention(fusion, tf.schedulers.AttentionConfig(1, 64))


def test_the_copy_engine_has_until_the_next_results_to_read_a_tile() -> None:
    """The wait for it stands before the tile is written again, not behind the store, where it would be in the way of the next rows."""
    fusion = attention(64, heads=("B",))
    tf.schedulers.attention(fusion, AttentionConfig(1, 32, 2, blocks=3, query_stages=2, staged=1))
    lines = [line.strip() for line in str(tf.lower(fusion)).splitlines()]
    wait, store = lines.index("WAIT_GROUP bulk.read <= 0"), lines.index("COMMIT bulk")
    write = next(k for k, line in enumerate(lines) if line.startswith("STMATRIX"))
    products = [k for k, line in enumerate(lines) if line.startswith("WGMMA")]
    assert max(products) < wait < write < store
