"""The schedules of ``examples/gemm*.py`` beside torch (cuBLAS): cooperative, ping-pong, clusters of two blocks, one role, and 8-bit floats.

``python benchmarks/gemm_schedules.py [--write]``. Times as in ``matmul.py``; outputs are poisoned with NaN, then compared with a float32 product.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from reporting import in_turn, parser, publish

import taskfuse as tf
from examples import gemm, gemm_cluster, gemm_multistage, gemm_pingpong

SIZES = ((8192, 8192, 8192), (4096, 4096, 4096), (4096, 4096, 1024), (2048, 2048, 2048), (4096, 7168, 2048))
SCHEDULES: dict[str, Callable[[], tf.Fusion]] = {
    "ping-pong 128x128, 5 stages": lambda: gemm_pingpong.build(stages=5, blocks=132),
    "ping-pong, nothing in flight": lambda: gemm_pingpong.build(stages=5, blocks=132, late=0),
    "cluster 2, 128x256, 4 stages": lambda: gemm_cluster.build(tile_n=256, stages=4, clusters=66),
    "cluster 2, 128x128, 5 stages": lambda: gemm_cluster.build(tile_n=128, stages=5, clusters=66),
    **{f"one role, mma.sync, {s} stages, {r} in registers": lambda s=s, r=r: gemm_multistage.build(s, r) for s, r in ((1, 1), (2, 1), (3, 1), (3, 2), (4, 2))},
}
FP8_SIZES = ((4096, 4096, 2048), (4096, 4096, 4096))


def check(name: str, out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> float:
    """The greatest error relative to the sum of a term's sizes; exits if an element is wrong. Hopper sums products of 8-bit floats in fewer bits."""
    x, y = a.float(), b.float().T
    wanted, size = x @ y, x.abs() @ y.abs()
    if bias is not None:
        wanted = torch.relu(wanted + bias)
    error = (out.float() - wanted).abs()
    if not bool((error <= wanted.abs() * 2**-8 + size * (2**-10 if a.element_size() == 1 else 2**-20)).all()):
        sys.exit(f"{name}: off by {float((error / size).max()):.1e} of the sizes of the terms")
    return float((error / size).max())


def eight_bits(m: int, n: int, k: int, tile_n: int, stages: int) -> str:
    """One line: operands of e4m3."""
    a, b = (torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn) for rows in (m, n))
    bias, one = torch.randn(n, device="cuda"), torch.ones((), device="cuda")
    run = tf.compile(gemm.build(tile_n=tile_n, stages=stages, blocks=132, group=16, dtype=tf.float8_e4m3), backend="cuda")
    out = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    run(a, b, bias, out=out)
    error = check("fp8", out, a, b, bias)

    def scaled(fast: bool) -> object:
        return torch._scaled_mm(a, b.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast)

    ours, fast, exact = in_turn([lambda: run(a, b, bias, out=out), lambda: scaled(True), lambda: scaled(False)])
    ratios = f"theirs {fast:9.2f} ({fast / ours:.3f}) and {exact:9.2f} ({exact / ours:.3f})"
    return f"  {f'{m} {n} {k}':18} {f'128x{tile_n}, {stages} stages':18} {ours:9.2f} us, {ratios}, error {error:.1e}"


def main() -> None:
    """Measure, print and, if asked, store."""
    options = parser(__doc__).parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    lines = ["a @ b.T, bf16, beside torch.mm; ratio: theirs / ours", f"  {'m n k':18} {'schedule':42} {'ours us':>9} {'mm us':>9} {'ratio':>6} {'error':>8}"]
    for m, n, k in SIZES:
        a, b = (torch.randn(rows, k, device="cuda", dtype=torch.bfloat16) for rows in (m, n))
        theirs = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        for name, build in SCHEDULES.items():
            run, out = tf.compile(build(), backend="cuda"), torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
            run(a, b, out=out)
            error = check(name, out, a, b, None)
            ours, mm = in_turn([lambda run=run, out=out, a=a, b=b: run(a, b, out=out), lambda a=a, b=b, out=theirs: torch.mm(a, b.T, out=out)])
            lines.append(f"  {f'{m} {n} {k}':18} {name:42} {ours:9.2f} {mm:9.2f} {mm / ours:6.3f} {error:8.1e}")
    lines += ["relu(a @ b.T + bias) of e4m3, beside torch._scaled_mm (no bias, no relu), with and without its fast accumulation"]
    lines += [eight_bits(m, n, k, tile_n, stages) for m, n, k in FP8_SIZES for tile_n, stages in ((128, 6), (256, 4))]
    publish("gemm_schedules", lines, options)


if __name__ == "__main__":
    main()
