"""Several unlike matrix products in one launch: ``tf.schedulers.products`` beside one cuBLAS call for each, bf16 with float32 sums.

``python benchmarks/grouped.py [PART ...] [--write] [--seed N] [--count N]``. Parts: ``text`` (the four problems of CUTLASS's page on grouped kernel
schedulers, on 108 blocks in the given order and sorted by k, and as the cost model chooses), ``depth`` (four such problems with one k, from 64 to 4096),
``random`` (2 to 12 products with unequal extents, from a seed), ``triangle`` (the lower triangle of a symmetric result as a list of its rows of tiles, as in
examples/syr2k.py, beside the whole result by cuBLAS and by ours). A time is that of one of 10 calls in a CUDA graph, the median of 20 replays; ours and theirs
are replayed in turn, so that throttling hits both. Inputs are random, outputs are poisoned with NaN, then compared with a float32 product.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.schedulers import ProductsConfig
from taskfuse.testing.lists import Shape, draw_shapes, list_of

TEXT: tuple[Shape, ...] = ((1152, 768, 128), (1152, 768, 1024), (768, 1152, 128), (768, 1152, 1024))
BLOCKS = 108
"""Of the text's GPU: one on each multiprocessor."""
DEPTHS = (64, 128, 256, 512, 1024, 2048, 4096)
PARTS = ("text", "depth", "random", "triangle")
TRIANGLES = ((1024, 1024), (2048, 2048))
"""Extent of the result, terms of each sum."""


class Products:
    """Some products, with arguments and what they should be."""

    def __init__(self, shapes: Sequence[Shape], seed: int = 0) -> None:
        self.shapes = shapes
        generator = torch.Generator("cuda").manual_seed(seed)

        def make(rows: int, columns: int) -> torch.Tensor:
            return torch.randn((rows, columns), device="cuda", dtype=torch.bfloat16, generator=generator)

        self.factors = [(make(m, k), make(n, k)) for m, n, k in shapes]
        self.outs = tuple(torch.empty((m, n), device="cuda", dtype=torch.bfloat16) for m, n, _ in shapes)

    def kernel(self, config: ProductsConfig | None) -> tuple[Callable[[], object], tf.schedulers.Chosen[ProductsConfig]]:
        """A call of our kernel, whose results are checked."""
        fusion = list_of(self.shapes)
        chosen = tf.schedulers.products(fusion, config)
        run: Any = tf.compile(fusion, backend="cuda")
        args = [x for pair in self.factors for x in pair]

        def call() -> object:
            return run(*args, out=self.outs)

        for out in self.outs:
            out.fill_(float("nan"))
        call()
        self.check(chosen.config)
        return call, chosen

    def check(self, config: object) -> None:
        """Exits if an element is wrong."""
        for shape, out, (a, b) in zip(self.shapes, self.outs, self.factors, strict=True):
            wanted, size = a.float() @ b.float().T, a.float().abs() @ b.float().abs().T
            error = (out.float() - wanted).abs()
            if not bool((error <= wanted.abs() * 2**-8 + size * 2**-20).all()):
                sys.exit(f"{shape} of {self.shapes} with {config}: off by {float(torch.nan_to_num(error, nan=float('inf')).max())}")

    def cublas(self) -> object:
        """One call for each product."""
        for out, (a, b) in zip(self.outs, self.factors, strict=True):
            torch.mm(a, b.T, out=out)
        return self.outs


