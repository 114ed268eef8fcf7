"""Matrix products of ``tf.schedulers.matmul`` beside torch (cuBLAS), bf16 with float32 sums, and e4m3 beside ``torch._scaled_mm``.

``python benchmarks/matmul.py [PART ...] [--write] [--seed N] [--count N] [--seconds S] [--sweep FILE]``. Parts: ``sizes`` (nine sizes), ``fused``
(bias and an activation in the epilogue, beside eager torch and cublasLt's fused form), ``layouts`` (which axis of the operands is contiguous),
``tiny`` (few rows) and ``compiled`` (the random sizes) as ``tf.compile`` schedules them for an H200, where long sums may be two kernels,
``kinds`` (the nine sizes and two of e4m3 by the first of every kind in the order of the cost model, and by its first three), ``random``
(multiples of 128 up to 4096, from a seed). Kernels are built for constant extents, in parallel before anything is measured. A time is
that of one of 10 calls in a CUDA graph, the median of 20 replays; ours and theirs are replayed in turn, so that throttling hits both. Outputs
are poisoned with NaN, then compared with a float32 product: an element may be off by half a unit of bf16 and 2**-20 of the sum of its
terms' sizes, with operands of 8 bits 2**-10. ``--sweep`` measures every candidate of the cost model at each size, or the first ``--first``, one of each tile,
and appends a line of JSON for each to FILE; ``--at 2432x2176x2176 ...`` are further sizes for it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from built import Built, built
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig

SIZES = (
    (8192, 8192, 8192),
    (4096, 4096, 4096),
    (4096, 4096, 1024),
    (2048, 2048, 2048),
    (1024, 1024, 1024),
    (4096, 7168, 2048),
    (512, 4096, 7168),
    (64, 7168, 2048),
    (384, 128, 3584),
)
EIGHT_BITS = ((4096, 4096, 2048), (4096, 4096, 4096))
FUSED = ((4096, 4096, 4096), (2048, 2048, 2048), (1024, 4096, 1024), (3456, 1408, 1920))
ACTIVATIONS: dict[str, tuple[Callable[[tf.TensorView], tf.TensorView], Callable[[torch.Tensor], torch.Tensor]]] = {
    "relu": (tf.relu, torch.relu),
    "gelu": (tf.gelu_tanh, lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
}
PARTS = ("sizes", "kinds", "fused", "layouts", "random", "tiny", "compiled")
TINY = tuple((m, n, k) for m in (1, 8, 16, 64) for n, k in ((4096, 4096), (14336, 4096), (4096, 14336)))
COMPILED_FOR = "H200"
DTYPES = {"bfloat16": (tf.bfloat16, torch.bfloat16), "float8_e4m3": (tf.float8_e4m3, torch.float8_e4m3fn)}
FIRST = 3
"""Candidates of the cost model that the part ``kinds`` measures, whatever their kinds are."""
BUCKETS_US = (8, 15, 30, 60, 120)


@dataclass(frozen=True)
class Job:
    """A kernel to build: ``activation(a @ b + bias)``, or ``a @ b``; of 8-bit floats ``scale * (a @ b)``.

    Attributes:
        layout: for each operand, ``k`` if k is contiguous, else ``m`` or ``n``.
        config: the parameters; ``None``: the scheduler's choice.
        fast_math: approximate functions.
        dtype: of the operands.
    """

    m: int
    n: int
    k: int
    activation: str | None = None
    layout: str = "kk"
    config: MatmulConfig | None = None
    fast_math: bool = False
    dtype: str = "bfloat16"

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of the operands as they lie in memory."""
        m, n, k = self.m, self.n, self.k
        return ((m, k) if self.layout[0] == "k" else (k, m)), ((n, k) if self.layout[1] == "k" else (k, n))

    @property
    def is_scaled(self) -> bool:
        """Whether the product has a factor."""
        return self.dtype != "bfloat16"

    def fusion(self) -> tf.Fusion:
        """The math."""
        with tf.Fusion("gemm") as fusion:
            a, b = (tf.define_tensor(list(s), dtype=DTYPES[self.dtype][0], name=name) for s, name in zip(self.shapes, "ab", strict=True))
            x = tf.matmul(a if self.layout[0] == "k" else a.T, b.T if self.layout[1] == "k" else b, dtype=tf.float32)
            if self.is_scaled:
                x = x * tf.define_scalar(tf.float32, name="scale")
            if self.activation is not None:
                x = ACTIVATIONS[self.activation][0](x + tf.define_tensor([self.n], dtype=tf.bfloat16, name="bias"))
            fusion.add_output(tf.cast(x, tf.bfloat16))
        return fusion

    def __str__(self) -> str:
        return f"{self.m} {self.n} {self.k}"


