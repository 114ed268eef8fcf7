"""Graphs that models make, scheduled automatically, against torch: run op by op and compiled.

``python benchmarks/traces.py [--write] [--only NAME ...] [--jobs N] [--seconds S]``. The graphs are those of ``benchmarks/graphs``, which ``aten.py``
reads. Inputs are random; every call of a round has inputs and outputs of its own, which together exceed the second-level cache; outputs are poisoned
before, and compared after with torch in float64. Medians of 20 rounds, by CUDA events, all runners of a graph in one process. First, N processes compile
all graphs with both, so that the caches on disk know them. A graph that fails, or whose results differ, has a line that says so.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from aten import Graph, fusion, graphs, torch_function
from reporting import L2_BYTES, gpu_median, parser, publish

import taskfuse as tf
from taskfuse.errors import TaskfuseError

sys.path.insert(0, str(Path(__file__).parents[1]))

ROUNDS = 20
MOST_SETS = 8
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 1e-2, torch.float16: 2e-3}
"""Of a result, relative to its greatest absolute value; other dtypes are exact."""
RANK = 8192


def dtype(name: str) -> Any:
    """The dtype of torch of a name."""
    return getattr(torch, name)


def arguments(graph: Graph) -> list[Any]:
    """Random: floats in [0.1, 1), of which every function of a loss is defined; integers 0 and 1."""
    found: list[Any] = []
    for n in graph.inputs:
        kind = dtype(n.dtype)
        if kind.is_floating_point:
            found.append((torch.rand(n.shape, device="cuda") * 0.9 + 0.1).to(kind))
        else:
            found.append(torch.randint(2, n.shape, device="cuda").to(kind))
    return found


def poisoned(like: Any) -> Any:
    """An array of the same form, of what no result is."""
    filler = float("nan") if like.is_floating_point() else (True if like.dtype is torch.bool else -77)
    return torch.full_like(like, filler, memory_format=torch.contiguous_format)


def error(found: Any, exact: Any) -> float:
    """The greatest difference, relative to the greatest absolute value of the exact result; infinite where only one is finite."""
    a, b = found.double(), exact.double()
    off = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())
    scale = b[b.isfinite()].abs().max() if bool(b.isfinite().any()) else torch.ones((), device=b.device, dtype=b.dtype)
    return float((off / scale.clamp(min=1e-30)).nan_to_num(math.inf).max()) if off.numel() else 0.0


def verdict(found: Sequence[Any], eager: Sequence[Any], exact: Sequence[Any]) -> str:
    """What is wrong with results: an error that is not of the size of rounding, nor of what torch makes op by op."""
    for k, (ours, theirs, wanted) in enumerate(zip(found, eager, exact, strict=True)):
        mine, least = error(ours, wanted), error(theirs, wanted)
        if not mine <= max(4 * least, TOLERANCE.get(ours.dtype, 0.0)):
            return f"  WRONG: result {k} is off by {mine:.2g}, torch by {least:.2g}"
    return ""


def products(graph: Graph) -> int:
    """Multiplications and additions of a graph's matrix products."""
    shapes = {n.name: n.shape for n in graph.nodes}
    return sum(2 * math.prod(n.shape) * shapes[n.args[0].text][-1] for n in graph.nodes if n.op in ("mm", "bmm"))


def first_call(graph: Graph) -> tuple[str, float, float, str]:
    """Seconds that taskfuse and torch take until the first result, and what went wrong."""
    torch.manual_seed(0)
    args = arguments(graph)
    start = time.perf_counter()
    fault = ""
    try:
        tf.compile(fusion(graph), backend="cuda")(*args)
        torch.cuda.synchronize()
    except Exception as error:
        fault = told(error)
    ours = time.perf_counter() - start
    start = time.perf_counter()
    try:
        torch.compile(torch_function(graph), dynamic=False)(*args)
        torch.cuda.synchronize()
    except Exception as error:
        fault = fault or f"torch.compile: {told(error)}"
    return graph.name, ours, time.perf_counter() - start, fault


