"""Compile-time benchmarks: fusion to kernel text, automatic schedules, and simulation of the property-test mix.

``python benchmarks/compile.py [--write]``; ``--write`` also stores the figures in ``benchmarks/results/compile.txt``. Times are medians, in
one process on one core; per-pass verification is off where it says so.
"""

from __future__ import annotations

import argparse
import datetime
import math
import pathlib
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.testing import seeded_case

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))
RESULTS = pathlib.Path(__file__).parent / "results" / "compile.txt"


def median(run: Callable[[], object], repeat: int) -> float:
    """Median wall time of ``run`` in milliseconds."""
    times: list[float] = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def chain(n: int, seed: int) -> tf.Fusion:
    """A random chain of ``n`` pointwise expressions with skips, on blocks of 128 threads."""
    rng = random.Random(seed)
    with tf.Fusion("chain") as fusion:
        tensors = [tf.define_tensor(["N", "M"])]
        for _ in range(n):
            last = tensors[-1]
            if rng.random() < 0.7:
                tensors.append(rng.choice([tf.exp, tf.neg, tf.relu, tf.sin])(last))
            else:
                tensors.append(last + tensors[max(0, len(tensors) - 1 - rng.randrange(3))])
        fusion.add_output(tensors[-1])
    for tv in tensors[1:]:
        tv.merge(0).split(0, 128)
        tv.axis(0).parallelize(P.BIDx)
        tv.axis(1).parallelize(P.TIDx)
    fusion.inline_most()
    return fusion


def founding() -> list[str]:
    """The founding example, from the first tensor to the kernel's text."""
    import founding

    plain = tf.LoweringOptions(verify=False)
    whole = median(lambda: str(tf.lower(founding.build())), 21)
    fast = median(lambda: str(tf.lower(founding.build(), plain)), 21)
    return [f"founding example, fusion to kernel text: {whole:.1f} ms; without verification {fast:.1f} ms (aim: under 30 ms)"]


def chains() -> list[str]:
    """Random chains: lowering time by number of expressions."""
    lines = ["random chains, verification off (aim: growth no worse than n log n, 1,000 expressions under 1 s):"]
    first: float | None = None
    for n in (30, 100, 300, 1000):
        fusions = [chain(n, seed) for seed in range(3)]
        build = median(lambda n=n: chain(n, 0), 3)
        times = [median(lambda f=f: str(tf.lower(f, tf.LoweringOptions(verify=False))), 3) for f in fusions]
        lower = statistics.median(times)
        unit = lower / (n * math.log2(n))
        first = first or unit
        lines.append(f"  {n:5} expressions: build and schedule {build:7.1f} ms, lower to text {lower:7.1f} ms, per n log n {unit / first:.2f} of the first")
    return lines


def transformer(layers: int, rows: int = 256, width: int = 512, heads: int = 8) -> tf.Fusion:
    """Transformer layers in bfloat16: norms, attention, a multi-layer perceptron; 8 products each."""

    def weight(*shape: int) -> tf.TensorView:
        return tf.define_tensor(shape, dtype=tf.bfloat16)

    def norm(x: tf.TensorView) -> tf.TensorView:
        wide = tf.cast(x, tf.float32)
        return tf.cast(wide * tf.rsqrt(tf.mean(wide * wide, axis=1, keepdims=True) + 1e-5), tf.bfloat16) * weight(width)

    def split(x: tf.TensorView) -> tf.TensorView:
        return tf.permute(tf.reshape(x, [rows, heads, width // heads]), [1, 0, 2])

    with tf.Fusion("transformer") as fusion:
        x = weight(rows, width)
        for _ in range(layers):
            h = norm(x)
            q, k, v = (split(h @ weight(width, width)) for _ in range(3))
            p = tf.cast(tf.softmax(tf.cast(q @ tf.permute(k, [0, 2, 1]), tf.float32) * 0.125, axis=2), tf.bfloat16)
            x = x + tf.reshape(tf.permute(p @ v, [1, 0, 2]), [rows, width]) @ weight(width, width)
            x = x + tf.gelu(norm(x) @ weight(width, 4 * width)) @ weight(4 * width, width)
        fusion.add_output(x)
    return fusion


def automatic() -> list[str]:
    """``tf.compile`` of transformer layers, without a cache, in processor time: machine code is made where there is an NVRTC."""
    lines = ["tf.compile of transformer layers for an H200, machine code included, no cache (aim: near linear, 335 expressions in 3 s):"]
    for layers in (1, 2, 4, 6, 12):
        fusion = transformer(layers)
        start = time.process_time()
        run = tf.compile(fusion, "cuda", target="H200", cache=False)
        seconds = time.process_time() - start
        assert run.schedule is not None
        ended = "; the budget was spent" if "ended by" in run.schedule.explain() else ""
        lines.append(f"  {len(fusion.exprs()):5} expressions: {seconds:5.1f} s, {len(run.kernels)} kernels, {run.schedule.us:.0f} us expected{ended}")
    return lines


def simulation(count: int) -> list[str]:
    """The property-test mix: one simulation per case."""
    cases = [case for case in map(seeded_case, range(count)) if case.kernel is not None]
    runs = [(case.arguments(), case.kernel) for case in cases]
    start = time.perf_counter()
    for arguments, kernel in runs:
        if kernel is not None:
            kernel.simulate(*arguments, seed=1)
    seconds = time.perf_counter() - start
    return [f"simulation of the property-test mix: {len(runs) / seconds:.0f} kernels per second on one core (aim: 100); {len(runs)} of {count} cases lower"]


def main() -> None:
    """Measure, print and, if asked, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the figures in benchmarks/results/compile.txt")
    arguments = parser.parse_args()
    head = f"{datetime.date.today()}, {platform.machine()} CPU, one core, Python {platform.python_version()}"
    lines = [head, *founding(), *chains(), *automatic(), *simulation(200)]
    print("\n".join(lines))
    if arguments.write:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
