"""Attention of sequences of unequal length on the GPU beside float64; tables that break promises write inside their tensor, and end."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.schedulers import AttentionConfig
from tests.gpu.device import poisoned, to_numpy, to_torch
from tests.ops.attended import attended, cuts, paged, random
from tests.schedulers.raggeds import paged_attention, varlen_attention

BF16 = tf.bfloat16.numpy
CONFIGS = {
    "a block for each tile": AttentionConfig(2, 128, 2),
    "claimed": AttentionConfig(2, 128, 2, blocks=132),
    "two blocks for each tile": AttentionConfig(1, 64, 3),
}


def lengths(count: int, total: int, seed: int) -> list[int]:
    """Random lengths with a sum; some are 0."""
    inner = np.sort(np.random.default_rng(seed).integers(0, total + 1, count - 1))
    return np.diff([0, *inner, total]).tolist()


def close(out: Any, wanted: NDArray[np.float64]) -> None:
    np.testing.assert_allclose(to_numpy(out).astype(np.float64), wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("depth", [64, 128])
def test_sequences(name: str, is_causal: bool, depth: int) -> None:
    queries, keys, count = 1500, 1733, 9
    fusion = varlen_attention(queries, keys, count, heads=4, key_heads=2, depth=depth, is_causal=is_causal)
    tf.schedulers.attention(fusion, CONFIGS[name])
    run = tf.compile(tf.lower(fusion), backend="cuda")
    q, k, v = (random((n, heads, depth), BF16) for n, heads in ((queries, 4), (keys, 2), (keys, 2)))
    for seed in range(5):
        tables = cuts(lengths(count, queries, seed)), cuts(lengths(count, keys, 100 + seed))
        out = poisoned((queries, 4, depth), tf.bfloat16)
        run(*map(to_torch, (q, k, v, *tables)), out=out)
        close(out, attended(q, k, v, *tables, is_causal))


def test_any_number_of_rows() -> None:
    run = tf.compile(varlen_attention(tf.dim("M", min=128), tf.dim("N", min=1), 5, heads=2, key_heads=2, depth=64, is_causal=True), backend="cuda")
    for m, n in ((128, 1), (700, 700), (1031, 2111)):
        q, k, v = (random((rows, 2, 64), BF16) for rows in (m, n, n))
        tables = cuts(lengths(5, m, m)), cuts(lengths(5, n, n))
        out = poisoned((m, 2, 64), tf.bfloat16)
        run(*map(to_torch, (q, k, v, *tables)), out=out)
        close(out, attended(q, k, v, *tables, True))


@pytest.mark.parametrize("name", CONFIGS)
def test_tables_that_do_not_rise(name: str) -> None:
    rows, depth = 700, 64
    fusion = varlen_attention(rows, rows, 4, depth=depth, is_causal=True)
    tf.schedulers.attention(fusion, CONFIGS[name])
    run = tf.compile(tf.lower(fusion), backend="cuda")
    q, k, v = (to_torch(random((rows, heads, depth), BF16)) for heads in (2, 1, 1))
    around = torch.full((rows + 512, 2, depth), 7.0, device="cuda", dtype=torch.bfloat16)
    hostile = [[700, 600, 3, 2, 0], [-5, 2**31 - 1, -(2**31), 350, 9], [0, 0, 0, 0, 0], [700] * 5]
    for of_q in hostile:
        for of_k in hostile:
            tables = (torch.tensor(values, dtype=torch.int32, device="cuda") for values in (of_q, of_k))
            run(q, k, v, *tables, out=(around[256 : 256 + rows],))
            torch.cuda.synchronize()
            assert bool((around[:256] == 7).all() and (around[256 + rows :] == 7).all()), (of_q, of_k)


@pytest.mark.parametrize("size", [8, 16, 64, 256])
@pytest.mark.parametrize(("heads", "key_heads", "queries"), [(8, 2, 1), (8, 2, 4), (4, 4, 16), (2, 2, 100)])
def test_pages(size: int, heads: int, key_heads: int, queries: int) -> None:
    batch, pages, depth = 4, 300, 128
    each = 4096 // size
    run = tf.compile(paged_attention(batch, heads, key_heads, queries, depth, pages, size, each, is_causal=True), backend="cuda")
    q, k, v = random((batch, heads, queries, depth), BF16), *(random((pages, size, key_heads, depth), BF16) for _ in range(2))
    for seed, counts in enumerate(([4096, 0, 1, 1777], [-5, 2**31 - 1, 100, 4095])):
        table = np.random.default_rng(seed).integers(-3, pages + 3, batch * each).astype(np.int32)
        out = poisoned((batch, heads, queries, depth), tf.bfloat16)
        run(*map(to_torch, (q, k, v, table, np.array(counts, np.int32))), out=out)
        close(out, paged(q, k, v, table, np.clip(counts, 0, 4096), True))


def test_few_queries_over_many_pages() -> None:
    """Chunks of keys side by side, and joined."""
    batch, heads, size, each = 2, 2, 16, 2048
    run = tf.compile(paged_attention(batch, 4 * heads, heads, 1, 128, batch * each, size, each), backend="cuda")
    assert len(run.kernels) == 2
    q, k, v = random((batch, 4 * heads, 1, 128), BF16), *(random((batch * each, size, heads, 128), BF16) for _ in range(2))
    table = np.random.default_rng(0).permutation(batch * each).astype(np.int32)
    for counts in ([32768, 32768], [1, 20000], [0, 129]):
        out = poisoned(q.shape, tf.bfloat16)
        run(*map(to_torch, (q, k, v, table, np.array(counts, np.int32))), out=out)
        close(out, paged(q, k, v, table, np.array(counts), False))
