"""The gradients of attention in one walk over the queries (FlashAttention-3, arXiv:2407.08608), as a schedule by hand for Hopper.

Each block has 128 keys. It walks over the queries in chunks of 64, and keeps the gradients of its keys and values in registers. Scores and the gradients of
their exponentials are computed once: five products, where separate walks for queries and for keys need seven. The gradient of the queries sums over the keys,
which blocks divide among them: ``rfactor`` gives each its part, and ``scatter`` lets the parts join in memory, by additions of the copy engine. So
its rounding differs from run to run (``kernel.is_deterministic``).

::

    load       keys and values of a block, once; for each chunk: queries and gradients of results, by TMA into rings
    consumer   for each chunk, two warpgroups of 64 keys: scores; the part of the last chunk's gradient of queries (``pipeline_stage``), which the tensor cores
               compute before exponentials are needed; gradients of exponentials; those of scores, which leave for Shared memory, too, as the gradient of
               the queries needs those of the other warpgroup; gradients of values and keys
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

import taskfuse as tf
from taskfuse import MemoryType, TensorView, atoms
from taskfuse import ParallelType as P

WIDTH, KEYS, CHUNK, ROWS, STEP = 128, 128, 64, 64, 16
"""Elements of a row, keys of a block, queries of a chunk, rows of a warpgroup's product, terms of an instruction."""


def gradients(heads: int, queries: int, keys: int) -> tuple[tf.Fusion, dict[str, TensorView]]:
    """The math.

    Inputs are gradients g of results, queries q, keys k and values v, ``[heads, rows, 128]`` in bfloat16; and in float32, of each query, ``shift``,
    the logarithm to base 2 of its sum of exponentials, and ``delta``, the sum of its gradients times its results: ``[heads, queries, 1]``.

    Returns the fusion and its tensors by names: dv, dk (bfloat16) and dq (float32, without the factor of the scores).
    """
    scale = WIDTH**-0.5
    with tf.Fusion("attention_backward") as fusion:
        g, q = (tf.define_tensor([heads, queries, WIDTH], tf.bfloat16, name=name) for name in "gq")
        k, v = (tf.define_tensor([heads, keys, WIDTH], tf.bfloat16, name=name) for name in "kv")
        shift, delta = (tf.define_tensor([heads, queries, 1], name=name) for name in ("shift", "delta"))
        scores = tf.matmul(q, k.permute(0, 2, 1), dtype=tf.float32)
        p = tf.exp2(scores * (scale * math.log2(math.e)) - shift)
        ds = tf.cast(p * (tf.matmul(g, v.permute(0, 2, 1), dtype=tf.float32) - delta), tf.bfloat16)
        dv = tf.matmul(tf.cast(p, tf.bfloat16).permute(0, 2, 1), g, dtype=tf.float32)
        dk = tf.matmul(ds.permute(0, 2, 1), q, dtype=tf.float32)
        dq = tf.matmul(ds, k, dtype=tf.float32)
        fusion.add_output(tf.cast(dv, tf.bfloat16), tf.cast(dk * scale, tf.bfloat16), dq)
    return fusion, {"dv": dv, "dk": dk, "dq": dq}


def across(tv: TensorView, blocks: int) -> TensorView:
    """[heads, rows, ...] to [tiles of a block, blocks, rows of a block, ...]."""
    tv.split(1, KEYS)
    return dealt(tv, blocks)


def dealt(tv: TensorView, blocks: int) -> TensorView:
    """[heads, tiles, ...] to [tiles of a block, blocks, ...]: blocks that run together have neighboring tiles of one head."""
    tv.rasterize((0, 1), tf.tiles.raster()).split(0, blocks)
    tv.axis(1).parallelize(P.BIDx)
    return tv


def multiplied(tv: TensorView, at: int, columns: int) -> None:
    """[.., rows, columns, terms] at ``at`` to instructions of 64 rows, the columns and 16 terms."""
    tv.split(-1, STEP).reorder({at + 2: at}).set_atom(atoms.wgmma(ROWS, columns, STEP), (at + 1, at + 2, at + 3))
    tv.axis(at).parallelize(P.Unroll)


