"""Everything that needs a GPU, in one command: the tests of tests/gpu, the sanitizers, the benchmarks.

``python benchmarks/gpu.py [PART ...] [--out FOLDER] [--write]``. Each part is a process with a time limit of its own, so that one that hangs
takes nothing from the others; their logs go to FOLDER (default: /tmp/taskfuse-gpu), and a table of what became of them is printed at the end.
The package need not be installed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAST = re.compile(r"^(?:=+ )?(.*(?:passed|failed|skipped|failures|runs, |error).*?)(?: =+)?$", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """One part.

    Attributes:
        command: arguments of Python.
        limit: seconds.
        stores: true if it takes ``--write``.
    """

    command: Sequence[str]
    limit: int
    stores: bool = False


def pytest(*arguments: str, jobs: int = 1) -> list[str]:
    """A run of pytest; few jobs where tests take much GPU memory. The plugin pytest-benchmark warns under xdist, and warnings are errors."""
    return ["-m", "pytest", "-q", "-rs", "--tb=short", "-p", "no:cacheprovider", "-p", "no:benchmark", *(["-n", str(jobs)] if jobs > 1 else []), *arguments]


PARTS = {
    "first": Part(pytest("tests/gpu/test_examples.py", "tests/gpu/test_kernels.py", "--maxfail=5"), 120),
    "tests": Part(
        pytest("tests/gpu", "--ignore=tests/gpu/test_random.py", "--ignore=tests/gpu/test_shapes.py", "--maxfail=40", "--dist=worksteal", jobs=8), 200
    ),
    "shapes": Part(pytest("tests/gpu/test_shapes.py"), 100),
    "random": Part(pytest("tests/gpu/test_random.py", "--maxfail=100", "--dist=worksteal", jobs=14), 150),
    "chaos": Part(["-m", "tests.gpu.chaos"], 240),
    "sanitizer": Part(["tests/gpu/sanitizer.py", "--jobs", "12"], 180),
    "target": Part(["benchmarks/target.py"], 60, stores=True),
    "launch": Part(["benchmarks/launch.py"], 60, stores=True),
    "first_call": Part(["benchmarks/first_call.py"], 150, stores=True),
    "horizontal": Part(["benchmarks/horizontal.py", "--host"], 150, stores=True),
    "examples_gpu": Part(["benchmarks/examples_gpu.py"], 90, stores=True),
    "matmul": Part(["benchmarks/matmul.py", "--seconds", "300"], 330, stores=True),
    "product_figures": Part(["benchmarks/product_figures.py"], 330, stores=True),
    "grouped_figures": Part(["benchmarks/grouped_figures.py"], 360, stores=True),
    "norms": Part(["benchmarks/norms.py"], 150, stores=True),
    "automatic": Part(["benchmarks/automatic.py"], 120, stores=True),
    "programs": Part(["benchmarks/programs.py"], 150, stores=True),
    "traces": Part(["benchmarks/traces.py", "--jobs", "15"], 420, stores=True),
    "specialize": Part(["benchmarks/specialize.py"], 90, stores=True),
    "scans": Part(["benchmarks/scans.py"], 90, stores=True),
    "scans_middle": Part(["benchmarks/scans.py", "--middle"], 90, stores=True),
    "ulp": Part(["benchmarks/ulp.py"], 150, stores=True),
}
LEFT_OUT = ("first", "ulp", "product_figures", "grouped_figures")
DEFAULT = tuple(name for name in PARTS if name not in LEFT_OUT)
"""Without ``first``, which is a part of ``tests`` to begin with, ``ulp``, which is long, and the figures of products, which other scripts have in parts."""


def run(name: str, part: Part, folder: Path, write: bool) -> tuple[str, float, str]:
    """What became of a part, its seconds, and the line that says most."""
    command = [
        "env",
        f"PYTHONPATH={ROOT}",
        "PYTHONUNBUFFERED=1",
        "PYTHONFAULTHANDLER=1",
        sys.executable,
        *part.command,
        *(["--write"] if write and part.stores else []),
    ]
    log = folder / f"{name}.log"
    start = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        try:
            status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, timeout=part.limit).returncode
            outcome = "good" if status == 0 else f"exit {status}"
        except subprocess.TimeoutExpired:
            outcome = f"stopped after {part.limit} s"
    text = log.read_text(encoding="utf-8", errors="replace")
    said = LAST.findall(text)
    return outcome, time.monotonic() - start, said[-1] if said else text.strip().rpartition("\n")[2]


def main() -> int:
    """Run the parts. Returns the exit status: 1 unless all are good."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: {', '.join(DEFAULT)})")
    parser.add_argument("--out", type=Path, default=Path("/tmp/taskfuse-gpu"), help="folder of the logs")
    parser.add_argument("--write", action="store_true", help="store the figures in benchmarks/results")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="also print the last N lines of the log of each part that is not good")
    options = parser.parse_args()
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}: the parts are {', '.join(PARTS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[str, str, float, str]] = []
    for name in options.parts or DEFAULT:
        rows.append((name, *run(name, PARTS[name], options.out, options.write)))
        print(f"{name}: {rows[-1][1]}, {rows[-1][2]:.0f} s", flush=True)
        if options.show and rows[-1][1] != "good":
            print("\n".join((options.out / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines()[-options.show :]), flush=True)
    print(f"\n{'part':14} {'outcome':22} {'s':>5}  last words")
    for name, outcome, seconds, said in rows:
        print(f"{name:14} {outcome:22} {seconds:5.0f}  {said[:110]}")
    return 0 if all(outcome == "good" for _, outcome, _, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
