"""What the proof of values covers, and what the whole proof costs: examples, programs as people write them, norms, products, scans, random kernels.

``python benchmarks/values.py [--seeds N] [--seconds T] [--jobs J] [--write]``. Kernels of programs are those that ``tf.compile`` chooses, at the sizes of the
GPU benchmarks. Needs no GPU. A time is processor time of the whole argument; what lowering took is apart. Each kernel's line goes to stderr as it is looked
at. The parts of the corpus take turns, so a run that ends after T seconds has some of each.

Before a kernel is proved, what the process holds is frozen (``gc.freeze``): a collection in a proof would walk through all of it and leave the caches cold,
and a proof is timed as in a process that goes on from lowering to it.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path

import taskfuse as tf
from taskfuse.check import Layer, Obligation, Verdict, verify
from taskfuse.errors import TaskfuseError
from taskfuse.kir import Kernel
from taskfuse.testing.campaign import FOREVER, look_at
from taskfuse.testing.case import seeded_case
from taskfuse.testing.options import Mix

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.examples.cases import CASES, Case  # noqa: E402  - beside the package
from tests.schedulers.programs import ALIKE, BIG, Program  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "values.txt"
ROWS = ((8192, 4096), (16384, 1024), (2048, 16384))
PRODUCTS = ((4096, 4096, 4096), (128, 1408, 3456), (2048, 2048, 2048), (1024, 4096, 1024), (3456, 1408, 1920))
Named = tuple[str, str, Kernel, Mapping[str, int]]
SLOWEST = 12


def chosen(corpus: str, name: str, fusion: tf.Fusion) -> Iterator[Named]:
    """The kernels that ``tf.compile`` makes of a fusion nobody scheduled."""
    run = tf.compile(fusion, backend="sim", unsafe=True)
    for k, kernel in enumerate(run.kernels):
        yield corpus, f"{name}.{k}", kernel, {}


def norms() -> Iterator[tuple[str, tf.Fusion]]:
    """Norms and scans of rows."""
    for rows, columns in ROWS:
        for dtype in (tf.float32, tf.bfloat16):
            for name in ("softmax", "rms_norm", "layer_norm", "cumsum"):
                with tf.Fusion(name) as fusion:
                    x = tf.define_tensor([rows, columns], dtype=dtype, name="x")
                    match name:
                        case "softmax":
                            y = tf.softmax(x, axis=1)
                        case "rms_norm":
                            y = tf.rms_norm(x, tf.define_tensor([columns], dtype=dtype, name="w"))
                        case "layer_norm":
                            w, b = (tf.define_tensor([columns], dtype=dtype, name=n) for n in "wb")
                            y = tf.layer_norm(x, w, b)
                        case _:
                            y = tf.cumsum(x, axis=1)
                    fusion.add_output(y)
                yield f"{name} {rows}x{columns} {dtype}", fusion


def products() -> Iterator[tuple[str, tf.Fusion]]:
    """Matrix products."""
    for m, n, k in PRODUCTS:
        for dtype in (tf.bfloat16, tf.float32, tf.float8_e4m3):
            with tf.Fusion("matmul") as fusion:
                a, b = tf.define_tensor([m, k], dtype=dtype, name="a"), tf.define_tensor([n, k], dtype=dtype, name="b")
                fusion.add_output(tf.matmul(a, b.T).astype(tf.bfloat16) if dtype is not tf.float32 else tf.matmul(a, b.T))
            yield f"{m}x{n}x{k} {dtype}", fusion


def random_case(mix: Mix, seed: int) -> Iterator[Named]:
    """The kernel of a random case, if it has one."""
    case = seeded_case(seed, mix)
    if case.kernel is not None:
        yield f"mix {mix.value}", str(seed), case.kernel, case.sizes


def example(case: Case) -> Iterator[Named]:
    """The kernel of an example."""
    yield "examples", case.name, tf.lower(case.build()), {"M": 4096, "N": 4096, "K": 4096}


def program(made: Program) -> Iterator[Named]:
    """The kernels of a program."""
    return chosen("programs", made.build.__name__, made.fusion(made.large))


@cache
def corpus(seeds: int) -> tuple[Callable[[], Iterator[Named]], ...]:
    """What makes kernels: each its corpus and name, the kernel, extents to run it at. The parts take turns."""
    parts: list[list[Callable[[], Iterator[Named]]]] = [
        [partial(example, case) for case in CASES],
        [partial(program, made) for made in (*ALIKE, *BIG)],
        [partial(chosen, "norms, scans", name, fusion) for name, fusion in norms()],
        [partial(chosen, "products", name, fusion) for name, fusion in products()],
        *([partial(random_case, mix, seed) for seed in range(seeds)] for mix in Mix),
    ]
    return tuple(make for turn in zip_longest(*parts) for make in turn if make is not None)


@dataclass(frozen=True, slots=True)
class ProofRow:
    """A kernel: its corpus and name, how it is proved, processor milliseconds of lowering and of the proof, what is open."""

    corpus: str
    name: str
    verdict: str
    lowering: float
    spent: float
    reason: str


def look(seeds: int, number: int) -> list[ProofRow]:
    """The kernels that one part of the corpus makes."""
    start = time.process_time()
    try:
        kernels = [*corpus(seeds)[number]()]
    except Exception as error:
        return [ProofRow("not made", str(number), "outside", 0.0, 0.0, repr(error)[:160])]
    lowering = 1e3 * (time.process_time() - start)
    gc.collect()
    gc.freeze()
    rows: list[ProofRow] = []
    for name, kernel_name, kernel, extents in kernels:
        verdict, spent, reason = measure(kernel, {e.name: extents.get(e.name, max(e.min, 8)) for e in kernel.extents})
        rows.append(ProofRow(name, kernel_name, verdict, lowering / len(kernels), spent, reason))
    return rows


def measure(kernel: Kernel, extents: Mapping[str, int]) -> tuple[str, float, str]:
    """How it is proved, processor milliseconds of that, and what is open."""
    left: list[Obligation] = []
    spent = 0.0
    for how, at in (("all extents", None), *((("at extents", extents),) if kernel.extents else ())):
        start = time.process_time()
        try:
            left = [o for o in verify(kernel, at).argument if o.verdict is not Verdict.PROVED]
        except TaskfuseError as error:
            return "outside", 0.0, str(error).split("\n")[0]
        spent = 1e3 * (time.process_time() - start)
        if not left:
            run = any(o.layer is Layer.VALUES and o.subject == "launch" for o in verify(kernel, at).argument)
            return f"{how}, one run" if run else how, spent, ""
    first = left[0]
    verdict = "refuted" if any(o.verdict is Verdict.REFUTED for o in left) else "outside"
    return verdict, spent, f"{first.layer.value}: {first.subject[:60]}: {first.reason[:110]}"


def quantile(values: list[float], part: float) -> float:
    """The value below which a part of some values lies."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=FOREVER, help="end after so long, and print what was found")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    verdicts: dict[str, Counter[str]] = {}
    times: dict[str, list[tuple[float, str]]] = {}
    lowering: Counter[str] = Counter()
    left: list[str] = []
    numbers = range(len(corpus(options.seeds)))
    for row in (row for rows in look_at(partial(look, options.seeds), numbers, options.jobs, options.seconds) for row in rows):
        print(f"{row.corpus} {row.name}: {row.verdict}, {row.spent:.0f} ms", file=sys.stderr, flush=True)
        verdicts.setdefault(row.corpus, Counter())[row.verdict] += 1
        times.setdefault(row.corpus, []).append((row.spent, f"{row.corpus} {row.name}"))
        lowering[row.corpus] += round(row.lowering)
        if row.reason:
            left.append(f"  {row.corpus} {row.name}: {row.reason}")
    if not verdicts:
        print("no kernel was proved in that time")
        return
    kinds = ("all extents", "all extents, one run", "at extents", "at extents, one run", "outside", "refuted")
    busy = f", load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {options.jobs} processes"
    lines = [f"{datetime.date.today()}, {platform.machine()}, Python {platform.python_version()}{busy}, --seeds {options.seeds}, heap frozen", ""]
    lines.append(f"{'':22}" + "".join(f"{k:>22}" for k in kinds) + f"{'median ms':>11}{'p99 ms':>9}{'most ms':>9}{'lowering s':>12}")
    for name, counts in [*verdicts.items(), ("all", sum(verdicts.values(), Counter[str]()))]:
        spent = [t for corpus_name, of in times.items() if name in ("all", corpus_name) for t, _ in of]
        figures = f"{quantile(spent, 0.5):>11.1f}{quantile(spent, 0.99):>9.1f}{max(spent):>9.1f}"
        taken = lowering.total() if name == "all" else lowering[name]
        lines.append(f"{name:22}" + "".join(f"{counts[k]:>22}" for k in kinds) + figures + f"{taken / 1e3:>12.1f}")
    slowest = sorted((pair for of in times.values() for pair in of), reverse=True)[:SLOWEST]
    lines += ["", "slowest: " + ", ".join(f"{which} {spent:.0f} ms" for spent, which in slowest), "", *left]
    print("\n".join(lines))
    if options.write:
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