def loaded(tv: TensorView, slots: int) -> None:
    """Tiles by TMA, in columns of 128 bytes, in a ring."""
    tv.split(-1, 64).reorder({-2: -3})
    tv.axis(-3).parallelize(P.Unroll)
    tv.set_allocation_domain(tf.layouts.swizzled(128)).set_atom(atoms.TMA_LOAD, (-2, -1))
    if slots > 1:
        tv.circular_buffer(slots)


def build(heads: int = 1, queries: int = 128, keys: int = 128, blocks: int = 1) -> tf.Fusion:
    """The scheduled fusion of :func:`gradients`.

    Args:
        queries, keys: multiples of 64 and of 128.
        blocks: which take the tiles in turn; all are resident at once, one on a multiprocessor.
    """
    fusion, made = gradients(heads, queries, keys)
    dv, dk, dq = made["dv"], made["dk"], made["dq"]

    # one walk: sums over queries, and beside them the gradient of the queries, of which each block has the part of its keys
    scores, scaled, shifted, p, rounded, dp, less, product, ds, part = tf.cascade([dv, dk], CHUNK, beside=[dq])
    part.split(4, KEYS)
    own = part.rfactor((5,))
    zeros, sent = part.scatter()
    zero = zeros.cache_before()

    # copies
    k_tile, q_tile = scores.through_view(1), scores.through_view(0)
    v_tile, g_tile = dp.through_view(1), dp.through_view(0)
    dv.through_view(1, g_tile)
    dk.through_view(1, q_tile)
    own.through_view(1, k_tile)
    turned, staged = ds.cache_after(own, 0), own.cache_after(sent, 1)
    for tv in (k_tile, v_tile, q_tile, g_tile, turned, staged):
        tv.set_memory_type(MemoryType.Shared)
    dv16, dk16, _ = fusion.outputs
    dk_scaled = next(use.output for use in dk.uses)
    results = {dv: [dv16.cache_before()], dk: [dk_scaled, dk16.cache_before()]}
    sums = [dv, dk]
    functions = [scaled, shifted, p, rounded, less, product, ds]

    # the walk: [tiles of a block, blocks, chunk, warpgroup, | keys, queries, terms]
    scores.reorder([0, 3, 1, 2, 4])
    across(scores, blocks)
    scores.reorder({2: 3}).propagate([q_tile, g_tile], 3).propagate([k_tile, v_tile], 2).split(3, ROWS)
    scores.axis(3).parallelize(P.TIDy)
    scores.propagate([dp, *functions, turned, *sums], 5)
    for tv in functions:
        tv.fragment((4, 5))
    tf.parallelize_like(scores, [k_tile, v_tile, q_tile, g_tile, dp, *functions, turned, *sums])
    turned.set_allocation_domain(tf.layouts.swizzled(128)).split(5, STEP).split(4, STEP).reorder({6: 5}).set_atom(atoms.STMATRIX_X4, (6, 7))
    turned.axis(4).parallelize(P.TIDx)
    turned.axis(5).parallelize(P.Unroll)

    # the part of the gradient of queries: a warpgroup has 64 columns, a swizzled piece, of all queries of the chunk
    half = WIDTH // 2
    own.reorder([0, 4, 1, 3, 2, 5])
    sent.reorder([0, 4, 1, 3, 2])
    staged.reorder([0, 4, 1, 3, 2])
    for tv in (own, sent, staged):  # [tiles of a block, blocks, chunk, warpgroup, queries, columns, ..]
        dealt(tv, blocks).split(3, half)
        tv.axis(3).parallelize(P.TIDy)
        tv.reorder({5: 4})
    multiplied(own, 4, half)
    for tv in (sent, staged):  # 32 columns, 128 bytes, at a time
        tv.split(5, 32).reorder({5: 4})
        tv.axis(4).parallelize(P.Unroll)
    sent.set_atom(atoms.TMA_STORE, (5, 6))
    staged.set_allocation_domain(tf.layouts.swizzled(128)).fragment((5, 6))
    staged.axis(-1).parallelize(P.Vectorize)

    # products
    for tv in (scores, dp):
        multiplied(tv, 4, CHUNK)
    for tv in sums:
        multiplied(tv, 4, WIDTH)
    for tv, slots in ((k_tile, 1), (v_tile, 1), (q_tile, 2), (g_tile, 2)):
        loaded(tv, slots)

    # results: [tiles of a block, blocks, warpgroup, | warp, row, pair, half, columns / 8, element]
    for (first, *others), out in zip(results.values(), (dv16, dk16), strict=True):
        across(first, blocks).split(2, ROWS).fragment((3, 4)).reorder({7: 6}).propagate([*others, out], 9)
        first.axis(2).parallelize(P.TIDy)
        tf.parallelize_like(first, [*others, out])
        out.axis(-1).parallelize(P.Vectorize)

    # zeros, which all blocks store before they add
    zeros.merge(0).merge(0).split(0, 4).split(0, 128).split(0, 2).split(0, blocks).propagate([zero], 5)
    for k, ptype in enumerate((P.BIDx, P.TIDy, P.TIDx), 1):
        zeros.axis(k).parallelize(ptype)
    tf.parallelize_like(zeros, [zero])
    zeros.axis(4).parallelize(P.Vectorize)
    zero.inline_at(4)

    # shared loops: of a block's tiles, and of the chunks
    walk = [q_tile, g_tile, scores, dp, *functions, turned, own, staged]
    stored = [tv for made in results.values() for tv in made]
    fusion.inline_at([k_tile, v_tile, *walk, *sums, *stored], 2)
    fusion.inline_at(walk, 3)
    for tv in (product, less, shifted, scaled):
        tv.inline_at(10)
    fusion.inline_at([made[-1] for made in results.values()], 8)
    dk_scaled.inline_at(9)

    # roles, in the order of a trip
    load = fusion.task([k_tile, v_tile, q_tile, g_tile], name="load")
    members = {
        "scores": [scores],
        "exponentials": [scaled, shifted, p, dp],
        "differences": [less, product, ds, rounded, turned],
        "values": [dv],
        "turned": [own],
        "keys": [dk],
        "sent": [staged, sent],
        "results": [*stored, dv16, dk16],
    }
    consumer = fusion.group([fusion.task(tvs, name=name) for name, tvs in members.items()], name="consumer")
    fusion.task([zero, zeros], name="start")
    fusion.group([load, consumer], name="roles").parallelize(P.TIDy)
    load.registers()
    consumer.registers()
    for tv in (own, staged, sent):
        tv.pipeline_stage(1)  # one chunk behind the others
    return fusion


