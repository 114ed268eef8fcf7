"""Fusions of a few ops as models write them: products and norms beside views, gathers, concatenations, packed attention, empty extents. Needs no GPU.

``python benchmarks/idioms.py [--only NAME ...] [--large] [--target NAME]``. ``benchmarks/idioms`` has a file for each, with the text of a small fusion and
of a large one, where it has one. The small ones are compiled, proved, run in the simulator and compared with NumPy; the large ones are compiled and
proved. What is expected of them stands beside their roofline.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.ir.scalar import evaluate
from taskfuse.schedulers.roofline import roofline
from taskfuse.schedulers.schedule import Sizes
from taskfuse.target import as_target

FOLDER = Path(__file__).parent / "idioms"
TOLERANCE = {tf.bfloat16: 3e-2, tf.float16: 4e-3}
"""Of a result, relative to its greatest absolute value."""
SIZE = 5
"""Of symbolic extents."""


def names() -> list[str]:
    """All of them."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def read(name: str) -> tuple[tf.Fusion, tf.Fusion]:
    """A small and a large fusion; where there is one text, they are the same."""
    texts = [f"FUSION {text}" for text in (FOLDER / f"{name}.txt").read_text(encoding="utf-8").split("FUSION ")[1:]]
    return tf.parse_fusion(texts[0]), tf.parse_fusion(texts[-1])


def shape(tv: tf.TensorView) -> tuple[int, ...]:
    """Extents as numbers."""
    return tuple(int(evaluate(e, dict.fromkeys(e.free, SIZE))) for e in tv.shape)


def arguments(fusion: tf.Fusion) -> list[Any]:
    """Random: floats in [0.1, 1), integers from 0 to 3."""
    rng = np.random.default_rng(0)
    return [
        rng.uniform(0.1, 1.0, shape(tv)).astype(tv.dtype.numpy) if tv.dtype.is_float else rng.integers(0, 4, shape(tv)).astype(tv.dtype.numpy)
        for tv in fusion.inputs
    ]


def wrong(fusion: tf.Fusion, found: Sequence[Any], wanted: Sequence[Any]) -> str:
    """What differs from the reference; empty if nothing does."""
    most = max(TOLERANCE.get(tv.dtype, 1e-4) for tv in fusion.tensors())
    for tv, a, b in zip(fusion.outputs, found, wanted, strict=True):
        a, b = (np.asarray(x, np.float64) for x in (a, b))
        if a.shape != b.shape or not np.allclose(a, b, rtol=most, atol=most * (np.abs(b).max() if b.size else 0.0), equal_nan=True):
            return f"  WRONG: {tv.name}"
    return ""


def row(name: str, large: bool, target: tf.Target) -> str:
    """A line about one: kernels, seconds, microseconds that are expected, and its roofline."""
    fusion = read(name)[large]
    begun = time.perf_counter()
    try:
        run = tf.compile(fusion, "sim", target=target)
        seconds = time.perf_counter() - begun
        said = ""
        if not large:
            given = arguments(fusion)
            said = wrong(fusion, run(*given), fusion.evaluate(*given))
    except TaskfuseError as error:
        return f"  {name:34} {type(error).__name__}: {str(error).splitlines()[0]}"
    expected = math.nan if run.schedule is None else run.schedule.us
    return f"  {name:34} {len(run.kernels):3} {seconds:6.1f} {expected:9.1f} {roofline(fusion, Sizes(fusion, None, target)):9.1f}{said}"


def main() -> int:
    """Print a line for each. Returns the exit status: 1 if one cannot be compiled, or is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="those whose names hold one of these")
    parser.add_argument("--large", action="store_true", help="the large ones, which do not run")
    parser.add_argument("--target", default="H200", help="the GPU that they are for (default: H200)")
    options = parser.parse_args()
    print(f"  {'fusion':34} {'k':>3} {'s':>6} {'us':>9} {'roofline':>9}")
    lines: list[str] = []
    for name in names():
        if not options.only or any(o in name for o in options.only):
            lines.append(row(name, options.large, as_target(options.target)))
            print(lines[-1], flush=True)
    failures = sum("WRONG" in line or "Error" in line for line in lines)
    print(f"{len(lines)} fusions, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
