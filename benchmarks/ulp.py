"""Errors of the float functions on a GPU, in units in the last place, as built by default and with ``fast_math``.

``python benchmarks/ulp.py [--samples N] [--functions REGEX] [--write] [--date DATE]``; ``--write`` also stores the figures in
``benchmarks/results/ulp.txt`` and in the table of ``docs/math.md``: of some functions beside those of the others, with a line that says so. ``--docs`` needs
no GPU: it rewrites that table from the stored figures. Each dtype has its functions in one
kernel per number of operands, made through the public API; :mod:`taskfuse.testing.accuracy` has the operands and the references.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import taskfuse as tf
from taskfuse.dtypes import DTYPES, DType
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.testing.accuracy import BOUNDS, bound, moderate, reference, samples, terms, ulps

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "ulp.txt", ROOT / "docs" / "math.md"
HEAD = f"{'function':10} {'dtype':9} {'build':9} {'greatest':>11} {'moderate':>11}  where it is greatest"
OTHERS = "Measured later,"
BEGIN, END = "<!-- figures of benchmarks/results/ulp.txt -->", "<!-- end of figures -->"
FLOATS = (tf.float32, tf.float64, tf.float16, tf.bfloat16)

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Error:
    """The greatest errors of a function, and the operands of the first: of all, and of those of moderate size."""

    function: str
    dtype: DType
    fast: bool
    ulp: float
    at: str
    moderate: float

    def line(self) -> str:
        """A line of the results."""
        return f"{self.function:10} {self.dtype.name:9} {'fast' if self.fast else 'accurate':9} {self.ulp:11.3f} {self.moderate:11.3f}  {self.at}"

    @staticmethod
    def parse(line: str) -> Error:
        """The inverse of :meth:`line`."""
        function, dtype, build, ulp, near, at = line.split(maxsplit=5)
        return Error(function, DTYPES[dtype], build == "fast", float(ulp), at, float(near))


def run(ops: Sequence[Elementwise], dtype: DType, arrays: Sequence[Array], fast: bool) -> Sequence[Array]:
    """The results of functions of the same operands, by one kernel."""
    with tf.Fusion("functions") as fusion:
        operands = [tf.define_tensor(["N"], dtype=dtype) for _ in arrays]
        outputs = [getattr(tf, op.name)(*operands) for op in ops]
        for tv in outputs:
            fusion.add_output(tv)
    for tv in outputs:
        tv.split(0, 256)
        tv.axis(0).parallelize(tf.ParallelType.BIDx)
        tv.axis(1).parallelize(tf.ParallelType.TIDx)
    return tf.compile(fusion, backend="cuda", fast_math=fast)(*arrays)


def measured(dtype: DType, arity: int, count: int, functions: str) -> list[Error]:
    """The errors of all functions of ``arity`` operands whose names match."""
    ops = [ELEMENTWISE[name] for name in BOUNDS if ELEMENTWISE[name].arity == arity and re.search(functions, name)]
    if not ops:
        return []
    arrays = samples(ops[0], dtype, count)
    near = moderate(arrays)
    references = [(reference(op, arrays), terms(op, arrays)) for op in ops]
    found: list[Error] = []
    for fast in (False, True) if dtype.bits <= 32 else (False,):
        for op, (exact, least), got in zip(ops, references, run(ops, dtype, arrays, fast), strict=True):
            errors = ulps(got, exact, dtype, least)
            worst = int(np.argmax(errors))
            at = ", ".join(repr(float(a[worst])) for a in arrays)
            found.append(Error(op.name, dtype, fast, float(errors[worst]), at, float(errors[near].max())))
    return found


def table(errors: Sequence[Error], source: str) -> list[str]:
    """The table of docs/math.md; ``-``: not measured since the function is there."""
    by_key = {(e.function, e.dtype, e.fast): e for e in errors}

    def cell(function: str, dtype: DType, fast: bool = False) -> str:
        error = by_key.get((function, dtype, fast))
        return "-" if error is None else f"{error.moderate if fast else error.ulp:.3g}"

    lines = [f"Measured: {source}.", "", "| function | float32 | at most | float32, fast | float64 | at most | float16 | bfloat16 |", "|---|" + "---:|" * 7]
    for name in BOUNDS:
        f32, fast, f64, *small = cell(name, tf.float32), cell(name, tf.float32, fast=True), *(cell(name, d) for d in FLOATS[1:])
        lines.append(f"| `{name}` | {f32} | {bound(name, tf.float32):g} | {fast} | {f64} | {bound(name, tf.float64):g} | {' | '.join(small)} |")
    return lines


def figures() -> list[str]:
    """What stands in docs/math.md between the marks: the table of the stored figures, or that there are none yet."""
    if not RESULTS.exists():
        return ["No figures are stored yet: `python benchmarks/ulp.py --write` measures them."]
    source, _, *lines = RESULTS.read_text(encoding="utf-8").splitlines()
    others = [line.removesuffix(".").replace("Measured", "measured") for line in lines if line.startswith(OTHERS)]
    return table(stored(), "; ".join([source, *others]))


def stored() -> list[Error]:
    """The figures that are stored."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    return [Error.parse(line) for line in lines if line and line.split()[0] in BOUNDS]


def store_beside(errors: Sequence[Error], source: str) -> None:
    """Put figures of some functions among those that are stored, and say where they come from."""
    head, _, _ = RESULTS.read_text(encoding="utf-8").partition("function ")
    names = ", ".join(dict.fromkeys(e.function for e in errors))
    kept = {(e.function, e.dtype, e.fast): e for e in [*stored(), *errors]}
    order = list(BOUNDS)
    lines = sorted(kept.values(), key=lambda e: (FLOATS.index(e.dtype), order.index(e.function), e.fast))
    text = [head.rstrip(), f"{OTHERS} {names}: {source}.", "", HEAD, *(e.line() for e in lines)]
    RESULTS.write_text("\n".join(text) + "\n", encoding="utf-8")


def write_page() -> None:
    """Put the stored figures into docs/math.md."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text("\n".join([before + BEGIN, *figures(), END]) + after, encoding="utf-8")


def main() -> None:
    """Measure and print; store if asked."""
    if sys.argv[1:] == ["--docs"]:
        write_page()
        return
    import reporting  # it needs torch

    parser = reporting.parser(__doc__)
    parser.add_argument("--samples", type=int, default=1 << 19, help="operands of a function (default: 2^19; all there are of 16 bits)")
    parser.add_argument("--functions", default="", help="those whose names match (default: all)")
    options = parser.parse_args()
    errors = [error for dtype in FLOATS for arity in (1, 2, 3) for error in measured(dtype, arity, options.samples, options.functions)]
    head = [f"{options.samples} operands per function; errors from the exact value, in ulp; moderate: magnitudes from 1/256 to 8.", "", HEAD]
    whole = argparse.Namespace(**{**vars(options), "write": options.write and not options.functions})
    reporting.publish("ulp", [*head, *(error.line() for error in errors)], whole)
    if options.write:
        if options.functions:
            store_beside(errors, f"{options.date}, {reporting.machine()}")
        write_page()
    above = [e for e in errors if not e.fast and not e.ulp <= bound(e.function, e.dtype)]
    for error in above:
        print(f"above its bound of {bound(error.function, error.dtype):g} ulp: {error.line()}")
    sys.exit(1 if above else 0)


if __name__ == "__main__":
    main()
