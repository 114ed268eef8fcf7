"""Blocks that claim tiles when they come to them (``tf.tiles.dynamic``) beside tiles dealt round-robin, bf16 with float32 sums.

``python benchmarks/dynamic.py [--write]``. Lists of products in one kernel (``tf.schedulers.products``) in the given order and longest first: the four problems
of CUTLASS's page on grouped kernel schedulers on 108 blocks, a causal product by its rows of tiles, random lists; and one product of equal tiles
(examples/gemm.py), which shows what claiming costs. A time is that of one of 10 calls in a CUDA graph, the median of 20 replays; both are replayed in turn.
Inputs are random, outputs are poisoned with NaN, then compared with a float32 product.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.errors import RegisterError
from taskfuse.testing.lists import Shape, draw_shapes, list_of

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import gemm

TEXT: tuple[Shape, ...] = ((1152, 768, 128), (1152, 768, 1024), (768, 1152, 128), (768, 1152, 1024))
CAUSAL: tuple[Shape, ...] = tuple((512, 2048, 512 * (row + 1)) for row in range(8))
"""``tril(a) @ b`` of 4096 x 2048 x 4096 by rows of tiles: each multiplies as far as its diagonal."""
EQUAL = ((4096, 4096, 4096), (8192, 8192, 512), (2048, 2048, 8192))
LISTS = (("text", TEXT, 108), ("causal", CAUSAL, 132))
RANDOM = 4


def operands(m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random factors."""
    return torch.randn((m, k), device="cuda", dtype=torch.bfloat16), torch.randn((n, k), device="cuda", dtype=torch.bfloat16)


def check(what: str, out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, wanted: torch.Tensor) -> None:
    """Exits if an element is wrong."""
    error, size = (out.float() - wanted).abs(), a.float().abs() @ b.float().abs().T
    if not bool((error <= wanted.abs() * 2**-8 + size * 2**-20).all()):
        sys.exit(f"{what}: off by {float(torch.nan_to_num(error, nan=float('inf')).max())}")


def listed(name: str, shapes: Sequence[Shape], blocks: int) -> str:
    """One list: in both orders, dealt and claimed."""
    factors = [operands(*shape) for shape in shapes]
    outs = tuple(torch.empty((m, n), device="cuda", dtype=torch.bfloat16) for m, n, _ in shapes)
    args = [x for pair in factors for x in pair]

    best = tf.schedulers.products(list_of(shapes)).config
    chosen = replace(best, blocks=blocks, stages=best.stages - 1)  # room for what blocks claim

    def made(is_sorted: bool, is_dynamic: bool) -> Callable[[], object] | None:
        fusion = list_of(shapes)
        tf.schedulers.products(fusion, replace(chosen, is_sorted=is_sorted, is_dynamic=is_dynamic))
        run: Any = tf.compile(fusion, backend="cuda")
        for out in outs:
            out.fill_(float("nan"))
        try:
            run(*args, out=outs)
        except RegisterError as error:  # with some versions of NVRTC
            print(f"{name}, sorted {is_sorted}, dynamic {is_dynamic}, {chosen}: {error.message}", file=sys.stderr)
            return None
        for shape, out, (a, b) in zip(shapes, outs, factors, strict=True):
            check(f"{name}, {shape}", out, a, b, a.float() @ b.float().T)
        return lambda: run(*args, out=outs)

    calls = [made(is_sorted, is_dynamic) for is_sorted in (False, True) for is_dynamic in (False, True)]
    found = iter(in_turn([call for call in calls if call is not None]))
    dealt, claimed, sorted_dealt, sorted_claimed = (float("nan") if call is None else next(found) for call in calls)
    return f"{name:24}{dealt:9.2f}{claimed:9.2f} {dealt / claimed:6.2f}{sorted_dealt:12.2f}{sorted_claimed:9.2f} {sorted_dealt / sorted_claimed:6.2f}"


def equal(m: int, n: int, k: int) -> str:
    """One product of equal tiles."""
    a, b = operands(m, n, k)
    bias = torch.zeros(n, device="cuda")
    out = torch.empty((m, n), device="cuda", dtype=torch.bfloat16)
    calls: list[Callable[[], object]] = []
    for dynamic in (False, True):
        run: Any = tf.compile(gemm.build(stages=4, blocks=132, group=16, dynamic=dynamic), backend="cuda")
        out.fill_(float("nan"))
        run(a, b, bias, out=(out,))
        check(f"{m} x {n} x {k}", out, a, b, (a.float() @ b.float().T).relu())
        calls.append(lambda run=run: run(a, b, bias, out=(out,)))
    dealt, claimed = in_turn(calls)
    return f"{f'{m}x{n}x{k}':24}{dealt:9.2f}{claimed:9.2f} {dealt / claimed:6.2f}"


def main() -> None:
    """Measure all."""
    arguments = parser(__doc__).parse_args()
    torch.manual_seed(0)
    lines = [f"{'us':24}{'dealt':>9}{'claimed':>9}{'ratio':>7}{'sorted':>12}{'claimed':>9}{'ratio':>7}"]
    draws = [(f"random {seed}", draw_shapes(random.Random(seed)), 132) for seed in range(RANDOM)]
    for which in (*LISTS, *draws):
        lines.append(listed(*which))
        print(lines[-1], flush=True)
    for shape in EQUAL:
        lines.append(equal(*shape))
        print(lines[-1], flush=True)
    publish("dynamic", lines, arguments)


if __name__ == "__main__":
    main()