def text() -> list[str]:
    """The text's problems: given order and sorted on its number of blocks, and what the model chooses."""
    products = Products(TEXT)
    configs = [ProductsConfig(128, 128, stages=6, blocks=BLOCKS, is_sorted=s) for s in (False, True)]
    made = [products.kernel(c) for c in (*configs, None)]
    ours = [call for call, _ in made]
    given, by_k, free, theirs = in_turn([*ours, products.cublas])
    products.check("cuBLAS")
    return [
        f"the four problems {', '.join('x'.join(map(str, s)) for s in TEXT)}, microseconds",
        f"  {BLOCKS} blocks, given order  {given:7.2f}   expected {made[0][1].us:.1f}",
        f"  {BLOCKS} blocks, sorted by k  {by_k:7.2f}   expected {made[1][1].us:.1f}   {given / by_k:.2f} of the given order",
        f"  chosen                  {free:7.2f}   expected {made[2][1].us:.1f}   {made[2][1].config.words}",
        f"  four calls of cuBLAS    {theirs:7.2f}   {theirs / by_k:.2f} of sorted, {theirs / free:.2f} of chosen",
    ]


def depth() -> list[str]:
    """Four problems with one k: from many launches and little to multiply to the opposite."""
    lines = ["k of the four problems   ours  cuBLAS  ratio"]
    for k in DEPTHS:
        products = Products([(m, n, k) for m, n, _ in TEXT])
        call, _ = products.kernel(None)
        ours, theirs = in_turn([call, products.cublas])
        lines.append(f"{k:22}  {ours:6.2f}  {theirs:6.2f}  {theirs / ours:5.2f}")
    return lines


def drawn(count: int, seed: int) -> list[tuple[Shape, ...]]:
    """Shapes of random lists of products."""
    rng = random.Random(seed)
    return [tuple(draw_shapes(rng)) for _ in range(count)]


def draws(count: int, seed: int) -> list[str]:
    """Random lists of products."""
    lines, ratios = ["random lists   products  gflop   ours  expected  cuBLAS  ratio"], list[float]()
    for case, shapes in enumerate(drawn(count, seed)):
        products = Products(shapes, seed + case)
        call, chosen = products.kernel(None)
        ours, theirs = in_turn([call, products.cublas])
        ratios.append(theirs / ours)
        work = sum(2e-9 * m * n * k for m, n, k in shapes)
        lines.append(f"{case:12}  {len(shapes):9}  {work:5.1f}  {ours:6.2f}  {chosen.us:8.1f}  {theirs:6.2f}  {ratios[-1]:5.2f}")
    return [*lines, f"geometric mean {statistics.geometric_mean(ratios):.2f}"]


def triangle() -> list[str]:
    """Rows of tiles of a triangle; the whole result has almost twice as many tiles."""
    lines = ["triangle     k   tiles   ours  whole, ours  whole, cuBLAS  ratio"]
    return [*lines, *(_triangle(n, k) for n, k in TRIANGLES)]


def _triangle(n: int, k: int) -> str:
    call, _ = Products([(128, first + 128, k) for first in range(0, n, 128)]).kernel(ProductsConfig(128, 128, stages=6, is_sorted=False))
    a, b = (torch.randn((n, k), device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty((n, n), device="cuda", dtype=torch.bfloat16)
    fusion = list_of([(n, n, k)])
    tf.schedulers.matmul(fusion)
    run: Any = tf.compile(fusion, backend="cuda")
    ours, whole, theirs = in_turn([call, lambda: run(a, b, out=out), lambda: torch.mm(a, b.T, out=out)])
    tiles = sum(range(1, n // 128 + 1))
    return f"{n:8} {k:5}  {tiles:6} {ours:6.2f}  {whole:11.2f}  {theirs:13.2f}  {theirs / ours:5.2f}"


def main() -> None:
    """Run the parts."""
    arguments = parser(__doc__)
    arguments.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to measure (default: all)")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--count", type=int, default=10, help="random lists")
    options = arguments.parse_args()
    parts = options.parts or PARTS
    lines: list[str] = []
    for name, measure in (("text", text), ("depth", depth), ("random", lambda: draws(options.count, options.seed)), ("triangle", triangle)):
        if name in parts:
            lines += [*([""] if lines else []), *measure()]
    publish("grouped", lines, options)


if __name__ == "__main__":
    main()
