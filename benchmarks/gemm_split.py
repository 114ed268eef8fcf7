"""Products with a long K and few tiles: K in parts over the blocks of a cluster (``examples/gemm_split_cluster.py``), beside torch and tf.compile.

``python benchmarks/gemm_split.py [--write]``. Times as in ``matmul.py``; outputs are poisoned with NaN, then compared with a float32 product.
"""

from __future__ import annotations

import torch
from gemm_schedules import check
from reporting import in_turn, parser, publish

import taskfuse as tf
from examples import gemm_split_cluster

SIZES = ((128, 1408, 3456), (384, 128, 3584), (896, 128, 1920), (128, 512, 8192))
FORMS = [(parts, tile_n, 6 if tile_n == 64 else 4) for parts in (2, 4, 8) for tile_n in (64, 128)]


def automatic(m: int, n: int, k: int) -> tf.Fusion:
    """The product without a schedule."""
    with tf.Fusion("product") as fusion:
        a, b = (tf.define_tensor([rows, k], dtype=tf.bfloat16, name=name) for rows, name in ((m, "a"), (n, "b")))
        fusion.add_output(tf.cast(tf.matmul(a, b.T, dtype=tf.float32), tf.bfloat16))
    return fusion


def main() -> None:
    """Measure, print and, if asked, store."""
    options = parser(__doc__).parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    lines = ["a @ b.T, bf16; ratio: torch.mm / ours", f"  {'m n k':16} {'schedule':30} {'ours us':>8} {'mm us':>8} {'ratio':>6} {'error':>8}"]
    for m, n, k in SIZES:
        a, b = (torch.randn(rows, k, device="cuda", dtype=torch.bfloat16) for rows in (m, n))
        theirs = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        built = {"automatic": automatic(m, n, k)}
        built |= {f"{p} parts, 128x{t}, {s} stages": gemm_split_cluster.build(k, p, tile_n=t, stages=s) for p, t, s in FORMS}
        for name, fusion in built.items():
            run, out = tf.compile(fusion, backend="cuda"), torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
            run(a, b, out=out)
            error = check(name, out, a, b, None)
            ours, mm = in_turn([lambda run=run, out=out, a=a, b=b: run(a, b, out=out), lambda a=a, b=b, out=theirs: torch.mm(a, b.T, out=out)])
            lines.append(f"  {f'{m} {n} {k}':16} {name:30} {ours:8.2f} {mm:8.2f} {mm / ours:6.3f} {error:8.1e}")
    publish("gemm_split", lines, options)


if __name__ == "__main__":
    main()
