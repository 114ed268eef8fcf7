"""Products of functions of products on the GPU beside the reference, and the gradients of attention beside torch's in float64."""

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from tests.gpu.device import poisoned, to_numpy, to_torch
from tests.schedulers.back_to_backs import CASES, arrays


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sizes", [None, (333, 517), (64, 1), (1, 300)])
def test_right(name: str, sizes: tuple[int, int] | None) -> None:
    make, config, own = CASES[name]
    fusion = make()
    args = arrays(fusion, *(sizes or own))
    wanted = fusion.evaluate(*args)
    tf.schedulers.back_to_back(fusion, config)
    outs = [poisoned(w.shape, tv.dtype) for w, tv in zip(wanted, fusion.outputs, strict=True)]
    tf.compile(tf.lower(fusion), backend="cuda")(*map(to_torch, args), out=outs[0] if len(outs) == 1 else tuple(outs))
    for w, out in zip(wanted, outs, strict=True):
        np.testing.assert_allclose(to_numpy(out).astype(np.float64), w.astype(np.float64), rtol=2e-2, atol=2e-2 * max(1.0, float(np.abs(w).max())))


LENGTHS = [
    (2, 4, 4, 512, 512, 128, False),
    (2, 4, 4, 512, 512, 128, True),
    (1, 4, 2, 384, 640, 64, False),
    (1, 2, 2, 640, 384, 64, True),
    (1, 2, 2, 333, 517, 64, True),
    (1, 8, 1, 200, 200, 96, True),
    (2, 2, 2, 1, 300, 64, False),
    (1, 2, 2, 4, 9, 32, True),
]


@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning")  # of torch's reference, whose thread for gradients has no context yet
@pytest.mark.parametrize(("batch", "heads", "key_heads", "queries", "keys", "depth", "is_causal"), LENGTHS)
def test_gradients_of_attention(batch: int, heads: int, key_heads: int, queries: int, keys: int, depth: int, is_causal: bool) -> None:
    """What ``tf.compile`` makes of them, with the root of the mean square of the error relative to that of the gradients; twice the same words."""
    torch.manual_seed(queries)
    shapes = [(batch, heads, queries, depth), *[(batch, key_heads, keys, depth)] * 2]
    q, k, v = (torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in shapes)
    g = torch.randn_like(q)
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    scores = exact[0] @ exact[1].repeat_interleave(heads // key_heads, 1).mT * depth**-0.5
    if is_causal:
        scores = scores.masked_fill(~torch.ones(queries, keys, dtype=torch.bool, device="cuda").tril(), -math.inf)
    out = torch.softmax(scores, -1) @ exact[2].repeat_interleave(heads // key_heads, 1)
    wanted = torch.autograd.grad(out, exact, g.double())
    with tf.Fusion("gradients") as fusion:
        a, b, c, d, e = (tf.define_tensor(list(x.shape), dtype=tf.bfloat16) for x in (g, q, k, v, g))
        sums = tf.define_tensor([batch, heads, queries])
        for tv in tf.scaled_dot_product_attention_backward(a, b, c, d, e, sums, is_causal=is_causal, enable_gqa=heads > key_heads):
            fusion.add_output(tv)
    run = tf.compile(fusion, backend="cuda")
    assert run.is_deterministic
    args = (g, q, k, v, out.detach().to(torch.bfloat16).contiguous(), torch.logsumexp(scores.detach(), -1).float().contiguous())
    results: list[tuple[Any, ...]] = []
    for _ in range(2):
        found = tuple(poisoned(tuple(x.shape), tf.bfloat16) for x in (q, k, v))
        run(*args, out=found)
        results.append(found)
    for x, again, right in zip(*results, wanted, strict=True):
        assert torch.equal(x, again)
        assert (x.double() - right).norm() <= 1e-2 * right.norm() + 1e-6
