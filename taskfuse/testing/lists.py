"""Random lists of different products for :func:`taskfuse.schedulers.products`, and a command that proves their kernels; no GPU.

``python -m taskfuse.testing.lists --seeds 0 100`` prints each list that has an unproved kernel.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence

from taskfuse import schedulers
from taskfuse.dtypes import bfloat16, float32
from taskfuse.ir.fusion import Fusion
from taskfuse.kir import Kernel
from taskfuse.lowering import lower
from taskfuse.ops import cast, define_tensor, matmul
from taskfuse.schedulers import ProductsConfig

Shape = tuple[int, int, int]
MOST = 12
"""Products of a list."""


def draw_shapes(rng: random.Random, most: int = MOST) -> list[Shape]:
    """Rows, columns and depth of 2 or more products, up to 2048 each; columns and depth suit bulk copies."""
    return [(rng.randint(1, 2048), 8 * rng.randint(1, 256), 8 * rng.randint(1, 256)) for _ in range(rng.randint(2, most))]


def list_of(shapes: Sequence[Shape]) -> Fusion:
    """The products ``a @ b.T`` in bfloat16 with float32 sums, unscheduled."""
    with Fusion("products") as fusion:
        for g, (m, n, k) in enumerate(shapes):
            a, b = (define_tensor([rows, k], dtype=bfloat16, name=f"{name}{g}") for rows, name in ((m, "a"), (n, "b")))
            fusion.add_output(cast(matmul(a, b.T, dtype=float32), bfloat16))
    return fusion


def list_kernel(shapes: Sequence[Shape], config: ProductsConfig | None = None) -> Kernel:
    """The kernel of a list."""
    fusion = list_of(shapes)
    schedulers.products(fusion, config)
    return lower(fusion)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove the lists of consecutive seeds. Returns the exit status: 1 if a kernel is not proved."""
    parser = argparse.ArgumentParser(prog="python -m taskfuse.testing.lists", description="Prove kernels of random lists of products.")
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 100), metavar=("FROM", "TO"), help="the first, and the end (default: 0 100)")
    options = parser.parse_args(arguments)
    failures = 0
    for seed in range(*options.seeds):
        shapes = draw_shapes(random.Random(seed))
        certificate = list_kernel(shapes).verify()
        if not certificate.is_proved:
            failures += 1
            print(f"FAILED python -m taskfuse.testing.lists --seeds {seed} {seed + 1}\n{shapes}\n{certificate}", flush=True)
    print(f"{options.seeds[1] - options.seeds[0]} lists, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
