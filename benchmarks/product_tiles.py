"""Products of float32 on CUDA cores, and of float64 by warps, in several tiles beside torch (cuBLAS), with k first or last in either factor.

``python benchmarks/product_tiles.py [--write] [--check]``. "chosen" is what ``tf.compile`` makes of the product; its kernels may turn factors first. A time is
that of one of 10 calls in a CUDA graph, the median of 20 replays, in turn; inputs are random, outputs poisoned before and compared with float64.
``--check``: schedule, prove and compile all kernels; no GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from ahead import Ahead, Job
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.schedulers import MmaGemmConfig, SimtGemmConfig

Config = SimtGemmConfig | MmaGemmConfig | None
"""``None``: chosen."""
Case = tuple[str, int, str]
"""The axes of both factors, such as ``mk,kn``, or ``mk`` for ``x @ x.T``; all extents; the type."""
SIMT: tuple[Config, ...] = (None, SimtGemmConfig(8, 8, 16), *(SimtGemmConfig(r, c) for r, c in ((8, 8), (8, 4), (4, 8), (4, 4))))
SMALL: tuple[Config, ...] = (*SIMT, SimtGemmConfig(4, 2), SimtGemmConfig(2, 2))
DOUBLE: tuple[Config, ...] = (
    None,
    MmaGemmConfig(64, 64, 32, 32),
    MmaGemmConfig(128, 64, 64, 32),
    MmaGemmConfig(128, 128, 64, 32),
    MmaGemmConfig(128, 64, 32, 32),
    MmaGemmConfig(64, 32, 32, 16),
)
CASES: tuple[tuple[Case, tuple[Config, ...]], ...] = (
    *(((axes, size, "float32"), parts) for size, parts in ((4096, SIMT), (1024, SMALL)) for axes in ("km,kn", "mk,kn", "mk,nk", "mk")),
    *(((axes, size, "float64"), DOUBLE) for size in (4096, 2048, 1024) for axes in ("mk,kn",)),
)


def scheduled(case: Case, config: Config) -> tf.Fusion:
    """The product, without a schedule if one is chosen."""
    axes, size, dtype = case
    with tf.Fusion("product") as fusion:
        first, *second = axes.split(",")
        a = tf.define_tensor([size, size], getattr(tf, dtype), name="a")
        b = tf.define_tensor([size, size], a.dtype, name="b") if second else a
        fusion.add_output((a if first == "mk" else a.T) @ (b if second == ["kn"] else b.T))
    match config:
        case SimtGemmConfig():
            tf.schedulers.simt_gemm(fusion, config)
        case MmaGemmConfig():
            tf.schedulers.mma_gemm(fusion, config)
        case None:
            pass
    return fusion


def calls_of(case: Case, configs: tuple[Config, ...]) -> tuple[list[str], list[Callable[[], object]]]:
    """Torch's call, and ours, whose results are right, and what they are."""
    axes, size, dtype = case
    first, *second = axes.split(",")
    a, b = (torch.randn(size, size, device="cuda", dtype=getattr(torch, dtype)) for _ in "ab")
    given: list[Any] = [a, b] if second else [a]
    left, right = a if first == "mk" else a.T, a.T if not second else b if second == ["kn"] else b.T
    wanted, out = left.double() @ right.double(), torch.empty_like(a)
    names, calls = ["torch"], list[Callable[[], object]]([partial(torch.mm, left, right, out=out)])
    for config in configs:
        run = tf.compile(scheduled(case, config), backend="cuda")
        result = torch.full_like(a, float("nan"))
        run(*given, out=(result,))
        error = float((result.double() - wanted).abs().max() / wanted.abs().max())
        assert error < (1e-5 if dtype == "float32" else 1e-13), f"{case}: off by {error}"
        names.append("chosen" if config is None else config.words)
        calls.append(partial(run, *given, out=(result,)))
    return names, calls


def main() -> None:
    """Measure, print and, if asked, store."""
    options = parser(__doc__)
    options.add_argument("--check", action="store_true", help="only compile")
    given = options.parse_args()
    made = Ahead([Job(f"{case} {config}", scheduled, (case, config)) for case, configs in CASES for config in configs]).wait()
    if given.check:
        print("\n".join(made))
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    lines = ["axes of the factors, extent, type; us, torch / ours"]
    for case, configs in CASES:
        names, calls = calls_of(case, configs)
        times = in_turn(calls)
        lines += ["", " ".join(map(str, case)), *(f"  {us:9.1f} {times[0] / us:6.3f}  {name}" for us, name in zip(times, names, strict=True))]
    publish("product_tiles", lines, given)


if __name__ == "__main__":
    main()
