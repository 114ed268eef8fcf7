"""Graphs that models make, scheduled automatically, against torch: run op by op and compiled.

``python benchmarks/traces.py [--write] [--only NAME ...] [--part K/N] [--jobs N] [--seconds S] [--kernels]``. The graphs are those of
``benchmarks/graphs``, which ``aten.py`` reads. Inputs are random; every call of a round has inputs of its own, which together exceed the L2 cache; every
runner allocates its outputs with torch; taskfuse is given new ones (``out=``) for a graph without inputs. The results of such calls, in memory that was
poisoned before, are compared with torch in float64. Medians of 20 rounds, by CUDA events, all runners of a graph in one process and in turn. N processes
compile graphs with both, the largest first; one that finds no more to compile measures its own, alone on the GPU but for first calls of graphs that
others still compile, of which a median knows nothing. A graph that fails, or whose results differ, has a line that says so. Below the table stand, with
``--kernels``, the kernels of each graph in the order in which they run, each from the end of the one before to its own, by torch's profiler; and the
graphs that take more than three times the roofline of their fusion (as ``explain()`` computes it: one launch, no cuts), with what ``explain()`` says of it.
After S seconds nothing more is compiled, or measured: the table says which graphs are missing. What is found is printed to stderr as it comes, with the
seconds of its parts.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config
from aten import Graph, fusion, graphs, torch_function
from reporting import L2_BYTES, gpu_median, gpu_medians, parser, publish

import taskfuse as tf
from taskfuse.cuda.present import present
from taskfuse.errors import TaskfuseError
from taskfuse.schedulers.roofline import roofline
from taskfuse.schedulers.schedule import SANE, Sizes

sys.path.insert(0, str(Path(__file__).parents[1]))

ROUNDS = 20
MOST_SETS = 8
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 1e-2, torch.float16: 2e-3}
"""Of a result, relative to its greatest absolute value; other dtypes are exact."""
RANK = 8192
BUSY = 20_000_000
"""Cycles for which the GPU is kept busy while calls whose kernels are profiled are enqueued."""
COMPILING = 0.55
"""The part of the time for compiling."""


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


def results(run: Any, args: Sequence[Any], like: Sequence[Any]) -> Sequence[Any]:
    """The results of a call as it is timed; torch's allocator gives it poisoned memory, which is freed before."""
    made = tuple(map(poisoned, like))
    if not args:
        return run(out=made)
    del made
    return run(*args)


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


def told(error: Exception) -> str:
    """A line about an error, and where it was raised if it is not one of taskfuse's."""
    line = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    frames = traceback.extract_tb(error.__traceback__)
    return line if isinstance(error, TaskfuseError) or not frames else f"{line} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"


@dataclass
class Compiled:
    """A graph that both have compiled, and the seconds until the first result of each."""

    graph: Graph
    run: Any
    eager: Any
    fast: Any
    ours: float
    theirs: float


def compiled(graph: Graph) -> Compiled:
    """Compile for both, with one call each."""
    lap = Laps(f"{graph.name} compiled")
    args, eager = arguments(graph), torch_function(graph)
    lap("inputs")
    run = tf.compile(fusion(graph), backend="cuda")
    searched = lap("tf.compile")
    run(*args)
    ours = searched + lap("its first call")
    fast = torch.compile(eager, dynamic=False)
    fast(*args)
    theirs = lap("torch.compile and its first call")
    lap.tell()
    return Compiled(graph, run, eager, fast, ours, theirs)


class Laps:
    """Seconds of the parts of what is done with a graph, told to stderr: a run has a limit, and one should see what takes long."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._parts: list[str] = []
        self._last = time.perf_counter()

    def __call__(self, part: str) -> float:
        """The seconds since the part before."""
        torch.cuda.synchronize()
        now = time.perf_counter()
        taken, self._last = now - self._last, now
        self._parts.append(f"{part} {taken:.1f}")
        return taken

    def tell(self) -> None:
        """Print them."""
        print(f"  {self._name}, seconds: {', '.join(self._parts)}", file=sys.stderr, flush=True)


def reason(graph: Graph, run: Any, us: float) -> str | None:
    """A line about a graph that takes more than :data:`SANE` times its roofline: how many, and what ``explain()`` says of all of it."""
    whole = fusion(graph)
    bound = roofline(whole, Sizes(whole, {}, present()))
    if us <= SANE * bound:
        return None
    said = next((line for line in run.schedule.explain().splitlines() if "times the roofline of" in line or "times its roofline of" in line), None)
    if said is None or (len(run.kernels) > 1 and "times its roofline of" in said):  # of one kernel, not of the graph
        said = f"{run.schedule.us / bound:.1f} expected, in {len(run.kernels)} launch{'es' if len(run.kernels) > 1 else ''}"
    return f"  {graph.name:34} {us / bound:5.1f} times; {said}"


def by_kernel(run: Any, calls: Sequence[Callable[[], object]]) -> list[float] | None:
    """Median microseconds of each kernel of a run, from the end of the one before to its own; ``None`` if the profiler tells of other kernels than its."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        torch.cuda._sleep(BUSY)
        for _ in range(ROUNDS):
            for call in calls:
                call()
        torch.cuda.synchronize()
    results: Any = seen.profiler.kineto_results
    events = [e for e in results.events() if "CUDA" in str(e.device_type()) and not e.name().startswith("Mem") and "(" not in e.name()]  # of torch: C++ names
    count = len(run.kernels)
    if len(events) != count * len(calls) * ROUNDS:
        return None
    ends = sorted(e.start_ns() + e.duration_ns() for e in events)
    taken = [(b - a) * 1e-3 for a, b in itertools.pairwise(ends)]  # of all kernels but the first
    return [statistics.median(taken[(k - 1) % count :: count]) for k in range(count)]


