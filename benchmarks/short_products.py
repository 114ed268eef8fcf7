"""Batches of small matrix products with short sums, in bfloat16: one block of a multiprocessor or several, beside torch.

``python benchmarks/short_products.py [--write]``. Heads of attention of 197 tokens, interactions of features, odd widths. Inputs are random, results compared
with torch in float64 after the arrays were poisoned; medians by CUDA events, all runners of a case in one process. ``chosen`` is what ``tf.compile`` takes,
``one`` the fastest parameters of ``matmul`` with ``residents=1`` by the cost model, ``warps`` what ``mma_gemm`` chooses, ``cores`` what ``simt_gemm`` does.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from reporting import gpu_median, parser, publish

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.schedulers import Chosen, MatmulConfig

CASES = (
    ("interactions of 27 features", (2048, 27, 64), (2048, 64, 27), True),
    ("interactions of 26 features", (2048, 26, 64), (2048, 64, 26), True),
    ("gradients of interactions", (2048, 27, 27), (2048, 27, 128), False),
    ("gradients by columns", (2048, 128, 27), (2048, 27, 27), False),
    ("heads of 63 patches", (896, 63, 256), (896, 256, 32), True),
    ("16 chunks of 64 tokens", (16, 64, 128), (16, 128, 64), False),
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


def one_block(scheduled: tf.Fusion) -> Chosen[MatmulConfig]:
    """Schedule the product with one block of a multiprocessor. Raises :class:`TaskfuseError` if it has no such schedule."""
    best = tf.schedulers.matmul(tf.copy_fusion(scheduled)[0])
    return tf.schedulers.matmul(scheduled, next(o.config for o in best.alternatives if o.config.residents == 1))


def runs_of(a: tuple[int, ...], b: tuple[int, ...], is_turned: bool) -> list[tuple[Any, float] | None]:
    """What is measured, each with the expected microseconds; ``None`` where there is no such schedule."""
    run = tf.compile(fusion(a, b, is_turned), cache=False)
    found: list[tuple[Any, float] | None] = [(run, float(getattr(run.schedule, "us", 0.0)))]
    for scheduler in (one_block, tf.schedulers.mma_gemm, tf.schedulers.simt_gemm):
        scheduled = fusion(a, b, is_turned)
        try:
            us = scheduler(scheduled).us
            found.append((tf.compile(scheduled), us))
        except TaskfuseError:
            found.append(None)
    return found


def main() -> None:
    """Measure, print and, if asked, store."""
    options = parser(__doc__).parse_args()
    columns = "".join(f"{name:>9} {'expected':>9}" for name in ("chosen", "one", "warps", "cores"))
    lines = [f"  {'product':30} {columns} {'torch':>8} {'x':>6}  parameters"]
    for name, a, b, is_turned in CASES:
        x, y = (torch.rand(s, device="cuda").sub(0.5).bfloat16() for s in (a, (b[0], b[2], b[1]) if is_turned else b))
        second = y.mT if is_turned else y
        exact = (x.double() @ second.double()).float()
        runs, wrong, shown = runs_of(a, b, is_turned), "", ""
        times: list[float] = []
        for one in runs:
            if one is None:
                shown += f"{'-':>9} {'-':>9}"
                continue
            out = torch.full((a[0], a[1], b[2]), float("nan"), device="cuda", dtype=torch.bfloat16)
            one[0](x, y, out=(out,))
            wrong = wrong if bool(((out.float() - exact).abs() <= 1e-2 * exact.abs().max()).all()) else "  WRONG"
            times.append(gpu_median([partial(one[0], x, y, out=(out,))]))
            shown += f"{times[-1]:9.1f} {one[1]:9.1f}"
        by_torch = gpu_median([partial(torch.matmul, x, second)])
        assert runs[0] is not None
        schedule = runs[0][0].schedule
        words = f"{schedule.scheduler}: {schedule.config.words}" if hasattr(schedule, "config") else "several kernels"
        lines.append(f"  {name:30} {shown} {by_torch:8.1f} {by_torch / times[0]:6.2f}  {words}{wrong}")
    publish("short_products", lines, options)


if __name__ == "__main__":
    main()