def build(job: Job) -> Built:
    """Schedule, lower and compile a job."""
    return built(job.fusion(), job.config, fast_math=job.fast_math)


def warm(job: Job) -> None:
    """Have ``tf.compile`` schedule, prove and compile a job; what it finds stays on disk."""
    for kernel in tf.compile(job.fusion(), "cuda", target=COMPILED_FOR).kernels:
        kernel.cubin()


def candidates(job: Job) -> list[Job]:
    """The job with each configuration that the cost model chooses from."""
    found = tf.schedulers.matmul(job.fusion()).alternatives
    return [replace(job, config=e.config) for e in found]


def first_tiles(job: Job, count: int | None) -> list[Job]:
    """Of the candidates, the first of each of so many tiles; all without a count."""
    found = candidates(job)
    if count is None:
        return found
    tiles: dict[object, Job] = {}
    for c in found:
        assert c.config is not None
        tiles.setdefault((c.config.tile_m, c.config.tile_n, c.config.kind, c.config.cluster), c)
    return list(tiles.values())[:count]


def kinds_of(job: Job) -> list[Job]:
    """The job with the first candidates of the cost model, and with the first of every kind."""
    found = candidates(job)
    first: dict[object, Job] = {}
    for c in found:
        assert c.config is not None
        first.setdefault((c.config.kind, c.config.cluster), c)
    return [c for k, c in enumerate(found) if k < FIRST or c in first.values()]


class Bench:
    """Measures jobs.

    Args:
        seconds: after so many no more are begun.
    """

    def __init__(self, seconds: float) -> None:
        self.pool = ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("fork"))
        self.built: dict[Job, Future[Built]] = {}
        self.warmed: dict[Job, Future[None]] = {}
        self.end = time.monotonic() + seconds

    def submit(self, jobs: Sequence[Job]) -> None:
        """Begin to build jobs. Before anything runs on the GPU: the processes are forks of this one."""
        self.built |= {job: self.pool.submit(build, job) for job in jobs if job not in self.built}

    def warm(self, jobs: Sequence[Job]) -> None:
        """Begin to compile jobs, before anything runs on the GPU."""
        self.warmed |= {job: self.pool.submit(warm, job) for job in jobs}

    def compiled(self, job: Job) -> tuple[int, float, float, float]:
        """The number of kernels, and microseconds: of ours, of ``torch.mm``, and as expected."""
        self.warmed[job].result()
        run = tf.compile(job.fusion(), "cuda", target=COMPILED_FOR)
        args = [torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in job.shapes]
        out = torch.full((job.m, job.n), float("nan"), device="cuda", dtype=torch.bfloat16)
        run(*args, out=out)
        check(job, args, out)
        theirs = mm(job)
        ours, cublas = in_turn([lambda: run(*args, out=out), lambda: theirs(args)])
        check(job, args, out)
        assert run.schedule is not None
        return len(run.kernels), ours, cublas, run.schedule.us

    def late(self) -> bool:
        """True if the time is over."""
        return time.monotonic() > self.end

    def measure(self, job: Job, *theirs: Callable[[Sequence[torch.Tensor]], object]) -> tuple[Built, list[float], float]:
        """Microseconds of ours and of each of ``theirs``, and the greatest error relative to the sum of a term's sizes."""
        built = self.built[job].result()
        generator = torch.Generator("cuda").manual_seed(job.m * 31 + job.n * 17 + job.k)
        args = [torch.randn(s, device="cuda", dtype=torch.bfloat16, generator=generator).to(DTYPES[job.dtype][1]) for s in job.shapes]
        if job.activation is not None:
            args.append(torch.randn(job.n, device="cuda", dtype=torch.bfloat16, generator=generator))
        run = tf.compile(built.kernel, backend="cuda", fast_math=job.fast_math, unsafe=True)  # kinds that spill are measured, too
        out = torch.full((job.m, job.n), float("nan"), device="cuda", dtype=torch.bfloat16)
        scale = (1.0,) if job.is_scaled else ()
        run(*args, *scale, out=out)
        error = check(job, args, out)
        times = in_turn([lambda: run(*args, *scale, out=out), *(lambda f=f: f(args) for f in theirs)])
        check(job, args, out)
        return built, times, error