def reference(g: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, shift: np.ndarray, delta: np.ndarray) -> tuple[np.ndarray, ...]:
    """The same in float64, nothing rounded."""
    g, q, k, v, shift, delta = (x.astype(np.float64) for x in (g, q, k, v, shift, delta))
    scale = q.shape[-1] ** -0.5
    p = np.exp2(q @ k.swapaxes(1, 2) * (scale * math.log2(math.e)) - shift)
    ds = p * (g @ v.swapaxes(1, 2) - delta)
    return p.swapaxes(1, 2) @ g, ds.swapaxes(1, 2) @ q * scale, ds @ k


def main() -> None:
    """Print the loop nest, run it on random input, and print the difference from NumPy."""
    kernel = tf.lower(build())
    print(kernel)
    rng = np.random.default_rng(0)
    g, q, k, v = (rng.standard_normal((1, 128, WIDTH)).astype(ml_dtypes.bfloat16) for _ in range(4))
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2) / math.sqrt(WIDTH)
    shift = np.log2(np.exp(scores).sum(-1, keepdims=True)).astype(np.float32)
    results = np.exp2(scores * math.log2(math.e) - shift) @ v.astype(np.float64)
    delta = (g.astype(np.float64) * results).sum(-1, keepdims=True).astype(np.float32)
    given = g, q, k, v, shift, delta
    for name, out, exact in zip(("dv", "dk", "dq"), kernel.simulate(*given), reference(*given), strict=True):
        print(f"{name}: largest difference from NumPy, of its largest element: {np.abs(out.astype(np.float64) - exact).max() / np.abs(exact).max():.1e}")


if __name__ == "__main__":
    main()