def kernels_line(graph: Graph, run: Any, calls: Sequence[Callable[[], object]]) -> str:
    """A line of the table of kernels."""
    steps = getattr(run.schedule, "steps", None)
    schedules = [run.schedule] if steps is None else [step.schedule for step in steps]
    found = by_kernel(run, calls)
    if found is None:
        return f"  {graph.name:28} the profiler tells of other kernels"
    return f"  {graph.name:28}" + "".join(f" {us:.1f}/{s.us:.1f} {s.scheduler[:4]}" for us, s in zip(found, schedules, strict=True))


def measured(made: Compiled, bandwidth: float, rate: float, kernels: bool) -> Row:
    """Measure one graph."""
    graph, run, eager, fast = made.graph, made.run, made.eager, made.fast
    lap = Laps(f"{graph.name} measured")
    first = arguments(graph)
    wanted = eager(*first)
    size = sum(t.numel() * t.element_size() for t in (*first, *wanted))
    count = min(max(2, 2 * L2_BYTES // max(size, 1) + 1), MOST_SETS)
    sets = [first, *(arguments(graph) for _ in range(count - 1))]
    exact = torch_function(graph, exact=True)
    wrong = ""
    lap("inputs")
    for args in (sets[0], sets[-1]):
        found = results(run, args, wanted)
        lap("results")
        wrong = wrong or verdict(found, eager(*args), exact(*(a.double() if a.is_floating_point() else a for a in args)))
        torch.cuda.empty_cache()
        lap("float64")

    def call(args: Sequence[Any]) -> None:
        run(*args, out=None if args else tuple(t.new_empty(t.shape) for t in wanted))

    runs = [partial(call, args) for args in sets], [partial(eager, *args) for args in sets], [partial(fast, *args) for args in sets]
    ours, op_by_op, by_torch = gpu_medians(runs, ROUNDS)
    lap("times")
    parts = kernels_line(graph, run, runs[0]) if kernels else None
    lap("kernels")
    lap.tell()
    bound = max(1e6 * size / bandwidth, 1e6 * products(graph) / rate)
    expected = float(getattr(run.schedule, "us", math.nan))
    ops = len([n for n in graph.nodes if n.op])
    line = (
        f"  {graph.name:34} {ops:3} {len(run.kernels):3} {size / 1e6:8.1f} {ours:9.1f} {expected:9.1f} {bound:8.1f} {bound / ours:6.0%} "
        f"{op_by_op:9.1f} {by_torch:9.1f} {by_torch / ours:6.2f}{wrong}"
    )
    return Row(line, by_torch / ours, reason(graph, run, ours), parts)


@dataclass(frozen=True)
class Row:
    """What was found of a graph: its line; torch's time compiled over ours, if both were measured; a line about its roofline, if it is far from that; one
    about its kernels, if asked for."""

    line: str
    ratio: float | None = None
    far: str | None = None
    kernels: str | None = None


@dataclass(frozen=True)
class Limits:
    """When a process stops, by ``time.time``: compiling, and measuring."""

    compiling: float
    measuring: float


def work(names: Any, turn: Any, found: Any, rates: tuple[float, float], limits: Limits, kernels: bool) -> None:
    """One process: compiles graphs as long as there are some, then measures its own, one process at a time.

    Args:
        names: queue of graphs' names, ``None`` for each process at its end.
        turn: lock of the GPU.
        found: queue of names, rows, and seconds of first calls.
        rates: bytes and operations of a product, per second.
        kernels: whether kernels are measured one by one, too.
    """
    by_name = {g.name: g for g in graphs()}
    inductor: Any = torch._inductor.config
    inductor.compile_threads = 1  # else each of these processes starts one for each core
    mine: list[Compiled] = []
    lap = Laps(f"process {multiprocessing.current_process().name}")
    torch.zeros(1, device="cuda")
    lap("context")
    lap.tell()
    while (name := names.get()) is not None:
        if time.time() > limits.compiling:
            found.put((name, Row(f"  {name:34} not compiled in time"), None))
            continue
        torch.manual_seed(0)
        try:
            mine.append(compiled(by_name[name]))
        except Exception as error:
            found.put((name, Row(f"  {name:34} {told(error)}"), None))
        torch.cuda.empty_cache()
    for made in mine:
        if time.time() > limits.measuring:
            found.put((made.graph.name, Row(f"  {made.graph.name:34} not measured in time"), (made.ours, made.theirs)))
            continue
        with turn:
            try:
                row = measured(made, *rates, kernels)
            except (TaskfuseError, RuntimeError) as error:
                row = Row(f"  {made.graph.name:34} {told(error)}")
            torch.cuda.empty_cache()
        found.put((made.graph.name, row, (made.ours, made.theirs)))


def gpu_rates() -> tuple[float, float]:
    """Bytes per second of a copy, operations per second of a bfloat16 product."""
    pairs = [(torch.rand(1 << 28, device="cuda"), torch.empty(1 << 28, device="cuda")) for _ in range(2)]
    bandwidth = 2 * 4 * (1 << 28) / (gpu_median([lambda a=a, b=b: b.copy_(a) for a, b in pairs]) * 1e-6)
    square = torch.randn(RANK, RANK, device="cuda", dtype=torch.bfloat16)
    return bandwidth, 2 * RANK**3 / (gpu_median([lambda: square @ square], 10) * 1e-6)


def main() -> None:
    """Measure, print and, if asked, store."""
    options_parser = parser(__doc__)
    options_parser.add_argument("--only", nargs="*", default=[], help="graphs whose names hold one of these")
    options_parser.add_argument("--part", default="1/1", help="the k-th of n equal parts of the graphs, as k/n")
    options_parser.add_argument("--jobs", type=int, default=4, help="processes (default: 4)")
    options_parser.add_argument("--seconds", type=float, default=math.inf, help="when to stop (default: never)")
    options_parser.add_argument("--kernels", action="store_true", help="also the times of kernels")
    options = options_parser.parse_args()
    begun = time.time()
    part, parts = map(int, options.part.split("/"))
    chosen = [g.name for g in graphs() if not options.only or any(o in g.name for o in options.only)][part - 1 :: parts]
    bandwidth, rate = gpu_rates()
    torch.cuda.empty_cache()
    context = multiprocessing.get_context("spawn")
    names, found, turn = context.Queue(), context.Queue(), context.Lock()
    size = {g.name: len(g.nodes) for g in graphs()}
    for name in (*sorted(chosen, key=lambda name: -size[name]), *[None] * options.jobs):
        names.put(name)
    limits = Limits(begun + COMPILING * options.seconds, begun + options.seconds)
    processes = [context.Process(target=work, args=(names, turn, found, (bandwidth, rate), limits, options.kernels)) for _ in range(options.jobs)]
    for process in processes:
        process.start()
    rows: dict[str, Row] = {}
    seconds: list[tuple[float, float]] = []
    while len(rows) < len(chosen):
        name, row, taken = found.get()
        print(f"{time.time() - begun:5.0f} s {row.line}", file=sys.stderr, flush=True)
        rows[name] = row
        if taken is not None:
            seconds.append(taken)
    for process in processes:
        process.join()
    table = [
        f"a copy moves {bandwidth / 1e12:.2f} TB/s (read and written), a bfloat16 product does {rate / 1e12:.0f} TFLOP/s; times in microseconds",
        "n: ops, kernels; expected: by the cost models; bound: inputs and outputs, or products, at those rates; share: bound / time; x: torch compiled / ours",
        f"  {'graph':34} {'n':>3} {'k':>3} {'MB':>8} {'time':>9} {'expected':>9} {'bound':>8} {'share':>6} {'torch':>9} {'compiled':>9} {'x':>6}",
        *(rows[name].line for name in chosen),
    ]
    ratios = [row.ratio for row in rows.values() if row.ratio is not None]
    far = [row.far for name in chosen if (row := rows[name]).far is not None]
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        table += [
            "",
            f"{len(ratios)} of {len(chosen)} graphs: geometric mean {mean:.2f} x, least {min(ratios):.2f}, median {statistics.median(ratios):.2f}",
        ]
        ours, theirs = (statistics.median(s[k] for s in seconds) for k in (0, 1))
        table.append(f"first calls, {options.jobs} processes at once: median {ours:.1f} s, torch.compile {theirs:.1f} s; all {time.time() - begun:.0f} s")
    if options.kernels:
        table += ["", "kernels, in order: measured / expected, scheduler:", *(line for name in chosen if (line := rows[name].kernels) is not None)]
    if far:
        table += ["", f"more than {SANE:.0f} times the roofline:", *far]
    publish("traces", table, options)


if __name__ == "__main__":
    main()