def operands(job: Job, args: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """A [m, k] and B [k, n] as views."""
    return args[0] if job.layout[0] == "k" else args[0].T, args[1].T if job.layout[1] == "k" else args[1]


def check(job: Job, args: Sequence[torch.Tensor], out: torch.Tensor) -> float:
    """The greatest error relative to the sum of a term's sizes; exits if an element is wrong."""
    a, b = (x.float() for x in operands(job, args))
    wanted, size = a @ b, a.abs() @ b.abs()
    if job.activation is not None:
        wanted = ACTIVATIONS[job.activation][1](wanted + args[2].float())
    error = (out.float() - wanted).abs()
    if not bool((error <= wanted.abs() * 2**-8 + size * (2**-10 if job.is_scaled else 2**-20) + 1e-3 * (job.activation == "gelu")).all()):
        worst = int(torch.nan_to_num(error, nan=math.inf).argmax())
        sys.exit(f"{job}: element {divmod(worst, job.n)} is {out.flatten()[worst]}, not {wanted.flatten()[worst]}")
    return float((error / size).max())


def mm(job: Job) -> Callable[[Sequence[torch.Tensor]], object]:
    """``torch.mm`` into an output that is there already; of 8-bit floats ``torch._scaled_mm`` with its fast accumulation."""
    if job.is_scaled:
        one = torch.ones((), device="cuda")

        def scaled(args: Sequence[torch.Tensor]) -> object:
            a, b = operands(job, args)
            return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)

        return scaled
    out = torch.empty(job.m, job.n, device="cuda", dtype=torch.bfloat16)
    return lambda args: torch.mm(*operands(job, args), out=out)


def tile(config: MatmulConfig) -> str:
    """A configuration in a few letters: tile, warpgroups (t: in turns), stages, group, blocks, blocks of a cluster."""
    turns, cluster = "t" if config.is_pingpong else "", f" c{config.cluster}" if config.cluster > 1 else ""
    return f"{config.tile_m}x{config.tile_n}/{config.warpgroups}{turns} s{config.stages} g{config.group} b{config.blocks}{cluster}"


