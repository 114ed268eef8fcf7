"""Attention on the GPU beside the reference: random numbers, all shapes of the CPU tests, and lengths that no block divides."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.schedulers import AttentionConfig
from tests.gpu.device import poisoned, to_numpy, to_torch
from tests.schedulers.attentions import CASES, arrays, as_packed, attention, of_8_bits, values_of_8_bits
from tests.schedulers.variants import LATE, VARIANTS, D, Variant


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sizes", [None, (333, 517), (64, 1), (1, 300)])
def test_right(name: str, sizes: tuple[int, int] | None) -> None:
    make, config, own = CASES[name]
    fusion = make()
    m, n = sizes or own
    m = n if name in ("causal, products ahead", "keys of 8 bits") else m
    args = arrays(fusion, m, n)
    if name == "keys of 8 bits":
        args[3] /= 32  # tensor cores keep some 14 bits of sums of 8-bit products (DeepSeek-V3, arXiv:2412.19437, section 3.5.2), too few for scores of 500
    with np.errstate(all="ignore"):
        wanted = fusion.evaluate(*args)
    tf.schedulers.attention(fusion, config)
    outs = [poisoned(w.shape, tv.dtype) for w, tv in zip(wanted, fusion.outputs, strict=True)]
    tf.compile(tf.lower(fusion), backend="cuda")(*map(to_torch, args), out=outs[0] if len(outs) == 1 else tuple(outs))
    for w, out in zip(wanted, outs, strict=True):
        np.testing.assert_allclose(to_numpy(out).astype(np.float64), w.astype(np.float64), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("heads", "m", "n", "d", "is_causal", "config"),
    [
        ((2,), 1000, 4000, 128, False, AttentionConfig(2, 192, 2, blocks=132, query_stages=2, staged=2, is_pipelined=True)),
        ((3,), 1024, 1024, 128, True, AttentionConfig(2, 128, 2, blocks=132, query_stages=2, is_pipelined=True)),
        ((4, 8), 777, 512, 256, False, AttentionConfig(2, 96, 2, cluster=2, blocks=132)),
        ((2, 8), 512, 528, 64, False, None),
    ],
)
@pytest.mark.parametrize("fast_math", [False, True])
def test_exponentials_and_values_of_8_bits(
    heads: tuple[int, ...], m: int, n: int, d: int, is_causal: bool, config: AttentionConfig | None, fast_math: bool
) -> None:
    """Of given parameters with values that are packed before, otherwise by what tf.compile makes of torch's layout."""
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((*heads, e, d)).astype(tf.float8_e4m3.numpy) for e in (m, n, n))
    exact, rounded = of_8_bits(q, k, v, is_causal=is_causal)
    fusion = values_of_8_bits(d, d, (m, n), is_causal=is_causal, batch=heads, is_packed=config is not None)
    if config is not None:
        tf.schedulers.attention(fusion, config)
    out = poisoned(exact.shape, tf.bfloat16)
    run = tf.compile(tf.lower(fusion) if config is not None else fusion, backend="cuda", fast_math=fast_math)
    run(*map(to_torch, (q, k, v if config is None else as_packed(v))), out=out)
    error = np.abs(to_numpy(out).astype(np.float64) - exact).max()
    assert error < 2 * np.abs(rounded - exact).max() + 2**-8 * np.abs(exact).max()


