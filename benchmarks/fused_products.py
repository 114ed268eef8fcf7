"""Matrix products with what stands before and beside them, as one kernel of ``tf.schedulers.matmul``, beside torch: eager, and ``torch.compile`` for some.

``python benchmarks/fused_products.py [--write] [--count N] [--seed N] [--seconds S] [--kinds]``. Programs: ``add``, a @ b + c @ d with K of each product,
``gated``, silu(x @ up) * (x @ gate), and ``relu``, relu(a) @ b, in bfloat16, each product rounded as eager torch rounds it; fixed sizes, then multiples of 128
up to 4096 from a seed. Kernels are built in parallel before anything is measured. A time is that of one of 10 calls in a CUDA graph, the median of 20 replays;
ours and theirs are replayed in turn; ``alone``: of torch's products without what else there is, which no kernel beats whose products are as fast as
cuBLAS's. Outputs are poisoned with NaN, then compared with the same in float32: an element may be off by 2**-6 of itself and
2**-7 of the magnitudes of the products. ``--kinds`` measures the first candidate of the cost model for other tiles, too, of the first sizes.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch
from built import Built, built
from reporting import in_turn, parser, publish

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig
from taskfuse.target import DEFAULT

TARGET = DEFAULT
COMPILED = 3
"""Sizes that torch compiles, too."""


@dataclass(frozen=True)
class Job:
    """A kernel to build.

    Attributes:
        program: ``add``, ``gated`` or ``relu``.
        config: the parameters; ``None``: the scheduler's choice.
    """

    program: str
    m: int
    n: int
    k: int
    config: MatmulConfig | None = None

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Of the inputs."""
        rows, columns = (self.m, self.k), (self.k, self.n)
        return {"relu": [rows, columns], "gated": [rows, columns, columns], "add": [rows, columns, rows, columns]}[self.program]

    def fusion(self) -> tf.Fusion:
        """The math."""
        with tf.Fusion(self.program) as fusion:
            given = [tf.define_tensor(list(s), dtype=tf.bfloat16, name=f"x{i}") for i, s in enumerate(self.shapes)]
            match self.program:
                case "gated":
                    fusion.add_output(tf.silu(given[0] @ given[1]) * (given[0] @ given[2]))
                case "add":
                    fusion.add_output(given[0] @ given[1] + given[2] @ given[3])
                case _:
                    fusion.add_output(tf.relu(given[0]) @ given[1])
        return fusion

    def __str__(self) -> str:
        return f"{self.program:6} {self.m:5} {self.n:5} {self.k:5}"


FIXED = (
    Job("gated", 8192, 8192, 2048),
    Job("add", 4096, 4096, 4096),
    Job("relu", 4096, 4096, 4096),
    Job("gated", 4096, 14336, 4096),
    Job("add", 2048, 2048, 2048),
    Job("relu", 2048, 2048, 2048),
)


