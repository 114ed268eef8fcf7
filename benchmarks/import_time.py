"""How long ``import taskfuse`` takes in a fresh interpreter.

``python benchmarks/import_time.py [--write]``; ``--write`` also stores the figures in ``benchmarks/results/import_time.txt``. Medians of 20
interpreters, after one that fills the file cache; the interpreter's own start is not counted.
"""

from __future__ import annotations

import argparse
import datetime
import pathlib
import platform
import statistics
import subprocess
import sys

RUNS = 20
RESULTS = pathlib.Path(__file__).parent / "results" / "import_time.txt"


def milliseconds(statement: str) -> float:
    """Median time of ``statement`` in a fresh interpreter."""
    script = f"import time\nstart = time.perf_counter()\n{statement}\nprint(1e3 * (time.perf_counter() - start))"
    times = [float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout) for _ in range(1 + RUNS)]
    return statistics.median(times[1:])


def main() -> None:
    """Measure, print and, if asked, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the figures in benchmarks/results/import_time.txt")
    arguments = parser.parse_args()
    lines = [
        f"{datetime.date.today()}, {platform.machine()} CPU, one core, Python {platform.python_version()}",
        f"import taskfuse: {milliseconds('import taskfuse'):.0f} ms (aim: under 300 ms)",
        f"  of these NumPy and ml_dtypes: {milliseconds('import numpy, ml_dtypes'):.0f} ms",
    ]
    print("\n".join(lines))
    if arguments.write:
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
