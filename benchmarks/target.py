"""The figures of a target (``taskfuse/target.py``) that this machine's GPU has.

``python benchmarks/target.py [--write]``. Times are medians over CUDA graphs; the clock is that of the multiprocessors while
they multiply, counted by a kernel that spins for a number of cycles beside a timer.
"""

from __future__ import annotations

import statistics

import torch
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.cuda.present import present

ELEMENTS = 1 << 29  # of 2 bytes: far more than the L2 cache
RESIDENT = 1 << 22  # 8 MB in, 8 MB out: they stay there
SPIN = 2_000_000  # cycles


def pointwise(elements: int) -> tf.Fusion:
    """``y = x + 1``."""
    with tf.Fusion("pointwise") as fusion:
        fusion.add_output(tf.define_tensor([elements], dtype=tf.bfloat16, name="x") + 1)
    return fusion


def moved_us(elements: int) -> float:
    """Microseconds of a pointwise kernel."""
    x = torch.rand(elements, device="cuda").to(torch.bfloat16)
    y = torch.full_like(x, float("nan"))
    run = tf.compile(pointwise(elements), backend="cuda")
    (us,) = in_turn([lambda: run(x, out=y)])
    assert torch.equal(y, x + 1)
    return us


def clock_mhz() -> float:
    """While tensor cores are busy: cycles over microseconds."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    found: list[float] = []
    for _ in range(5):
        for _ in range(20):
            torch.mm(a, a)
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        torch.cuda._sleep(SPIN)
        stop.record()
        stop.synchronize()
        found.append(SPIN / (1e3 * start.elapsed_time(stop)))
    return statistics.median(found)


def main() -> None:
    """Print the figures beside those of the row."""
    options = parser(__doc__).parse_args()
    row = present()
    small, resident, large = map(moved_us, (1 << 10, RESIDENT, ELEMENTS))
    lines = [
        f"{'':24}{'measured':>12}{row.name:>12}",
        f"{'dram_bytes_per_us':24}{4 * ELEMENTS / large:12.3g}{row.dram_bytes_per_us:12.3g}",
        f"{'l2_bytes_per_us, at least':24}{4 * RESIDENT / (resident - small):11.3g}{row.l2_bytes_per_us:12.3g}",
        f"{'launch_us':24}{small:12.2f}{row.launch_us:12.2f}",
        f"{'clock_mhz':24}{clock_mhz():12.0f}{row.clock_mhz:12.0f}",
    ]
    publish("target", lines, options)


if __name__ == "__main__":
    main()
