"""The gradients of attention in one walk on the GPU, beside torch's in float64: of more tiles than blocks, and of fewer, and under masks."""

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.schedulers import OneWalkConfig
from tests.gpu.device import poisoned

Mask = Callable[[Any, Any], Any]
MASKS: dict[str, Mask] = {
    "none": lambda i, j: j >= 0,
    "causal": lambda i, j: j <= i,
    "window": lambda i, j: (j <= i) & (i - j < 200),
    "band": lambda i, j: (j <= i + 70) & (i - j < 70),
    "later keys": lambda i, j: j >= i,
}
SIZES = [
    ((1,), 128, 128, 128, 128, OneWalkConfig(2, 1), "none"),
    ((2, 2), 512, 640, 128, 128, OneWalkConfig(2, 13), "none"),
    ((3,), 1024, 384, 64, 64, OneWalkConfig(3, 9, 2, False), "none"),
    ((2,), 192, 256, 64, 128, OneWalkConfig(2, 132), "none"),
    ((2, 2), 1024, 1024, 128, 128, OneWalkConfig(2, 13, claimed=True), "causal"),
    ((3,), 640, 640, 128, 128, OneWalkConfig(2, 7), "causal"),
    ((9,), 768, 768, 64, 128, OneWalkConfig(2, 132), "window"),
    ((3,), 512, 512, 64, 64, OneWalkConfig(3, 5, 2, False), "band"),
    ((2,), 640, 640, 128, 64, OneWalkConfig(2, 7), "later keys"),
]


@pytest.mark.parametrize("fast_math", [False, True])
@pytest.mark.parametrize(("batch", "queries", "keys", "depth", "columns", "config", "mask"), SIZES)
def test_right(batch: tuple[int, ...], queries: int, keys: int, depth: int, columns: int, config: OneWalkConfig, mask: str, fast_math: bool) -> None:
    """The root of the mean square of the error, relative to that of the gradients; several runs, whose additions come in other orders."""
    torch.manual_seed(queries)
    scale = depth**-0.5
    q, k = (torch.randn(*batch, n, depth, device="cuda", dtype=torch.bfloat16) for n in (queries, keys))
    g, v = (torch.randn(*batch, n, columns, device="cuda", dtype=torch.bfloat16) for n in (queries, keys))
    seen = MASKS[mask](torch.arange(queries, device="cuda")[:, None], torch.arange(keys, device="cuda"))
    scores = (q.double() @ k.double().mT * scale).masked_fill(~seen, -math.inf)
    shift = torch.logsumexp(scores, -1)
    p = torch.exp(scores - shift[..., None])
    delta = (g.double() * (p @ v.double())).sum(-1)
    ds = p * (g.double() @ v.double().mT - delta[..., None])
    exact = p.mT @ g.double(), ds.mT @ q.double() * scale, ds @ k.double()
    with tf.Fusion("gradients") as fusion:
        tg, tq, tk, tv = (tf.define_tensor(list(x.shape), dtype=tf.bfloat16) for x in (g, q, k, v))
        rows = [tf.expand_dims(tf.define_tensor([*batch, queries]), len(batch) + 1) for _ in range(2)]
        products = tf.matmul(tq, tk.mT, dtype=tf.float32)
        if mask != "none":
            products = tf.where(MASKS[mask](tf.expand_dims(tf.arange(queries), 1), tf.arange(keys)), products, -math.inf)
        e = tf.exp2(products * (scale * math.log2(math.e)) - rows[0])
        d = tf.cast(e * (tf.matmul(tg, tv.mT, dtype=tf.float32) - rows[1]), tf.bfloat16)
        made = tf.matmul(tf.cast(e, tf.bfloat16).mT, tg, dtype=tf.float32), tf.matmul(d.mT, tq, dtype=tf.float32) * scale
        fusion.add_output(*(tf.cast(x, tf.bfloat16) for x in made), tf.matmul(d, tk, dtype=tf.float32))
    tf.schedulers.one_walk(fusion, config)
    run = tf.compile(fusion, backend="cuda", fast_math=fast_math)
    given = g, q, k, v, (shift * math.log2(math.e)).float().contiguous(), delta.float().contiguous()
    for _ in range(3):
        found = tuple(poisoned(tuple(x.shape), tv.dtype) for x, tv in zip(exact, fusion.outputs, strict=True))
        run(*given, out=found)
        for x, right in zip(found, exact, strict=True):
            assert float((x.double() - right).square().mean().sqrt()) < 6e-3 * float(right.square().mean().sqrt())
