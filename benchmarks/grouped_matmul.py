"""Products of ragged groups of rows, ``tf.grouped_matmul``, beside ``torch._grouped_mm`` and one product of all rows: bfloat16, sums in float32.

``python benchmarks/grouped_matmul.py [--write]``. The three shapes are those of DeepGEMM's README for grouped products of contiguous rows. Offsets are even, or
random with whole tiles of 128 rows, or random. Calls of ours and theirs take turns, so that throttling hits all; inputs are random, and results are compared
with a float32 product.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import torch
from reporting import in_turn, parser, publish

import taskfuse as tf

SHAPES = ((4, 32768, 4096, 7168), (8, 32768, 7168, 2048), (32, 8192, 3072, 4096))
"""Groups, rows, columns, terms of a sum."""


def offsets(kind: str, groups: int, rows: int, rng: np.random.Generator) -> list[int]:
    """Where each group begins, and where the last one ends."""
    if kind == "even":
        return [rows * g // groups for g in range(groups + 1)]
    step = 128 if kind == "tiles" else 1
    return [0, *sorted(int(k) * step for k in rng.integers(0, rows // step + 1, groups - 1)), rows]


def fusion_of(groups: int, rows: int, columns: int, terms: int) -> tf.Fusion:
    """The product."""
    with tf.Fusion("grouped") as fusion:
        a = tf.define_tensor((rows, terms), tf.bfloat16, name="a")
        b = tf.define_tensor((groups, terms, columns), tf.bfloat16, name="b")
        fusion.add_output(tf.grouped_matmul(a, b, tf.table("offsets", groups + 1, rows, rising=True)))
    return fusion


def main() -> None:
    """All shapes with all kinds of offsets."""
    options = parser(__doc__).parse_args()
    lines = [f"{'groups':>6} {'rows':>6} {'n':>5} {'k':>5}  {'offsets':8} {'ours':>8} {'torch':>8} {'one':>8}  TFLOP/s of ours; torch / ours"]
    for groups, rows, columns, terms in SHAPES:
        fusion = fusion_of(groups, rows, columns, terms)
        tf.schedulers.matmul(fusion)
        run = tf.compile(fusion, backend="cuda")
        a = torch.randn(rows, terms, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(groups, terms, columns, device="cuda", dtype=torch.bfloat16)
        out = torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16)
        for kind in ("even", "tiles", "random"):
            found = offsets(kind, groups, rows, np.random.default_rng(groups))
            table = torch.tensor(found, device="cuda", dtype=torch.int32)
            out.fill_(float("nan"))
            run(a, b, table, out=(out,))
            for matrix, (start, end) in zip(b, pairwise(found), strict=True):
                wanted = a[start:end].float() @ matrix.float()
                torch.testing.assert_close(out[start:end].float(), wanted, rtol=2e-2, atol=2e-2 * terms**0.5)
            ours, theirs, one = in_turn(
                [partial(run, a, b, table, out=(out,)), partial(torch._grouped_mm, a, b, offs=table[1:]), partial(torch.matmul, a, b[0])]
            )
            rate = 2 * rows * columns * terms / ours / 1e6
            lines.append(f"{groups:6} {rows:6} {columns:5} {terms:5}  {kind:8} {ours:8.0f} {theirs:8.0f} {one:8.0f}  {rate:4.0f}; {theirs / ours:.2f}")
            print(lines[-1], flush=True)
    publish("grouped_matmul", lines, options)


if __name__ == "__main__":
    main()
