"""Long runs of all campaigns against the proof, side by side: how many kernels, how many proved, how many of these are wrong, and what decided nothing.

``python benchmarks/evidence.py [--jobs J] [--seconds T] [--seed S] [--logs DIR] [--add FILE]``. Each process has seeds of its own, which follow from S and its
number, so runs with different S look at different kernels. ``--add`` adds the run's counts to those of earlier ones in a file, and prints the sums.

``failed`` are kernels on which the checker or an oracle fails, ``not run`` are proved kernels of which no launch decided anything. ``launches`` are those
that decided something; the columns behind are those that did not, by kind (:mod:`taskfuse.testing.launches`).

A campaign that a run gives k processes takes k of each 15 (:data:`SHARES`). Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from taskfuse.testing.launches import Ending, count, is_idle

ROOT = Path(__file__).parents[1]
EACH = 10_000_000
"""Seeds of one process: more than it comes to in any run."""
KERNELS = 1_000_000
SHARES: tuple[tuple[str, ...], ...] = (
    *[("soundness", "--mix", "small", "--mutants", "1", "--sizes", "3")] * 4,
    ("soundness", "--mix", "everything", "--mutants", "1", "--sizes", "2"),
    ("soundness", "--mix", "scatter", "--mutants", "3", "--sizes", "3"),
    ("soundness", "--mix", "jagged", "--mutants", "3", "--sizes", "3"),
    *[("agreement",)] * 3,
    *[("refutation",)] * 3,
    *[("maps",)] * 2,
)
"""What processes run, in turn."""
COLUMNS = ("kernels", "proved", "at extents", "wrong", "failed", "not run", "launches", "too long", "refused", "raises")
ALARMS = ("CONTRADICTION", "FALSE", "MISSED", "ERROR", "Traceback")
ONE_THREAD = ("env", "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1")
Counts = dict[str, Counter[str]]


def name(share: Sequence[str]) -> str:
    """A campaign in one word."""
    return share[0] if len(share) == 1 else f"{share[0]}:{share[2]}"


def counted(tool: str, row: Mapping[str, Any]) -> Counter[str]:
    """What a line of a log adds to each column."""
    match tool.partition(":")[0]:
        case "soundness":
            proved, at, wrong = row["said"] == "proved", row["said"] == "proved at extents", bool(row["failure"])
        case "agreement":
            proved, at = row["static"] == "proved", False
            wrong = proved and (row["exhaustive"] == "fails" or row["random"] in ("fails", "strict") or bool(row["fault"]))
        case "refutation":
            proved, at, wrong = row["proved"], bool(row["at"]), bool(row["fault"]) and (row["proved"] or bool(row["at"]))
        case _:
            proved, at = row["said"] == "proved", row["said"] not in ("", "proved")
            wrong = bool(row["said"]) and bool(row["fault"])
    launches = row["launches"]
    endings = [count(launches, e) for e in (Ending.DECIDED, Ending.LONG, Ending.REFUSED, Ending.RAISES)]
    numbers = (1, proved, at, wrong, bool(row["error"]), (proved or at) and is_idle(launches), *endings)
    return Counter[str](dict(zip(COLUMNS, map(int, numbers), strict=True)))


def run(jobs: int, seconds: float, seed: int, folder: Path) -> tuple[Counts, list[str]]:
    """Run the campaigns, end them after some seconds, and count the lines of their logs. Also, in words, those that failed or looked at nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    processes: list[tuple[str, Path, subprocess.Popen[bytes]]] = []
    for k in range(jobs):
        share = SHARES[k % len(SHARES)]
        log = folder / f"{k}.jsonl"
        line = [
            *ONE_THREAD,
            sys.executable,
            "-m",
            f"taskfuse.testing.{share[0]}",
            *share[1:],
            "--cases",
            str(KERNELS),
            "--seed",
            str((seed * jobs + k) * EACH),
            "--log",
            str(log),
        ]
        with (folder / f"{k}.txt").open("wb") as said:
            processes.append((name(share), log, subprocess.Popen(line, stdout=said, stderr=subprocess.STDOUT, cwd=ROOT)))
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(p.poll() is None for _, _, p in processes):
        time.sleep(0.5)
    found: dict[str, Counter[str]] = {}
    broken: list[str] = []
    for tool, log, process in processes:
        if process.poll() is None:
            process.terminate()
        elif process.returncode:
            broken.append(f"{tool} ended with status {process.returncode}")
        process.wait()
        of = found.setdefault(tool, Counter[str]())
        for row in rows(log):
            of.update(counted(tool, row))
    broken += [f"{tool} looked at no kernel" for tool, of in found.items() if not of["kernels"]]
    return found, broken


def rows(log: Path) -> Iterator[Mapping[str, Any]]:
    """The lines of a log; the last may be incomplete."""
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return


def table(counts: Counts) -> str:
    """Counts as text, with their sums."""
    total = Counter[str]()
    for of in counts.values():
        total.update(of)
    lines = [f"{'campaign':22}" + "".join(f"{c:>12}" for c in COLUMNS)]
    lines += [f"{tool:22}" + "".join(f"{of[c]:12}" for c in COLUMNS) for tool, of in [*sorted(counts.items()), ("all", total)]]
    return "\n".join(lines)


def read(text: str) -> Counts:
    """The counts of a table."""
    found = {line.split()[0]: line.split()[1:] for line in text.splitlines()[1:] if line}
    return {tool: Counter[str](dict(zip(COLUMNS, map(int, of), strict=True))) for tool, of in found.items() if tool != "all"}


def main() -> int:
    """Returns the exit status: 1 if a proved kernel is wrong, or the checker, an oracle or a campaign failed."""
    line = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    line.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    line.add_argument("--seconds", type=float, default=130)
    line.add_argument("--seed", type=int, default=1)
    line.add_argument("--logs", type=Path, help="a folder that keeps the logs")
    line.add_argument("--add", type=Path, help="a file with the sums of earlier runs")
    options = line.parse_args()
    with tempfile.TemporaryDirectory() as kept:
        folder = options.logs or Path(kept)
        found, broken = run(options.jobs, options.seconds, options.seed, folder)
        print(table(found), *broken, sep="\n")
        for said in sorted(folder.glob("*.txt")):
            alarms = [text for text in said.read_text(encoding="utf-8").splitlines() if text.startswith(ALARMS)]
            print(*alarms, sep="\n", end="\n" if alarms else "")
    if options.add is not None:
        sums = read(options.add.read_text(encoding="utf-8")) if options.add.exists() else {}
        for tool, of in found.items():
            sums.setdefault(tool, Counter[str]()).update(of)
        options.add.write_text(table(sums) + "\n", encoding="utf-8")
        print(f"\nwith earlier runs\n{table(sums)}")
    return 1 if broken or any(of["wrong"] or of["failed"] for of in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
