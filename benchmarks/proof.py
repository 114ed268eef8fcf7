"""What the static proof covers, and what it costs: verdicts and times over examples, kernels of the tests, and random kernels of every mix.

``python benchmarks/proof.py [--seeds N] [--write]``; ``--write`` also stores the figures in ``benchmarks/results/proof.txt``. A time is that of the
argument, up to its first gap: what ``tf.compile`` waits for; processor time of one process, modules loaded. Kernels that are not proved for all
extents are proved for those of the case, as a call would; these times, and those of the search for a counterexample, are apart.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import taskfuse as tf
from taskfuse.check import Certificate, Verdict, verify
from taskfuse.kir import Kernel
from taskfuse.testing.case import seeded_case
from taskfuse.testing.options import Mix

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "proof.txt"
SLOWEST = 8
FIRST = ("mixed", "usual", "pipelines", "prefetch", "persistent", "blocks", "streams", "exact", "warps", "large", "pointwise")
"""The mixes of the table of 22 November 2026, from which the goals for these times are: 8 ms in the median, p99 70 ms."""


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel: whether it is proved for all extents, or else for those of its case; milliseconds of both, and of the search for a counterexample."""

    corpus: str
    name: str
    verdict: str
    argument: float
    at_extents: float | None
    search: float | None


def corpus(seeds: int) -> Iterator[tuple[str, str, Kernel, Mapping[str, int]]]:
    """Name of the corpus and of the kernel, the kernel, extents to run it at."""
    for folder in ("tests/goldens/examples", "tests/kernels"):
        for path in sorted((ROOT / folder).glob("*.kir")):
            yield folder, path.stem, tf.parse_kernel(path.read_text(encoding="utf-8")), {}
    for mix in Mix:
        for seed in range(seeds):
            case = seeded_case(seed, mix)
            if case.kernel is not None:
                yield f"mix {mix.value}", str(seed), case.kernel, case.sizes


def timed(kernel: Kernel, extents: Mapping[str, int] | None = None) -> tuple[Certificate, float]:
    """A certificate, and what its argument took; what other kernels left behind is collected before."""
    gc.collect()
    start = time.process_time()
    certificate = verify(kernel, extents)
    _ = certificate.is_proved
    return certificate, 1e3 * (time.process_time() - start)


def measure(name: str, seed: str, kernel: Kernel, extents: Mapping[str, int]) -> Row:
    """Look at one kernel."""
    certificate, argument = timed(kernel)
    if certificate.is_proved:
        return Row(name, seed, "proved", argument, None, None)
    start = time.process_time()
    verdict = certificate.verdict
    search = 1e3 * (time.process_time() - start)
    if verdict is Verdict.REFUTED or not kernel.extents:
        return Row(name, seed, verdict.value, argument, None, search)
    at, then = timed(kernel, extents)
    return Row(name, seed, "proved at the extents of a call" if at.is_proved else verdict.value, argument, then, search)


def quantile(values: list[float], part: float) -> float:
    """The value below which a part of some values lies."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def report(rows: list[Row]) -> Iterator[str]:
    """The table."""
    kinds = ("proved", "proved at the extents of a call", "outside the model", "refuted")
    yield f"{'':26}{'kernels':>8}{'proved':>8}{'at call':>8}{'outside':>8}{'refuted':>8}{'median':>9}{'p99':>9}{'most':>9}  ms"
    names = list(dict.fromkeys(r.corpus for r in rows))
    parts = {name: [r for r in rows if r.corpus == name] for name in names}
    first = {f"mix {mix}" for mix in FIRST}
    parts["corpora of 22 November"] = [r for r in rows if r.corpus in first or not r.corpus.startswith("mix ")]
    parts["all"] = rows
    for name, mine in parts.items():
        counts = "".join(f"{sum(r.verdict == kind for r in mine):8}" for kind in kinds)
        times = [r.argument for r in mine]
        yield f"{name:26}{len(mine):8}{counts}{quantile(times, 0.5):9.1f}{quantile(times, 0.99):9.1f}{max(times):9.1f}"
    yield ""
    for what, values in (
        ("at the extents of a call", [r.at_extents for r in rows if r.at_extents is not None]),
        ("search for a counterexample", [r.search for r in rows if r.search is not None]),
    ):
        if values:
            yield f"{what}: {len(values)} kernels, median {quantile(values, 0.5):.1f} ms, most {max(values):.1f} ms"
    yield ""
    slowest = sorted(rows, key=lambda r: -r.argument)[:SLOWEST]
    yield "slowest: " + ", ".join(f"{r.corpus} {r.name} {r.argument:.0f} ms" for r in slowest)
    for kind in kinds[1:]:
        found = [f"{r.corpus} {r.name}" for r in rows if r.verdict == kind]
        if found:
            yield f"{kind}: {', '.join(found)}"


def main() -> None:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=160, metavar="N", help="seeds of each mix (default: 160)")
    parser.add_argument("--write", action="store_true", help="store the figures in benchmarks/results")
    parser.add_argument("--date", default=str(datetime.date.today()), help="date that is stored with them (default: today)")
    options = parser.parse_args()
    for path in sorted((ROOT / "tests" / "kernels").glob("*.kir")):  # load what is loaded once
        timed(tf.parse_kernel(path.read_text(encoding="utf-8")))
    rows = [measure(*entry) for entry in corpus(options.seeds)]
    python = ".".join(map(str, sys.version_info[:2]))
    head = [
        f"{options.date}, {platform.system()} {platform.machine()}, Python {python}, one process",
        f"python benchmarks/proof.py --seeds {options.seeds} --write",
    ]
    text = "\n".join([*head, "", *report(rows)])
    print(text)
    if options.write:
        RESULTS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