def told(error: Exception) -> str:
    """A line about an error."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def row(graph: Graph, bandwidth: float, rate: float) -> tuple[str, float]:
    """Measure one graph: its line, and torch's time compiled over ours."""
    run, eager = tf.compile(fusion(graph), backend="cuda"), torch_function(graph)
    first = arguments(graph)
    wanted = eager(*first)
    size = sum(t.numel() * t.element_size() for t in (*first, *wanted))
    count = min(max(2, 2 * L2_BYTES // max(size, 1) + 1), MOST_SETS)
    sets = [(args, [poisoned(t) for t in wanted]) for args in (first, *(arguments(graph) for _ in range(count - 1)))]
    ours = gpu_median([lambda a=args, b=tuple(out): run(*a, out=b) for args, out in sets], ROUNDS)
    exact = torch_function(graph, exact=True)
    wrong = ""
    for args, out in (sets[0], sets[-1]):
        wrong = wrong or verdict(out, eager(*args), exact(*(a.double() if a.is_floating_point() else a for a in args)))
        torch.cuda.empty_cache()
    op_by_op = gpu_median([lambda a=args: eager(*a) for args, _ in sets], ROUNDS)
    fast = torch.compile(eager, dynamic=False)
    compiled = gpu_median([lambda a=args: fast(*a) for args, _ in sets], ROUNDS)
    bound = max(1e6 * size / bandwidth, 1e6 * products(graph) / rate)
    expected = float(getattr(run.schedule, "us", math.nan))
    made = len([n for n in graph.nodes if n.op])
    return (
        f"  {graph.name:34} {made:3} {len(run.kernels):3} {size / 1e6:8.1f} {ours:9.1f} {expected:9.1f} {bound:8.1f} {bound / ours:6.0%} "
        f"{op_by_op:9.1f} {compiled:9.1f} {compiled / ours:6.2f}{wrong}"
    ), compiled / ours


def main() -> None:
    """Measure, print and, if asked, store."""
    options_parser = parser(__doc__)
    options_parser.add_argument("--only", nargs="*", default=[], help="graphs whose names hold one of these")
    options_parser.add_argument("--jobs", type=int, default=4, help="processes that compile first (default: 4)")
    options_parser.add_argument("--seconds", type=float, default=1e9, help="no graph is measured later")
    options = options_parser.parse_args()
    begun = time.perf_counter()
    chosen = [g for g in graphs() if not options.only or any(o in g.name for o in options.only)]
    faults: dict[str, str] = {}
    seconds: dict[str, tuple[float, float]] = {}
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=8) as pool:
        for name, ours, theirs, fault in pool.imap_unordered(first_call, chosen):
            seconds[name] = ours, theirs
            if fault:
                faults[name] = fault
    print(f"compiled in {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    torch.manual_seed(0)
    pairs = [(torch.rand(1 << 28, device="cuda"), torch.empty(1 << 28, device="cuda")) for _ in range(2)]
    bandwidth = 2 * 4 * (1 << 28) / (gpu_median([lambda a=a, b=b: b.copy_(a) for a, b in pairs]) * 1e-6)
    del pairs
    square = torch.randn(RANK, RANK, device="cuda", dtype=torch.bfloat16)
    rate = 2 * RANK**3 / (gpu_median([lambda: square @ square], 10) * 1e-6)
    lines = [
        f"a copy moves {bandwidth / 1e12:.2f} TB/s (read and written), a bfloat16 product does {rate / 1e12:.0f} TFLOP/s; times in microseconds",
        "n: ops, kernels; expected: by the cost models; bound: inputs and outputs, or products, at those rates; share: bound / time; x: torch compiled / ours",
        f"  {'graph':34} {'n':>3} {'k':>3} {'MB':>8} {'time':>9} {'expected':>9} {'bound':>8} {'share':>6} {'torch':>9} {'compiled':>9} {'x':>6}",
    ]
    ratios: list[float] = []
    for graph in chosen:
        if graph.name in faults or time.perf_counter() - begun > options.seconds:
            lines.append(f"  {graph.name:34} {faults.get(graph.name, 'not measured: out of time')}")
        else:
            try:
                line, ratio = row(graph, bandwidth, rate)
                lines.append(line)
                ratios.append(ratio)
            except (TaskfuseError, RuntimeError) as error:
                lines.append(f"  {graph.name:34} {told(error)}")
        print(lines[-1], file=sys.stderr, flush=True)
        torch.cuda.empty_cache()
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        lines += [
            "",
            f"{len(ratios)} of {len(chosen)} graphs: geometric mean {mean:.2f} x, least {min(ratios):.2f}, median {statistics.median(ratios):.2f}",
        ]
        ours, theirs = (statistics.median(s[k] for s in seconds.values()) for k in (0, 1))
        lines.append(f"first calls, {options.jobs} processes at once: median {ours:.1f} s, torch.compile {theirs:.1f} s")
    publish("traces", lines, options)


if __name__ == "__main__":
    main()
