"""Time of matrix products whose rows the copy engine cannot take, and of products with reductions, beside what torch takes.

    python benchmarks/matmul_reach.py [--sizes 4096x4096x4096 ...] [--write]

Each line: the case, microseconds of a call (replays of CUDA graphs, ours and torch's in turn), torch's for the same math, and what the cost
model expected.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from reporting import in_turn, parser, publish

import taskfuse as tf

UNITS = (8, 4, 2, 1)


def product(unit: int, epilogue: Callable[[tf.TensorView], Sequence[tf.TensorView]]) -> tf.Fusion:
    """``a @ b.T`` with K a multiple of ``unit``, and what is made of it."""
    with tf.Fusion("product") as fusion:
        a = tf.define_tensor(["M", tf.dim("K", multiple_of=unit)], dtype=tf.bfloat16, name="a")
        b = tf.define_tensor([tf.dim("N", multiple_of=8), "K"], dtype=tf.bfloat16, name="b")
        for out in epilogue(tf.matmul(a, b.T, dtype=tf.float32)):
            fusion.add_output(out)
    return fusion


def stored(x: tf.TensorView) -> list[tf.TensorView]:
    """The product alone."""
    return [tf.cast(x, tf.bfloat16)]


def row_sums(x: tf.TensorView) -> list[tf.TensorView]:
    """With the largest size in each row."""
    return [tf.cast(x, tf.bfloat16), tf.max(tf.abs(x), axis=1)]


def column_sums(x: tf.TensorView) -> list[tf.TensorView]:
    """With the sum of each column."""
    return [tf.cast(x, tf.bfloat16), tf.sum(x, axis=0)]


def measure(name: str, fusion: tf.Fusion, m: int, n: int, k: int, reference: Callable[[Any, Any], object]) -> str:
    """One line."""
    schedule = tf.schedulers.matmul(fusion, sizes={"M": m, "N": n, "K": k})
    run = tf.compile(fusion, backend="cuda")
    a, b = (torch.randn(rows, k, device="cuda", dtype=torch.bfloat16) for rows in (m, n))
    outs = run(a, b)
    ours, theirs = in_turn([lambda: run(a, b, out=outs), lambda: reference(a, b)])
    return f"{name:24} {m} x {n} x {k}: {ours:8.1f} us, torch {theirs:8.1f} us, expected {schedule.us:8.1f} us"


def main() -> None:
    """Measure every case at every size."""
    found = parser(__doc__)
    found.add_argument("--sizes", nargs="*", default=["4096x4096x4096", "2048x2048x2048"])
    options = found.parse_args()
    lines: list[str] = []
    for text in options.sizes:
        m, n, k = map(int, text.split("x"))
        for unit in UNITS:
            lines.append(measure(f"K multiple of {unit}", product(unit, stored), m, n, k - 8 + unit, lambda a, b: a @ b.T))
        lines.append(measure("largest of each row", product(8, row_sums), m, n, k, lambda a, b: (y := a @ b.T, y.abs().amax(1))))
        lines.append(measure("sum of each column", product(8, column_sums), m, n, k, lambda a, b: (y := a @ b.T, y.sum(0))))
    publish("matmul_reach", lines, options)


if __name__ == "__main__":
    main()
