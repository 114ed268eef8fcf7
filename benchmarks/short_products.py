"""Batches of small matrix products with short sums, in bfloat16: one block of a multiprocessor or several, beside torch.

``python benchmarks/short_products.py [--write]``. Heads of attention of 197 tokens, interactions of features, odd widths. Inputs are random, results compared
with torch in float64 after the arrays were poisoned; medians by CUDA events, all runners of a case in one process. ``chosen`` is what ``tf.compile`` takes,
``one`` the fastest parameters with ``residents=1`` by the cost model.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from reporting import gpu_median, parser, publish

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.schedulers import MatmulConfig

CASES = (
    ("interactions of 27 features", (2048, 27, 64), (2048, 64, 27), True),
    ("interactions of 26 features", (2048, 26, 64), (2048, 64, 26), True),
    ("gradients of interactions", (2048, 27, 27), (2048, 27, 128), False),
    ("scores of 197 tokens", (96, 197, 64), (96, 64, 197), True),
    ("values of 197 tokens", (96, 197, 197), (96, 197, 64), False),
    ("keys' gradients", (96, 64, 197), (96, 197, 197), False),
    ("scores of 49 tokens", (2048, 49, 32), (2048, 32, 49), True),
    ("values of 512 tokens", (96, 512, 512), (96, 512, 64), False),
    ("odd widths", (1, 4096, 1023), (1, 1023, 777), False),
)


def fusion(a: tuple[int, ...], b: tuple[int, ...], is_turned: bool) -> tf.Fusion:
    """The product; ``is_turned``: the second factor has k last."""
    with tf.Fusion("short") as made:
        x = tf.define_tensor(list(a), dtype=tf.bfloat16)
        y = tf.define_tensor([b[0], b[2], b[1]] if is_turned else list(b), dtype=tf.bfloat16)
        made.add_output(x @ (y.mT if is_turned else y))
    return made


def one_block(made: tf.Fusion) -> MatmulConfig | None:
    """The product with one block of a multiprocessor; ``None`` if it has no such schedule."""
    try:
        best = tf.schedulers.matmul(made)
    except TaskfuseError:
        return None
    return next((o.config for o in best.alternatives if o.config.residents == 1), None)


def main() -> None:
    """Measure, print and, if asked, store."""
    options = parser(__doc__).parse_args()
    lines = [f"  {'product':30} {'chosen':>8} {'expected':>9} {'one':>8} {'expected':>9} {'torch':>8} {'x':>6}  parameters"]
    for name, a, b, is_turned in CASES:
        x, y = (torch.rand(s, device="cuda").sub(0.5).bfloat16() for s in (a, (b[0], b[2], b[1]) if is_turned else b))
        second = y.mT if is_turned else y
        exact = (x.double() @ second.double()).float()
        runs: list[tuple[Any, float]] = []
        run = tf.compile(fusion(a, b, is_turned), cache=False)
        runs.append((run, float(getattr(run.schedule, "us", 0.0))))
        config = one_block(fusion(a, b, is_turned))
        if config is not None:
            scheduled = fusion(a, b, is_turned)
            chosen = tf.schedulers.matmul(scheduled, config)
            runs.append((tf.compile(scheduled), chosen.us))
        wrong = ""
        times: list[float] = []
        for one, _ in runs:
            out = torch.full((a[0], a[1], b[2]), float("nan"), device="cuda", dtype=torch.bfloat16)
            one(x, y, out=(out,))
            wrong = wrong if bool(((out.float() - exact).abs() <= 1e-2 * exact.abs().max()).all()) else "  WRONG"
            times.append(gpu_median([partial(one, x, y, out=(out,))]))
        by_torch = gpu_median([partial(torch.matmul, x, second)])
        alone = f"{times[1]:8.1f} {runs[1][1]:9.1f}" if len(runs) > 1 else f"{'-':>8} {'-':>9}"
        words = getattr(getattr(run.schedule, "config", None), "words", "several kernels")
        lines.append(f"  {name:30} {times[0]:8.1f} {runs[0][1]:9.1f} {alone} {by_torch:8.1f} {by_torch / times[0]:6.2f}  {words}{wrong}")
    publish("short_products", lines, options)


if __name__ == "__main__":
    main()