CONFIGS = {
    "staged": (128, AttentionConfig(2, 128, 2, blocks=132, query_stages=2, staged=2)),
    "staged, one piece": (64, AttentionConfig(3, 128, 2, staged=1)),
    "two on a multiprocessor": (64, AttentionConfig(1, 128, 2, residents=2)),
    "three on a multiprocessor, staged": (64, AttentionConfig(1, 64, 2, staged=2, residents=3)),
    "two blocks share keys": (256, AttentionConfig(2, 64, 2, cluster=2, blocks=132, staged=2)),
    "products ahead": (128, AttentionConfig(2, 128, 2, is_pipelined=True)),
    "in turn": (128, AttentionConfig(3, 64, 2, in_turn=True)),
    "products ahead, in turn": (128, AttentionConfig(2, 128, 2, is_pipelined=True, in_turn=True)),
    "products ahead, of persistent blocks": (128, AttentionConfig(2, 128, 2, blocks=132, query_stages=2, is_pipelined=True)),
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("sizes", [(1000, 777), (64, 1), (1, 300)])
def test_parameters(name: str, sizes: tuple[int, int]) -> None:
    depth, config = CONFIGS[name]
    fusion = attention(depth, heads=("B", 10))
    args = arrays(fusion, *sizes)
    (wanted,) = fusion.evaluate(*args)
    tf.schedulers.attention(fusion, config)
    out = poisoned(wanted.shape, fusion.outputs[0].dtype)
    tf.compile(tf.lower(fusion), backend="cuda")(*map(to_torch, args), out=out)
    np.testing.assert_allclose(to_numpy(out).astype(np.float64), wanted.astype(np.float64), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("variant", [VARIANTS["a window"], VARIANTS["a window without an end"], VARIANTS["a prefix"], LATE])
@pytest.mark.parametrize("sizes", [(333, 517), (64, 1), (1000, 300)])
@pytest.mark.parametrize("config", [AttentionConfig(1, 64, 2), AttentionConfig(2, 64, 3)])
def test_walks_that_begin_and_end_with_a_mask(variant: Variant, sizes: tuple[int, int], config: AttentionConfig) -> None:
    fusion, rng = variant.fusion(), np.random.default_rng(2)
    q, k, v = (rng.standard_normal((n, D)).astype(tf.bfloat16.numpy) for n in (sizes[0], sizes[1], sizes[1]))
    (wanted,) = variant.wanted(q, k, v)
    tf.schedulers.attention(fusion, config)
    out = poisoned(wanted.shape, fusion.outputs[0].dtype)
    tf.compile(tf.lower(fusion), backend="cuda")(*map(to_torch, (q, k, v)), out=out)
    np.testing.assert_allclose(to_numpy(out).astype(np.float64), wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(("depth", "is_causal"), [(128, False), (128, True), (256, False)])
def test_products_ahead_at_constant_lengths(depth: int, is_causal: bool) -> None:
    """As the planner takes them."""
    fusion, same = (attention(depth, heads=(2, 9), sizes=(1024, 1024), is_causal=is_causal) for _ in range(2))
    args = arrays(fusion, 1024, 1024)
    (wanted,) = fusion.evaluate(*args)
    chosen = next(o.config for o in tf.schedulers.attention(same).alternatives if o.config.is_pipelined)
    tf.schedulers.attention(fusion, chosen)
    out = poisoned(wanted.shape, fusion.outputs[0].dtype)
    tf.compile(tf.lower(fusion), backend="cuda")(*map(to_torch, args), out=out)
    np.testing.assert_allclose(to_numpy(out).astype(np.float64), wanted.astype(np.float64), rtol=2e-2, atol=2e-2)


def test_the_choice_of_compile() -> None:
    fusion = attention(128, heads=("B", 4))
    args = arrays(fusion, 200, 200)
    (wanted,) = fusion.evaluate(*args)
    run = tf.compile(fusion, backend="cuda")
    out = poisoned(wanted.shape, fusion.outputs[0].dtype)
    run(*map(to_torch, args), out=out)
    np.testing.assert_allclose(to_numpy(out).astype(np.float64), wanted.astype(np.float64), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(("heads", "key_heads", "rows", "keys"), [((1, 8), (1, 8), 4, 32768), ((2, 32), (2, 8), 3, 8200), ((1, 32), (1, 32), 1, 9000)])
def test_chunks_of_keys(heads: tuple[int, ...], key_heads: tuple[int, ...], rows: int, keys: int) -> None:
    """Few queries: of chunks side by side, and joined."""
    fusion = attention(128, heads=heads, key_heads=key_heads, sizes=(rows, keys), enable_gqa=True)
    args = arrays(fusion, rows, keys)
    (wanted,) = fusion.evaluate(*args)
    run = tf.compile(fusion, backend="cuda")
    assert len(run.kernels) > 1
    out = poisoned(wanted.shape, fusion.outputs[0].dtype)
    run(*map(to_torch, args), out=out)
    np.testing.assert_allclose(to_numpy(out).astype(np.float64), wanted.astype(np.float64), rtol=2e-2, atol=2e-2)