def geomean(values: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(statistics.fmean(math.log(v) for v in values)) if values else math.nan


HEAD = f"  {'m n k':18} {'ours us':>9} {'mm us':>9} {'ratio':>6} {'TFLOP/s':>8} {'model us':>9} {'error':>8}  schedule"


def beside_mm(bench: Bench, job: Job, show: Callable[[str], None], note: str = "") -> float:
    """One line: ours beside ``torch.mm``. Returns the ratio."""
    built, (ours, theirs), error = bench.measure(job, mm(job))
    flops = 2 * job.m * job.n * job.k / ours / 1e6
    show(f"  {job!s:18} {ours:9.2f} {theirs:9.2f} {theirs / ours:6.3f} {flops:8.1f} {built.expected_us:9.1f} {error:8.1e}  {tile(built.config)}{note}")
    return theirs / ours


def sizes(bench: Bench, jobs: Sequence[Job], show: Callable[[str], None]) -> None:
    """The nine sizes."""
    show("beside torch.mm; ratio: theirs / ours")
    show(HEAD)
    ratios = [beside_mm(bench, job, show) for job in jobs if not bench.late()]
    show(f"  geometric mean {geomean(ratios):.3f}")


def kinds(bench: Bench, jobs: Sequence[Job], show: Callable[[str], None]) -> None:
    """Every kind of schedule."""
    show("every kind, in the order of the cost model (t: warpgroups take turns, c2: clusters of two); operands of 8 bits beside torch._scaled_mm")
    show(HEAD)
    for job in jobs:
        if not bench.late():
            beside_mm(bench, job, show, f"  {job.dtype}" if job.is_scaled else "")


def layouts(bench: Bench, jobs: Sequence[Job], show: Callable[[str], None]) -> None:
    """The four layouts of the operands."""
    show("operands with another contiguous axis")
    show(HEAD)
    for job in jobs:
        if not bench.late():
            beside_mm(bench, job, show, f"  {job.layout}")


def fused(bench: Bench, jobs: Sequence[Job], show: Callable[[str], None]) -> None:
    """Bias and activation."""
    show("act(a @ b + bias), beside torch eager and cublasLt's fused form")
    show(f"  {'m n k':18} {'act':9} {'ours us':>9} {'eager us':>9} {'fused us':>9} {'eager x':>8} {'fused x':>8}  schedule")
    for job in jobs:
        if bench.late() or job.activation is None:
            continue
        act = ACTIVATIONS[job.activation][1]
        built, (ours, eager, lt), _ = bench.measure(
            job,
            lambda args, act=act: act(torch.nn.functional.linear(args[0], args[1], args[2])),
            lambda args, job=job: torch._addmm_activation(args[2], args[0], args[1].T, use_gelu=job.activation == "gelu"),
        )
        name = job.activation + (" fast" if job.fast_math else "")
        show(f"  {job!s:18} {name:9} {ours:9.2f} {eager:9.2f} {lt:9.2f} {eager / ours:8.3f} {lt / ours:8.3f}  {tile(built.config)}")


def curve(ratios: Sequence[float], step: float = 0.05) -> list[str]:
    """The sorted ratios drawn: a column each, a row per ``step``."""
    if not ratios:
        return []
    rows = range(round(max(ratios) / step), round(min(ratios) / step) - 1, -1)
    return [f"{row * step:5.2f} |{''.join('*' if round(r / step) == row else ' ' for r in ratios)}" for row in rows]


def random_sizes(bench: Bench, jobs: Sequence[Job], show: Callable[[str], None], seed: int) -> None:
    """Random sizes: each a line, then what they say together."""
    show(f"{len(jobs)} random sizes, multiples of 128 up to 4096, seed {seed}")
    show(HEAD)
    found: list[tuple[float, float]] = []
    for job in jobs:
        if not bench.late():
            built, (ours, theirs), error = bench.measure(job, mm(job))
            flops = 2 * job.m * job.n * job.k / ours / 1e6
            found.append((theirs, theirs / ours))
            show(f"  {job!s:18} {ours:9.2f} {theirs:9.2f} {theirs / ours:6.3f} {flops:8.1f} {built.expected_us:9.1f} {error:8.1e}  {tile(built.config)}")
    ratios = sorted(r for _, r in found)
    show(f"  {len(ratios)} sizes: geometric mean {geomean(ratios):.3f}, worst {min(ratios, default=math.nan):.3f}, wins {sum(r >= 1 for r in ratios)}")
    show("  ratios in order: " + " ".join(f"{r:.2f}" for r in ratios))
    for line in curve(ratios):
        show(f"  {line}")
    edges = [0.0, *BUCKETS_US, math.inf]
    for low, high in itertools.pairwise(edges):
        bucket = [r for t, r in found if low <= t < high]
        if bucket:
            show(f"  torch takes {low:3.0f} to {high:3.0f} us: {len(bucket):3} sizes, mean {geomean(bucket):.3f}, worst {min(bucket):.3f}")


def compiled(bench: Bench, jobs: Sequence[Job], show: Callable[[str], None], title: str) -> None:
    """As ``tf.compile`` schedules them."""
    show(title)
    show(f"  {'m n k':18} {'ours us':>9} {'mm us':>9} {'ratio':>6} {'model us':>9} {'TB/s':>6}  kernels")
    ratios: list[float] = []
    for job in jobs:
        if not bench.late():
            kernels, ours, theirs, model = bench.compiled(job)
            ratios.append(theirs / ours)
            moved = 2 * (job.m * job.k + job.n * job.k + job.m * job.n) / ours / 1e6
            show(f"  {job!s:18} {ours:9.2f} {theirs:9.2f} {theirs / ours:6.3f} {model:9.1f} {moved:6.2f}  {kernels}")
    if ratios:
        show(f"  {len(ratios)} sizes: geometric mean {geomean(ratios):.3f}, worst {min(ratios):.3f}, wins {sum(r >= 1 for r in ratios)}")


def sweep(bench: Bench, jobs: Sequence[Job], show: Callable[[str], None], file: Path) -> None:
    """Every candidate at each size; lines of JSON."""
    show(f"every candidate of the cost model, to {file.name}")
    best: dict[str, tuple[float, float]] = {}
    with file.open("a", encoding="utf-8") as lines:
        for job in jobs:
            if bench.late():
                break
            built, (ours, theirs), _ = bench.measure(job, mm(job))
            record = {
                "m": job.m,
                "n": job.n,
                "k": job.k,
                **asdict(built.config),
                "kind": built.config.kind.value,
                "us": ours,
                "torch": theirs,
                "model": built.expected_us,
            }
            lines.write(json.dumps(record) + "\n")
            best[str(job)] = min(best.get(str(job), (math.inf, 0.0)), (ours, theirs))
            show(f"  {job!s:18} {ours:9.2f} {theirs:9.2f} {theirs / ours:6.3f} model {built.expected_us:9.1f}  {tile(built.config)}")
    show(f"  the best of each size: geometric mean {geomean([t / o for o, t in best.values()]):.3f}")


def drawn(seed: int, count: int) -> list[Job]:
    """Random sizes."""
    rng = random.Random(seed)
    return [Job(128 * rng.randint(1, 32), 128 * rng.randint(1, 32), 128 * rng.randint(1, 32)) for _ in range(count)]


def arguments() -> argparse.Namespace:
    """The command line."""
    found: Any = parser(__doc__)
    found.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    found.add_argument("--seed", type=int, default=0, help="of the random sizes")
    found.add_argument("--count", type=int, default=100, help="of the random sizes")
    found.add_argument("--seconds", type=float, default=600, help="begin nothing after so many")
    found.add_argument("--at", nargs="*", default=[], metavar="MxNxK", help="further sizes to sweep")
    found.add_argument("--first", type=int, help="tiles of each size to sweep (default: all)")
    found.add_argument("--sweep", type=Path, metavar="FILE", help="measure every candidate, for the parts sizes, random and tiny")
    options = found.parse_args()
    unknown = [p for p in options.parts if p not in PARTS]
    if unknown:
        found.error(f"no part {', '.join(unknown)}: the parts are {', '.join(PARTS)}")
    return options


def main() -> None:
    """Build, measure, print and, if asked, store."""
    options = arguments()
    torch.backends.cuda.matmul.allow_tf32 = False
    parts = options.parts or (() if options.at else PARTS)
    nine, many = [Job(*s) for s in SIZES], drawn(options.seed, options.count)
    acts = [Job(*shape, activation, fast_math=fast) for activation in ACTIVATIONS for fast in (False, True)[: 1 + (activation == "gelu")] for shape in FUSED]
    orders = [Job(*s, None, layout) for s in ((4096, 4096, 4096), (2048, 2048, 2048)) for layout in ("kn", "mk", "mn")]
    few = [Job(*s) for s in TINY]
    swept: list[Job] = []
    file: Path | None = options.sweep
    if file is not None:
        given = [Job(m, n, k) for m, n, k in (map(int, text.split("x")) for text in options.at)]
        those = [*given, *(nine if "sizes" in parts else []), *(many if "random" in parts else []), *(few if "tiny" in parts else [])]
        swept = [c for job in those for c in first_tiles(job, options.first)]
    bench = Bench(options.seconds)
    eight = [Job(*s, dtype="float8_e4m3") for s in EIGHT_BITS]
    by_kind = [c for job in (*nine, *eight) for c in kinds_of(job)] if "kinds" in parts and file is None else []
    wanted = {"sizes": nine, "kinds": by_kind, "fused": acts, "layouts": orders, "random": many}
    bench.submit(swept or [job for part in parts for job in wanted.get(part, [])])
    bench.warm([*(few if "tiny" in parts else []), *(many if "compiled" in parts else [])])
    lines: list[str] = []

    def show(line: str) -> None:
        lines.append(line)
        print(line, file=sys.stderr, flush=True)

    if file is not None:
        sweep(bench, swept, show, file)
    else:
        if "sizes" in parts:
            sizes(bench, nine, show)
        if "kinds" in parts:
            kinds(bench, by_kind, show)
        if "fused" in parts:
            fused(bench, acts, show)
        if "layouts" in parts:
            layouts(bench, orders, show)
        if "random" in parts:
            random_sizes(bench, many, show, options.seed)
        if "tiny" in parts:
            compiled(bench, few, show, "few rows, by tf.compile")
        if "compiled" in parts:
            compiled(bench, many, show, f"{len(many)} random sizes, seed {options.seed}, by tf.compile")
    bench.pool.shutdown(cancel_futures=True)
    publish("matmul", lines, options)


if __name__ == "__main__":
    main()