def gated(x: torch.Tensor, up: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Two products of one input."""
    return torch.nn.functional.silu(x @ up) * (x @ gate)


def add(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    """A sum of products."""
    return a @ b + c @ d


def relu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A product with a prologue."""
    return torch.relu(a) @ b


def products(program: str, args: list[torch.Tensor]) -> Callable[[], object]:
    """The products alone, into outputs that are there."""
    pairs = {"relu": [(0, 1)], "gated": [(0, 1), (0, 2)], "add": [(0, 1), (2, 3)]}[program]
    outs = [torch.empty(args[i].shape[0], args[j].shape[1], device="cuda", dtype=torch.bfloat16) for i, j in pairs]
    return lambda: [torch.mm(args[i], args[j], out=out) for (i, j), out in zip(pairs, outs, strict=True)]


MATH: dict[str, Callable[..., torch.Tensor]] = {"gated": gated, "add": add, "relu": relu}


def build(job: Job) -> Built:
    """Schedule, lower and compile a job."""
    return built(job.fusion(), job.config, TARGET)


def kinds_of(job: Job) -> list[Job]:
    """The job with the first candidate of each tile but the one that is chosen."""
    first: dict[object, MatmulConfig] = {}
    for option in tf.schedulers.matmul(job.fusion(), target=TARGET).alternatives:
        c = option.config
        first.setdefault((c.tile_m, c.tile_n, c.kind, c.cluster), c)
    return [replace(job, config=c) for c in list(first.values())[1:6]]


def check(job: Job, args: list[torch.Tensor], out: torch.Tensor) -> None:
    """Exits if an element is wrong."""
    wide = [x.float() for x in args]
    parts = (wide[0] @ wide[1]).abs() + (wide[2 if job.program == "add" else 0] @ wide[-1]).abs()
    wanted = MATH[job.program](*wide)
    error = (out.float() - wanted).abs()
    if not bool((error <= wanted.abs() * 2**-6 + parts * 2**-7).all()):
        sys.exit(f"{job}: differs by {float(torch.nan_to_num(error, nan=float('inf')).max()):g}")


def main() -> None:
    """Measure, print and, if asked, store."""
    options_parser = parser(__doc__)
    options_parser.add_argument("--count", type=int, default=12)
    options_parser.add_argument("--seed", type=int, default=1)
    options_parser.add_argument("--seconds", type=float, default=70.0)
    options_parser.add_argument("--kinds", action="store_true")
    options = options_parser.parse_args()
    end = time.monotonic() + options.seconds
    rng = random.Random(options.seed)
    sizes = [[128 * rng.randint(1, 32) for _ in range(3)] for _ in range(options.count)]
    jobs = [*FIXED, *(Job(("gated", "add", "relu")[i % 3], m, n, k) for i, (m, n, k) in enumerate(sizes))]
    asked = [(job, kinds_of(job) if options.kinds and i < COMPILED else []) for i, job in enumerate(jobs)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        built: dict[Job, Future[Built]] = {job: pool.submit(build, job) for first, more in asked for job in (first, *more)}
        lines = [f"  {'program m n k':24} {'ours us':>9} {'model us':>9} {'eager us':>9} {'x':>6} {'alone':>9} {'compiled':>9} {'x':>6}  schedule"]
        ratios: dict[str, list[float]] = {program: [] for program in MATH}
        torch.manual_seed(0)
        for i, (job, more) in enumerate(asked):
            args = [torch.randn(s, device="cuda", dtype=torch.bfloat16) * s[0 if k else 1] ** -0.5 for k, s in enumerate(job.shapes)]
            math: Any = MATH[job.program]
            theirs: list[Callable[[], object]] = [lambda a=args, f=math: f(*a), products(job.program, args)]
            if i < COMPILED:
                fast = torch.compile(math, dynamic=False)
                theirs.append(lambda a=args, f=fast: f(*a))
            for one in (job, *more):
                if time.monotonic() > end:
                    break
                made = built[one].result()
                run: Any = tf.compile(made.kernel, backend="cuda", unsafe=True)
                out = torch.full((job.m, job.n), float("nan"), device="cuda", dtype=torch.bfloat16)
                run(*args, out=out)
                check(one, args, out)
                ours, eager, alone, *compiled = in_turn([lambda a=args, r=run, o=out: r(*a, out=o), *theirs])
                check(one, args, out)
                if one is job:
                    ratios[job.program].append(eager / ours)
                c = made.config
                beside = f"{compiled[0]:9.2f} {compiled[0] / ours:6.3f}" if compiled else f"{'':9} {'':6}"
                kind = f"{c.tile_m}x{c.tile_n}/{c.warpgroups}{'t' * c.is_pingpong} s{c.stages} g{c.group} c{c.cluster}"
                lines.append(f"  {one!s:24} {ours:9.2f} {made.expected_us:9.1f} {eager:9.2f} {eager / ours:6.3f} {alone:9.2f} {beside}  {kind}")
                print(lines[-1], file=sys.stderr, flush=True)
    for program, found in ratios.items():
        if found:
            mean, wins = statistics.geometric_mean(found), sum(r >= 1 for r in found)
            lines.append(f"  {program}: {len(found)} sizes beside eager: geometric mean {mean:.3f}, worst {min(found):.3f}, wins {wins}")
    publish("fused_products", lines, options)


if __name__ == "__main__":
    main()
