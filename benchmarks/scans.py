"""Scans across threads against torch and torch.compile, beside the time that their bytes take at the bandwidth of a copy.

``python benchmarks/scans.py [--write] [--sweep] [--middle]``. Every call of a round has arrays of its own, which together exceed the L2 cache. Medians of 30
rounds, by CUDA events; results are checked. ``--sweep`` measures every chunk and number of rows per block, not only what the scheduler chooses; ``--middle``
scans along the middle axis of three, beside which other rows lie.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from reporting import L2_BYTES, gpu_median, parser, publish

import taskfuse as tf
from taskfuse.schedulers import ScanConfig

DTYPES = {tf.float32: torch.float32, tf.bfloat16: torch.bfloat16}
SHAPES = ((65536, 64), (16384, 1024), (4096, 4096), (1024, 16384), (64, 262144), (1, 1 << 24))
MIDDLE = ((64, 360, 321), (8, 2048, 1024), (4, 4096, 256), (32, 128, 768), (64, 512, 512), (256, 16, 4096), (2, 8192, 1024))


def fusion_of(shape: tuple[int, ...], dtype: tf.DType) -> tf.Fusion:
    """Sums along the second axis."""
    with tf.Fusion("cumsum") as fusion:
        fusion.add_output(tf.cumsum(tf.define_tensor(list(shape), dtype=dtype, name="x"), 1))
    return fusion


def candidates(shape: tuple[int, ...], dtype: tf.DType, sweep: bool) -> list[tuple[str, tf.Fusion]]:
    """What is measured: fusions with and without a schedule."""
    found = [("chosen", fusion_of(shape, dtype))]
    length = shape[1]
    if len(shape) > 2:
        configs = [o.config for o in tf.schedulers.scan(fusion_of(shape, dtype)).alternatives] if sweep else []
        for config in configs:
            fusion = fusion_of(shape, dtype)
            tf.schedulers.scan(fusion, config)
            found.append((str(config), fusion))
        return found
    for chunk in (1, 2, 4, 8, 16, 32) if sweep else ():
        for rows in (1, 2, 4, 8, 16):
            if 32 <= -(-length // chunk) * rows <= 1024:
                fusion = fusion_of(shape, dtype)
                config = ScanConfig(chunk, rows)
                tf.schedulers.scan(fusion, config)
                found.append((str(config), fusion))
    return found


def rows(shape: tuple[int, ...], dtype: tf.DType, bandwidth: float, sweep: bool) -> list[str]:
    """Measure one shape."""

    def array() -> Any:
        return (torch.rand(shape, device="cuda") * 2 - 1).to(DTYPES[dtype])

    first = array()
    size = 2 * first.numel() * first.element_size()
    count = min(max(3, 2 * L2_BYTES // size + 1), 16)
    sets = [(first, torch.empty_like(first))] + [(array(), torch.empty_like(first)) for _ in range(count - 1)]
    exact = torch.cumsum(first.double(), 1)
    bound = 1e6 * size / bandwidth
    torch.compiler.reset()
    compiled = torch.compile(lambda a: torch.cumsum(a, 1), dynamic=False)
    eager = gpu_median([lambda a=a: torch.cumsum(a, 1) for a, _ in sets])
    inductor = gpu_median([lambda a=a: compiled(a) for a, _ in sets])
    lines: list[str] = []
    for name, fusion in candidates(shape, dtype, sweep):
        run = tf.compile(fusion, "cuda")
        first_out = sets[0][1]
        first_out.fill_(float("nan"))
        time = gpu_median([lambda run=run, a=a, b=b: run(a, out=b) for a, b in sets])
        error = float(((first_out.double() - exact).abs() / exact.abs().clamp(min=1)).max())
        if not error <= (1e-2 if dtype is tf.float32 else 3e-2):
            sys.exit(f"{shape} {name}: differs by {error:g}")
        lines.append(
            f"  {' x '.join(map(str, shape)):>17} {dtype.name:9} {time:9.1f} {bound:8.1f} {bound / time:6.0%} {eager:9.1f} {eager / time:6.2f} "
            f"{inductor:9.1f} {inductor / time:6.2f} {len(run.kernels):3}  {name}"
        )
    return lines


def main() -> None:
    """Measure, print and, if asked, store."""
    arguments = parser(__doc__)
    arguments.add_argument("--sweep", action="store_true", help="measure all parameters")
    arguments.add_argument("--middle", action="store_true", help="scan along middle axes")
    options = arguments.parse_args()
    pairs = [(torch.rand(1 << 28, device="cuda"), torch.empty(1 << 28, device="cuda")) for _ in range(2)]
    bandwidth = 2 * 4 * (1 << 28) / (gpu_median([lambda a=a, b=b: b.copy_(a) for a, b in pairs]) * 1e-6)
    lines = [
        f"a copy moves {bandwidth / 1e12:.2f} TB/s (read and written); times in microseconds, medians of 30 rounds; x: theirs / ours",
        f"  {'shape':>17} {'dtype':9} {'time':>9} {'bound':>8} {'share':>6} {'torch':>9} {'x':>6} {'compiled':>9} {'x':>6} {'kernels'}",
    ]
    for shape in MIDDLE if options.middle else SHAPES:
        for dtype in DTYPES:
            lines += rows(shape, dtype, bandwidth, options.sweep)
            print(lines[-1], file=sys.stderr, flush=True)
    publish("scans_middle" if options.middle else "scans", lines, options)


if __name__ == "__main__":
    main()
