"""Products of few tiles and long sums, whose tiles blocks share (examples/gemm_stream_k.py), beside one tile of a block, chunks in two kernels, and cuBLAS.

``python benchmarks/stream_k.py [--write]``. bf16 with float32 sums. A time is that of one of 10 calls in a CUDA graph, the median of 20 replays; all are
replayed in turn. Inputs are random, outputs are poisoned with NaN, then compared with a float32 product; 50 runs must give the same words.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.tiles import SplitK, StreamK

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import gemm_stream_k

SHAPES = ((384, 128, 3584), (512, 128, 4096), (128, 1408, 3456), (1408, 1024, 4096))
BLOCKS = 132
RUNS = 50
Order = SplitK | StreamK


def schedules(m: int, n: int) -> list[tuple[str, Order, tuple[int, int], int]]:
    """Names, orders, tiles and warpgroups."""
    found: list[tuple[str, Order, tuple[int, int], int]] = []
    for tile, warpgroups in (((64, 64), 1), ((128, 64), 2), ((128, 128), 2)):
        tiles = -(-m // tile[0]) * -(-n // tile[1])
        found.append((f"stream-K {tile[0]}x{tile[1]}", tf.tiles.stream_k(BLOCKS), tile, warpgroups))
        if tiles <= BLOCKS // 2:
            found.append((f"split-K {tile[0]}x{tile[1]}", tf.tiles.split_k(BLOCKS // tiles), tile, warpgroups))
    return found


def plain(m: int, n: int, k: int) -> tf.Fusion:
    """The product without a schedule."""
    with tf.Fusion("product") as fusion:
        a, b = tf.define_tensor([m, k], dtype=tf.bfloat16, name="a"), tf.define_tensor([n, k], dtype=tf.bfloat16, name="b")
        fusion.add_output(tf.cast(tf.matmul(a, b.T, dtype=tf.float32), tf.bfloat16))
    return fusion


def measured(m: int, n: int, k: int) -> list[str]:
    """A line for each way to compute one product."""
    generator = torch.Generator("cuda").manual_seed(0)
    a, b = (torch.randn((rows, k), device="cuda", dtype=torch.bfloat16, generator=generator) for rows in (m, n))
    wanted, size = a.float() @ b.float().T, a.float().abs() @ b.float().abs().T
    out = torch.empty((m, n), device="cuda", dtype=torch.bfloat16)

    def checked(name: str, fusion: tf.Fusion) -> Callable[[], object]:
        run: Any = tf.compile(fusion, backend="cuda")
        words: list[torch.Tensor] = []
        for _ in range(RUNS):
            out.fill_(float("nan"))
            run(a, b, out=(out,))
            words.append(out.clone())
        error = (out.float() - wanted).abs()
        if not bool((error <= wanted.abs() * 2**-8 + size * 2**-20).all()):
            sys.exit(f"{m} x {n} x {k}, {name}: off by {float(torch.nan_to_num(error, nan=float('inf')).max())}")
        if not all(torch.equal(w, words[0]) for w in words):
            sys.exit(f"{m} x {n} x {k}, {name}: runs differ")
        return lambda: run(a, b, out=(out,))

    one_tile = plain(m, n, k)
    tf.schedulers.matmul(one_tile)
    calls: dict[str, Callable[[], object]] = {"cuBLAS": lambda: torch.mm(a, b.T, out=out)}
    calls["a tile of a block"] = checked("a tile of a block", one_tile)
    calls["tf.compile"] = checked("tf.compile", plain(m, n, k))
    for name, order, tile, warpgroups in schedules(m, n):
        calls[name] = checked(name, gemm_stream_k.build(m, n, k, order, tile, 6, warpgroups))
    times = in_turn(list(calls.values()))
    best = min(times)
    return [f"{m}x{n}x{k}"] + [f"  {name:22}{us:8.2f} us  {best / us:5.2f}" for name, us in zip(calls, times, strict=True)]


def main() -> None:
    """Measure all shapes."""
    arguments = parser(__doc__).parse_args()
    lines = [line for shape in SHAPES for line in measured(*shape)]
    publish("stream_k", lines, arguments)


if __name__ == "__main__":
    main()
