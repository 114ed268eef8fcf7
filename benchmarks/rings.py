"""Products with rings of few slots beside what the cost model expects: one product, and two with one factor in common whose gated product is the result.

``python benchmarks/rings.py [--write]``. 4096 x 2816 x 1024 in bfloat16; ``stored``: both products are results, too. Random inputs, results compared with torch
after the outputs were poisoned; medians of 20 replays of CUDA graphs, all kernels of a form in turn.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.schedulers import MatmulConfig, MatmulKind

M, N, K = 4096, 2816, 1024
SHARED = MatmulConfig(group=16, blocks=132)
TURNS = replace(SHARED, tile_m=64, tile_n=128, kind=MatmulKind.PINGPONG)
FORMS = {
    "one product": [replace(SHARED, tile_n=n, stages=s) for n in (256, 192, 128) for s in (2, 3, 4)]
    + [replace(TURNS, tile_n=256, stages=s) for s in (2, 3, 4)],
    "gated": [replace(SHARED, tile_n=n, stages=s) for n in (128, 96, 64) for s in (2, 3, 4)],
    "gated, stored": [replace(SHARED, tile_n=n, stages=s) for n, s in ((128, 2), (96, 3), (64, 2), (64, 4))]
    + [replace(TURNS, tile_m=m, tile_n=n, stages=s) for m, n, s in ((64, 128, 2), (64, 128, 3), (128, 64, 3), (128, 64, 4))],
}


def fusion_of(form: str) -> tf.Fusion:
    """A form's fusion."""
    with tf.Fusion("rings") as made:
        x = tf.define_tensor([M, K], tf.bfloat16, name="x")
        h = tf.matmul(x, tf.define_tensor([K, N], tf.bfloat16, name="a"))
        if form == "one product":
            made.add_output(h)
            return made
        g = tf.matmul(x, tf.define_tensor([K, N], tf.bfloat16, name="b"))
        if form == "gated, stored":
            made.add_output(h, g)
        made.add_output(tf.silu(h) * g)
    return made


def right(form: str, out: torch.Tensor, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the last result is that of torch in float32, up to the rounding of two products."""
    wanted = x.float() @ a.float()
    if form != "one product":
        wanted = torch.nn.functional.silu(wanted) * (x.float() @ b.float())
    return bool(((out.float() - wanted).abs() <= 2**-6 * wanted.abs() + 2**-6 * wanted.abs().mean()).all())


def main() -> None:
    """Measure, print and, if asked, store."""
    options = parser(__doc__).parse_args()
    x, *weights = (torch.randn(M, K, device="cuda").bfloat16(), *(torch.randn(K, N, device="cuda").bfloat16() / 32 for _ in range(2)))
    ratios: list[float] = []
    lines = [f"{M} x {N} x {K}: us, expected, expected / us"]
    for form, configs in FORMS.items():
        calls: list[Callable[[], object]] = []
        words: list[tuple[str, float]] = []
        for config in configs:
            fusion = fusion_of(form)
            try:
                expected = tf.schedulers.matmul(fusion, config).us
                run = tf.compile(fusion, backend="cuda")
                args = (x, weights[0]) if form == "one product" else (x, *weights)
                out = tuple(torch.full((M, N), torch.nan, device="cuda", dtype=torch.bfloat16) for _ in fusion.outputs)
                run(*args, out=out)
            except TaskfuseError as error:
                lines.append(f"  {form}, {config.words}: {str(error).splitlines()[0]}")
                continue
            if not right(form, out[-1], x, *weights):
                sys.exit(f"{form}, {config.words}: wrong")
            calls.append(partial(run, *args, out=out))
            words.append((config.words, expected))
        for us, (name, expected) in zip(in_turn(calls), words, strict=True):
            ratios.append(expected / us)
            lines.append(f"  {us:8.2f} {expected:8.1f} {expected / us:5.2f}  {form}: {name}")
    lines.append(f"expected / us: {min(ratios):.2f} to {max(ratios):.2f}, geometric mean {statistics.geometric_mean(ratios):.2f}")
    publish("rings", lines, options)


if __name__ == "__main__":
    main()
